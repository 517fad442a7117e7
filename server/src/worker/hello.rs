//! The beginning of a connection: its version, namespace and session, and the worker that serves it.

use super::acts::caller;
use super::expectation::Expectation;
use super::hello_refusal::HelloRefusal;
use super::lane::{Identification, Stage};
use super::outbox::mark_dirty;
use super::sessions::Sessions;
use super::window::Window;
use super::{Budget, Next, State};
use crate::access::{LoginRefusal, NotIdentified};
use crate::limits::LANES_PER_SESSION_MAX;
use crate::mail::{ConnectionKey, LaneChange};
use crate::memory;
use crate::namespaces::{DYNAMODB_TABLES, NamespaceRefusal, NamespaceUse};
use crate::node::Node;
use crate::worker::sessions::SessionSlot;
use std::sync::{Arc, PoisonError};
use waymaker_engine::{Access, Accounts, Resource, Rights};
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_BEFORE_HELLO_MAX, FRAME_LEN_MAX, IN_FLIGHT_MAX};
use waymaker_protocol::{
    Capabilities, ErrorCode, Frame, Hello, Readable, SessionId, SessionRequest, VERSION, VERSION_MIN,
    Welcome, next_frame,
};

/// A lane that a connection resumes, with the namespace and the rights of the connection.
struct Resumption {
    namespace: NamespaceUse,
    access: Option<Arc<Access>>,
    session: SessionSlot,
    number: u16,
}

impl State {
    /// Serves the first frame, which must be `HELLO`. Frames after it are served once it is accepted.
    pub(super) fn receive_hello(
        &mut self,
        node: &Node,
        budget: &mut dyn Budget,
        key: ConnectionKey,
        bytes: &[u8],
    ) -> Next {
        let Some(lane) = self.lanes.of(key) else { return Next::Continue };
        let mut input = std::mem::take(&mut lane.input);
        input.extend_from_slice(bytes);
        let frame = match next_frame(&input, FRAME_LEN_BEFORE_HELLO_MAX) {
            Ok(None) => {
                self.set_aside_whole(key, input);
                return Next::Continue;
            }
            Ok(Some(frame)) => frame,
            Err(error) => {
                // The first bytes of another protocol, read as the length of a frame, are usually a huge number. So the
                // message names the protocol.
                let limit = FRAME_LEN_BEFORE_HELLO_MAX as u64;
                let message =
                    format!("{error} before HELLO; the client may not speak the Waymaker binary protocol");
                self.refuse_connection(key, 0, ErrorCode::BadInput, limit, "length", &message);
                return Next::Continue;
            }
        };
        let number = frame.number();
        match self.say_hello(node, key, frame) {
            Ok(Next::Move(worker)) => {
                self.set_aside_whole(key, input);
                Next::Move(worker)
            }
            Ok(next) => {
                let key = if let Next::Rebound(key) = next { key } else { key };
                if let Some(lane) = self.lanes.of(key) {
                    lane.expectation = Expectation::Nothing;
                }
                let len = frame.len();
                if input.len() > len {
                    self.receive(node, budget, key, &input[len..]);
                }
                next
            }
            Err(HelloRefusal { code, limit, field, message, denied_namespace }) => {
                if let Some(lane) = self.lanes.of(key) {
                    lane.counted = None;
                }
                self.refuse_connection(key, number, code, limit, field, &message);
                if let Some(namespace) = denied_namespace {
                    self.followed.acts.complete_newest(Some(namespace), None);
                }
                Next::Continue
            }
        }
    }

    fn say_hello(&mut self, node: &Node, key: ConnectionKey, frame: Frame<'_>) -> Result<Next, HelloRefusal> {
        let hello = Hello::decode(frame)
            .map_err(|error| HelloRefusal::bad_input(error.field(), error.limit(), error.to_string()))?;
        let version = common_version(&hello)?;
        // A stopping server refuses only new sessions: clients that resume or join a session may still renew and
        // release their claims.
        let begins_session = matches!(hello.session, SessionRequest::New { .. });
        if self.finishing || node.is_stopping() && begins_session {
            return Err(HelloRefusal::new(ErrorCode::Shutdown, 0, "", "the server is stopping"));
        }
        let is_reserved = self.lanes.of(key).is_some_and(|lane| lane.is_reserved);
        if begins_session
            && !is_reserved
            && let Some(limit) = node.memory.full()
        {
            let message = memory::refusal(limit);
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            return Err(HelloRefusal::overloaded(memory::LIMIT_NAME, limit, message));
        }
        if let Some(worker) = self.elsewhere(node, key, &hello)? {
            return Ok(Next::Move(worker));
        }
        let is_client = self.lanes.of(key).is_some_and(|lane| lane.client.evidence.is_some());
        if is_client && hello.namespace == DYNAMODB_TABLES.as_bytes() {
            let message = "the server itself uses this namespace";
            return Err(HelloRefusal::bad_input("namespace", 0, message));
        }
        let access = self.identify(node, key, &hello)?;
        let namespace = open_namespace(node, &hello, access.as_deref())?;
        let joined = self.join_session(node, key, namespace, access, &hello);
        settle_namespace(node, &hello, joined.is_err());
        let (key, lane_number, resumed) = joined?;
        // A client of version 1 rejects the flag that announces capabilities. So the server announces its capabilities
        // only to a client that sent its own.
        let capabilities = hello.capabilities.map(|_| offered_capabilities(node));
        let welcome = Welcome { version, lane: lane_number, resumed, capabilities, ..Welcome::default() };
        self.welcome(node, key, frame.number(), welcome);
        Ok(if resumed { Next::Rebound(key) } else { Next::Continue })
    }

    /// Returns the worker that should serve this connection, if it is another one. Returns `None` if the connection was
    /// already moved once.
    fn elsewhere(
        &mut self,
        node: &Node,
        key: ConnectionKey,
        hello: &Hello<'_>,
    ) -> Result<Option<u16>, HelloRefusal> {
        let worker_count = node.worker_count() as u16;
        let worker = match hello.session {
            // An earlier server with more workers may have assigned the session id, so its worker may not exist here.
            SessionRequest::Resume { id, .. } | SessionRequest::Join { id } => {
                Some(Sessions::worker_of(id) % worker_count)
            }
            _ if hello.worker == ANY_WORKER => None,
            _ if hello.worker >= worker_count => {
                let message = format!(
                    "the worker number is too high; the server has {worker_count} workers, numbered from 0"
                );
                return Err(HelloRefusal::bad_input("worker", u64::from(worker_count) - 1, message));
            }
            _ => Some(hello.worker),
        };
        let moved = self.lanes.of(key).is_some_and(|lane| lane.moved);
        Ok(worker.filter(|worker| *worker != self.index && !moved))
    }

    /// Identifies the client, unless its identity is known, and returns its rights in the namespace. `None`: all
    /// rights. Also counts the connection for the quotas of a client that was identified here.
    fn identify(
        &mut self,
        node: &Node,
        key: ConnectionKey,
        hello: &Hello<'_>,
    ) -> Result<Option<Arc<Access>>, HelloRefusal> {
        let Some(lane) = self.lanes.of(key) else { return Ok(None) };
        let policy = node.access.policy();
        let now_unix_s = node.unix_seconds();
        let is_new = matches!(lane.client.identification, Identification::Unidentified);
        match &lane.client.identification {
            Identification::Unidentified => {
                let evidence = lane.client.evidence.clone().unwrap_or_default();
                let identity =
                    node.access.identify(&evidence, hello.credentials, node.clock.now(), now_unix_s);
                match identity {
                    Ok(identity) => lane.client.identification = Identification::Identified(identity),
                    Err(refusal) => {
                        if let NotIdentified::Unauthenticated { pause: Some(pause), .. } = refusal {
                            self.followed.acts.note(pause.event(caller(lane)));
                        }
                        return Err(HelloRefusal::not_identified(refusal));
                    }
                }
            }
            Identification::Identified(Some(identity)) if !policy.is_current(identity, now_unix_s) => {
                return Err(HelloRefusal::unauthenticated(LoginRefusal::Expired));
            }
            Identification::Identified(_) => {}
        }
        let evidence = lane.client.evidence.as_deref();
        let access = node.access.access(&policy, lane.identity(), evidence, hello.namespace, hello.kind);
        if let Some(access) = &access {
            if access.somewhere() == Rights::NONE {
                return Err(HelloRefusal::no_rights(access, hello.namespace));
            }
            // Count the connection for the client's quota if `HELLO` identified the client. A front end identifies its
            // clients itself and counts its connections itself, because each has several lanes. `resume` counts a
            // connection that resumes a lane.
            if is_new && !matches!(hello.session, SessionRequest::Resume { .. }) {
                let counted = access.accounts().count_connection(now_unix_s);
                lane.counted = Some(counted.map_err(HelloRefusal::quota_reached)?);
            }
        }
        Ok(access)
    }

    /// Opens, joins or resumes the session, if `HELLO` requests one, and sets up the lane. Returns the key of the
    /// connection from now on, the number of its lane in the session, and whether it took over an existing lane.
    fn join_session(
        &mut self,
        node: &Node,
        key: ConnectionKey,
        namespace: NamespaceUse,
        access: Option<Arc<Access>>,
        hello: &Hello<'_>,
    ) -> Result<(ConnectionKey, u16, bool), HelloRefusal> {
        let slot = key.slot;
        let identity = access.as_ref().map(|access| Arc::clone(access.identity()));
        let (session, number) = match hello.session {
            SessionRequest::None => (None, 0),
            SessionRequest::New { lease_ms } => {
                let accounts = accounts_of(access.as_deref());
                let session = self
                    .sessions
                    .open(lease_ms, identity, accounts, slot, self.now)
                    .map_err(|refusal| HelloRefusal::no_session(refusal, node.set.sessions as usize))?;
                (Some(session), 0)
            }
            SessionRequest::Join { id } => {
                let session = self.find_session(id, access.as_deref())?;
                let number = self.sessions.join(session, slot).ok_or_else(|| {
                    let message = format!("the session has {LANES_PER_SESSION_MAX} connections, the maximum");
                    HelloRefusal::overloaded("connections per session", LANES_PER_SESSION_MAX, message)
                })?;
                self.sessions.note_connected(session);
                (Some(session), number)
            }
            SessionRequest::Resume { id, lane } => {
                let session = self.find_session(id, access.as_deref())?;
                let resumption = Resumption { namespace, access, session, number: lane };
                let key = self.resume(node, key, resumption, hello)?;
                return Ok((key, lane, true));
            }
        };
        let session_end = session.map(|session| self.sessions.renew(session, self.now));
        let session_tag = session.and_then(|session| self.sessions.tag(session, number));
        let answers = session.and_then(|session| Some(self.sessions.get(session)?.answers.clone()));
        let lane = &mut self.lanes[slot];
        lane.stage = Stage::Open;
        lane.namespace = namespace.number();
        lane.namespace_use = Some(namespace);
        lane.kind = hello.kind;
        lane.acquires = Some(self.metrics.acquires_of(hello.namespace, hello.kind, lane.client.front_end));
        lane.set_access(access, node.traces.is_on());
        lane.notify_taken_up = hello.notify_taken_up;
        lane.answers_ping = answers_ping(hello);
        lane.namespace_shard = node.shard_of_key(hello.namespace);
        lane.session = session;
        lane.number = number;
        if let Some(session_end) = session_end {
            lane.session_end = session_end;
            lane.session_tag = session_tag;
            lane.window = Some(Box::new(Window::new(answers.unwrap_or_default())));
        }
        if !hello.owner.is_empty() {
            lane.owner = Arc::from(hello.owner);
        }
        Ok((key, number, false))
    }

    /// Finds the session with this id. A client with an identity finds only the sessions of this identity, and restored
    /// sessions that have none. A client without an identity, which has all rights, finds every session.
    fn find_session(&self, id: SessionId, access: Option<&Access>) -> Result<SessionSlot, HelloRefusal> {
        let session = self.sessions.find(id).ok_or_else(HelloRefusal::session_gone)?;
        let own = self.sessions.get(session).and_then(|session| session.identity.as_ref());
        let may_take = access.is_none_or(|access| match own {
            Some(own) => own == access.identity(),
            None => self.sessions.is_restored(session),
        });
        if may_take { Ok(session) } else { Err(HelloRefusal::session_gone()) }
    }

    /// Gives a lane of a session to a new connection. The old connection ends together with its unserved input, and
    /// its key becomes invalid.
    fn resume(
        &mut self,
        node: &Node,
        key: ConnectionKey,
        resumption: Resumption,
        hello: &Hello<'_>,
    ) -> Result<ConnectionKey, HelloRefusal> {
        let Resumption { namespace, access, session, number } = resumption;
        let attempt = hello.attempt;
        self.fill_restored(node, session, number);
        let lanes = self.sessions.get(session).map(|session| session.lanes.clone()).unwrap_or_default();
        let Some(slot) = lanes.get(&number).copied() else {
            let message = format!("the session has {} connections, but none with this number", lanes.len());
            let last = lanes.last_key_value().map_or(0, |(number, _)| *number);
            return Err(HelloRefusal::bad_input("lane", last.into(), message));
        };
        self.introduce_restored(node, key, slot, &namespace, hello);
        if self.lanes[slot].namespace != namespace.number() {
            let message = "the connection to resume uses another namespace";
            return Err(HelloRefusal::bad_input("namespace", 0, message));
        }
        if let (Some(attempt), Some(last)) = (attempt, self.lanes[slot].attempt)
            && attempt <= last
        {
            let message = "a later attempt has resumed this connection";
            return Err(HelloRefusal::new(ErrorCode::Cancelled, u64::from(last), "attempt", message));
        }
        let accounts = accounts_of(access.as_deref());
        // If the lane still counts its old connection for the quota of this client, the new connection takes over that
        // count. So a client that lost its connection can resume even if its quota is reached.
        let counted = match self.lanes[slot].counted.take_if(|counted| counted.is_in(accounts)) {
            None if !accounts.is_empty() => {
                Some(accounts.count(Resource::Connections).map_err(HelloRefusal::quota_reached)?)
            }
            counted => counted,
        };
        let old = self.lanes[slot].key();
        if old.epoch != 0 {
            self.cut_off(node, old);
        }
        let client = std::mem::take(&mut self.lanes[key.slot].client);
        self.lanes.free(key.slot);
        let epoch = self.lanes.new_epoch();
        let session_end = self.sessions.renew(session, self.now);
        self.sessions.note_connected(session);
        let lane = &mut self.lanes[slot];
        lane.session_end = session_end;
        lane.acquires = Some(self.metrics.acquires_of(hello.namespace, hello.kind, client.front_end));
        lane.client = client;
        lane.counted = counted;
        let (address, known_to) = (lane.address, lane.known_to.clone());
        self.change_access(node, slot, access);
        // `change_lane` takes turns of shards, and each turn delivers events that other workers have posted for the
        // lane. So the lane gets its new connection only afterwards: these events are then dropped instead of written
        // before the welcome.
        self.change_lane(node, address, &known_to, &LaneChange::Attached);
        let lane = &mut self.lanes[slot];
        lane.epoch = epoch;
        lane.stage = Stage::Open;
        lane.dirty = false;
        lane.attempt = attempt.or(lane.attempt);
        lane.notify_taken_up = hello.notify_taken_up;
        lane.answers_ping = answers_ping(hello);
        lane.input = Vec::new();
        lane.clear_output();
        Ok(ConnectionKey { slot, epoch })
    }

    /// Fills in the fields that depend on the server and the session, and sends the welcome.
    fn welcome(&mut self, node: &Node, key: ConnectionKey, number: u32, welcome: Welcome) {
        let session = self.lanes[key.slot].session;
        let session_lease_ms =
            session.and_then(|session| self.sessions.get(session)).map_or(0, |session| session.lease_ms);
        let lease_default_ms =
            self.lanes[key.slot].namespace_use.as_ref().and_then(NamespaceUse::lease_default_ms);
        let welcome = Welcome {
            worker: self.index,
            worker_count: node.worker_count() as u16,
            shard_count: node.shards.len() as u16,
            slot_map_version: 1,
            session_id: session.map_or_else(SessionId::default, |session| self.sessions.id(session)),
            session_lease_ms,
            stamp_ms: self.now.as_millis(),
            server_id: node.server_id,
            lease_default_ms: lease_default_ms.unwrap_or(node.limits.lease_default_ms),
            lease_min_ms: node.limits.lease_min_ms,
            lease_max_ms: node.limits.lease_max_ms,
            in_flight_max: IN_FLIGHT_MAX,
            frame_len_max: FRAME_LEN_MAX as u32,
            ..welcome
        };
        let lane = &mut self.lanes[key.slot];
        welcome.encode(number, &mut lane.output);
        mark_dirty(lane, &mut self.dirty);
    }
}

/// Returns the newest version that the client and this server both support.
fn common_version(hello: &Hello<'_>) -> Result<u16, HelloRefusal> {
    let (min, max) = (hello.version_min, hello.version_max);
    let version = max.min(VERSION);
    if version < min.max(VERSION_MIN) {
        let message = format!(
            "the client supports protocol versions {min} to {max}, but this server supports {VERSION_MIN} to {VERSION}"
        );
        return Err(HelloRefusal::bad_input("version", u64::from(VERSION), message));
    }
    Ok(version)
}

/// Returns the optional parts of the protocol that this server offers. The scopes depend on the configuration. Every
/// server of this version offers the other parts.
fn offered_capabilities(node: &Node) -> Capabilities {
    let offered = |is_offered, capability| if is_offered { capability } else { Capabilities::NONE };
    Capabilities::LIST_POOLS
        .union(Capabilities::OWN_CLAIM)
        .union(Capabilities::PING)
        .union(Capabilities::REMOVE_NAMESPACE)
        .union(Capabilities::SERVER_STATUS)
        .union(Capabilities::REASON)
        .union(Capabilities::LIST_WAITING)
        .union(Capabilities::TRACEPARENT)
        .union(offered(node.log.is_some(), Capabilities::SCOPE_LOCAL))
        .union(offered(node.quorum.is_some(), Capabilities::SCOPE_QUORUM))
}

/// Returns whether the client announced that it answers `PING`.
fn answers_ping(hello: &Hello<'_>) -> bool {
    hello.capabilities.is_some_and(|said| said.contains(Capabilities::PING))
}

/// Returns the accounts that count the quotas of a client with this access. Without an access, returns no account.
fn accounts_of(access: Option<&Access>) -> &Accounts {
    access.map_or(&Accounts::NONE, Access::accounts)
}

fn open_namespace(
    node: &Node,
    hello: &Hello<'_>,
    access: Option<&Access>,
) -> Result<NamespaceUse, HelloRefusal> {
    let accounts = accounts_of(access);
    let mut namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
    let opened =
        namespaces.open(hello.namespace, hello.kind, accounts, |change| node.record_namespace(change));
    opened.map_err(|refusal| match refusal {
        NamespaceRefusal::OtherKind(kind) => {
            let name = Readable(hello.namespace);
            let message = format!("the namespace {name} has kind {}, not {}", kind.name(), hello.kind.name());
            HelloRefusal::bad_input("kind", 0, message)
        }
        NamespaceRefusal::TooMany => {
            let count_max = node.set.namespaces as usize;
            let message = format!("the server has {count_max} namespaces, the maximum");
            HelloRefusal::overloaded("namespaces", count_max, message)
        }
        NamespaceRefusal::Quota(reached) => HelloRefusal::quota_reached(reached),
    })
}

/// Keeps or drops a namespace after `HELLO`. A refused `HELLO` leaves no new namespace. Otherwise a new namespace is
/// recorded while the namespaces are locked, so its record precedes all records of its content.
fn settle_namespace(node: &Node, hello: &Hello<'_>, is_refused: bool) {
    let mut namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
    namespaces.settle(hello.namespace, is_refused, |change| node.record_namespace(change));
}
