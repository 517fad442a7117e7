//! How many records a request, or a turn, looks at while very many wait. Counted in records, not in effects: a walk that says
//! nothing costs as much as one that does.

use crate::fan_outs::FanOut;
use crate::recorder::{Effect, FollowUp, Recorder};
use waymaker_engine::limits::{ITEM_COUNT_MAX, LANE_SCAN_COUNT_MAX, WORK_PER_TURN};
use waymaker_engine::{
    Acquire, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Answer, Caller, CancelReason, ClaimId,
    Event, Fence, FreezeList, Grant, LogState, PageBounds, PoolOrder, Refusal, Scope, Shard, TreeItem,
};

/// Claims over a shared key, which is free for all of them, and over one that somebody holds.
const CROWD: u32 = 20_000;
/// A request looks at no more records than this, however many wait: some for each claim that it is about.
const TOUCHED_MAX: u64 = 200;
/// The same for each step of follow-up work of a turn.
const TOUCHED_PER_STEP_MAX: u64 = 60;
const TOUCHED_PER_TURN_MAX: u64 = 2 * WORK_PER_TURN as u64 * TOUCHED_PER_STEP_MAX;

impl FanOut {
    pub(crate) fn touched(&self) -> u64 {
        self.node.shards.iter().map(waymaker_engine::Shard::records_touched).sum()
    }

    /// Does something, which must cost no more than a request may.
    #[track_caller]
    fn cheaply<R>(&mut self, what: &str, act: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.touched();
        let result = act(self);
        let touched = self.touched() - before;
        assert!(touched <= TOUCHED_MAX, "{what} looked at {touched} records");
        result
    }

    fn acquire(&mut self, client: u32, number: u32, key: &[u8], shared: bool, wait_ms: u32) -> Caller {
        let caller = self.caller(client, number);
        let shard = &mut self.node.shards[0];
        let acquire = Acquire {
            key,
            hash: shard.hash(0, key),
            shared,
            terms: AcquireTerms { wait_ms, ..AcquireTerms::default() },
        };
        shard.acquire(&caller, &acquire, &mut self.effects);
        caller
    }

    fn cancel(&mut self, client: u32, number: u32) {
        let caller = self.caller(client, u32::MAX);
        self.node.shards[0].cancel(&caller, number, &mut self.effects);
    }
}

/// A crowd whose stubs at `a` are clear, because its keys `x` are held. Returns the id of the hold of `x`.
fn crowd(wait_ms: u32) -> (FanOut, ClaimId) {
    let mut fan_out = FanOut::new(2);
    fan_out.keys(0, 0, 0, &[("x", false, 1)]);
    let Some(Effect::Answer(_, Answer::GrantedMultiKey(held))) = fan_out.effects.said.pop() else {
        panic!("it is free");
    };
    for number in 1..=CROWD {
        fan_out.keys(1, number, wait_ms, &[("a", true, 0), ("x", false, 1)]);
    }
    fan_out.effects.said.clear();
    fan_out.turn();
    (fan_out, held[0].grant.id)
}

#[test]
fn requests_for_a_key_with_very_many_waiting_stubs_stay_cheap() {
    let (mut fan_out, _) = crowd(u32::MAX);
    fan_out.cheaply("a reader", |f| f.acquire(2, 1, b"a", true, 0));
    let reader = fan_out.granted_count();
    assert_eq!(reader, 1, "readers pass stubs that read");
    fan_out.cheaply("a reader that would wait", |f| f.acquire(2, 2, b"a", true, 1000));
    assert_eq!(fan_out.granted_count(), 2);
    fan_out.cheaply("a writer that waits", |f| f.acquire(2, 3, b"a", false, u32::MAX));
    fan_out.cheaply("a stub behind a writer", |f| {
        f.keys(2, 4, u32::MAX, &[("a", true, 0), ("x", false, 1)]);
    });
    fan_out.cheaply("the cancel of a stub in the middle", |f| f.cancel(1, CROWD / 2));
    fan_out.cheaply("the cancel of the first stub", |f| f.cancel(1, 1));
    fan_out.cheaply("the cancel of the last stub", |f| f.cancel(1, CROWD));
    fan_out.cheaply("the cancel of the writer", |f| f.cancel(2, 3));
    fan_out.turns();
    fan_out.cheaply("the cancel of a stub that nobody waits behind", |f| f.cancel(1, 2));
    fan_out.node.verify();
}

#[test]
fn releases_of_a_key_with_very_many_waiting_stubs_stay_cheap() {
    let (mut fan_out, _) = crowd(u32::MAX);
    for (number, writer_waits) in [(10, false), (20, true)] {
        fan_out.effects.said.clear();
        fan_out.acquire(2, number, b"a", true, 0);
        let Some(Effect::Answer(_, Answer::Granted(grant))) = fan_out.effects.said.pop() else {
            panic!("readers pass stubs that read");
        };
        if writer_waits {
            fan_out.acquire(2, number + 1, b"a", false, u32::MAX);
        }
        fan_out.cheaply("the release of a reader", |f| f.release(grant.id));
    }
    fan_out.node.verify();
}

#[test]
fn rechecks_of_claims_behind_very_many_stubs_stay_cheap() {
    let (mut fan_out, held) = crowd(u32::MAX);
    fan_out.effects.follow_ups.clear();
    fan_out.release(held);
    assert_eq!(fan_out.effects.follow_ups.len(), 1, "the first of the crowd can be granted");
    fan_out.cheaply("a recheck", |f| {
        let (now, effects) = (f.now, &mut f.effects);
        f.node.follow_up(now, now, effects)
    });
    assert_eq!(fan_out.granted_count(), 1);
    // The last one waits behind all others for `x`.
    let last = fan_out.node.shards[0].waiting_multi_key_claims().pop().expect("many wait");
    fan_out.cheaply("a recheck in vain", |f| {
        f.effects.follow_ups.push_back(FollowUp::Recheck(last));
        let (now, effects) = (f.now, &mut f.effects);
        f.node.follow_up(now, now, effects)
    });
    assert_eq!(fan_out.granted_count(), 1);
}

#[test]
fn ending_very_many_waits_takes_a_bounded_number_of_steps() {
    for writer_waits in [false, true] {
        let (mut fan_out, _) = crowd(50);
        if writer_waits {
            fan_out.acquire(2, 1, b"a", true, 0);
            fan_out.acquire(2, 2, b"a", false, u32::MAX);
        }
        fan_out.now = fan_out.now.after_ms(100);
        let mut turns = 0;
        while fan_out.node.shards.iter().any(|shard| shard.next_deadline() <= fan_out.now) {
            let before = fan_out.touched();
            fan_out.turn();
            let touched = fan_out.touched() - before;
            assert!(touched <= TOUCHED_PER_TURN_MAX, "{touched} records in a turn");
            turns += 1;
        }
        assert!(turns > CROWD / WORK_PER_TURN);
        let (now, effects) = (fan_out.now, &mut fan_out.effects);
        fan_out.node.follow_up(now, now, effects);
    }
}

/// More holds than a lane can be brought in line with between two of its reconnects.
const HOLD_COUNT: u32 = 20_000;
const TURNS_BETWEEN_RECONNECTS: u32 = 70;
const READER_COUNT: u32 = 1000;

#[test]
fn a_lane_that_reconnects_constantly_delays_no_leases_waits_or_grants() {
    let mut fan_out = FanOut::new(1);
    fan_out.set_capacity(u64::from(HOLD_COUNT));
    for number in 0..HOLD_COUNT {
        assert!(fan_out.permits(0, number, 1, true).is_some());
    }
    let acquire =
        |fan_out: &mut FanOut, key: &[u8], number: u32, lease_ms: u32, wait_ms: u32, shared: bool| {
            let caller = fan_out.caller(1, number);
            let shard = &mut fan_out.node.shards[0];
            let hash = shard.hash(0, key);
            let acquire = Acquire {
                key,
                hash,
                shared,
                terms: AcquireTerms { lease_ms, wait_ms, ..AcquireTerms::default() },
            };
            let before = fan_out.effects.said.len();
            shard.acquire(&caller, &acquire, &mut fan_out.effects);
            fan_out.granted_since(before)
        };
    acquire(&mut fan_out, b"lease", 1, 100, 0, false).expect("it is free");
    let writer = acquire(&mut fan_out, b"key", 2, 0, 0, false).expect("it is free");
    acquire(&mut fan_out, b"key", 3, 0, 100, false);
    for number in 0..READER_COUNT {
        acquire(&mut fan_out, b"key", 10 + number, 0, u32::MAX, true);
    }
    fan_out.effects.said.clear();
    let mut ended = None;
    let mut timed_out = None;
    let mut granted = None;
    let mut released = None;
    for turn in 0..10 * TURNS_BETWEEN_RECONNECTS {
        if turn % TURNS_BETWEEN_RECONNECTS == 0 {
            fan_out.node.shards[0].detach_lane(FanOut::address(0), &mut fan_out.effects);
            fan_out.node.shards[0].attach_lane(FanOut::address(0), &mut fan_out.effects);
        }
        // Leases and waits are due after 100 turns; then the writer makes way.
        fan_out.now = fan_out.now.after_ms(1);
        fan_out.turn();
        let is_expired = |effect: &Effect| matches!(effect, Effect::Event(_, Event::Expired { .. }));
        let is_timeout = |answer: &Answer| matches!(answer, Answer::Refused(Refusal::Timeout(_)));
        ended = ended.or_else(|| fan_out.effects.said.iter().any(is_expired).then_some(turn));
        timed_out = timed_out.or_else(|| (fan_out.count(is_timeout) > 0).then_some(turn));
        granted = granted.or_else(|| (fan_out.granted_count() == READER_COUNT).then_some(turn));
        if released.is_none() && timed_out.is_some() {
            released = Some(turn);
            fan_out.release(writer.id);
        }
    }
    assert!(ended.is_some_and(|turn| turn <= 102), "the lease ended in turn {ended:?}");
    assert!(timed_out.is_some_and(|turn| turn <= 102), "the wait ended in turn {timed_out:?}");
    let turns = READER_COUNT.div_ceil(WORK_PER_TURN / 4) + 1;
    assert!(granted <= released.map(|turn| turn + turns) && granted.is_some(), "granted in turn {granted:?}");
}

/// A set of as many paths, each of as many segments, as one request may name.
fn largest_set(number: u16) -> Vec<Vec<u8>> {
    let [low, high] = number.to_le_bytes();
    let path = |item: u16| {
        let [item_low, item_high] = item.to_le_bytes();
        let first = [4, 0, low, high, item_low, item_high];
        [first.as_slice(), &[0, 0].repeat(63)].concat()
    };
    (0..ITEM_COUNT_MAX as u16).map(path).collect()
}

impl FanOut {
    /// Asks for a set, and takes the turns that it needs to be entered.
    fn hold_set(&mut self, paths: &[Vec<u8>], lease_ms: u32, wait_ms: u32) -> Option<Grant> {
        let before = self.effects.said.len();
        self.ask_for_set(1, paths, lease_ms, wait_ms);
        self.cheap_turns();
        self.granted_since(before)
    }

    /// Asks for a set, which must cost no more than a turn may.
    fn ask_for_set(&mut self, number: u32, paths: &[Vec<u8>], lease_ms: u32, wait_ms: u32) -> Option<Grant> {
        let items: Vec<_> = paths.iter().map(|path| TreeItem { path, write: true }).collect();
        self.ask_for_items(number, &items, lease_ms, wait_ms, AcquireOptions::default())
    }

    fn ask_for_items(
        &mut self,
        number: u32,
        items: &[TreeItem<'_>],
        lease_ms: u32,
        wait_ms: u32,
        options: AcquireOptions<'_>,
    ) -> Option<Grant> {
        let acquire = AcquireSet {
            items,
            terms: AcquireTerms { lease_ms, wait_ms, options: Some(&options), ..AcquireTerms::default() },
        };
        let (caller, before) = (self.caller(1, number), self.effects.said.len());
        let touched_before = self.touched();
        self.node.shards[0].acquire_set(&caller, &acquire, &mut self.effects);
        let touched = self.touched() - touched_before;
        assert!(touched <= TOUCHED_PER_TURN_MAX, "{touched} records in a request");
        self.granted_since(before)
    }

    /// How many sets hold this path, and how many wait for it.
    fn inspected(&mut self, path: &[u8]) -> (u32, u32) {
        let caller = self.caller(1, 1);
        let shard = &mut self.node.shards[0];
        shard.inspect(&caller, path, &mut self.effects);
        let Some(Effect::Answer(_, Answer::Inspected(status))) = self.effects.said.pop() else {
            panic!("a known path")
        };
        assert_eq!(status.holders.len(), status.holder_count as usize);
        assert_eq!(status.waiters.len(), status.waiter_count as usize);
        (status.holder_count, status.waiter_count)
    }

    /// Turns until nothing is left over, none of which may take more steps than a turn has, but for what is done at once.
    fn cheap_turns(&mut self) -> u32 {
        let mut turns = 0;
        while self.node.shards[0].next_deadline() <= self.now {
            let before = self.touched();
            self.turn();
            let touched = self.touched() - before;
            assert!(touched <= TOUCHED_PER_TURN_MAX, "{touched} records in a turn");
            turns += 1;
        }
        turns
    }
}

#[test]
fn sets_of_very_many_nodes_expire_over_turns() {
    let mut fan_out = FanOut::new(1);
    for number in 0..10 {
        fan_out.hold_set(&largest_set(number), 500, 0).expect("it is free");
    }
    fan_out.now = fan_out.now.after_ms(1000);
    let turns = fan_out.cheap_turns();
    assert!(turns > 10, "{turns} turns");
    assert_eq!(fan_out.node.shards[0].claim_count(), 0);
    for number in 0..10 {
        fan_out.hold_set(&largest_set(number), 500, 0).expect("all of it is gone");
    }
}

#[test]
fn a_set_of_very_many_nodes_enters_over_turns() {
    let mut fan_out = FanOut::new(1);
    let (set, other) = (largest_set(0), largest_set(1));
    for (number, wait_ms) in [(1, 0), (2, 0), (3, u32::MAX)] {
        assert!(fan_out.ask_for_set(number, &set, 500, wait_ms).is_none());
    }
    // Later sets are decided later, whether they conflict or not.
    fan_out.ask_for_set(4, &set[7..8], 500, 0);
    fan_out.ask_for_set(5, &other[..1], 500, 0);
    fan_out.ask_for_set(6, &other[..1], 500, u32::MAX);
    assert_eq!(fan_out.effects.said, []);
    fan_out.node.verify();
    fan_out.turn();
    fan_out.node.verify();
    assert_eq!(fan_out.effects.said, [], "one turn is not enough");
    assert!(fan_out.cheap_turns() > 10);
    fan_out.node.verify();
    assert_eq!(fan_out.numbers_granted(), [1, 5]);
    let is_busy = |answer: &Answer| matches!(answer, Answer::Refused(Refusal::Busy(busy)) if busy.held);
    assert_eq!(fan_out.count(is_busy), 2, "the tries of what another set holds");
    assert_eq!(fan_out.inspected(&set[1023]), (1, 1));
    fan_out.now = fan_out.now.after_ms(600);
    fan_out.cheap_turns();
    assert_eq!(fan_out.numbers_granted(), [1, 5, 3, 6]);
}

#[test]
fn a_read_set_of_very_many_existing_nodes_enters_over_turns() {
    let mut fan_out = FanOut::new(1);
    let paths = largest_set(0);
    let items: Vec<_> = paths.iter().map(|path| TreeItem { path, write: false }).collect();
    let mut turns = Vec::new();
    for number in [1, 2] {
        fan_out.ask_for_items(number, &items, 0, 0, AcquireOptions::default());
        turns.push(fan_out.cheap_turns());
    }
    assert_eq!(fan_out.numbers_granted(), [1, 2]);
    // Each path of the second set is searched to its end when it is checked, and once more when it is held.
    assert!(turns[1] > 10, "{turns:?}");
    fan_out.node.verify();
}

#[test]
fn an_entering_set_can_be_cancelled() {
    let mut fan_out = FanOut::new(1);
    let set = largest_set(0);
    for turns in [0, 1, 20, 50, 70] {
        for (number, wait_ms) in [(1, u32::MAX), (2, 30), (3, 0)] {
            fan_out.ask_for_set(number, &set, 500, wait_ms);
        }
        for _ in 0..turns {
            fan_out.turn();
        }
        fan_out.effects.said.clear();
        fan_out.cancel(1, 1);
        fan_out.node.verify();
        fan_out.now = fan_out.now.after_ms(40);
        fan_out.turn();
        fan_out.cancel(1, 3);
        fan_out.node.verify();
        fan_out.cheap_turns();
        let was_granted = turns == 70;
        assert_eq!(fan_out.node.shards[0].claim_count(), u32::from(was_granted), "after {turns} turns");
    }
    fan_out.now = fan_out.now.after_ms(600);
    fan_out.cheap_turns();
    assert!(fan_out.hold_set(&set, 0, 0).is_some(), "nothing of them is left");
    fan_out.node.verify();
}

#[test]
fn a_repeated_request_for_an_entering_try_waits_its_own_wait_time() {
    for held in [false, true] {
        let mut fan_out = FanOut::new(1);
        let set = largest_set(0);
        if held {
            fan_out.hold_set(&set[1000..1001], 0, 0).expect("it is free");
        }
        fan_out.effects.said.clear();
        let options = AcquireOptions { request_id: Some(b"id"), ..AcquireOptions::default() };
        for (number, wait_ms) in [(1, 0), (2, 500)] {
            let items: Vec<_> = set.iter().map(|path| TreeItem { path, write: true }).collect();
            fan_out.ask_for_items(number, &items, 0, wait_ms, options);
        }
        let superseded =
            |answer: &Answer| matches!(answer, Answer::Refused(Refusal::Cancelled(CancelReason::Superseded)));
        fan_out.cheap_turns();
        assert_eq!(fan_out.count(superseded), 1);
        assert_eq!(fan_out.numbers_granted(), if held { vec![] } else { vec![2] });
        fan_out.now = fan_out.now.after_ms(499);
        fan_out.cheap_turns();
        assert_eq!(fan_out.effects.said.len(), if held { 1 } else { 2 });
        fan_out.now = fan_out.now.after_ms(1);
        fan_out.cheap_turns();
        let timed_out = |answer: &Answer| matches!(answer, Answer::Refused(Refusal::Timeout(_)));
        assert_eq!(fan_out.count(timed_out), u32::from(held));
        fan_out.node.verify();
    }
}

#[test]
fn a_set_of_very_many_nodes_is_released_over_turns() {
    let mut fan_out = FanOut::new(1);
    let held = fan_out.hold_set(&largest_set(0), 0, 0).expect("it is free");
    assert!(fan_out.hold_set(&largest_set(0)[..20], 0, u32::MAX).is_none());
    fan_out.effects.said.clear();
    fan_out.turn();
    let before = fan_out.touched();
    fan_out.release(held.id);
    let touched = fan_out.touched() - before;
    assert!(touched <= TOUCHED_PER_TURN_MAX, "{touched} records in a release");
    fan_out.cheap_turns();
    assert_eq!(fan_out.granted_count(), 1, "the waiter gets what the release left");
    assert!(fan_out.hold_set(&largest_set(0)[20..], 0, 0).is_some());
}

#[test]
fn a_waiting_set_of_very_many_nodes_is_granted_over_turns() {
    let mut fan_out = FanOut::new(1);
    let set = largest_set(0);
    let first = fan_out.hold_set(&set[..1], 0, 0).expect("it is free");
    for number in [1, 3] {
        assert!(fan_out.ask_for_set(number, &set, 500, u32::MAX).is_none());
        fan_out.cheap_turns();
    }
    assert_eq!(fan_out.granted_count(), 1, "only the first set");
    fan_out.effects.said.clear();
    fan_out.turn();
    let before = fan_out.touched();
    fan_out.release(first.id);
    let touched = fan_out.touched() - before;
    assert!(touched <= TOUCHED_PER_TURN_MAX, "{touched} records in a release");
    assert_eq!(fan_out.granted_count(), 1);
    // No other request gets a path that is not marked as held yet.
    for path in [0, 31, 32, 33, 500, 1023] {
        assert!(fan_out.ask_for_set(2, &set[path..=path], 0, 0).is_none(), "path {path} is held");
        assert_eq!(fan_out.inspected(&set[path]), (1, 1), "holders and waiters of path {path}");
    }
    fan_out.node.verify();
    // Its lease ends while it is held in part, and the other set follows.
    fan_out.effects.said.clear();
    fan_out.now = fan_out.now.after_ms(600);
    let turns = fan_out.cheap_turns();
    assert!(turns > 2, "{turns} turns");
    assert_eq!(fan_out.granted_count(), 1, "the other set");
    fan_out.now = fan_out.now.after_ms(600);
    fan_out.cheap_turns();
    assert_eq!(fan_out.node.shards[0].claim_count(), 0);
    assert!(fan_out.hold_set(&set, 0, 0).is_some(), "all of it is gone");
    fan_out.node.verify();
}

#[test]
fn a_page_of_a_listing_examines_a_part_of_very_many_paths() {
    let mut fan_out = FanOut::new(1);
    for number in 0..10 {
        fan_out.hold_set(&largest_set(number), 0, 0).expect("it is free");
    }
    let (caller, mut from, mut pages) = (fan_out.caller(1, 1), Some(0), 0);
    while let Some(slot) = from {
        let bounds = PageBounds { count_max: 100, bytes_max: 10_000 };
        let before = fan_out.touched();
        fan_out.node.shards[0].list(&caller, &[1, 0, b'x'], false, slot, &bounds, &mut fan_out.effects);
        let touched = fan_out.touched() - before;
        assert!(touched <= 200_000, "{touched} records for a page");
        let Some(Effect::Answer(_, Answer::Listed(page))) = fan_out.effects.said.pop() else {
            panic!("a page is the answer");
        };
        assert_eq!(page.locks, []);
        (from, pages) = (page.next, pages + 1);
    }
    assert!(pages > 1);
}

/// A response may name 64 holders and 64 waiters, and looks at some records for each of them.
const TOUCHED_PER_LISTING_MAX: u64 = 2 * 64 * 20;

/// Calls `read`, which must cost no more than a response that names the most holders. Returns the numbers of holders and of
/// permits in the response.
#[track_caller]
fn read_holders(
    fan_out: &mut FanOut,
    what: &str,
    read: impl FnOnce(&mut Shard, &Caller, &mut Recorder),
) -> (u32, u64) {
    let caller = fan_out.caller(9, 1);
    let before = fan_out.touched();
    read(&mut fan_out.node.shards[0], &caller, &mut fan_out.effects);
    let touched = fan_out.touched() - before;
    assert!(touched <= TOUCHED_PER_LISTING_MAX, "{what} looked at {touched} records");
    match fan_out.effects.said.pop() {
        Some(Effect::Answer(_, Answer::Inspected(status))) => (status.holder_count, 0),
        Some(Effect::Answer(_, Answer::Watching { holder_count, .. })) => (holder_count, 0),
        Some(Effect::Answer(_, Answer::PoolDescribed(status))) => (status.holder_count, status.held),
        other => panic!("{what} was answered by {other:?}"),
    }
}

/// Checks what INSPECT, WATCH and DESCRIBE_POOL tell of a crowd of holders, of which `durable_count` are durable, and its cost.
#[track_caller]
fn read_crowd(fan_out: &mut FanOut, durable_count: u32, when: &str) {
    let inspected = read_holders(fan_out, &format!("INSPECT {when}"), |shard, caller, effects| {
        shard.inspect(caller, b"key", effects);
    });
    let watched = read_holders(fan_out, &format!("WATCH {when}"), |shard, caller, effects| {
        shard.watch(caller, b"key", effects);
    });
    let described = read_holders(fan_out, &format!("DESCRIBE_POOL {when}"), |shard, caller, effects| {
        shard.describe_pool(caller, b"p", effects);
    });
    let permits = 2 * u64::from(durable_count);
    assert_eq!(
        [inspected, watched, described],
        [(durable_count, 0), (durable_count, 0), (durable_count, permits)]
    );
    fan_out.node.verify();
}

#[test]
fn reads_of_a_key_with_very_many_holders_stay_cheap() {
    for scope in [Scope::Ephemeral, Scope::Local] {
        let mut fan_out = FanOut::new(1);
        fan_out.node.set_log_state(LogState::Ready);
        fan_out.set_capacity(2 * u64::from(CROWD));
        let options = AcquireOptions { scope, ..AcquireOptions::default() };
        for number in 1..=CROWD {
            let caller = fan_out.caller(number % 2, number);
            let shard = &mut fan_out.node.shards[0];
            let acquire = Acquire {
                key: b"key",
                hash: shard.hash(0, b"key"),
                shared: true,
                terms: AcquireTerms { options: Some(&options), ..AcquireTerms::default() },
            };
            shard.acquire(&caller, &acquire, &mut fan_out.effects);
            let permits = AcquirePermits {
                name: b"p",
                capacity: None,
                permits: 2,
                order: PoolOrder::Arrival,
                timestamp_us: 0,
                terms: AcquireTerms { options: Some(&options), ..AcquireTerms::default() },
            };
            shard.acquire_permits(&caller, &permits, &mut fan_out.effects);
        }
        let (now, effects) = (fan_out.now, &mut fan_out.effects);
        fan_out.node.log.take(effects, now);
        effects.said.clear();
        if scope == Scope::Local {
            read_crowd(&mut fan_out, 0, "while all are reserved");
            // Each hold takes a record and a wait for it; the record of the pool and its wait come first.
            fan_out.node.sync(2 + 2 * CROWD as usize, now, now, &mut fan_out.effects);
            fan_out.effects.said.clear();
            read_crowd(&mut fan_out, CROWD / 2, "while half of them are reserved");
            fan_out.node.sync(usize::MAX, now, now, &mut fan_out.effects);
            fan_out.effects.said.clear();
        }
        read_crowd(&mut fan_out, CROWD, &format!("of scope {scope:?}"));
        fan_out.node.shards[0].detach_lane(FanOut::address(0), &mut fan_out.effects);
        fan_out.turns();
        fan_out.effects.said.clear();
        read_crowd(&mut fan_out, CROWD, "after a connection was lost");
    }
}

#[test]
fn reserved_holders_that_leave_are_no_longer_counted() {
    let mut fan_out = FanOut::new(1);
    fan_out.node.set_log_state(LogState::Ready);
    let options = AcquireOptions { scope: Scope::Local, ..AcquireOptions::default() };
    for number in 1..=4 {
        let caller = fan_out.caller(number % 2, number);
        let shard = &mut fan_out.node.shards[0];
        let hash = shard.hash(0, b"key");
        let acquire = Acquire {
            key: b"key",
            hash,
            shared: true,
            terms: AcquireTerms { options: Some(&options), ..AcquireTerms::default() },
        };
        shard.acquire(&caller, &acquire, &mut fan_out.effects);
        fan_out.node.verify();
    }
    fan_out.cancel(0, 2);
    fan_out.node.verify();
    fan_out.node.shards[0].detach_lane(FanOut::address(1), &mut fan_out.effects);
    fan_out.turns();
    fan_out.node.verify();
    let (now, effects) = (fan_out.now, &mut fan_out.effects);
    fan_out.node.log.take(effects, now);
    fan_out.node.sync(usize::MAX, now, now, &mut fan_out.effects);
    fan_out.node.verify();
    fan_out.effects.said.clear();
    let counted = read_holders(&mut fan_out, "INSPECT", |shard, caller, effects| {
        shard.inspect(caller, b"key", effects);
    });
    assert_eq!(counted.0, 1);
}

/// INSPECT and VERIFY look at 1,024 paths and 4,096 nodes at most, at a few records for each.
const TOUCHED_PER_OVERLAP_MAX: u64 = 32_000;

/// Asks about a path with very many holders. Returns whether VERIFY found too many of them.
#[track_caller]
fn read_path(fan_out: &mut FanOut, path: &[u8], fence: u64) -> bool {
    let caller = fan_out.caller(9, 1);
    let before = fan_out.touched();
    fan_out.node.shards[0].inspect(&caller, path, &mut fan_out.effects);
    fan_out.node.shards[0].verify_fence(&caller, path, Fence::new(fence), &mut fan_out.effects);
    let touched = fan_out.touched() - before;
    assert!(touched <= TOUCHED_PER_OVERLAP_MAX, "INSPECT and VERIFY looked at {touched} records");
    match fan_out.effects.said.pop() {
        Some(Effect::Answer(_, Answer::Verified(verified))) => {
            assert_eq!(verified.held, verified.newest);
            false
        }
        Some(Effect::Answer(_, Answer::Refused(Refusal::Overloaded { .. }))) => true,
        other => panic!("VERIFY was answered by {other:?}"),
    }
}

#[test]
fn reads_above_very_many_held_paths_examine_only_a_part() {
    let mut fan_out = FanOut::new(1);
    for number in 0..CROWD / 2 {
        let path = [&[1, 0, b'r', 4, 0][..], &number.to_le_bytes()].concat();
        assert!(fan_out.hold_set(&[path], 0, 0).is_some());
    }
    fan_out.effects.said.clear();
    assert!(read_path(&mut fan_out, &[1, 0, b'r'], 3), "more paths than VERIFY looks at");
    let caller = fan_out.caller(9, 1);
    fan_out.node.shards[0].inspect(&caller, &[1, 0, b'r'], &mut fan_out.effects);
    let Some(Effect::Answer(_, Answer::Inspected(status))) = fan_out.effects.said.pop() else {
        panic!("a known path")
    };
    assert_eq!((status.holder_count, status.waiter_count), (CROWD / 2, 0), "all are counted");
    assert!(!read_path(&mut fan_out, &[1, 0, b'r'], u64::from(CROWD)), "no grant has that fence yet");
    assert!(!read_path(&mut fan_out, &[1, 0, b'r', 4, 0, 7, 0, 0, 0], 8), "one path");
}

#[test]
fn reads_above_very_deep_held_paths_examine_only_a_part() {
    let mut fan_out = FanOut::new(1);
    for path in largest_set(0) {
        assert!(fan_out.hold_set(&[path], 0, 0).is_some());
    }
    fan_out.effects.said.clear();
    assert!(read_path(&mut fan_out, &[], 3));
}

#[test]
fn a_repeated_set_request_examines_none_of_its_very_many_nodes() {
    let mut fan_out = FanOut::new(1);
    let set = largest_set(0);
    let mut items: Vec<_> = set.iter().map(|path| TreeItem { path, write: true }).collect();
    let options = AcquireOptions { request_id: Some(b"again"), ..AcquireOptions::default() };
    assert!(fan_out.ask_for_items(1, &items, 0, 0, options).is_none());
    for is_held in [false, true] {
        if is_held {
            fan_out.cheap_turns();
        }
        // In any order.
        items.reverse();
        let before = fan_out.effects.said.len();
        fan_out.cheaply("the repetition", |f| f.ask_for_items(2, &items, 0, 0, options));
        let refused = |answer: &Answer| matches!(answer, Answer::Refused(Refusal::BadInput { .. }));
        assert_eq!(fan_out.count(refused), 0);
        assert_eq!(fan_out.granted_since(before).is_some(), is_held);
    }
    let less = &items[1..];
    fan_out.cheaply("the request for other paths", |f| f.ask_for_items(3, less, 0, 0, options));
    let refused = |answer: &Answer| matches!(answer, Answer::Refused(Refusal::BadInput { .. }));
    assert_eq!(fan_out.count(refused), 1);
}

#[test]
fn a_smaller_pool_capacity_is_checked_against_very_many_waiters_over_turns() {
    let mut fan_out = FanOut::new(1);
    fan_out.set_capacity(10);
    fan_out.permits(0, 0, 10, false).expect("it is free");
    for number in 1..=CROWD {
        // The last one asks for too much.
        let permits = if number == CROWD { 9 } else { 6 };
        assert!(fan_out.permits(0, number, permits, false).is_none());
    }
    fan_out.effects.said.clear();
    fan_out.turn();
    fan_out.set_capacity(8);
    fan_out.node.verify();
    assert_eq!(fan_out.effects.said.len(), 1, "the answer, and nothing of the last waiter");
    assert!(fan_out.turns() >= CROWD / 16 / WORK_PER_TURN);
    let refused =
        |answer: &Answer| matches!(answer, Answer::Refused(Refusal::BadInput { field: "permits", .. }));
    assert_eq!(fan_out.count(refused), 1);
    // A larger capacity compares nothing.
    fan_out.set_capacity(9);
    assert_eq!(fan_out.turns(), 0);
    fan_out.node.verify();
}

impl FanOut {
    /// Asks for the statistics of the tree, which must cost no more than a request may.
    fn ask_for_statistics(&mut self, number: u32) {
        let caller = self.caller(2, number);
        self.cheaply("TREE_STATISTICS", |f| f.node.shards[0].tree_statistics(&caller, &mut f.effects));
    }

    /// The distinct segments in all statistics that were answered, in the order of the answers.
    fn distinct_segment_counts(&self) -> Vec<u64> {
        let count = |effect: &Effect| match effect {
            Effect::Answer(_, Answer::TreeStatistics(statistics)) => Some(statistics.distinct_segment_count),
            _ => None,
        };
        self.effects.said.iter().filter_map(count).collect()
    }
}

#[test]
fn the_first_statistics_of_a_tree_of_very_many_nodes_are_counted_over_turns() {
    let mut fan_out = FanOut::new(1);
    let held: Vec<_> =
        (0..3).map(|number| fan_out.hold_set(&largest_set(number), 0, 0).expect("it is free")).collect();
    fan_out.effects.said.clear();
    // More questions than one turn may answer.
    for number in 0..2 * WORK_PER_TURN {
        fan_out.ask_for_statistics(number);
    }
    assert_eq!(fan_out.effects.said, []);
    fan_out.cheap_turns();
    // The first segment of each path is its own. All others are the empty one. One is for the namespace.
    let per_set = ITEM_COUNT_MAX as u64;
    assert_eq!(fan_out.distinct_segment_counts(), [3 * per_set + 2; 2 * WORK_PER_TURN as usize]);
    fan_out.effects.said.clear();
    fan_out.ask_for_statistics(2);
    assert_eq!(fan_out.distinct_segment_counts().len(), 1, "later statistics are answered at once");
    for grant in held {
        fan_out.release(grant.id);
    }
    fan_out.cheap_turns();
    fan_out.ask_for_statistics(3);
    assert_eq!(fan_out.distinct_segment_counts().pop(), Some(1));
}

/// Freezes and thaws the namespace many times, with at most one turn after each.
fn thaw_many_times(fan_out: &mut FanOut, with_turns: bool) {
    let mut freezes = FreezeList::default();
    for _ in 0..100 {
        for frozen in [true, false] {
            fan_out.freeze(&mut freezes, frozen);
            if with_turns {
                fan_out.turn();
            }
        }
    }
}

#[test]
fn very_many_thaws_together_walk_the_waiters_once() {
    for with_turns in [false, true] {
        let mut fan_out = FanOut::new(1);
        fan_out.acquire(0, 0, b"key", false, 0);
        for number in 1..=CROWD {
            fan_out.acquire(1, number, b"key", false, u32::MAX);
        }
        assert!(fan_out.set(2, 1, "a", true).is_some());
        for number in 1..=CROWD {
            fan_out.set(3, number, "a", true);
        }
        fan_out.effects.said.clear();
        thaw_many_times(&mut fan_out, with_turns);
        let turns = fan_out.cheap_turns();
        // A walk over everything, and another one if more thaws came after it had begun.
        let turns_of_walk = 2 * CROWD / (WORK_PER_TURN / 4);
        let walk_count = if with_turns { 2 } else { 1 };
        assert!(turns <= walk_count * turns_of_walk, "{turns} turns");
        assert_eq!(fan_out.granted_count(), 0);
    }
}

#[test]
fn a_thaw_during_the_walk_of_another_thaw_grants_waiters_already_passed() {
    let mut fan_out = FanOut::new(1);
    let mut freezes = FreezeList::default();
    fan_out.freeze(&mut freezes, true);
    for number in 1..=CROWD {
        fan_out.acquire(1, number, &number.to_le_bytes(), false, u32::MAX);
        assert!(fan_out.set(2, number, &number.to_string(), true).is_none());
    }
    fan_out.effects.said.clear();
    // The walk of the freeze and that of the first thaw have begun when the next freeze comes.
    for frozen in [false, true, false] {
        fan_out.turn();
        fan_out.turn();
        fan_out.freeze(&mut freezes, frozen);
    }
    fan_out.cheap_turns();
    assert_eq!(fan_out.granted_count(), 2 * CROWD);
}

#[test]
fn a_step_of_counting_claims_examines_a_part_of_very_many_lanes() {
    let mut fan_out = FanOut::new(1);
    for client in 0..CROWD {
        fan_out.acquire(client, 1, &client.to_le_bytes(), false, 0);
    }
    let mut held = [0];
    let mut from = Some(0);
    let mut step_count = 0;
    while let Some(lane) = from {
        let before = fan_out.touched();
        from = fan_out.node.shards[0].count_claims_of_lanes(lane, &[0], &mut held);
        let touched = fan_out.touched() - before;
        assert!(touched <= u64::from(LANE_SCAN_COUNT_MAX), "a step looked at {touched} records");
        step_count += 1;
    }
    assert!(step_count > 10);
    assert_eq!(fan_out.node.shards[0].namespace_counters(0, held[0]).held, u64::from(CROWD));
}
