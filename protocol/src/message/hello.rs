//! The first message of a connection: version, namespace, session, credentials; and the welcome.

use crate::capabilities::Capabilities;
use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::SessionId;
use crate::limits::{CREDENTIALS_LEN_MAX, NAMESPACE_LEN_MAX, OWNER_LEN_MAX};
use crate::message::opcode;

/// Opcode of the welcome.
pub const WELCOME: u8 = opcode::HELLO | opcode::ANSWER;
/// The first bytes of the body of `HELLO`.
pub const MAGIC: [u8; 8] = *b"WAYMAKER";
/// Flag of `HELLO`: brings `attempt`.
pub const ATTEMPT: u16 = 1 << 0;
/// Flag of `HELLO`: send `TAKEN_UP`.
pub const NOTIFY_TAKEN_UP: u16 = 1 << 1;
/// Flag of `HELLO`: brings `capabilities`. Servers of version 1 refuse it.
pub const CAPABILITIES: u16 = 1 << 2;
/// Flag of `WELCOME`: the session lived already.
pub const RESUMED: u16 = 1 << 0;
/// Flag of `WELCOME`: brings `capabilities`. Sent only to a client whose `HELLO` had them.
pub const WELCOME_CAPABILITIES: u16 = 1 << 1;

/// What rules hold in a namespace. Fixed when it is first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[expect(missing_docs, reason = "described in docs/reference/wire.md")]
pub enum NamespaceKind {
    #[default]
    Flat,
    Tree,
    Registry,
    Lazy,
    Pool,
    Limit,
}

impl NamespaceKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Flat, Self::Tree, Self::Registry, Self::Lazy, Self::Pool, Self::Limit];

    /// The number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name used in messages.
    pub fn name(self) -> &'static str {
        ["flat", "tree", "registry", "lazy", "pool", "limit"][self as usize]
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Self, DecodeError> {
        let number = cursor.u8(field)?;
        let unknown = DecodeError::BadValue { field, value: u64::from(number) };
        Self::ALL.get(usize::from(number)).copied().ok_or(unknown)
    }
}

/// What the connection wants with sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SessionRequest {
    /// No session: what the connection sends hangs on the connection.
    #[default]
    None,
    /// A new session with a lease of `lease_ms` (0: the server's default).
    New {
        /// How long it lives after the last frame.
        lease_ms: u32,
    },
    /// Take the place of a connection of this session that was lost. The server closes the old one, if it still is,
    /// together with whatever it had not yet read from it, and answers repeated numbers as it did the first time.
    Resume {
        /// From the welcome.
        id: SessionId,
        /// From the welcome.
        lane: u16,
    },
    /// One more connection for this session, with request numbers of its own.
    Join {
        /// From the welcome.
        id: SessionId,
    },
}

/// Opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Hello<'a> {
    /// Oldest version the client speaks.
    pub version_min: u16,
    /// Newest version the client speaks.
    pub version_max: u16,
    /// Rules the client expects in the namespace.
    pub kind: NamespaceKind,
    /// With or without a session.
    pub session: SessionRequest,
    /// The worker that should serve this connection, or `ANY_WORKER`.
    pub worker: u16,
    /// 1 to 256 bytes.
    pub namespace: &'a [u8],
    /// Named in `busy` answers; may be empty.
    pub owner: &'a [u8],
    /// Kept for authentication; may be empty.
    pub credentials: &'a [u8],
    /// Rises with each attempt to take up a lane. One that resumes is refused where the same attempt, or a later one, has
    /// taken up the lane already: it was given up and comes late.
    pub attempt: Option<u32>,
    /// Send `TAKEN_UP` where a repeated request id takes up a hold of this connection.
    pub notify_taken_up: bool,
    /// Capabilities that the client understands. `None` in the `HELLO` of version 1, which every server accepts.
    pub capabilities: Option<Capabilities>,
}

impl<'a> Hello<'a> {
    /// The hello in this frame. The magic is judged first: whatever else speaks here by mistake learns so.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(frame);
        if frame.opcode() != opcode::HELLO
            || cursor.array("magic").map_err(|_| DecodeError::BadMagic)? != MAGIC
        {
            return Err(DecodeError::BadMagic);
        }
        let flags = frame.checked_flags(ATTEMPT | NOTIFY_TAKEN_UP | CAPABILITIES)?;
        let version_min = cursor.u16("version_min")?;
        let version_max = cursor.u16("version_max")?;
        let kind = NamespaceKind::decode(&mut cursor, "kind")?;
        let session_mode = cursor.u8("session_mode")?;
        let worker = cursor.u16("worker")?;
        let lease_ms = cursor.u32("session_lease_ms")?;
        let id = cursor.id("session_id", SessionId::from_bytes)?;
        let lane = cursor.u16("lane")?;
        let session = match session_mode {
            0 => SessionRequest::None,
            1 => SessionRequest::New { lease_ms },
            2 => SessionRequest::Resume { id, lane },
            3 => SessionRequest::Join { id },
            other => return Err(DecodeError::BadValue { field: "session_mode", value: u64::from(other) }),
        };
        let namespace = cursor.non_empty_string("namespace", NAMESPACE_LEN_MAX)?;
        let owner = cursor.string("owner", OWNER_LEN_MAX)?;
        let credentials = cursor.string("credentials", CREDENTIALS_LEN_MAX)?;
        let attempt = (flags & ATTEMPT != 0).then(|| cursor.u32("attempt")).transpose()?;
        let capabilities = (flags & CAPABILITIES != 0).then(|| cursor.u64("capabilities")).transpose()?;
        cursor.finish()?;
        Ok(Self {
            version_min,
            version_max,
            kind,
            session,
            worker,
            namespace,
            owner,
            credentials,
            attempt,
            notify_taken_up: flags & NOTIFY_TAKEN_UP != 0,
            capabilities: capabilities.map(Capabilities::from_bits),
        })
    }

    /// Appends the hello as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let (session_mode, lease_ms, id, lane) = match self.session {
            SessionRequest::None => (0, 0, SessionId::default(), 0),
            SessionRequest::New { lease_ms } => (1, lease_ms, SessionId::default(), 0),
            SessionRequest::Resume { id, lane } => (2, 0, id, lane),
            SessionRequest::Join { id } => (3, 0, id, 0),
        };
        let flags = if self.attempt.is_some() { ATTEMPT } else { 0 }
            | if self.notify_taken_up { NOTIFY_TAKEN_UP } else { 0 }
            | if self.capabilities.is_some() { CAPABILITIES } else { 0 };
        put_frame(out, opcode::HELLO, flags, number, |out| {
            out.extend_from_slice(&MAGIC);
            out.extend_from_slice(&self.version_min.to_le_bytes());
            out.extend_from_slice(&self.version_max.to_le_bytes());
            out.push(self.kind.number());
            out.push(session_mode);
            out.extend_from_slice(&self.worker.to_le_bytes());
            out.extend_from_slice(&u32::to_le_bytes(lease_ms));
            out.extend_from_slice(&id.to_bytes());
            out.extend_from_slice(&u16::to_le_bytes(lane));
            for string in [self.namespace, self.owner, self.credentials] {
                put_string(out, string);
            }
            if let Some(attempt) = self.attempt {
                out.extend_from_slice(&attempt.to_le_bytes());
            }
            if let Some(capabilities) = self.capabilities {
                out.extend_from_slice(&capabilities.bits().to_le_bytes());
            }
        });
    }
}

/// The connection is open.
///
/// The slot map of one server is regular, so it is three numbers: slot `s` lies in shard `s % shard_count`, and the
/// home worker of shard `h` is `h % worker_count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Welcome {
    /// The version both sides speak from here on.
    pub version: u16,
    /// The worker that serves this connection.
    pub worker: u16,
    /// How many workers there are.
    pub worker_count: u16,
    /// How many shards there are, a power of two.
    pub shard_count: u16,
    /// Rises whenever the slot map changes.
    pub slot_map_version: u32,
    /// The session; zero without one.
    pub session_id: SessionId,
    /// Which connection of the session this is.
    pub lane: u16,
    /// How long the session lives after its last frame; 0 without one.
    pub session_lease_ms: u32,
    /// The server's boot-time clock when this was decided.
    pub stamp_ms: u64,
    /// Another number for each start of a server.
    pub server_id: u64,
    /// The lease that a `lease_ms` of 0 asks for.
    pub lease_default_ms: u32,
    /// The shortest lease.
    pub lease_min_ms: u32,
    /// The longest lease; what is above is clamped.
    pub lease_max_ms: u32,
    /// Most requests that may be unanswered.
    pub in_flight_max: u32,
    /// Longest frame in bytes.
    pub frame_len_max: u32,
    /// The session lived already.
    pub resumed: bool,
    /// Capabilities that the server offers. `None` from servers of version 1, and if `HELLO` had none.
    pub capabilities: Option<Capabilities>,
}

impl Welcome {
    /// The welcome in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(RESUMED | WELCOME_CAPABILITIES)?;
        let mut cursor = Cursor::new(frame);
        let welcome = Self {
            version: cursor.u16("version")?,
            worker: cursor.u16("worker")?,
            worker_count: cursor.u16("worker_count")?,
            shard_count: cursor.u16("shard_count")?,
            slot_map_version: cursor.u32("slot_map_version")?,
            session_id: cursor.id("session_id", SessionId::from_bytes)?,
            lane: cursor.u16("lane")?,
            session_lease_ms: cursor.u32("session_lease_ms")?,
            stamp_ms: cursor.u64("stamp_ms")?,
            server_id: cursor.u64("server_id")?,
            lease_default_ms: cursor.u32("lease_default_ms")?,
            lease_min_ms: cursor.u32("lease_min_ms")?,
            lease_max_ms: cursor.u32("lease_max_ms")?,
            in_flight_max: cursor.u32("in_flight_max")?,
            frame_len_max: cursor.u32("frame_len_max")?,
            resumed: flags & RESUMED != 0,
            capabilities: (flags & WELCOME_CAPABILITIES != 0)
                .then(|| cursor.u64("capabilities").map(Capabilities::from_bits))
                .transpose()?,
        };
        cursor.finish()?;
        Ok(welcome)
    }

    /// Appends the welcome as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.resumed { RESUMED } else { 0 }
            | if self.capabilities.is_some() { WELCOME_CAPABILITIES } else { 0 };
        put_frame(out, WELCOME, flags, number, |out| {
            for value in [self.version, self.worker, self.worker_count, self.shard_count] {
                out.extend_from_slice(&value.to_le_bytes());
            }
            out.extend_from_slice(&self.slot_map_version.to_le_bytes());
            out.extend_from_slice(&self.session_id.to_bytes());
            out.extend_from_slice(&self.lane.to_le_bytes());
            out.extend_from_slice(&self.session_lease_ms.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
            out.extend_from_slice(&self.server_id.to_le_bytes());
            let limits = [
                self.lease_default_ms,
                self.lease_min_ms,
                self.lease_max_ms,
                self.in_flight_max,
                self.frame_len_max,
            ];
            for value in limits {
                out.extend_from_slice(&value.to_le_bytes());
            }
            if let Some(capabilities) = self.capabilities {
                out.extend_from_slice(&capabilities.bits().to_le_bytes());
            }
        });
    }
}
