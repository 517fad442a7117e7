//! Clients with identities: each has the rights and the quotas of its identity, and also tries what these do
//! not allow. They use a namespace of their own.

use crate::auditor::Times;
use crate::event::Event;
use crate::identities::{
    CLOSED_NAMESPACE, Identities, TENANT_KEYS, TENANT_NAMESPACE, TenantIdentity, UNUSED_KEY,
};
use crate::identities::{FIRST_TENANT, TENANTS};
use crate::network::ReadResult;
use crate::operation::scope_number;
use crate::random::Random;
use crate::tenant_request::{SHARED_OWNER, TenantRequest};
use crate::world::World;
use std::collections::BTreeMap;
use waymaker_engine::Scope;
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::{
    Acquire, AcquireOptions, AcquireTerms, ErrorAnswer, ErrorCode, Extend, ForceRelease, Freeze, Goodbye,
    Hello, Inspect, List, LockId, NamespaceKind, Namespaces, Release, RemoveNamespace, Request, Response,
    SessionId, SessionRequest, Status, VERSION, VERSION_MIN, Verify, next_frame,
};

/// Time for which a tenant waits for its responses.
const PATIENCE_US: u64 = 3_000_000;
/// Number of holds and sessions that tenants remember.
const REMEMBERED_COUNT_MAX: usize = 24;

/// A request without a response.
#[derive(Clone, Debug)]
struct Pending {
    request: TenantRequest,
    /// Times at which the HELLO of its first connection and the request were sent. The server may have decided
    /// the response since then, and repeats it after a resume.
    opened_ms: u64,
    sent_ms: u64,
    /// The frame, which is sent again after the session was resumed.
    bytes: Vec<u8>,
}

/// All tenants of a run.
#[derive(Debug)]
pub(crate) struct Tenants {
    tenants: Vec<Tenant>,
    shared: Shared,
}

/// State that all tenants share.
#[derive(Debug)]
struct Shared {
    random: Random,
    identities: Identities,
    /// Ids of holds, each with the identity that was granted it.
    ids: Vec<(LockId, TenantIdentity)>,
    /// Sessions, each with the identity that began it.
    sessions: Vec<(SessionId, TenantIdentity)>,
}

#[derive(Debug)]
struct Tenant {
    index: usize,
    who: TenantIdentity,
    link: Option<Link>,
    /// The session and lane to resume, with the requests of that lane that have no response.
    left: Option<(SessionId, u16, BTreeMap<u32, Pending>)>,
    acts_at_us: Option<u64>,
    asked_count: u32,
    attempt_count: u32,
}

#[derive(Debug)]
struct Link {
    connection: usize,
    /// Time at which HELLO was sent.
    opened_ms: u64,
    input: Vec<u8>,
    /// The session of the connection and its lane, known from WELCOME on.
    session: Option<(SessionId, u16)>,
    /// Time at which WELCOME arrived.
    welcomed_ms: Option<u64>,
    pending: BTreeMap<u32, Pending>,
    /// Number of times that the tenant still sends requests on this connection.
    acts_left: u64,
}

impl Link {
    fn times(&self, (opened_ms, sent_ms): (u64, u64), now_ms: u64) -> Times {
        let welcomed_ms = self.welcomed_ms.unwrap_or(now_ms);
        Times { opened_ms, welcomed_ms, sent_ms, now_ms }
    }
}

impl Tenants {
    pub(crate) fn new(world: &mut World) -> Option<Self> {
        let identities = world.settings.identities?;
        let tenant = |(index, who)| Tenant {
            index,
            who,
            link: None,
            left: None,
            acts_at_us: None,
            asked_count: 0,
            attempt_count: 0,
        };
        let random = Random::new(identities.seed);
        let shared = Shared { random, identities, ids: Vec::new(), sessions: Vec::new() };
        let mut tenants: Vec<_> = TENANTS.into_iter().enumerate().map(tenant).collect();
        tenants.iter_mut().for_each(|tenant| tenant.schedule(world, 1_000));
        Some(Self { tenants, shared })
    }

    /// Wakes a tenant, because bytes arrived for it or its connection was lost.
    pub(crate) fn wake(&mut self, world: &mut World, client: usize) {
        if let Some(tenant) = client.checked_sub(FIRST_TENANT).and_then(|index| self.tenants.get_mut(index)) {
            tenant.listen(world, &mut self.shared);
        }
    }

    /// Takes the next step of a tenant. Returns the connection that it opened, if any.
    pub(crate) fn act(&mut self, world: &mut World, index: usize) -> Option<usize> {
        self.tenants.get_mut(index)?.act(world, &mut self.shared)
    }

    /// Lets all tenants leave for good.
    pub(crate) fn leave(&mut self, world: &mut World) {
        self.tenants.iter_mut().for_each(|tenant| tenant.leave(world));
    }
}

impl Tenant {
    fn schedule(&mut self, world: &mut World, delay_us: u64) {
        let at_us = world.now_us + delay_us;
        self.acts_at_us = Some(at_us);
        world.at(at_us, Event::Tenant(self.index));
    }

    fn act(&mut self, world: &mut World, shared: &mut Shared) -> Option<usize> {
        if self.acts_at_us != Some(world.now_us) || world.calm {
            return None;
        }
        let Some(link) = &mut self.link else { return Some(self.connect(world, shared)) };
        if !link.pending.is_empty() || link.acts_left == 0 {
            // Its patience has ended, or it has done enough on this connection.
            self.leave(world);
            self.schedule(world, shared.random.spread(100, 400_000));
            return None;
        }
        link.acts_left -= 1;
        self.choose(world, shared);
        None
    }

    fn connect(&mut self, world: &mut World, shared: &mut Shared) -> usize {
        let random = &mut shared.random;
        let thread = random.below(world.settings.worker_count as u64) as usize;
        let connection = world.connect(FIRST_TENANT + self.index, thread, false);
        world.auditor.open_to_visitor(FIRST_TENANT + self.index);
        let is_closed = random.once_in(12) && self.who != TenantIdentity::Operator;
        let mut pending = BTreeMap::new();
        let session = match (random.below(10), random.pick(&shared.sessions), self.left.take()) {
            // Another identity, or another tenant of the same identity, takes over a session.
            (0, Some((id, _)), _) => SessionRequest::Resume { id, lane: 0 },
            (1, Some((id, _)), _) => SessionRequest::Join { id },
            (2..8, _, Some((id, lane, left))) if !is_closed => {
                pending = left;
                SessionRequest::Resume { id, lane }
            }
            (2..7, ..) => SessionRequest::New { lease_ms: random.between(500, 3_000) as u32 },
            _ => SessionRequest::None,
        };
        let acts_left = random.below(12);
        let again: Vec<u8> = pending.values().flat_map(|pending: &Pending| pending.bytes.clone()).collect();
        self.link = Some(Link {
            connection,
            opened_ms: world.server_ms(),
            input: Vec::new(),
            session: None,
            welcomed_ms: None,
            pending,
            acts_left,
        });
        self.attempt_count += 1;
        let hello = Hello {
            version_min: VERSION_MIN,
            version_max: VERSION,
            kind: NamespaceKind::Flat,
            session,
            worker: ANY_WORKER,
            namespace: if is_closed { CLOSED_NAMESPACE } else { TENANT_NAMESPACE },
            owner: SHARED_OWNER,
            attempt: Some(self.attempt_count),
            ..Hello::default()
        };
        let number = u32::MAX - connection as u32;
        let mut bytes = Vec::new();
        hello.encode(number, &mut bytes);
        self.send(world, number, TenantRequest::Hello { session, is_closed }, bytes);
        world.send(connection, true, &again);
        connection
    }

    fn send(&mut self, world: &mut World, number: u32, request: TenantRequest, bytes: Vec<u8>) {
        let Some(link) = &mut self.link else { return };
        let (who, connection, sent_ms) = (self.who, link.connection, world.server_ms());
        world.trace.note(world.now_us, 28, connection as u64, || {
            format!("tenant {} sends {number} on connection {connection}: {request:?}", who.name())
        });
        let opened_ms = link.opened_ms;
        world.auditor.note_tenant_sends(who, &request, link.times((opened_ms, sent_ms), sent_ms));
        // Bytes that do not fit are lost. The tenant then gives up after its patience has ended.
        world.send(connection, true, &bytes);
        link.pending.insert(number, Pending { request, opened_ms, sent_ms, bytes });
        self.schedule(world, PATIENCE_US);
    }

    fn ask(&mut self, world: &mut World, request: TenantRequest, encode: impl FnOnce(u32, &mut Vec<u8>)) {
        self.asked_count += 1;
        let (number, mut bytes) = (self.asked_count, Vec::new());
        encode(number, &mut bytes);
        self.send(world, number, request, bytes);
    }

    fn listen(&mut self, world: &mut World, shared: &mut Shared) {
        let mut is_over = false;
        while let Some(link) = &mut self.link {
            let known = &mut world.network.connections[link.connection];
            match known.to_client.read(usize::MAX) {
                ReadResult::Bytes(bytes) => {
                    if std::mem::take(&mut known.to_client.wants_room) {
                        world.after(1, Event::ArriveAtServer(link.connection));
                    }
                    link.input.extend_from_slice(&bytes);
                }
                ReadResult::Nothing => {
                    is_over = known.client_noticed;
                    break;
                }
                ReadResult::End => {
                    is_over = true;
                    break;
                }
            }
        }
        while let Some(link) = &mut self.link {
            let Ok(Some(frame)) = next_frame(&link.input, FRAME_LEN_MAX) else { break };
            let bytes: Vec<u8> = link.input.drain(..frame.len()).collect();
            if let Ok(Some(frame)) = next_frame(&bytes, FRAME_LEN_MAX)
                && let Ok(response) = Response::decode(frame)
            {
                self.hear(world, shared, frame.number(), &response);
            }
        }
        if is_over && self.link.is_some() {
            self.leave(world);
            self.schedule(world, shared.random.spread(100, 200_000));
        }
    }

    fn hear(&mut self, world: &mut World, shared: &mut Shared, number: u32, response: &Response<'_>) {
        let Some(link) = &mut self.link else { return };
        let (who, now_ms) = (self.who, world.server_ms());
        if let (0, Response::Error(ErrorAnswer { code: ErrorCode::Unauthorized, .. })) = (number, response) {
            world.auditor.judge_ended(who, (link.opened_ms, now_ms));
        }
        if matches!(response, Response::Event(_)) {
            return;
        }
        let Some(Pending { request, opened_ms, sent_ms, .. }) = link.pending.remove(&number) else { return };
        world.trace.note(world.now_us, 29, u64::from(number), || {
            format!("tenant {} receives the response to {request:?}: {response:?}", who.name())
        });
        world.auditor.judge_tenant(who, &request, link.times((opened_ms, sent_ms), now_ms), response);
        match (request, response) {
            (TenantRequest::Hello { session, .. }, Response::Welcome(welcome)) => {
                link.welcomed_ms = Some(now_ms);
                if session != SessionRequest::None {
                    link.session = Some((welcome.session_id, welcome.lane));
                }
                if matches!(session, SessionRequest::New { .. }) {
                    remember(&mut shared.sessions, (welcome.session_id, who));
                }
            }
            // The server closes the connection, and does not know the session.
            (TenantRequest::Hello { .. }, _) => link.pending.clear(),
            (TenantRequest::Acquire { .. }, Response::Granted(granted)) => {
                remember(&mut shared.ids, (granted.id, who));
            }
            (TenantRequest::Goodbye, _) => link.session = None,
            _ => {}
        }
        if link.pending.is_empty() {
            let pause_us = shared.random.spread(100, 2 * shared.identities.pace_us);
            self.schedule(world, pause_us);
        }
    }

    /// Sends one request, or several acquires.
    fn choose(&mut self, world: &mut World, shared: &mut Shared) {
        let Some(Link { session, welcomed_ms: Some(_), .. }) = self.link else { return self.leave(world) };
        let id = shared.random.pick(&shared.ids).map(|(id, _)| id);
        let key = shared.random.pick(&TENANT_KEYS).unwrap_or(UNUSED_KEY);
        match (shared.random.below(20), id) {
            (0..8, _) | (_, None) => {
                for _ in 0..shared.random.pick(&[1, 1, 2, 4]).unwrap_or(1) {
                    self.acquire(world, shared, session.is_some());
                }
            }
            (8..11, Some(id)) => self.ask(world, TenantRequest::Release { id }, |number, out| {
                Request::Release(Release { id, key: None, own: false }).encode(number, out);
            }),
            (11..13, Some(id)) => {
                let lease_ms = shared.random.pick(&[1, 10, 30, 2_000]).unwrap_or(1);
                self.ask(world, TenantRequest::Extend { id, lease_ms }, |number, out| {
                    Request::Extend(Extend { id, lease_ms, key: None, own: false }).encode(number, out);
                });
            }
            (13..15, Some(id)) => self.ask(world, TenantRequest::Status { id }, |number, out| {
                Request::Status(Status { id, key: None }).encode(number, out);
            }),
            (15, Some(id)) => self.ask(world, TenantRequest::ForceRelease { id }, |number, out| {
                Request::ForceRelease(ForceRelease { id, reason: b"" }).encode(number, out);
            }),
            (16, _) => self.ask(world, TenantRequest::Inspect { key }, |number, out| {
                Request::Inspect(Inspect { key }).encode(number, out);
            }),
            (17, _) => self.ask(world, TenantRequest::Verify { key }, |number, out| {
                Request::Verify(Verify { key, fence: 1 }).encode(number, out);
            }),
            (18, _) if shared.random.once_in(2) => self.ask(world, TenantRequest::List, |number, out| {
                Request::List(List { cursor: 0, count_max: 0, prefix: b"", ..List::default() })
                    .encode(number, out);
            }),
            // The operator may freeze and remove keys and namespaces that others use, so it is left out.
            (18, _) if self.who != TenantIdentity::Operator => {
                self.ask(world, TenantRequest::Freeze, |number, out| {
                    Request::Freeze(Freeze { prefix: b"", thaw: false, ..Freeze::default() })
                        .encode(number, out);
                });
            }
            (19, _) if self.who != TenantIdentity::Operator && shared.random.once_in(2) => {
                self.ask(world, TenantRequest::RemoveNamespace, |number, out| {
                    Request::RemoveNamespace(RemoveNamespace { name: TENANT_NAMESPACE }).encode(number, out);
                });
            }
            (19, _) if session.is_some() => self.ask(world, TenantRequest::Goodbye, |number, out| {
                Request::Goodbye(Goodbye).encode(number, out);
            }),
            _ => self.ask(world, TenantRequest::Namespaces, |number, out| {
                Request::Namespaces(Namespaces { cursor: 0, count_max: 0 }).encode(number, out);
            }),
        }
    }

    fn acquire(&mut self, world: &mut World, shared: &mut Shared, is_on_session: bool) {
        let random = &mut shared.random;
        let key = random.pick(&TENANT_KEYS).unwrap_or(UNUSED_KEY);
        // Most requests are within the rights of the identity.
        let own: &[&[u8]] = match self.who {
            TenantIdentity::Alice => &TENANT_KEYS[..2],
            TenantIdentity::Bob => &TENANT_KEYS[2..4],
            _ => &TENANT_KEYS[..6],
        };
        let common = &TENANT_KEYS[4..6];
        let key = match random.below(4) {
            0 if self.who != TenantIdentity::Operator => key,
            1 => random.pick(common).unwrap_or(key),
            _ => random.pick(own).unwrap_or(key),
        };
        let shared_mode = random.percent(40);
        let is_durable = world.settings.log().is_some() && random.percent(70);
        let wait_ms = random.pick(&[0, 0, 50, 800]).unwrap_or(0);
        let lease_ms = random.spread(30, 4_000) as u32;
        let request_id = random.once_in(3).then(|| [b"r0", b"r1"][random.below(2) as usize].as_slice());
        let owner = request_id.is_none().then(|| self.who.name().as_bytes());
        let scope = if is_durable { Scope::Local } else { Scope::Ephemeral };
        let options =
            AcquireOptions { scope: scope_number(scope), request_id, owner, ..AcquireOptions::default() };
        let is_named = request_id.is_some();
        let request =
            TenantRequest::Acquire { key, shared: shared_mode, is_durable, is_on_session, is_named };
        self.ask(world, request, |number, out| {
            let acquire = Acquire {
                key,
                shared: shared_mode,
                terms: AcquireTerms { wait_ms, lease_ms, options, ..AcquireTerms::default() },
            };
            Request::Acquire(acquire).encode(number, out);
        });
    }

    /// Closes the connection. A session stays, for this tenant and others.
    fn leave(&mut self, world: &mut World) {
        let Some(link) = self.link.take() else { return };
        if let Some((id, lane)) = link.session {
            self.left = Some((id, lane, link.pending));
        }
        world.close(link.connection, true);
        world.note_lost(link.connection);
        world.network.connections[link.connection].client_done = true;
    }
}

/// Adds an item and drops the oldest one if there are too many.
fn remember<T>(known: &mut Vec<T>, one: T) {
    if known.len() == REMEMBERED_COUNT_MAX {
        known.remove(0);
    }
    known.push(one);
}
