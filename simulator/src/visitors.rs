//! Clients that create a namespace by using it, leave it, and remove it as operators do. The names of their
//! keys and namespaces have characters that the cluster or the log must escape.

use crate::auditor::{KnownFences, Place};
use crate::event::Event;
use crate::key::VISITED_KEYS;
use crate::network::ReadResult;
use crate::operation::scope_number;
use crate::world::World;
use waymaker_engine::Scope;
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::{
    Acquire, AcquireOptions, AcquireTerms, ErrorCode, Freeze, Hello, LockId, NamespaceKind, Release,
    RemoveNamespace, Request, Response, SessionRequest, VERSION, VERSION_MIN, next_frame,
};

/// Number of the first visitor on the network. It is above the numbers of all clients.
pub(crate) const FIRST_VISITOR: usize = 1 << 20;

/// Names that collide if they are not escaped correctly.
const NAMESPACES: [&[u8]; 4] = [b"visit/a", b"visit%2Fa", b"visit", b"visit%252Fa"];

/// Time for which a visitor waits for a response.
const PATIENCE_US: u64 = 3_000_000;

/// All visitors of a run.
#[derive(Debug)]
pub(crate) struct Visitors(Vec<Visitor>);

#[derive(Debug)]
struct Visitor {
    index: usize,
    link: Option<Link>,
    acts_at_us: Option<u64>,
}

/// A connection of a visitor.
#[derive(Debug)]
struct Link {
    connection: usize,
    namespace: usize,
    input: Vec<u8>,
    asked_count: u32,
    /// Number of bytes that were sent. `None` once some bytes did not fit into the connection.
    sent_len: Option<u64>,
    request: VisitorRequest,
    holds: Vec<LockId>,
    /// Number of acquires that the visitor still sends on this connection.
    acquires_left: u64,
}

/// The request that a visitor waits for.
#[derive(Clone, Copy, Debug)]
enum VisitorRequest {
    Hello,
    Acquire {
        place: Place,
        scope: Scope,
        before: KnownFences,
        sent_ms: u64,
    },
    Release,
    Remove {
        namespace: usize,
        sent_ms: u64,
    },
    /// A freeze or a thaw, with the number of thaws before it.
    Freeze {
        thaw: bool,
        thaw_count: u32,
    },
}

impl Visitors {
    pub(crate) fn new(world: &mut World) -> Self {
        let count = world.settings.durability.map_or(0, |durability| durability.visitor_count);
        let visitors: Vec<_> =
            (0..count).map(|index| Visitor { index, link: None, acts_at_us: None }).collect();
        let mut this = Self(visitors);
        for visitor in &mut this.0 {
            visitor.schedule(world, 1_000);
        }
        this
    }

    /// Wakes a visitor, because bytes arrived for it or its connection was lost.
    pub(crate) fn wake(&mut self, world: &mut World, client: usize) {
        if let Some(visitor) = client.checked_sub(FIRST_VISITOR).and_then(|index| self.0.get_mut(index)) {
            visitor.listen(world);
        }
    }

    /// Takes the next step of a visitor. Returns the connection that it opened, if any.
    pub(crate) fn act(&mut self, world: &mut World, index: usize) -> Option<usize> {
        self.0.get_mut(index)?.act(world)
    }

    /// Lets all visitors leave their namespaces for good.
    pub(crate) fn leave(&mut self, world: &mut World) {
        self.0.iter_mut().for_each(|visitor| visitor.leave(world));
    }
}

impl Visitor {
    fn schedule(&mut self, world: &mut World, delay_us: u64) {
        let at_us = world.now_us + delay_us;
        self.acts_at_us = Some(at_us);
        world.at(at_us, Event::Visit(self.index));
    }

    fn act(&mut self, world: &mut World) -> Option<usize> {
        if self.acts_at_us != Some(world.now_us) || world.calm {
            return None;
        }
        if self.link.is_some() {
            self.leave(world);
            let pause_us = world.random.spread(100, 200_000);
            self.schedule(world, pause_us);
            return None;
        }
        Some(self.connect(world))
    }

    fn connect(&mut self, world: &mut World) -> usize {
        let thread = world.random.below(world.settings.worker_count as u64) as usize;
        let connection = world.connect(FIRST_VISITOR + self.index, thread, false);
        world.auditor.open_to_visitor(FIRST_VISITOR + self.index);
        let namespace = world.random.pick(&[0, 0, 1, 1, 2, 3]).unwrap_or(0);
        let acquires_left = world.random.below(6);
        self.link = Some(Link {
            connection,
            namespace,
            input: Vec::new(),
            asked_count: 0,
            sent_len: Some(0),
            request: VisitorRequest::Hello,
            holds: Vec::new(),
            acquires_left,
        });
        let hello = Hello {
            version_min: VERSION_MIN,
            version_max: VERSION,
            kind: NamespaceKind::Flat,
            session: SessionRequest::None,
            worker: ANY_WORKER,
            namespace: NAMESPACES[namespace],
            owner: b"visitor",
            ..Hello::default()
        };
        self.ask(world, VisitorRequest::Hello, |number, out| hello.encode(number, out));
        connection
    }

    fn ask(&mut self, world: &mut World, request: VisitorRequest, encode: impl FnOnce(u32, &mut Vec<u8>)) {
        let Some(link) = &mut self.link else { return };
        link.asked_count += 1;
        link.request = request;
        let mut bytes = Vec::new();
        encode(link.asked_count, &mut bytes);
        let (index, connection) = (self.index, link.connection);
        world.trace.note(world.now_us, 26, connection as u64, || {
            format!("visitor {index} sends on connection {connection}: {request:?}")
        });
        // Bytes that do not fit are lost. The visitor then gives up after its patience has ended.
        let len = world.send(connection, true, &bytes);
        link.sent_len = link.sent_len.filter(|_| len == bytes.len()).map(|sent| sent + len as u64);
        if let (VisitorRequest::Remove { .. }, Some(end)) = (request, link.sent_len) {
            world.auditor.note_asked_to_remove(connection, link.asked_count, end);
        }
        self.schedule(world, PATIENCE_US);
    }

    fn listen(&mut self, world: &mut World) {
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
            let (len, is_awaited) = (frame.len(), frame.number() == link.asked_count);
            let bytes: Vec<u8> = link.input.drain(..len).collect();
            if let Ok(Some(frame)) = next_frame(&bytes, FRAME_LEN_MAX)
                && let Ok(response) = Response::decode(frame)
                && is_awaited
            {
                self.hear(world, &response);
            }
        }
        if is_over && self.link.is_some() {
            self.leave(world);
            let pause_us = world.random.spread(100, 200_000);
            self.schedule(world, pause_us);
        }
    }

    fn hear(&mut self, world: &mut World, response: &Response<'_>) {
        let Some(link) = &mut self.link else { return };
        let (index, request, now_ms) = (self.index, link.request, world.server_ms());
        world.trace.note(world.now_us, 27, u64::from(link.asked_count), || {
            format!("visitor {index} receives the response to {request:?}: {response:?}")
        });
        match (request, response) {
            (VisitorRequest::Hello, Response::Welcome(_))
            | (VisitorRequest::Release, Response::Released(_)) => {}
            (VisitorRequest::Acquire { place, scope, before, sent_ms }, Response::Granted(granted)) => {
                link.holds.push(granted.id);
                world.auditor.judge_visit(place, scope, before, granted, (sent_ms, now_ms));
            }
            (VisitorRequest::Remove { namespace, sent_ms }, Response::NamespaceRemoved(_)) => {
                world.auditor.judge_removed(namespace, (sent_ms, now_ms));
            }
            (VisitorRequest::Remove { .. }, Response::Error(_)) => {}
            (VisitorRequest::Freeze { thaw, thaw_count }, Response::Frozen(_)) => {
                world.auditor.note_visited_frozen(link.namespace, (thaw, thaw_count), now_ms);
            }
            (VisitorRequest::Hello, Response::Error(error)) if error.code == ErrorCode::Shutdown => {}
            (_, Response::Error(error)) if !matches!(error.code, ErrorCode::BadInput) => {}
            _ => {
                world.auditor.accuse("visit", || format!("unexpected response to {request:?}: {response:?}"));
            }
        }
        self.go_on(world);
    }

    /// Chooses the next request, or leaves.
    fn go_on(&mut self, world: &mut World) {
        let Some(link) = &mut self.link else { return };
        let namespace = link.namespace;
        if world.calm {
            return self.leave(world);
        }
        if !link.holds.is_empty() && world.random.percent(70) {
            if let Some(id) = link.holds.pop() {
                world.auditor.note_visit_over(id);
                self.ask(world, VisitorRequest::Release, |number, out| {
                    Request::Release(Release { id, key: None, own: false }).encode(number, out);
                });
            }
        } else if link.acquires_left > 0 {
            link.acquires_left -= 1;
            self.acquire(world, namespace);
        } else if world.random.once_in(8) {
            // A freeze is usually short, because a frozen namespace can be neither used nor removed.
            let thaw = world.random.percent(70);
            let thaw_count = world.auditor.note_visited_freeze(namespace, thaw);
            self.ask(world, VisitorRequest::Freeze { thaw, thaw_count }, |number, out| {
                Request::Freeze(Freeze { prefix: b"", thaw, ..Freeze::default() }).encode(number, out);
            });
        } else if world.random.once_in(2) {
            link.acquires_left = world.random.below(2);
            // Some visitors ask for another removal before the first one is answered.
            let count = world.random.pick(&[1, 1, 2, 3]).unwrap_or(1);
            (0..count).for_each(|_| self.remove(world));
        } else {
            self.leave(world);
            let pause_us = world.random.spread(100, 200_000);
            self.schedule(world, pause_us);
        }
    }

    fn remove(&mut self, world: &mut World) {
        let removed = world.random.below(NAMESPACES.len() as u64) as usize;
        let request = VisitorRequest::Remove { namespace: removed, sent_ms: world.server_ms() };
        self.ask(world, request, |number, out| {
            Request::RemoveNamespace(RemoveNamespace { name: NAMESPACES[removed] }).encode(number, out);
        });
    }

    fn acquire(&mut self, world: &mut World, namespace: usize) {
        // One of the keys has far higher fences than the others.
        let key = world.random.pick(&[0, 1, 1, 1, 1, 2]).unwrap_or(0);
        let place = (namespace, key);
        let scope = world.settings.clone().choose_scope(&mut world.random);
        let before = world.auditor.visited(place);
        let request = VisitorRequest::Acquire { place, scope, before, sent_ms: world.server_ms() };
        let lease_ms = world.random.between(20, 300) as u32;
        self.ask(world, request, |number, out| {
            let options = AcquireOptions { scope: scope_number(scope), ..AcquireOptions::default() };
            let acquire = Acquire {
                key: VISITED_KEYS[key],
                terms: AcquireTerms { wait_ms: 0, lease_ms, options, ..AcquireTerms::default() },
                ..Acquire::default()
            };
            Request::Acquire(acquire).encode(number, out);
        });
    }

    fn leave(&mut self, world: &mut World) {
        let Some(link) = self.link.take() else { return };
        world.close(link.connection, true);
        world.note_lost(link.connection);
        world.network.connections[link.connection].client_done = true;
    }
}
