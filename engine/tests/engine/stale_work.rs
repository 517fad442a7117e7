//! Follow-up work that is left over while that for which it was meant goes away, and something else takes its place.

use crate::random::Dice;
use crate::recorder::{Effect, Recorder};
use std::sync::Arc;
use waymaker_engine::{
    Acquire, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Answer, Caller, ClaimId, LaneAddress,
    LaneSlot, Limits, PoolOrder, Shard, ShardConfig, Ticket, Time, TreeItem,
};

const START: Time = Time::from_millis(1000);
const KEYS: u16 = 0;
const POOLS: u16 = 1;
/// The first of some tree namespaces.
const TREE: u16 = 2;

struct Small {
    shard: Shard,
    effects: Recorder,
    number: u32,
}

impl Small {
    /// A shard that does four steps of follow-up work a turn, and remembers no idle key.
    fn new() -> Self {
        let limits = Limits { work_per_turn: 4, idle_key_count_max: 0, ..Limits::default() };
        let config =
            ShardConfig { number: 0, limits, hash_seeds: [1, 2, 3, 4], secret_seed: [5; 32], start: START };
        Self { shard: Shard::new(&config), effects: Recorder::default(), number: 0 }
    }

    /// Each namespace has a lane of its own.
    fn address(namespace: u16) -> LaneAddress {
        LaneAddress { worker: 0, slot: LaneSlot(u32::from(namespace)), generation: 0 }
    }

    fn caller(&mut self, namespace: u16) -> Caller {
        self.number += 1;
        let address = Self::address(namespace);
        let lane = self.shard.lane(address, &Arc::from(*b"owner"), namespace);
        Caller { lane, ticket: Ticket { lane: address, number: self.number }, namespace }
    }

    fn acquire(&mut self, key: &[u8], shared: bool) -> u32 {
        let caller = self.caller(KEYS);
        let hash = self.shard.hash(KEYS, key);
        let acquire = Acquire {
            key,
            hash,
            shared,
            terms: AcquireTerms { wait_ms: u32::MAX, ..AcquireTerms::default() },
        };
        self.shard.acquire(&caller, &acquire, &mut self.effects);
        self.number
    }

    /// The hold ends some time after its connection is lost.
    fn acquire_until_lost(&mut self, key: &[u8]) -> u32 {
        let caller = self.caller(KEYS);
        let hash = self.shard.hash(KEYS, key);
        let options = AcquireOptions { release_after_ms: Some(1000), ..AcquireOptions::default() };
        let acquire = Acquire {
            key,
            hash,
            terms: AcquireTerms { options: Some(&options), ..AcquireTerms::default() },
            ..Acquire::default()
        };
        self.shard.acquire(&caller, &acquire, &mut self.effects);
        self.number
    }

    /// The id that the acquire of this number was granted, if it was.
    fn granted(&self, number: u32) -> Option<ClaimId> {
        self.effects.said.iter().find_map(|effect| match effect {
            Effect::Answer(ticket, Answer::Granted(grant)) if ticket.number == number => Some(grant.id),
            _ => None,
        })
    }

    fn give_back(&mut self, number: u32) {
        self.give_back_in(KEYS, number);
    }

    /// Gives a claim back, held or waiting.
    fn give_back_in(&mut self, namespace: u16, number: u32) {
        let caller = self.caller(namespace);
        match self.granted(number) {
            Some(id) => self.shard.release(&caller, id, None, &mut self.effects),
            None => self.shard.cancel(&caller, number, &mut self.effects),
        }
    }

    fn hold_path(&mut self, path: &[u8]) -> Option<ClaimId> {
        let number = self.acquire_path(path, true, 0);
        self.granted(number)
    }

    fn acquire_path(&mut self, path: &[u8], write: bool, wait_ms: u32) -> u32 {
        self.acquire_path_in(TREE, path, write, wait_ms)
    }

    fn acquire_path_in(&mut self, namespace: u16, path: &[u8], write: bool, wait_ms: u32) -> u32 {
        let caller = self.caller(namespace);
        let acquire = AcquireSet {
            items: &[TreeItem { path, write }],
            terms: AcquireTerms { wait_ms, ..AcquireTerms::default() },
        };
        self.shard.acquire_set(&caller, &acquire, &mut self.effects);
        self.number
    }

    fn acquire_permits(&mut self, name: &[u8], permits: u64) -> u32 {
        let caller = self.caller(POOLS);
        let acquire = AcquirePermits {
            name,
            capacity: Some(5),
            permits,
            order: PoolOrder::Arrival,
            timestamp_us: 0,
            terms: AcquireTerms { wait_ms: u32::MAX, ..AcquireTerms::default() },
        };
        self.shard.acquire_permits(&caller, &acquire, &mut self.effects);
        self.number
    }
}

#[test]
fn leftover_grants_of_a_key_never_touch_a_reused_record() {
    let mut small = Small::new();
    small.shard.begin_turn(START, START, &mut small.effects);
    let holder = small.acquire(b"key", false);
    let readers: Vec<u32> = (0..8).map(|_| small.acquire(b"key", true)).collect();
    small.give_back(holder);
    assert!(small.granted(readers[0]).is_some() && small.granted(readers[7]).is_none());
    // Everybody leaves before the next turn, the key is forgotten, and its record becomes that of a tree.
    for reader in readers {
        small.give_back(reader);
    }
    for other in [b"one", b"two", b"six"] {
        let number = small.acquire(other, false);
        small.give_back(number);
    }
    let first = small.hold_path(&[1, 0, b'a']);
    assert!(first.is_some());
    small.shard.verify();
    small.shard.begin_turn(START, START, &mut small.effects);
    small.shard.verify();
    assert!(small.hold_path(&[1, 0, b'a']).is_none(), "the path is held");
    assert!(small.hold_path(&[1, 0, b'b']).is_some());
    small.shard.verify();
}

#[test]
fn leftover_work_of_a_lane_does_not_affect_its_successor() {
    let mut small = Small::new();
    small.shard.begin_turn(START, START, &mut small.effects);
    let numbers: Vec<u32> = (0..8_u8).map(|key| small.acquire_until_lost(&[key])).collect();
    let ids: Vec<ClaimId> =
        numbers.iter().map(|number| small.granted(*number).expect("it is free")).collect();
    // Not all holds are looked at, and they end before the next turn does that. The lane goes with the last one.
    small.shard.close_lane(Small::address(KEYS), false, &mut small.effects);
    let other = Caller { namespace: KEYS, ..small.caller(POOLS) };
    for id in ids {
        small.shard.release(&other, id, None, &mut small.effects);
    }
    small.acquire(b"key", false);
    small.shard.verify();
    small.shard.begin_turn(START, START, &mut small.effects);
    small.shard.verify();
}

/// Anything may happen between two turns that each do little: keys, trees and pools take over each other's records.
#[test]
fn random_steps_between_small_turns_break_no_invariant() {
    for seed in 0..400 {
        let mut dice = Dice::new(seed);
        let mut small = Small::new();
        let mut live: Vec<(u16, u32)> = Vec::new();
        let turn_percent = dice.pick(&[1, 5, 20]);
        let key_count = 1 + dice.below(3);
        // Crowds come and go, so that records become free while work for them is left over.
        let mut comes = true;
        for _ in 0..400 {
            comes ^= dice.percent(8);
            if dice.percent(turn_percent) {
                small.shard.begin_turn(START, START, &mut small.effects);
            } else if dice.percent(2) {
                let namespace = dice.below(8) as u16;
                small.shard.detach_lane(Small::address(namespace), &mut small.effects);
                small.shard.attach_lane(Small::address(namespace), &mut small.effects);
            } else if dice.percent(if comes { 20 } else { 90 }) && !live.is_empty() {
                let place = if dice.percent(50) { 0 } else { dice.below(live.len() as u64) as usize };
                let (namespace, number) = live.remove(place);
                small.give_back_in(namespace, number);
            } else {
                let name = [b'a' + dice.below(key_count) as u8];
                let tree = TREE + dice.below(6) as u16;
                let namespace = dice.pick(&[KEYS, KEYS, KEYS, KEYS, KEYS, POOLS, tree]);
                match namespace {
                    KEYS => small.acquire(&name, dice.percent(80)),
                    POOLS => small.acquire_permits(&name, 1 + dice.below(2)),
                    _ => small.acquire_path_in(tree, &[1, 0, name[0]], dice.percent(30), u32::MAX),
                };
                live.push((namespace, small.number));
            }
            small.shard.verify();
        }
        for (namespace, number) in live {
            small.give_back_in(namespace, number);
        }
        while small.shard.next_deadline() <= START {
            small.shard.begin_turn(START, START, &mut small.effects);
        }
        small.shard.verify();
        assert_eq!(small.shard.claim_count(), 0, "seed {seed}: every claim was given back");
    }
}
