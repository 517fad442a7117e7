//! Waiters whose connection is lost while a turn has no steps left, so that the connection is back before they are looked at.

use crate::random::Dice;
use crate::recorder::{Effect, Recorder};
use std::collections::BTreeSet;
use std::sync::Arc;
use waymaker_engine::{
    Acquire, AcquireOptions, AcquireTerms, Caller, LaneAddress, LaneSlot, Limits, Shard, ShardConfig, Ticket,
    Time,
};

const START: Time = Time::from_millis(1000);
const LANE_COUNT: u32 = 3;

/// A shard in which one claim holds the key `k` and all others wait for it. A turn does four steps of follow-up work.
struct Queue {
    shard: Shard,
    effects: Recorder,
    number: u32,
    /// Lane and number of each acquire without an answer.
    unanswered: BTreeSet<(u32, u32)>,
}

impl Queue {
    fn new() -> Self {
        let limits = Limits { work_per_turn: 4, ..Limits::default() };
        let config =
            ShardConfig { number: 0, limits, hash_seeds: [1, 2, 3, 4], secret_seed: [5; 32], start: START };
        let mut queue = Self {
            shard: Shard::new(&config),
            effects: Recorder::default(),
            number: 0,
            unanswered: BTreeSet::new(),
        };
        queue.acquire(LANE_COUNT, None);
        queue.hear();
        queue
    }

    fn address(lane: u32) -> LaneAddress {
        LaneAddress { worker: 0, slot: LaneSlot(lane), generation: 0 }
    }

    fn acquire(&mut self, lane: u32, request_id: Option<&[u8]>) -> u32 {
        self.number += 1;
        let address = Self::address(lane);
        let number = self.shard.lane(address, &Arc::from(*b"owner"), 0);
        let ticket = Ticket { lane: address, number: self.number };
        let caller = Caller { lane: number, ticket, namespace: 0 };
        let options = AcquireOptions { request_id, ..AcquireOptions::default() };
        let acquire = Acquire {
            key: b"k",
            hash: self.shard.hash(0, b"k"),
            terms: AcquireTerms {
                wait_ms: u32::MAX,
                lease_ms: 60_000,
                options: Some(&options),
                ..AcquireTerms::default()
            },
            ..Acquire::default()
        };
        self.shard.acquire(&caller, &acquire, &mut self.effects);
        self.unanswered.insert((lane, self.number));
        self.hear();
        self.number
    }

    fn lose(&mut self, lane: u32) {
        self.shard.detach_lane(Self::address(lane), &mut self.effects);
        self.hear();
    }

    fn bring_back(&mut self, lane: u32) {
        self.shard.attach_lane(Self::address(lane), &mut self.effects);
        self.hear();
    }

    /// Turns until nothing is left over.
    fn settle(&mut self) {
        while self.shard.next_deadline() <= START {
            self.shard.begin_turn(START, START, &mut self.effects);
        }
        self.hear();
        self.shard.verify();
    }

    /// Notes which acquires were answered.
    fn hear(&mut self) {
        for effect in self.effects.said.drain(..) {
            if let Effect::Answer(ticket, _) = effect {
                self.unanswered.remove(&(ticket.lane.slot.0, ticket.number));
            }
        }
    }
}

#[test]
fn a_waiter_taken_over_by_a_repeated_request_ends_with_its_connection() {
    let mut queue = Queue::new();
    queue.acquire(0, Some(b"id"));
    for _ in 0..20 {
        queue.acquire(0, None);
    }
    let newest = queue.acquire(0, Some(b"id"));
    queue.lose(0);
    assert!(queue.unanswered.contains(&(0, newest)), "the turn has no step left for this waiter");
    queue.bring_back(0);
    queue.settle();
    assert_eq!(queue.unanswered, BTreeSet::new());
}

#[test]
fn no_acquire_waits_longer_than_its_connection_lasts() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let mut queue = Queue::new();
        // The number of the last acquire before each lane was last lost.
        let mut lost = [0; LANE_COUNT as usize];
        for _ in 0..100 {
            let lane = dice.below(u64::from(LANE_COUNT)) as u32;
            match dice.weighted(&[6, 4, 1, 2]) {
                0 => {
                    queue.acquire(lane, None);
                }
                1 => {
                    queue.acquire(lane, Some(dice.pick(&[b"a", b"b", b"c"])));
                }
                2 => {
                    queue.lose(lane);
                    lost[lane as usize] = queue.number;
                    queue.bring_back(lane);
                }
                _ => queue.settle(),
            }
        }
        queue.settle();
        let outlived = |(lane, number): &&(u32, u32)| *number <= lost[*lane as usize];
        assert_eq!(queue.unanswered.iter().find(outlived), None, "an acquire in seed {seed}");
    }
}
