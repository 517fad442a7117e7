//! A client that keeps to the documented rules, and meets with everything that can happen to one.

mod belief;
mod hearing;
mod kinds;
mod lane;

use crate::operation::{Acquire, Key, Operation};
use crate::world::{Event, World};
use belief::{Anchor, Held};
use lane::{Lane, Stage};
use std::collections::{BTreeMap, VecDeque};
use waymaker_protocol::limits::ANY_WORKER;
use waymaker_protocol::{LockId, NamespaceKind, SessionId, SessionRequest};

/// Ids that a client remembers of other clients' and of its own earlier holds.
const ID_COUNT_MAX: usize = 6;
/// Acquires that one client lets wait at a time.
const WAITING_COUNT_MAX: usize = 6;

/// The session of a client, as it sees it.
#[derive(Clone, Copy, Debug)]
struct SessionView {
    id: SessionId,
    lease_ms: u32,
    /// The client may rely on it until then.
    deadline_us: u64,
    renew_at_us: u64,
    /// A goodbye is on its way: what is granted on its lease from here on may be over at once.
    is_leaving: bool,
}

/// One client: up to two connections, perhaps a session, and what it believes to hold.
///
/// It obeys `docs/wire.md`: it works out local deadlines from answered round trips alone, stops believing by itself,
/// repeats unanswered requests under their numbers after a resume, and gives back what it was granted too late. Beyond
/// that it does whatever the seed says: it pauses, crashes, leaves connections, asks for nonsense, and ends the holds of
/// others.
#[derive(Debug)]
pub(crate) struct Client {
    index: usize,
    /// Of its namespace.
    kind: NamespaceKind,
    owner: Vec<u8>,
    wants_session: bool,
    session_lease_ms: u32,
    session: Option<SessionView>,
    lanes: Vec<Lane>,
    holds: BTreeMap<LockId, Held>,
    anchor: Option<Anchor>,
    paused_until_us: u64,
    acts_at_us: Option<u64>,
    /// Ids of what is over, and ids that belong to others.
    old_ids: VecDeque<LockId>,
    foreign_ids: VecDeque<LockId>,
    /// Given up by its own clock, and to be released: the server may still count them as held.
    regrets: Vec<LockId>,
    asked_count: u32,
    /// The last value that it registered.
    value: u32,
    /// Its watches: the lane, the number and the key.
    watches: VecDeque<(usize, u32, Key)>,
    /// When it takes back again what keeps others waiting, while it leaves.
    cleans_at_us: u64,
    /// It asks for nothing new, gives back what it has, and leaves.
    is_leaving: bool,
    has_left: bool,
}

impl Client {
    pub(crate) fn new(world: &mut World, index: usize) -> Self {
        let wants_session = world.random.percent(world.settings.session_percent);
        let session_lease_ms = world.random.spread(100, 5_000) as u32;
        let kind = world.settings.mix.clone().choose_kind(&mut world.random);
        let mut client = Self {
            index,
            kind,
            owner: format!("client-{index}").into_bytes(),
            wants_session,
            session_lease_ms,
            session: None,
            lanes: Vec::new(),
            holds: BTreeMap::new(),
            anchor: None,
            paused_until_us: 0,
            acts_at_us: None,
            old_ids: VecDeque::new(),
            foreign_ids: VecDeque::new(),
            regrets: Vec::new(),
            asked_count: 0,
            value: index as u32 * 1_000_000,
            watches: VecDeque::new(),
            cleans_at_us: 0,
            is_leaving: false,
            has_left: false,
        };
        client.begin_anew(world);
        client
    }

    /// Forgets everything, as a process that was started again.
    fn begin_anew(&mut self, world: &mut World) {
        self.session = None;
        self.lanes = vec![Lane::new(world.auditor.new_lane(self.index))];
        self.anchor = None;
        self.regrets.clear();
        for id in std::mem::take(&mut self.holds).into_keys() {
            world.auditor.doubts(id);
        }
        self.schedule(world, 1);
    }

    fn schedule(&mut self, world: &mut World, delay_us: u64) {
        let at_us = (world.now_us + delay_us).max(self.paused_until_us);
        if self.acts_at_us.is_none_or(|acts_at_us| at_us < acts_at_us || acts_at_us <= world.now_us) {
            self.acts_at_us = Some(at_us);
            world.at(at_us, Event::Act(self.index));
        }
    }

    /// Bytes arrived for it, or a connection was lost. Servers of connections that it opened are told by `opened`.
    pub(crate) fn wake(&mut self, world: &mut World) {
        if world.now_us >= self.paused_until_us {
            self.listen(world);
        }
        self.schedule(world, 0);
    }

    /// Does what is due. Says which connections it opened.
    pub(crate) fn act(&mut self, world: &mut World, budget: &mut u32) -> Vec<usize> {
        if self.acts_at_us != Some(world.now_us) || self.has_left {
            return Vec::new();
        }
        self.acts_at_us = None;
        if world.now_us < self.paused_until_us {
            self.schedule(world, 0);
            return Vec::new();
        }
        self.listen(world);
        self.give_up_what_is_over(world);
        let opened = self.connect(world);
        self.renew(world);
        if self.is_leaving {
            self.give_back_everything(world);
            self.clean_up(world);
        } else if *budget > 0 {
            let before = self.asked_count;
            self.choose(world);
            *budget = budget.saturating_sub((self.asked_count - before).max(1));
        }
        self.flush(world);
        let pace_us = world.settings.pace_us;
        let delay_us = if self.is_leaving { 10_000 } else { world.random.between(1, 2 * pace_us) };
        let delay_us = delay_us.min(self.next_renewal_us().saturating_sub(world.now_us).max(1));
        self.schedule(world, delay_us);
        opened
    }

    /// From here on it asks for nothing new.
    pub(crate) fn leave(&mut self, world: &mut World) {
        self.is_leaving = true;
        self.paused_until_us = 0;
        self.acts_at_us = None;
        self.schedule(world, 0);
    }

    /// What it still waits for.
    pub(crate) fn outstanding(&self) -> Vec<String> {
        let lanes = self.lanes.iter().flat_map(|lane| lane.pending.iter());
        let pending = lanes.map(|(number, pending)| format!("{number}: {:?}", pending.operation));
        let holds = self.holds.keys().map(|id| format!("holds {id}"));
        pending.chain(holds).collect()
    }

    /// Closes its connections and is gone, once nothing is outstanding.
    pub(crate) fn say_farewell(&mut self, world: &mut World) {
        self.has_left = true;
        for lane in 0..self.lanes.len() {
            if let Some(connection) = self.lanes[lane].connection.take() {
                world.close(connection, true);
                let now_ms = world.server_ms();
                world.auditor.lost(connection, now_ms);
                world.network.connections[connection].client_done = true;
            }
        }
    }

    fn next_renewal_us(&self) -> u64 {
        let holds = self.holds.values().filter_map(Held::renews_at_us).min();
        let session = self.session.map(|session| session.renew_at_us);
        holds.into_iter().chain(session).min().unwrap_or(u64::MAX)
    }

    /// Its own deadlines have passed: it stops by itself.
    fn give_up_what_is_over(&mut self, world: &mut World) {
        let now_us = world.now_us;
        let session_deadline_us = self.session.map_or(0, |session| session.deadline_us);
        let over = |held: &Held| held.deadline_us(session_deadline_us) <= now_us;
        let ids: Vec<LockId> = self.holds.iter().filter(|(_, held)| over(held)).map(|(id, _)| *id).collect();
        for id in ids {
            if self.holds.get(&id).is_some_and(|held| held.is_session_lease) {
                self.regrets.push(id);
            }
            self.forget(world, id);
        }
        if self.has_open_lane() {
            for id in std::mem::take(&mut self.regrets) {
                self.ask(world, Operation::Release { id, forged: false });
            }
        }
    }

    fn forget(&mut self, world: &mut World, id: LockId) {
        self.holds.remove(&id);
        world.auditor.doubts(id);
        remember(&mut self.old_ids, id);
    }

    fn connect(&mut self, world: &mut World) -> Vec<usize> {
        let mut opened = Vec::new();
        for lane in 0..self.lanes.len() {
            let Lane { connection: None, stage: Stage::Down { retry_at_us }, .. } = self.lanes[lane] else {
                continue;
            };
            if retry_at_us > world.now_us {
                continue;
            }
            let session = match (self.session, self.lanes[lane].number) {
                (Some(session), Some(lane)) => SessionRequest::Resume { id: session.id, lane },
                (Some(session), None) => SessionRequest::Join { id: session.id },
                (None, _) if self.wants_session && lane == 0 => {
                    SessionRequest::New { lease_ms: self.session_lease_ms }
                }
                // It comes when there is a session to join.
                (None, _) if self.wants_session => continue,
                (None, _) => SessionRequest::None,
            };
            let worker_count = world.settings.worker_count as u64;
            let thread = world.random.below(worker_count) as usize;
            let worker =
                if world.random.once_in(3) { world.random.below(worker_count) as u16 } else { ANY_WORKER };
            let connection = world.connect(self.index, thread);
            world.auditor.open(self.lanes[lane].auditor_lane);
            let index = self.index;
            world.trace.note(world.now_us, 20, connection as u64, || {
                format!("client {index}  opens connection {connection} to worker {thread}: {session:?}")
            });
            self.lanes[lane].connection = Some(connection);
            self.lanes[lane].stage = Stage::Greeting { sent_us: world.now_us };
            self.lanes[lane].input.clear();
            self.lanes[lane].output.clear();
            self.send(
                world,
                lane,
                hello_number(connection),
                Operation::Hello { session, worker, kind: self.kind },
            );
            opened.push(connection);
        }
        opened
    }

    /// Puts a request on its way.
    fn send(&mut self, world: &mut World, lane: usize, number: u32, operation: Operation) {
        let Some(connection) = self.lanes[lane].connection else { return };
        let (index, now_us) = (self.index, world.now_us);
        world.trace.note(now_us, 21, u64::from(number), || {
            format!("client {index}  asks {number} on connection {connection}: {operation:?}")
        });
        let output = &mut self.lanes[lane].output;
        operation.encode(number, &world.settings, &self.owner, output);
        let end = world.network.connections[connection].to_server.written_count() + output.len() as u64;
        let now_ms = world.server_ms();
        world.auditor.asks(connection, number, operation, end, now_ms);
        self.flush_lane(world, lane);
    }

    /// A new request on some open lane.
    fn ask(&mut self, world: &mut World, operation: Operation) {
        let open: Vec<usize> =
            (0..self.lanes.len()).filter(|lane| matches!(self.lanes[*lane].stage, Stage::Open)).collect();
        let Some(lane) = world.random.pick(&open) else { return };
        self.ask_on(world, lane, operation);
    }

    /// Says under which number it asked.
    fn ask_on(&mut self, world: &mut World, lane: usize, operation: Operation) -> u32 {
        self.asked_count += 1;
        let number = self.lanes[lane].note_pending(operation, world.now_us);
        self.send(world, lane, number, operation);
        number
    }

    fn flush(&mut self, world: &mut World) {
        for lane in 0..self.lanes.len() {
            self.flush_lane(world, lane);
        }
    }

    fn flush_lane(&mut self, world: &mut World, lane: usize) {
        let Lane { connection: Some(connection), output, .. } = &mut self.lanes[lane] else { return };
        if !output.is_empty() {
            let len = world.send(*connection, true, output);
            world.trace.bytes(&output[..len]);
            output.drain(..len);
        }
    }

    /// Renews what is due.
    fn renew(&mut self, world: &mut World) {
        let now_us = world.now_us;
        if let Some(session) = &mut self.session
            && session.renew_at_us <= now_us
        {
            session.renew_at_us = now_us + u64::from(session.lease_ms) * 1000 / 3;
            self.ask(world, Operation::KeepAlive);
        }
        let due = |held: &Held| held.renews_at_us().is_some_and(|at_us| at_us <= now_us);
        let ids: Vec<(LockId, u32)> =
            self.holds.iter().filter(|(_, held)| due(held)).map(|(id, held)| (*id, held.lease_ms)).collect();
        for (id, lease_ms) in ids {
            self.extend(world, id, lease_ms);
        }
    }

    fn extend(&mut self, world: &mut World, id: LockId, lease_ms: u32) {
        let given_ms = world.settings.given_lease_ms(lease_ms);
        if let Some(held) = self.holds.get_mut(&id) {
            held.note_extend_sent(world.now_us, given_ms);
            self.tell_belief(world, id);
        }
        self.ask(world, Operation::Extend { id, lease_ms });
    }

    /// Tells the auditor until when this client relies on a hold.
    fn tell_belief(&mut self, world: &mut World, id: LockId) {
        let session_deadline_us = self.session.map_or(0, |session| session.deadline_us);
        if let Some(held) = self.holds.get(&id).filter(|held| held.is_confirmed) {
            world.auditor.believes(id, held.deadline_us(session_deadline_us), world.now_us);
        }
    }

    fn release(&mut self, world: &mut World, id: LockId) {
        self.forget(world, id);
        if self.has_open_lane() {
            self.ask(world, Operation::Release { id, forged: false });
        } else {
            self.regrets.push(id);
        }
    }

    fn has_open_lane(&self) -> bool {
        self.lanes.iter().any(|lane| matches!(lane.stage, Stage::Open))
    }

    fn give_back_everything(&mut self, world: &mut World) {
        let ids: Vec<LockId> = self.holds.keys().copied().collect();
        for id in ids {
            self.release(world, id);
        }
    }

    /// One thing of its own choice.
    fn choose(&mut self, world: &mut World) {
        if world.random.percent(world.settings.fault_percent) {
            return self.suffer(world);
        }
        let operator_percent = world.settings.mix.operator_percent;
        if operator_percent > 0 && world.random.percent(operator_percent) {
            return self.operate(world);
        }
        let waiting = self.lanes.iter().map(Lane::waiting_count).sum::<usize>();
        match world.random.below(100) {
            0..=89 if self.choose_without_queue(world) => {}
            0..=44 if waiting < WAITING_COUNT_MAX => {
                let (settings, unix_us) = (world.settings.clone(), world.unix_us());
                let has_session = self.session.is_some();
                let acquire: Acquire =
                    settings.choose_acquire(&mut world.random, self.kind, has_session, unix_us);
                self.ask(world, Operation::Acquire(acquire));
            }
            0..=64 => {
                let ids: Vec<LockId> = self.holds.keys().copied().collect();
                if let Some(id) = world.random.pick(&ids) {
                    self.release(world, id);
                }
            }
            65..=71 => {
                let ids: Vec<LockId> = self.holds.keys().copied().collect();
                if let Some(id) = world.random.pick(&ids) {
                    let lease_ms = world.settings.clone().choose_lease_ms(&mut world.random);
                    self.extend(world, id, lease_ms);
                }
            }
            72..=79 => self.cancel(world),
            80..=82 => {
                let ids: Vec<LockId> = self.holds.keys().copied().collect();
                if let Some(id) = world.random.pick(&ids) {
                    self.ask(world, Operation::Status { id });
                }
            }
            83..=87 => self.look(world),
            88..=89 => self.ask(world, Operation::List { cursor: 0 }),
            90..=91 => self.ask(world, Operation::KeepAlive),
            92..=93 => {
                // What is over must not be found.
                if let Some(id) = pick(&self.old_ids, world) {
                    let operation = match world.random.below(3) {
                        0 => Operation::Status { id },
                        1 => Operation::Extend { id, lease_ms: 500 },
                        _ => Operation::Release { id, forged: false },
                    };
                    self.ask(world, operation);
                }
            }
            94..=95 => self.forge(world),
            96 => {
                if let Some(id) = pick(&self.foreign_ids, world) {
                    let lease_ms = world.settings.clone().choose_lease_ms(&mut world.random);
                    let steals = world.random.once_in(2);
                    let operation = if steals {
                        Operation::Release { id, forged: false }
                    } else {
                        Operation::Extend { id, lease_ms }
                    };
                    self.ask(world, operation);
                }
            }
            97..=98 if self.lanes.len() < 2 => {
                let lane = world.auditor.new_lane(self.index);
                self.lanes.push(Lane::new(lane));
            }
            _ => {}
        }
    }

    fn cancel(&mut self, world: &mut World) {
        for lane in 0..self.lanes.len() {
            if !matches!(self.lanes[lane].stage, Stage::Open) {
                continue;
            }
            let waiting = self.lanes[lane].waiting();
            if let Some((acquire, key)) = world.random.pick(&waiting) {
                self.ask_on(world, lane, Operation::Cancel { acquire, key });
                return;
            }
        }
    }

    /// Asks with an id that names nothing: another secret, or another generation.
    fn forge(&mut self, world: &mut World) {
        let ids: Vec<LockId> = self.holds.keys().copied().collect();
        if let Some(mut id) = world.random.pick(&ids) {
            if world.random.once_in(2) {
                id.secret ^= 1 << world.random.below(64);
            } else {
                id.place ^= 1 << (32 + world.random.below(16));
            }
            self.ask(world, Operation::Release { id, forged: true });
        }
    }

    /// Something happens to it.
    fn suffer(&mut self, world: &mut World) {
        let index = self.index;
        let connections: Vec<usize> = self.lanes.iter().filter_map(|lane| lane.connection).collect();
        match world.random.below(10) {
            0..=3 => {
                if let Some(connection) = world.random.pick(&connections) {
                    world.cut(connection);
                }
            }
            4..=5 => {
                if let Some(connection) = world.random.pick(&connections) {
                    let for_us = world.random.spread(1_000, world.settings.late_max_us);
                    let to_server = world.random.once_in(2);
                    world.hold_back(connection, to_server, for_us);
                }
            }
            6..=7 => {
                let for_us = world.random.spread(1_000, 4_000_000);
                self.paused_until_us = world.now_us + for_us;
                world.trace.note(world.now_us, 22, index as u64, || {
                    format!("client {index}  pauses for {} ms", for_us / 1000)
                });
            }
            8 => {
                world.trace.note(world.now_us, 23, index as u64, || format!("client {index}  crashes"));
                connections.iter().for_each(|connection| world.cut(*connection));
                connections
                    .iter()
                    .for_each(|connection| world.network.connections[*connection].client_done = true);
                self.begin_anew(world);
            }
            _ => {
                // It leaves a connection that is fine, to take up its lane on another one.
                let lane = world.random.below(self.lanes.len() as u64) as usize;
                if world.random.once_in(4) && matches!(self.lanes[lane].stage, Stage::Open) {
                    if let Some(session) = &mut self.session {
                        session.is_leaving = true;
                    }
                    let on_session = |held: &Held| held.is_session_lease;
                    let ids: Vec<LockId> =
                        self.holds.iter().filter(|(_, held)| on_session(held)).map(|(id, _)| *id).collect();
                    ids.into_iter().for_each(|id| self.forget(world, id));
                    self.ask_on(world, lane, Operation::Goodbye);
                    return;
                }
                if let Some(connection) = self.lanes[lane].connection {
                    let now_ms = world.server_ms();
                    world.auditor.lost(connection, now_ms);
                    self.lose(world, lane);
                }
            }
        }
    }
}

/// A greeting has a number of its own, far from those of requests.
fn hello_number(connection: usize) -> u32 {
    u32::MAX - connection as u32
}

fn remember(ids: &mut VecDeque<LockId>, id: LockId) {
    if ids.len() == ID_COUNT_MAX {
        ids.pop_front();
    }
    ids.push_back(id);
}

fn remember_watch(watches: &mut VecDeque<(usize, u32, Key)>, watch: (usize, u32, Key)) {
    if watches.len() == ID_COUNT_MAX {
        watches.pop_front();
    }
    watches.push_back(watch);
}

fn pick(ids: &VecDeque<LockId>, world: &mut World) -> Option<LockId> {
    let ids: Vec<LockId> = ids.iter().copied().collect();
    world.random.pick(&ids)
}
