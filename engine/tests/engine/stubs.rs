//! Claims over several keys of one shard: what their stubs keep out, and what becomes of their keys when room is short.

use crate::recorder::{Effect, Recorder};
use std::sync::Arc;
use waymaker_engine::several::{self, AcquireSeveral, Participant, Several, SeveralKey};
use waymaker_engine::{
    Acquire, AcquireOptions, Answer, Caller, ClaimId, Effects, Event, LaneAddress, Limits, Shard,
    ShardConfig, Ticket, Time,
};

/// A shard whose rechecks are done as soon as they are asked for.
struct Scene {
    shard: Shard,
    lane: u32,
    number: u32,
    heard: Recorder,
}

/// Effects, and the claims that have to be looked at.
struct Turn<'a> {
    heard: &'a mut Recorder,
    rechecks: Vec<Arc<Several>>,
}

impl Effects for Turn<'_> {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.heard.answer(ticket, answer);
    }

    fn event(&mut self, lane: LaneAddress, event: Event) {
        self.heard.event(lane, event);
    }

    fn recheck(&mut self, several: &Arc<Several>) {
        self.rechecks.push(Arc::clone(several));
    }
}

impl Scene {
    fn new(idle_key_count_max: u32) -> Self {
        let limits = Limits { idle_key_count_max, ..Limits::default() };
        let config = ShardConfig {
            number: 0,
            limits,
            hash_seeds: [1, 2, 3, 4],
            secret_seed: [0; 32],
            start: Time::from_millis(1),
        };
        let mut shard = Shard::new(&config);
        let lane = shard.lane(LaneAddress::default(), &Arc::from(*b"somebody"), 0);
        Self { shard, lane, number: 0, heard: Recorder::default() }
    }

    /// One step, and whatever it leaves to be looked at. Gives the number under which it is answered.
    fn step(&mut self, act: impl FnOnce(&mut Shard, &Caller, &mut Turn<'_>)) -> u32 {
        self.number += 1;
        let ticket = Ticket { lane: LaneAddress::default(), number: self.number };
        let caller = Caller { lane: self.lane, ticket, namespace: 0 };
        let mut turn = Turn { heard: &mut self.heard, rechecks: Vec::new() };
        act(&mut self.shard, &caller, &mut turn);
        while let Some(several) = turn.rechecks.pop() {
            let participant = Participant { shard: &mut self.shard, lane: self.lane };
            several::recheck(&mut [participant], &several, &mut turn);
        }
        self.shard.verify();
        self.number
    }

    /// Asks for several keys; a leading `r` shares, anything else does not.
    fn acquire_keys(&mut self, keys: &[&str], wait_ms: u32) -> u32 {
        self.acquire_keys_before(keys, wait_ms, 0)
    }

    fn acquire_keys_before(&mut self, keys: &[&str], wait_ms: u32, priority: u32) -> u32 {
        let keys: Vec<_> = keys
            .iter()
            .map(|key| SeveralKey { key: &key.as_bytes()[1..], shared: key.starts_with('r'), shard: 0 })
            .collect();
        self.step(|shard, caller, turn| {
            let request = AcquireSeveral {
                keys: &keys,
                lease_ms: 1000,
                wait_ms,
                session_lease: false,
                notify_queued: false,
                options: AcquireOptions { priority, ..AcquireOptions::default() },
            };
            let participant = Participant { shard, lane: caller.lane };
            several::acquire(&mut [participant], caller.ticket, 0, &request, turn);
        })
    }

    fn acquire(&mut self, key: &str, wait_ms: u32) -> u32 {
        self.acquire_before(key, wait_ms, 0)
    }

    fn acquire_before(&mut self, key: &str, wait_ms: u32, priority: u32) -> u32 {
        self.step(|shard, caller, turn| {
            let (key, shared) = (&key.as_bytes()[1..], key.starts_with('r'));
            let hash = shard.hash(0, key);
            let acquire = Acquire {
                key,
                hash,
                lease_ms: 1000,
                wait_ms,
                shared,
                session_lease: false,
                notify_queued: false,
                options: Some(&AcquireOptions { priority, ..AcquireOptions::default() }),
            };
            shard.acquire(caller, &acquire, turn);
        })
    }

    fn release(&mut self, id: ClaimId) {
        self.step(|shard, caller, turn| shard.release(caller, id, None, turn));
    }

    /// The holds that a request was granted; none while it waits.
    fn holds(&self, number: u32) -> Vec<ClaimId> {
        let of = |effect: &Effect| match effect {
            Effect::Answer(ticket, Answer::Granted(grant)) if ticket.number == number => vec![grant.id],
            Effect::Answer(ticket, Answer::GrantedSeveral(grants)) if ticket.number == number => {
                grants.iter().map(|one| one.grant.id).collect()
            }
            _ => Vec::new(),
        };
        self.heard.0.iter().flat_map(of).collect()
    }
}

const FOR_LONG: u32 = u32::MAX;

#[test]
fn a_reader_does_not_overtake_a_writer_that_still_lacks_another_key() {
    let mut scene = Scene::new(100);
    let first = scene.acquire("wa", 0);
    let second = scene.acquire("wb", 0);
    let writer = scene.acquire_keys(&["wa", "wb"], FOR_LONG);
    let reader = scene.acquire("rb", FOR_LONG);
    // The writer is in front at b and free to take it, but a is still held.
    scene.release(scene.holds(second)[0]);
    assert_eq!(scene.holds(reader).len(), 0, "the reader came first");
    scene.release(scene.holds(first)[0]);
    assert_eq!(scene.holds(writer).len(), 2);
    scene.release(scene.holds(writer)[1]);
    assert_eq!(scene.holds(reader).len(), 1);
}

#[test]
fn who_stood_behind_a_writer_of_several_keys_is_looked_at_again_when_that_one_is_done() {
    let mut scene = Scene::new(100);
    let first = scene.acquire("wa", 0);
    let second = scene.acquire("wb", 0);
    let writer = scene.acquire_keys(&["wa", "wb"], FOR_LONG);
    let reader = scene.acquire_keys(&["rb", "rc"], FOR_LONG);
    scene.release(scene.holds(second)[0]);
    scene.release(scene.holds(first)[0]);
    let holds = scene.holds(writer);
    assert_eq!((holds.len(), scene.holds(reader).len()), (2, 0));
    scene.release(holds[1]);
    assert_eq!(scene.holds(reader).len(), 2, "nobody looked at the reader again");
}

#[test]
fn a_reader_that_stands_behind_readers_that_lack_other_keys_and_before_writers_is_granted_at_once() {
    let mut scene = Scene::new(100);
    scene.acquire("wa", 0);
    scene.acquire("rb", 0);
    let lacking = scene.acquire_keys_before(&["ra", "rb"], FOR_LONG, 2);
    let writer = scene.acquire("wb", FOR_LONG);
    let reader = scene.acquire_before("rb", FOR_LONG, 1);
    let several = scene.acquire_keys_before(&["rb", "rc"], FOR_LONG, 1);
    assert_eq!((scene.holds(reader).len(), scene.holds(several).len()), (1, 2));
    assert_eq!((scene.holds(writer).len(), scene.holds(lacking).len()), (0, 0));
}

#[test]
fn keys_of_one_claim_do_not_take_the_place_of_each_other_where_few_are_remembered() {
    let mut scene = Scene::new(1);
    for round in 0..20 {
        let keys: Vec<String> = (0..5).map(|key| format!("w{}", (round + key) % 7)).collect();
        let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        keys.sort_unstable();
        let granted = scene.acquire_keys(&keys, 0);
        let waiter = scene.acquire_keys(&["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"], FOR_LONG);
        let holds = scene.holds(granted);
        assert_eq!(holds.len(), 5);
        holds.into_iter().for_each(|id| scene.release(id));
        let holds = scene.holds(waiter);
        assert_eq!(holds.len(), 8);
        holds.into_iter().for_each(|id| scene.release(id));
    }
}
