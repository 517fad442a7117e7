//! The first message of a connection, with version, namespace, session and credentials, and its response.

use crate::capabilities::Capabilities;
use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::SessionId;
use crate::limits::{CREDENTIALS_LEN_MAX, NAMESPACE_LEN_MAX, OWNER_LEN_MAX};
use crate::message::opcode;

/// Opcode of the response to `HELLO`.
pub const WELCOME: u8 = opcode::HELLO | opcode::ANSWER;
/// The first bytes of the body of `HELLO`.
pub const MAGIC: [u8; 8] = *b"WAYMAKER";
/// Flag of `HELLO`: adds `attempt`.
pub const ATTEMPT: u16 = 1 << 0;
/// Flag of `HELLO`: request the event `TAKEN_UP`.
pub const NOTIFY_TAKEN_UP: u16 = 1 << 1;
/// Flag of `HELLO`: the frame has the field `capabilities`. Servers that speak only version 1 refuse this flag.
pub const CAPABILITIES: u16 = 1 << 2;
/// Flag of `WELCOME`: the connection took over a lane of an existing session.
pub const RESUMED: u16 = 1 << 0;
/// Flag of `WELCOME`: the frame has the field `capabilities`. The server sends the field only if `HELLO` had it.
pub const WELCOME_CAPABILITIES: u16 = 1 << 1;

/// Kind of a namespace: what it contains, and which requests it serves. The first accepted `HELLO` for a namespace
/// fixes its kind, unless the server or its configuration defines the namespace.
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

    /// Returns the number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the name used in messages.
    pub fn name(self) -> &'static str {
        ["flat", "tree", "registry", "lazy", "pool", "limit"][self as usize]
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Self, DecodeError> {
        let number = cursor.u8(field)?;
        let unknown = DecodeError::BadValue { field, value: u64::from(number) };
        Self::ALL.get(usize::from(number)).copied().ok_or(unknown)
    }
}

/// The session that a connection requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SessionRequest {
    /// No session: claims belong to the connection.
    #[default]
    None,
    /// A new session.
    New {
        /// Lease of the session after its last frame, in milliseconds; 0 is the server's default.
        lease_ms: u32,
    },
    /// Takes over the lane of a lost connection of a session. The server closes the old connection if it is still open,
    /// and discards its unread input. If a request has a number that was already answered on this lane, the server
    /// sends the first response again, if it still keeps that response.
    Resume {
        /// Session id from the welcome.
        id: SessionId,
        /// Lane from the welcome.
        lane: u16,
    },
    /// Adds a connection with its own request numbers to a session.
    Join {
        /// Session id from the welcome.
        id: SessionId,
    },
}

/// Opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Hello<'a> {
    /// Oldest version that the client speaks.
    pub version_min: u16,
    /// Newest version that the client speaks.
    pub version_max: u16,
    /// Kind that the client expects of the namespace.
    pub kind: NamespaceKind,
    /// Session of the connection.
    pub session: SessionRequest,
    /// Preferred worker for this connection, or `ANY_WORKER`.
    pub worker: u16,
    /// Name of the namespace, 1 to 256 bytes long.
    pub namespace: &'a [u8],
    /// Owner of the connection's claims, which `busy` responses show to other clients; may be empty.
    pub owner: &'a [u8],
    /// Credentials for authentication; may be empty.
    pub credentials: &'a [u8],
    /// Number of this attempt to resume a lane; the client raises it with each attempt. The server refuses an attempt
    /// if it has already accepted the same or a later one, because the client has then abandoned this one.
    pub attempt: Option<u32>,
    /// Whether the server sends `TAKEN_UP` if a repeated request id takes over a hold of this connection.
    pub notify_taken_up: bool,
    /// Capabilities that the client understands. With `None`, the `HELLO` has the layout of version 1, which every
    /// server accepts.
    pub capabilities: Option<Capabilities>,
}

impl<'a> Hello<'a> {
    /// Parses the hello from this frame. Checks the magic first, so that a peer with another protocol gets a clear
    /// error.
    ///
    /// # Errors
    /// Returns [`DecodeError::BadMagic`] if the opcode or the magic is wrong, and another [`DecodeError`] if the body
    /// is malformed.
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

/// Response to a hello: the connection is open.
///
/// `shard_count` and `worker_count` describe the slot map of the server. The hash of a key selects its slot. Slot `s`
/// is in shard `s % shard_count`, and the home worker of shard `h` is `h % worker_count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Welcome {
    /// Version that both peers use from now on.
    pub version: u16,
    /// Worker that serves this connection.
    pub worker: u16,
    /// Number of workers.
    pub worker_count: u16,
    /// Number of shards, a power of two.
    pub shard_count: u16,
    /// Version of the slot map, the assignment of slots to shards. The version rises with each change of the map.
    pub slot_map_version: u32,
    /// Id of the session; zero without a session.
    pub session_id: SessionId,
    /// Number of this connection in the session.
    pub lane: u16,
    /// Lease of the session after its last frame, in milliseconds; 0 without a session.
    pub session_lease_ms: u32,
    /// Time when the server determined the content of this message, in milliseconds of its boot-time clock.
    pub stamp_ms: u64,
    /// Number that differs for each start of a server.
    pub server_id: u64,
    /// Lease granted for an acquire or extend with a `lease_ms` of 0, in milliseconds.
    pub lease_default_ms: u32,
    /// Shortest lease that an acquire may request, in milliseconds.
    pub lease_min_ms: u32,
    /// Longest lease of an acquire, in milliseconds. If an acquire requests more, the server grants this lease.
    pub lease_max_ms: u32,
    /// Maximum number of unanswered requests of the connection, without acquires that wait in a queue.
    pub in_flight_max: u32,
    /// Maximum length of a frame in bytes.
    pub frame_len_max: u32,
    /// Whether the connection took over a lane of an existing session.
    pub resumed: bool,
    /// Capabilities that the server offers. `None` from servers that speak only version 1, and if `HELLO` had none.
    pub capabilities: Option<Capabilities>,
}

impl Welcome {
    /// Parses the welcome from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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
