//! A client that keeps to the documented rules, and meets with everything that can happen to one.

mod away;
mod belief;
mod brink;
mod choosing;
mod drops;
mod glutton;
mod hearing;
mod holding;
mod kinds;
mod lane;
mod last_words;
mod mates;
mod mishaps;
mod operator;
mod owners;
mod speaking;

use crate::operation::Key;
use crate::world::{Event, World};
use belief::{Anchor, Held};
use lane::Lane;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use waymaker_protocol::{LockId, NamespaceKind, SessionId};

/// How many ids of others' holds, of its own earlier ones, and how many watches a client remembers.
const REMEMBERED_COUNT_MAX: usize = 6;

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
/// It obeys `docs/reference/wire.md`: it works out local deadlines from answered round trips alone, stops believing by itself,
/// repeats unanswered requests under their numbers after a resume, and gives back what it was granted too late. Beyond
/// that it does whatever the seed says: it pauses, crashes, leaves connections, asks for nonsense, and ends the holds of
/// others.
#[derive(Debug)]
pub(crate) struct Client {
    index: usize,
    /// Of its namespace.
    kind: NamespaceKind,
    /// The client whose owner it has: itself, or the first one.
    owner_index: usize,
    owner: Vec<u8>,
    /// It speaks to a front end.
    is_front: bool,
    wants_session: bool,
    /// Whose session it joins, if that client has one: that of another process, often with a namespace of another kind.
    mate: Option<usize>,
    session_lease_ms: u32,
    session: Option<SessionView>,
    lanes: Vec<Lane>,
    holds: BTreeMap<LockId, Held>,
    anchor: Option<Anchor>,
    /// Which server the stamps that it knows are from.
    server_id: Option<u64>,
    /// Another server took the place of the first one that it met.
    has_outlived_server: bool,
    paused_until_us: u64,
    acts_at_us: Option<u64>,
    /// Connection that the client closes without reading it once its pause has ended.
    leaves_unread: Option<usize>,
    /// Ids of what is over, and ids that belong to others.
    old_ids: VecDeque<LockId>,
    foreign_ids: VecDeque<LockId>,
    /// Ids that it took for another's and wanted to change or end. One that turns out to be its own is renewed before it is
    /// relied on: what the grant says of it is older.
    meddled: BTreeSet<LockId>,
    /// Holds that it asked to extend on connections without a session, which were lost before the answer.
    lost_extends: BTreeSet<LockId>,
    /// Given up by its own clock, and to be released: the server may still count them as held.
    regrets: Vec<LockId>,
    /// Holds that it left to their ends, and when it looks whether they are over.
    abandoned: VecDeque<(u64, LockId)>,
    /// Holds that are to be renewed at the last moment.
    brinks: VecDeque<LockId>,
    /// The connection on which it asked for more than it reads, and when it reads again.
    deaf: Option<(usize, u64)>,
    asked_count: u32,
    /// Walks over what is held that it began.
    walk_count: u32,
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
        let is_front = world.random.percent(world.settings.front_percent);
        let wants_session = !is_front && world.random.percent(world.settings.session_percent);
        let session_lease_ms = world.random.spread(100, 5_000) as u32;
        let kind = world.settings.mix.clone().choose_kind(&mut world.random);
        let mate = (index > 0 && wants_session && world.random.once_in(3))
            .then(|| world.random.below(index as u64) as usize);
        let shares_owner = world.settings.mix.shares_owners && world.random.once_in(2);
        let owner_index = if shares_owner { 0 } else { index };
        let mut client = Self {
            index,
            kind,
            owner_index,
            owner: format!("client-{owner_index}").into_bytes(),
            is_front,
            wants_session,
            mate,
            session_lease_ms,
            session: None,
            lanes: Vec::new(),
            holds: BTreeMap::new(),
            anchor: None,
            server_id: None,
            has_outlived_server: false,
            paused_until_us: 0,
            acts_at_us: None,
            leaves_unread: None,
            old_ids: VecDeque::new(),
            foreign_ids: VecDeque::new(),
            meddled: BTreeSet::new(),
            lost_extends: BTreeSet::new(),
            regrets: Vec::new(),
            abandoned: VecDeque::new(),
            brinks: VecDeque::new(),
            deaf: None,
            asked_count: 0,
            // Walks of one owner have different numbers.
            walk_count: index as u32 * 1_000_000,
            value: index as u32 * 1_000_000,
            watches: VecDeque::new(),
            cleans_at_us: 0,
            is_leaving: false,
            has_left: false,
        };
        client.begin_anew(world);
        client
    }

    /// Begins anew, as a process that was started again. It keeps the ids that it knew, to ask for what may be over.
    fn begin_anew(&mut self, world: &mut World) {
        self.session = None;
        self.lanes = vec![self.new_lane(world)];
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

    /// Bytes arrived for it, or a connection was lost.
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
        self.reconcile(world);
        let opened = self.connect(world);
        self.renew(world);
        if self.is_leaving {
            self.leave_shared_session(world);
            self.give_back_everything(world);
            self.clean_up(world);
        } else if *budget > 0 {
            self.look_after_abandoned(world);
            let before = self.asked_count;
            self.choose(world);
            self.say_last_words(world);
            self.fall_silent(world);
            self.overeat(world);
            self.go_away(world);
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

    /// Holds and requests that it still waits for, without requests that were first sent later than this.
    pub(crate) fn outstanding(&self, until_us: u64) -> Vec<String> {
        let lanes = self.lanes.iter().flat_map(|lane| lane.pending.iter());
        let old = lanes.filter(|(_, pending)| pending.sent_us <= until_us);
        let pending = old.map(|(number, pending)| format!("{number}: {:?}", pending.operation));
        let holds = self.holds.keys().map(|id| format!("holds {id}"));
        pending.chain(holds).collect()
    }

    /// Closes its connections and is gone, once nothing is outstanding.
    pub(crate) fn say_farewell(&mut self, world: &mut World) {
        self.has_left = true;
        for lane in 0..self.lanes.len() {
            if let Some(connection) = self.lanes[lane].connection.take() {
                world.close(connection, true);
                world.note_lost(connection);
                world.network.connections[connection].client_done = true;
            }
        }
    }
}

/// Keeps the newest few.
fn remember<T>(known: &mut VecDeque<T>, one: T) {
    if known.len() == REMEMBERED_COUNT_MAX {
        known.pop_front();
    }
    known.push_back(one);
}
