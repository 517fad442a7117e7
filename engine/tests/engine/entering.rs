//! Sets that enter their tree over several turns, and what else may happen to them meanwhile.

use crate::fan_outs::FanOut;
use crate::node::Node;
use crate::recorder::{Effect, Recorder};
use std::sync::Arc;
use waymaker_engine::limits::{COMPARED_PATH_COUNT_MAX, WORK_PER_TURN_MIN};
use waymaker_engine::{
    Access, Acquire, AcquireOptions, AcquireSet, AcquireTerms, Answer, Caller, CancelReason, ClaimId, Event,
    FreezeList, HeldLock, Limits, LogState, PageBounds, QuorumState, Refusal, Rights, Scope, Time, TreeItem,
};

/// A shard in which every set of two segments enters over several turns, and turns are short.
fn small_turns() -> FanOut {
    limited(Limits::default())
}

fn limited(limits: Limits) -> FanOut {
    let start = Time::from_millis(1000);
    let limits = Limits { large_set_segment_count: 1, work_per_turn: 2 * WORK_PER_TURN_MIN, ..limits };
    FanOut { node: Node::new(1, limits, start, 1), now: start, effects: Recorder::default() }
}

/// Paths of one segment each: the same first byte, and different second ones.
fn paths(first: u8, count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|second| vec![2, 0, first, second]).collect()
}

impl FanOut {
    /// Asks for a set of paths that are written.
    fn enter(
        &mut self,
        client: u32,
        number: u32,
        paths: &[Vec<u8>],
        wait_ms: u32,
        options: AcquireOptions<'_>,
    ) {
        let caller = self.caller(client, number);
        self.enter_as(&caller, paths, wait_ms, options);
    }

    fn enter_as(&mut self, caller: &Caller, paths: &[Vec<u8>], wait_ms: u32, options: AcquireOptions<'_>) {
        let items: Vec<_> = paths.iter().map(|path| TreeItem { path, write: true }).collect();
        let acquire = AcquireSet {
            items: &items,
            terms: AcquireTerms {
                wait_ms,
                notify_queued: true,
                options: Some(&options),
                ..AcquireTerms::default()
            },
        };
        self.node.shards[0].acquire_set(caller, &acquire, &mut self.effects);
        self.node.verify();
    }

    /// The claims with this prefix that are held, or that wait, as a client may list them.
    fn listed(&mut self, client: u32, prefix: &[u8], waiting: bool) -> Vec<HeldLock> {
        let caller = self.caller(client, 99);
        let bounds = PageBounds { count_max: usize::MAX, bytes_max: usize::MAX };
        self.node.shards[0].list(&caller, prefix, waiting, 0, &bounds, &mut self.effects);
        match self.answered(99) {
            Some(Answer::Listed(page)) => page.locks,
            other => panic!("a page is the response, not {other:?}"),
        }
    }

    /// The ids of all sets for which a client heard `Queued`.
    fn queued_ids(&self) -> Vec<ClaimId> {
        let id = |effect: &Effect| match effect {
            Effect::Event(_, Event::Queued { id, .. }) => Some(*id),
            _ => None,
        };
        self.effects.said.iter().filter_map(id).collect()
    }

    /// Removes the answer to the request of this number, and returns it.
    fn answered(&mut self, number: u32) -> Option<Answer> {
        let is_it = |effect: &Effect| matches!(effect, Effect::Answer(ticket, _) if ticket.number == number);
        let place = self.effects.said.iter().position(is_it)?;
        match self.effects.said.remove(place) {
            Effect::Answer(_, answer) => Some(answer),
            _ => None,
        }
    }
}

#[test]
fn a_thaw_grants_the_sets_behind_a_refused_set() {
    let mut fan_out = FanOut::new(1);
    let mut freezes = FreezeList::default();
    fan_out.node.set_log_state(LogState::Ready);
    fan_out.node.set_quorum_state(QuorumState::Ready);
    fan_out.freeze(&mut freezes, true);
    fan_out.turns();
    let quorum = AcquireOptions { scope: Scope::Quorum, ..AcquireOptions::default() };
    fan_out.enter(0, 1, &paths(b'a', 1), u32::MAX, quorum);
    fan_out.enter(0, 2, &paths(b'a', 1), u32::MAX, AcquireOptions::default());
    fan_out.node.set_quorum_state(QuorumState::Unavailable);
    fan_out.freeze(&mut freezes, false);
    fan_out.turns();
    assert!(matches!(fan_out.answered(1), Some(Answer::Refused(Refusal::QuorumUnavailable))));
    fan_out.node.verify();
    assert!(matches!(fan_out.answered(2), Some(Answer::Granted(_))), "{:?}", fan_out.effects.said);
}

#[test]
fn a_thaw_marks_all_paths_of_the_sets_it_grants() {
    let mut fan_out = FanOut::new(1);
    let mut freezes = FreezeList::default();
    fan_out.freeze(&mut freezes, true);
    fan_out.turns();
    fan_out.enter(0, 1, &paths(b'a', 100), u32::MAX, AcquireOptions::default());
    fan_out.freeze(&mut freezes, false);
    fan_out.turns();
    assert!(matches!(fan_out.answered(1), Some(Answer::Granted(_))));
    fan_out.node.verify();
    let caller = fan_out.caller(0, 2);
    fan_out.node.shards[0].tree_statistics(&caller, &mut fan_out.effects);
    let Some(Answer::TreeStatistics(statistics)) = fan_out.answered(2) else { panic!("it is a tree") };
    assert_eq!((statistics.held_path_count, statistics.waiting_path_count), (100, 0));
}

#[test]
fn an_entering_set_is_found_by_its_id() {
    let mut fan_out = small_turns();
    fan_out.enter(0, 1, &paths(b'a', 100), u32::MAX, AcquireOptions::default());
    fan_out.enter(0, 2, &paths(b'a', 2), u32::MAX, AcquireOptions::default());
    let ids = fan_out.queued_ids();
    for turn in 0..100 {
        for id in &ids {
            let caller = fan_out.caller(0, 3);
            fan_out.node.shards[0].status(&caller, *id, None, &mut fan_out.effects);
            let Some(Answer::Status(status)) = fan_out.answered(3) else { panic!("it is alive") };
            assert_eq!(status.key, paths(b'a', 1).concat(), "in turn {turn}");
        }
        fan_out.turn();
    }
    fan_out.enter(0, 4, &paths(b'b', 100), u32::MAX, AcquireOptions::default());
    let caller = fan_out.caller(9, 5);
    let id = fan_out.queued_ids()[2];
    fan_out.node.shards[0].force_release(&caller, id, b"", &mut fan_out.effects);
    let Some(Answer::ForceReleased(released)) = fan_out.answered(5) else { panic!("it is alive") };
    assert_eq!((released.was_waiting, released.key), (true, paths(b'b', 1).concat()));
}

#[test]
fn waiters_are_listed_in_order_while_a_set_enters() {
    let mut fan_out = small_turns();
    fan_out.enter(0, 1, &paths(b'a', 1), 0, AcquireOptions::default());
    // The records of claims that are over are used again, the last one first.
    for number in [2, 3, 4] {
        fan_out.enter(0, number, &paths(b'a', 1), u32::MAX, AcquireOptions::default());
    }
    for number in [2, 3, 4] {
        let caller = fan_out.caller(0, 9);
        fan_out.node.shards[0].cancel(&caller, number, &mut fan_out.effects);
    }
    for number in [5, 6, 7] {
        fan_out.enter(0, number, &paths(b'a', 1), u32::MAX, AcquireOptions::default());
    }
    for enters in [false, true] {
        if enters {
            fan_out.enter(0, 8, &paths(b'b', 100), u32::MAX, AcquireOptions::default());
        }
        let caller = fan_out.caller(0, 10);
        fan_out.node.shards[0].inspect(&caller, &paths(b'a', 1)[0], &mut fan_out.effects);
        let Some(Answer::Inspected(status)) = fan_out.answered(10) else { panic!("it is known") };
        let tickets: Vec<u64> = status.waiters.iter().map(|waiter| waiter.ticket).collect();
        assert_eq!((tickets.len(), tickets.is_sorted()), (3, true), "{tickets:?}, enters: {enters}");
    }
}

#[test]
fn a_set_is_listed_as_one_waiter_before_while_and_after_it_enters() {
    let mut fan_out = small_turns();
    fan_out.enter(0, 1, &paths(b'a', 1), 0, AcquireOptions::default());
    // The second set enters, and the third one queues behind it.
    let mut entered = paths(b'b', 100);
    entered.extend(paths(b'a', 1));
    fan_out.enter(0, 2, &entered, u32::MAX, AcquireOptions::default());
    fan_out.enter(0, 3, &paths(b'c', 2), u32::MAX, AcquireOptions::default());
    let mut turns = 0;
    while fan_out.answered(3).is_none() {
        let keys: Vec<_> = fan_out.listed(10, &[], true).into_iter().map(|waiter| waiter.key).collect();
        assert_eq!(keys, [paths(b'b', 1).concat(), paths(b'c', 1).concat()], "in turn {turns}");
        for (path, count) in [(&paths(b'b', 100)[99], 1), (&paths(b'a', 1)[0], 1), (&paths(b'd', 1)[0], 0)] {
            assert_eq!(fan_out.listed(10, path, true).len(), count, "in turn {turns}");
        }
        turns += 1;
        fan_out.turn();
    }
    assert!(turns > 5, "the second set entered in {turns} turns");
    assert_eq!(fan_out.listed(10, &[], true).len(), 1, "the third set is granted");
    assert_eq!(fan_out.listed(10, &[], false).len(), 2);
}

#[test]
fn rights_for_the_entered_paths_of_a_set_are_no_rights_for_the_set() {
    let mut fan_out = small_turns();
    // A shard compares rights with this number of paths.
    let mut set = paths(b'a', 16);
    set.extend(paths(b'b', 16));
    assert_eq!(set.len(), COMPARED_PATH_COUNT_MAX);
    fan_out.enter(0, 1, &set, u32::MAX, AcquireOptions::default());
    let id = fan_out.queued_ids()[0];
    let allowed = |first: &[u8]| {
        let by_prefix = first.iter().map(|first| (Box::from([2, 0, *first]), Rights::LIST | Rights::INSPECT));
        Arc::new(Access::new("other".into(), Rights::NONE, by_prefix.collect()))
    };
    let mut turns = 0;
    while fan_out.answered(1).is_none() {
        for (client, first, may) in [(1, &b"a"[..], false), (2, b"ab", true), (3, b"c", false)] {
            let caller = fan_out.caller(client, 9);
            let shard = &mut fan_out.node.shards[0];
            shard.note_access(caller.lane, Some(&allowed(first)));
            shard.status(&caller, id, None, &mut fan_out.effects);
            let answer = fan_out.answered(9);
            assert_eq!(matches!(answer, Some(Answer::Status(_))), may, "in turn {turns}: {answer:?}");
            assert_eq!(fan_out.listed(client, &[], true).len(), usize::from(may), "in turn {turns}");
        }
        turns += 1;
        fan_out.turn();
    }
    assert!(turns > 1, "the set entered in {turns} turns");
}

/// Each of the waits takes a step or two when it ends. The sets behind it, which go on entering, must not take the others.
#[test]
fn wait_timeouts_of_entering_sets_do_not_delay_lease_expiry() {
    let mut fan_out = small_turns();
    let caller = fan_out.caller(0, 0);
    let shard = &mut fan_out.node.shards[0];
    let acquire = Acquire {
        key: b"key",
        hash: shard.hash(0, b"key"),
        terms: AcquireTerms { lease_ms: 100, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    shard.acquire(&caller, &acquire, &mut fan_out.effects);
    for number in 1..=80 {
        fan_out.enter(0, number, &paths(number as u8, 100), 50, AcquireOptions::default());
    }
    let is_expired = |effect: &Effect| matches!(effect, Effect::Event(_, Event::Expired { .. }));
    let mut turns = 0;
    while !fan_out.effects.said.iter().any(is_expired) {
        turns += 1;
        fan_out.now = fan_out.now.after_ms(1);
        fan_out.turn();
    }
    assert!((100..=101).contains(&turns), "the lease of 100 ms ended in turn {turns}");
}

#[test]
fn entering_sets_count_towards_the_node_limit_of_all_trees() {
    let mut fan_out = limited(Limits { node_count_max: 300, ..Limits::default() });
    for namespace in 0..4 {
        let caller = Caller { namespace, ..fan_out.caller(0, u32::from(namespace)) };
        fan_out.enter_as(&caller, &paths(b'a', 100), u32::MAX, AcquireOptions::default());
    }
    let full = Refusal::Overloaded { limit: "nodes per shard", value: 300 };
    assert_eq!(fan_out.answered(3), Some(Answer::Refused(full)));
    for number in 0..3 {
        let caller = fan_out.caller(0, 9);
        fan_out.node.shards[0].cancel(&caller, number, &mut fan_out.effects);
    }
    fan_out.turns();
    let caller = Caller { namespace: 3, ..fan_out.caller(0, 4) };
    fan_out.enter_as(&caller, &paths(b'a', 100), u32::MAX, AcquireOptions::default());
    assert_eq!(fan_out.answered(4), None, "what was given up makes room");
}

#[test]
fn entering_sets_count_towards_the_node_limit_of_their_tree() {
    let mut fan_out = limited(Limits { node_count_per_tree_max: 201, ..Limits::default() });
    let full = || Answer::Refused(Refusal::Overloaded { limit: "nodes per tree namespace", value: 201 });
    // All of them are for the same paths, which are counted once when they have entered.
    for number in [1, 2, 3] {
        fan_out.enter(0, number, &paths(b'a', 100), u32::MAX, AcquireOptions::default());
    }
    assert_eq!(fan_out.answered(3), Some(full()));
    fan_out.turns();
    fan_out.enter(0, 4, &paths(b'a', 100), u32::MAX, AcquireOptions::default());
    fan_out.enter(0, 5, &paths(b'a', 100), u32::MAX, AcquireOptions::default());
    assert_eq!((fan_out.answered(4), fan_out.answered(5)), (None, Some(full())));
}

#[test]
fn the_request_id_of_an_entering_set_is_bound_to_its_paths() {
    let mut fan_out = small_turns();
    let options = AcquireOptions { request_id: Some(b"id"), ..AcquireOptions::default() };
    let asked = paths(b'a', 100);
    fan_out.enter(0, 1, &asked, u32::MAX, options);
    for turn in 0..4 {
        for other in [&asked[..99], &paths(b'b', 100)] {
            fan_out.enter(0, 2, other, u32::MAX, options);
            let Some(Answer::Refused(Refusal::BadInput { .. })) = fan_out.answered(2) else {
                panic!("other paths, in turn {turn}: {:?}", fan_out.effects.said)
            };
        }
        fan_out.turn();
    }
    let reversed: Vec<_> = asked.iter().rev().cloned().collect();
    fan_out.enter(1, 3, &reversed, u32::MAX, options);
    let superseded = Answer::Refused(Refusal::Cancelled(CancelReason::Superseded));
    assert_eq!(fan_out.answered(1), Some(superseded));
    fan_out.turns();
    assert!(matches!(fan_out.answered(3), Some(Answer::Granted(_))));
    fan_out.node.verify();
}

/// A freeze refuses a try that enters, whether it comes before the try or after.
#[test]
fn an_entering_try_is_refused_if_its_tree_is_frozen() {
    for turns in 0..60 {
        let mut fan_out = small_turns();
        let mut freezes = FreezeList::default();
        fan_out.enter(0, 1, &paths(b'a', 50), 0, AcquireOptions::default());
        fan_out.enter(0, 2, &paths(b'a', 50), u32::MAX, AcquireOptions::default());
        for _ in 0..turns {
            fan_out.turn();
        }
        let is_granted = matches!(fan_out.answered(1), Some(Answer::Granted(_)));
        fan_out.freeze(&mut freezes, true);
        fan_out.enter(0, 3, &paths(b'b', 2), 0, AcquireOptions::default());
        assert_eq!(fan_out.answered(3), Some(Answer::Refused(Refusal::Frozen)), "refused at once");
        fan_out.turns();
        fan_out.node.verify();
        if !is_granted {
            assert_eq!(fan_out.answered(1), Some(Answer::Refused(Refusal::Frozen)), "after {turns} turns");
        }
        assert_eq!(fan_out.answered(2), None, "after {turns} turns");
        fan_out.freeze(&mut freezes, false);
        fan_out.turns();
        fan_out.node.verify();
        let is_next_granted = matches!(fan_out.answered(2), Some(Answer::Granted(_)));
        assert_eq!(is_next_granted, !is_granted, "after {turns} turns");
    }
}

/// Tries are answered when it is known whether they conflict, and are counted, listed and told of as tries.
#[test]
fn an_entering_try_gets_only_its_answer_and_no_events() {
    let mut fan_out = small_turns();
    fan_out.enter(0, 1, &paths(b'a', 50), u32::MAX, AcquireOptions::default());
    fan_out.enter(0, 2, &paths(b'a', 50), 0, AcquireOptions::default());
    fan_out.enter(0, 3, &paths(b'b', 50), 0, AcquireOptions::default());
    assert_eq!(fan_out.queued_ids().len(), 1, "a try does not queue");
    // Time does not end it.
    fan_out.now = fan_out.now.after_ms(1000);
    fan_out.turns();
    assert!(matches!(fan_out.answered(2), Some(Answer::Refused(Refusal::Busy(_)))));
    assert!(matches!(fan_out.answered(3), Some(Answer::Granted(_))));
    let caller = fan_out.caller(0, 4);
    fan_out.node.shards[0].tree_statistics(&caller, &mut fan_out.effects);
    let Some(Answer::TreeStatistics(statistics)) = fan_out.answered(4) else { panic!("it is a tree") };
    assert_eq!((statistics.set_count, statistics.held_set_count), (2, 2), "sets that were not refused");
}

#[test]
fn entering_sets_count_towards_the_waiter_limit() {
    let mut fan_out = limited(Limits { waiter_count_per_key_max: 2, ..Limits::default() });
    for (number, wait_ms) in [(1, u32::MAX), (2, 0), (3, 0), (4, u32::MAX)] {
        fan_out.enter(0, number, &paths(b'a', 50), wait_ms, AcquireOptions::default());
    }
    let full = || Answer::Refused(Refusal::Overloaded { limit: "waiters per key", value: 2 });
    assert_eq!((fan_out.answered(3), fan_out.answered(4)), (Some(full()), Some(full())));
}

/// The connection of a try is lost and comes back before its shard looks at the try.
#[test]
fn an_entering_try_of_a_lost_connection_is_answered_as_lost() {
    for blocked in [false, true] {
        let mut fan_out = small_turns();
        if blocked {
            fan_out.enter(1, 1, &paths(b'a', 1), 0, AcquireOptions::default());
        }
        // No turn can look at all these claims of the lane.
        for number in 2..40 {
            fan_out.enter(0, number, &paths(b'a', 2), 0, AcquireOptions::default());
        }
        fan_out.node.shards[0].detach_lane(FanOut::address(0), &mut fan_out.effects);
        fan_out.node.shards[0].attach_lane(FanOut::address(0), &mut fan_out.effects);
        fan_out.turns();
        let lost = Answer::Refused(Refusal::Cancelled(CancelReason::ConnectionLost));
        for number in 2..40 {
            assert_eq!(fan_out.answered(number), Some(lost.clone()), "try {number}, blocked: {blocked}");
            assert_eq!(fan_out.answered(number), None, "one answer to try {number}");
        }
        fan_out.node.verify();
    }
}

/// Some of its paths are marked as held before it is granted. After a freeze they are marked as waiting again.
#[test]
fn an_entering_set_never_reports_itself_as_its_blocker() {
    for freezes_after in (0..12).map(Some).chain([None]) {
        for turns in 0..60 {
            let mut fan_out = small_turns();
            let mut freezes = FreezeList::default();
            fan_out.enter(0, 1, &paths(b'a', 20), 30, AcquireOptions::default());
            for turn in 0..turns {
                if freezes_after == Some(turn) {
                    fan_out.freeze(&mut freezes, true);
                }
                fan_out.turn();
            }
            fan_out.now = fan_out.now.after_ms(40);
            fan_out.turns();
            match fan_out.answered(1) {
                Some(Answer::Refused(Refusal::Timeout(contention))) => {
                    let told = (contention.held, contention.age_ms, contention.waiter_count);
                    assert_eq!(told, (false, 0, 0), "freeze after {freezes_after:?} of {turns} turns");
                }
                Some(Answer::Granted(_)) => {}
                other => panic!("{other:?}"),
            }
            fan_out.node.verify();
        }
    }
}

#[test]
fn an_entering_set_is_shown_as_a_waiter_until_its_grant() {
    let mut fan_out = small_turns();
    let asked = paths(b'a', 50);
    fan_out.enter(0, 1, &asked, u32::MAX, AcquireOptions::default());
    let mut counts = Vec::new();
    while counts.last() != Some(&(1, 0)) {
        fan_out.turn();
        let caller = fan_out.caller(0, 2);
        fan_out.node.shards[0].inspect(&caller, &asked[0], &mut fan_out.effects);
        let Some(Answer::Inspected(status)) = fan_out.answered(2) else { panic!("it is known") };
        counts.push((status.holder_count, status.waiter_count));
    }
    counts.dedup();
    assert_eq!(counts, [(0, 0), (0, 1), (1, 0)]);
}

#[test]
fn a_set_within_the_segment_limit_enters_at_once() {
    let limits = Limits { large_set_segment_count: 3, ..Limits::default() };
    let start = Time::from_millis(1000);
    let of_two_segments = |first: u8| paths(first, 2).concat();
    for (paths, is_large) in [
        (paths(b'a', 3), false),
        (paths(b'a', 4), true),
        (vec![of_two_segments(b'a'), paths(b'b', 1).concat()], false),
        (vec![of_two_segments(b'a'), of_two_segments(b'b')], true),
    ] {
        let mut fan_out =
            FanOut { node: Node::new(1, limits, start, 1), now: start, effects: Recorder::default() };
        fan_out.enter(0, 1, &paths, 0, AcquireOptions::default());
        assert_eq!(fan_out.answered(1).is_none(), is_large, "{paths:?}");
    }
}

/// A release itself grants the sets that it makes clear. Sets that enter go on in later turns, which may hold free paths.
#[test]
fn a_concurrent_release_does_not_refuse_an_entering_try() {
    let mut fan_out = small_turns();
    fan_out.enter(0, 1, &paths(b'b', 1), 0, AcquireOptions::default());
    let Some(Answer::Granted(held)) = fan_out.answered(1) else { panic!("it is free") };
    fan_out.enter(0, 2, &paths(b'a', 100), 0, AcquireOptions::default());
    fan_out.turn();
    fan_out.release(held.id);
    fan_out.turns();
    assert!(matches!(fan_out.answered(2), Some(Answer::Granted(_))), "{:?}", fan_out.effects.said);
}

#[test]
fn an_entering_try_gets_the_wait_time_of_its_repeated_request() {
    let options = AcquireOptions { request_id: Some(b"id"), ..AcquireOptions::default() };
    let mut fan_out = small_turns();
    fan_out.enter(0, 1, &paths(b'a', 1), 0, AcquireOptions::default());
    let asked = paths(b'a', 100);
    // A wait that has an end already keeps it.
    for (number, wait_ms) in [(2, 0), (3, 50), (4, 200), (5, 0)] {
        fan_out.enter(1, number, &asked, wait_ms, options);
    }
    fan_out.turns();
    fan_out.node.verify();
    fan_out.now = fan_out.now.after_ms(49);
    fan_out.turns();
    assert_eq!(fan_out.answered(5), None, "the blocked set waits");
    fan_out.now = fan_out.now.after_ms(1);
    fan_out.turns();
    assert!(matches!(fan_out.answered(5), Some(Answer::Refused(Refusal::Timeout(_)))));
}

/// The sets become clear before their waits end, and are granted afterwards.
#[test]
fn sets_that_become_clear_before_their_waits_end_are_granted() {
    let mut fan_out = small_turns();
    fan_out.enter(0, 1, &paths(b'a', 1), 0, AcquireOptions::default());
    let Some(Answer::Granted(held)) = fan_out.answered(1) else { panic!("it is free") };
    let readers = 2..202;
    for number in readers.clone() {
        let caller = fan_out.caller(0, number);
        let path = &paths(b'a', 1)[0];
        let acquire = AcquireSet {
            items: &[TreeItem { path, write: false }],
            terms: AcquireTerms { wait_ms: 50, ..AcquireTerms::default() },
        };
        fan_out.node.shards[0].acquire_set(&caller, &acquire, &mut fan_out.effects);
    }
    fan_out.now = fan_out.now.after_ms(49);
    fan_out.turn();
    fan_out.release(held.id);
    fan_out.now = fan_out.now.after_ms(1);
    assert!(fan_out.turns() > 3, "no turn can grant all of them");
    for number in readers {
        assert!(matches!(fan_out.answered(number), Some(Answer::Granted(_))), "set {number}");
    }
    fan_out.node.verify();
}
