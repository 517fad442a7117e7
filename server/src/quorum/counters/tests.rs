//! Tests of the counters.

use super::*;
use std::collections::BTreeMap;
use waymaker_engine::{ClaimId, ClaimIx, LaneAddress, LaneSlot, QuorumMember, Reserved};

const RUN: u64 = 7;
const STEP_COUNT_MAX: usize = 127;

/// A cluster that applies steps to counters in memory.
#[derive(Default)]
struct Cluster {
    revision: i64,
    counters: BTreeMap<CounterName, StoredCounter>,
}

impl Cluster {
    fn apply(&mut self, step: &Step) -> Reply {
        let found = self.counters.get(&step.name).copied();
        if found.map_or(0, |found| found.revision) != step.since {
            return Reply::Found(found);
        }
        self.revision += 1;
        let found = StoredCounter { revision: self.revision, fence: step.fence, attempt: step.attempt };
        self.counters.insert(step.name.clone(), found);
        Reply::Written { revision: self.revision }
    }
}

fn name(key: &str) -> CounterName {
    CounterName { namespace: 0, key: key.as_bytes().into() }
}

fn question(grants: &[(&str, u64)]) -> QuorumQuestion {
    let lane = LaneAddress { worker: 0, slot: LaneSlot(0), generation: 0 };
    let member = |(key, fence): &(&str, u64)| QuorumMember {
        reserved: Reserved {
            shard: 0,
            lane,
            slot: ClaimIx::new(0),
            secret: 0,
            fence: Fence::new(*fence),
            is_counted: true,
            since: Time::NEVER,
        },
        id: ClaimId { place: 0, secret: 0 },
        counter: (!key.is_empty()).then(|| name(key)),
    };
    QuorumQuestion { at: Time::ZERO, members: grants.iter().map(member).collect(), multi_key: None }
}

fn ask(counters: &mut Counters, grants: &[(&str, u64)]) {
    counters.ask(question(grants), Time::from_millis(100));
}

fn serve(counters: &mut Counters, cluster: &mut Cluster) {
    loop {
        let steps = counters.next_steps(8);
        if steps.is_empty() {
            return;
        }
        for step in steps {
            let reply = cluster.apply(&step);
            counters.answered(&step, reply);
        }
    }
}

fn fences(counters: &mut Counters) -> Vec<Option<Vec<u64>>> {
    let numbers = |fences: Box<[Fence]>| fences.iter().map(|fence| fence.get()).collect();
    counters.take_settled().into_iter().map(|settled| settled.fences.map(numbers)).collect()
}

#[test]
fn each_grant_increments_the_counter_by_one() {
    let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
    for fence in 1..4 {
        ask(&mut counters, &[("k", fence)]);
        serve(&mut counters, &mut cluster);
        assert_eq!(fences(&mut counters), [Some(vec![fence])]);
    }
    assert_eq!(cluster.revision, 3, "one write for each");
    // A second server, which has its own `Counters`, finds fence 3 in the cluster and continues from it. The shard of
    // that server reserved only fence 1 for the grant.
    let mut other = Counters::new(RUN + 1);
    ask(&mut other, &[("k", 1)]);
    serve(&mut other, &mut cluster);
    assert_eq!(fences(&mut other), [Some(vec![4])]);
    // The state of the counter that the first server remembers is now outdated.
    ask(&mut counters, &[("k", 4)]);
    serve(&mut counters, &mut cluster);
    assert_eq!(fences(&mut counters), [Some(vec![5])]);
    // A key that had a lower scope before may need a higher fence than its counter. The counter jumps to that fence.
    ask(&mut counters, &[("k", 20)]);
    serve(&mut counters, &mut cluster);
    assert_eq!(fences(&mut counters), [Some(vec![20])]);
}

#[test]
fn grants_that_arrive_during_a_step_share_the_next_step() {
    let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
    ask(&mut counters, &[("k", 1)]);
    let first = counters.next_steps(8);
    ask(&mut counters, &[("k", 2)]);
    ask(&mut counters, &[("k", 3)]);
    assert!(counters.next_steps(8).is_empty(), "one step of a counter at a time");
    counters.answered(&first[0], cluster.apply(&first[0]));
    serve(&mut counters, &mut cluster);
    assert_eq!(fences(&mut counters), [Some(vec![1]), Some(vec![2]), Some(vec![3])]);
    assert_eq!(cluster.revision, 2);
}

#[test]
fn a_grant_that_is_counted_again_keeps_its_place() {
    let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
    let mut other = Counters::new(RUN + 1);
    ask(&mut other, &[("k", 7)]);
    serve(&mut other, &mut cluster);
    ask(&mut counters, &[("k", 1)]);
    let first = counters.next_steps(8).remove(0);
    ask(&mut counters, &[("k", 2)]);
    counters.answered(&first, cluster.apply(&first));
    serve(&mut counters, &mut cluster);
    let counted = counters.take_settled().into_iter().map(|settled| {
        (settled.question.members[0].reserved.fence.get(), settled.fences.expect("it was counted")[0].get())
    });
    let mut counted: Vec<(u64, u64)> = counted.collect();
    counted.sort_unstable();
    assert_eq!(counted, [(1, 8), (2, 9)], "the fences that were asked for, and those that were counted");
}

#[test]
fn a_lost_answer_is_recovered_whether_or_not_its_step_was_applied() {
    for (applied_first, applied_late) in [(true, false), (false, false), (false, true)] {
        let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
        ask(&mut counters, &[("k", 1)]);
        let first = counters.next_steps(8).remove(0);
        if applied_first {
            cluster.apply(&first);
        }
        counters.lost(&first);
        let again = counters.next_steps(8).remove(0);
        assert_eq!(first, again);
        let reply = cluster.apply(&again);
        if applied_late {
            assert!(matches!(cluster.apply(&first), Reply::Found(_)), "applied twice");
        }
        counters.answered(&again, reply);
        assert_eq!(fences(&mut counters), [Some(vec![1])]);
        ask(&mut counters, &[("k", 2)]);
        serve(&mut counters, &mut cluster);
        assert_eq!(fences(&mut counters), [Some(vec![2])]);
    }
}

#[test]
fn an_expired_grant_may_still_be_counted_but_never_twice() {
    let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
    ask(&mut counters, &[("k", 1)]);
    let late = counters.next_steps(8).remove(0);
    assert!(!counters.expire(Time::from_millis(99)));
    assert!(counters.expire(Time::from_millis(100)));
    assert_eq!(fences(&mut counters), [None]);
    assert!(counters.is_empty());
    // The first question has expired, but its step (a write of the counter) has no result yet. A grant of a new
    // question waits for this result. The cluster applies the step now, and its response is lost.
    ask(&mut counters, &[("k", 2)]);
    cluster.apply(&late);
    counters.lost(&late);
    serve(&mut counters, &mut cluster);
    assert_eq!(fences(&mut counters), [Some(vec![2])]);
    // The third question has three grants. The question fails because `give_up_all` fails all open questions, while the
    // writes of the counters are in flight.
    ask(&mut counters, &[("k", 3), ("", 9), ("m", 1)]);
    let late = counters.next_steps(8);
    counters.give_up_all();
    assert_eq!(fences(&mut counters), [None]);
    ask(&mut counters, &[("k", 4)]);
    for step in &late {
        let reply = cluster.apply(step);
        counters.answered(step, reply);
    }
    serve(&mut counters, &mut cluster);
    assert_eq!(fences(&mut counters), [Some(vec![4])]);
}

#[test]
fn grants_of_several_counters_are_answered_together() {
    let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
    ask(&mut counters, &[("j", 1), ("", 5), ("k", 1)]);
    let steps = counters.next_steps(1);
    counters.answered(&steps[0], cluster.apply(&steps[0]));
    assert!(fences(&mut counters).is_empty());
    serve(&mut counters, &mut cluster);
    assert_eq!(fences(&mut counters), [Some(vec![1, 5, 1])]);
}

#[test]
fn a_removed_counter_continues_above_its_last_fence() {
    let (mut counters, mut cluster) = (Counters::new(RUN), Cluster::default());
    ask(&mut counters, &[("k", 8)]);
    serve(&mut counters, &mut cluster);
    cluster.counters.clear();
    ask(&mut counters, &[("k", 1)]);
    serve(&mut counters, &mut cluster);
    assert_eq!(fences(&mut counters), [Some(vec![8]), Some(vec![9])]);
}

/// The cluster of this test refuses every transaction with one particular counter.
#[test]
fn a_refused_counter_does_not_slow_other_counters() {
    let mut counters = Counters::new(RUN);
    let mut cluster = Cluster::default();
    let keys: Vec<String> = (0..100).map(|number| format!("key-{number:02}")).collect();
    let mut transactions = [0; 4];
    for count in &mut transactions {
        keys.iter().for_each(|key| ask(&mut counters, &[(key.as_str(), 1)]));
        loop {
            let steps = counters.next_steps(STEP_COUNT_MAX);
            if steps.is_empty() {
                break;
            }
            *count += 1;
            if !steps.iter().any(|step| step.name == name("key-42")) {
                for step in &steps {
                    let reply = cluster.apply(step);
                    counters.answered(step, reply);
                }
            } else if let [alone] = &steps[..] {
                counters.refused(alone);
            } else {
                steps.iter().for_each(|step| counters.suspected(step));
            }
        }
        let settled = counters.take_settled();
        let refused = settled.iter().filter(|settled| settled.fences.is_none()).count();
        assert_eq!((settled.len(), refused), (100, 1));
    }
    // Each step is a write of one counter. After the first refusal, of a transaction with all 100 steps, each step has
    // its own transaction. Later only the refused counter has its own transaction. The steps before it and after it in
    // the queue have one transaction each.
    assert_eq!(transactions, [101, 3, 3, 3]);
}

#[test]
fn an_invalid_counter_value_is_not_overwritten() {
    let mut counters = Counters::new(RUN);
    ask(&mut counters, &[("k", 1)]);
    let step = counters.next_steps(8).remove(0);
    counters.answered(&step, Reply::Nonsense);
    assert_eq!(fences(&mut counters), [None]);
    assert!(counters.next_steps(8).is_empty());
}
