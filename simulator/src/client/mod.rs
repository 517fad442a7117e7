//! A client that writes frames itself. It obeys the rules of the protocol and uses everything that they
//! allow.

mod absence;
mod belief;
mod brink;
mod choices;
mod drops;
mod glutton;
mod holds;
mod kinds;
mod lane;
mod last_words;
mod mates;
mod mishaps;
mod operator;
mod owners;
mod requests;
mod responses;

use crate::event::Event;
use crate::key::Key;
use crate::world::World;
use belief::{Anchor, HoldView};
use lane::Lane;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use waymaker_protocol::{LockId, NamespaceKind, SessionId};

/// Largest number of remembered ids of other clients' holds, of ended holds, and of watches.
const REMEMBERED_COUNT_MAX: usize = 6;

/// The session of a client, as the client sees it.
#[derive(Clone, Copy, Debug)]
struct SessionView {
    id: SessionId,
    lease_ms: u32,
    /// Time until which the client may rely on the session.
    deadline_us: u64,
    renew_at_us: u64,
    /// True if a GOODBYE is in flight. Later grants on the session's lease may end at once.
    is_leaving: bool,
}

/// One client: up to two connections, optionally a session, and the holds that it believes to have.
///
/// The client obeys `docs/reference/wire.md`. It computes local deadlines only from answered round trips, and
/// stops relying on a hold when its deadline has passed. It repeats unanswered requests with the same numbers
/// after a resume, and releases holds whose grant came too late. Everything else is up to the seed: the
/// client pauses, crashes, closes connections, sends invalid requests, and ends the holds of other clients.
#[derive(Debug)]
pub(crate) struct Client {
    index: usize,
    /// Kind of the client's namespace.
    kind: NamespaceKind,
    /// The client whose owner name this client uses: itself, or the first client of a shared owner.
    owner_index: usize,
    owner: Vec<u8>,
    /// True if the client uses a front end.
    is_front: bool,
    wants_session: bool,
    /// The client whose session this client joins, if that client has one. It stands for another process and
    /// often uses another kind of namespace.
    mate: Option<usize>,
    session_lease_ms: u32,
    session: Option<SessionView>,
    lanes: Vec<Lane>,
    holds: BTreeMap<LockId, HoldView>,
    anchor: Option<Anchor>,
    /// Id of the server that the known stamps come from.
    server_id: Option<u64>,
    /// True if the client has met more than one start of the server.
    has_outlived_server: bool,
    paused_until_us: u64,
    acts_at_us: Option<u64>,
    /// Connection that the client closes without reading it when its pause ends.
    leaves_unread: Option<usize>,
    /// Ids of ended holds in `old_ids`, and ids of other clients' holds in `foreign_ids`.
    old_ids: VecDeque<LockId>,
    foreign_ids: VecDeque<LockId>,
    /// Ids of seemingly foreign holds that the client asked to change or end. If such a hold turns out to be
    /// its own, the client renews it before it relies on it, because the change is newer than the grant.
    meddled: BTreeSet<LockId>,
    /// Holds with an extend that was sent on a connection without a session, which was lost before the
    /// response.
    lost_extends: BTreeSet<LockId>,
    /// Holds that the client has given up locally and must release, because the server may still count them
    /// as held.
    regrets: Vec<LockId>,
    /// Holds that the client lets expire, with the time at which it checks that they have ended.
    abandoned: VecDeque<(u64, LockId)>,
    /// Holds that are to be renewed at the last moment.
    brinks: VecDeque<LockId>,
    /// The connection on which the client reads nothing, and the time at which it reads again.
    deaf: Option<(usize, u64)>,
    asked_count: u32,
    /// Number of walks over lists that the client has begun.
    walk_count: u32,
    /// The last value that the client registered.
    value: u32,
    /// Watches of the client: the lane, the request number and the key.
    watches: VecDeque<(usize, u32, Key)>,
    /// Time at which the leaving client next reverts changes that keep other clients waiting.
    cleans_at_us: u64,
    /// True if the client asks for nothing new, releases its holds, and leaves.
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
        // A session belongs to one identity.
        if mate.map_or(index % 2 == 1, |mate| world.colleagues.contains(&mate)) {
            world.colleagues.insert(index);
        }
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
            // Clients of one owner must use different numbers for their walks.
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

    /// Starts again with no state, as a restarted process does. The client keeps the ids that it knew, to
    /// send requests for ended holds.
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

    /// Wakes the client, because bytes arrived or a connection was lost.
    pub(crate) fn wake(&mut self, world: &mut World) {
        if world.now_us >= self.paused_until_us {
            self.listen(world);
        }
        self.schedule(world, 0);
    }

    /// Does everything that is due. Returns the connections that the client opened.
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

    /// Lets the client ask for nothing new from now on.
    pub(crate) fn leave(&mut self, world: &mut World) {
        self.is_leaving = true;
        self.paused_until_us = 0;
        self.acts_at_us = None;
        self.schedule(world, 0);
    }

    /// Returns descriptions of the client's holds, and of unanswered requests that were first sent at
    /// `until_us` or earlier.
    pub(crate) fn outstanding(&self, until_us: u64) -> Vec<String> {
        let lanes = self.lanes.iter().flat_map(|lane| lane.pending.iter());
        let old = lanes.filter(|(_, pending)| pending.sent_us <= until_us);
        let pending = old.map(|(number, pending)| format!("{number}: {:?}", pending.operation));
        let holds = self.holds.keys().map(|id| format!("holds {id}"));
        pending.chain(holds).collect()
    }

    /// Closes all connections. Nothing may be outstanding.
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

/// Adds an item and drops the oldest one if there are too many.
fn remember<T>(known: &mut VecDeque<T>, one: T) {
    if known.len() == REMEMBERED_COUNT_MAX {
        known.pop_front();
    }
    known.push_back(one);
}
