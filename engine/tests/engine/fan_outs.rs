//! Sets, permits and several keys of which more becomes true at once than one turn may do.

use crate::node::Node;
use crate::recorder::{Effect, FollowUp, Recorder};
use std::sync::Arc;
use waymaker_engine::limits::WORK_PER_TURN;
use waymaker_engine::multi_key::{self, AcquireMultiKey, RequestedKey};
use waymaker_engine::{
    Acquire, AcquirePermits, AcquireSet, AcquireTerms, Answer, Caller, ClaimId, FreezeList, Grant,
    LaneAddress, LaneSlot, Limits, PoolOrder, Refusal, Shard, Ticket, Time, TreeItem,
};

/// As many as may wait for one key.
const MANY: u32 = 100_000;

/// A few shards with a lane for each client, and turns on demand.
pub(crate) struct FanOut {
    pub(crate) node: Node,
    pub(crate) now: Time,
    pub(crate) effects: Recorder,
}

impl FanOut {
    pub(crate) fn new(shard_count: u16) -> Self {
        let start = Time::from_millis(1000);
        Self {
            node: Node::new(shard_count, Limits::default(), start, 1),
            now: start,
            effects: Recorder::default(),
        }
    }

    pub(crate) fn address(client: u32) -> LaneAddress {
        LaneAddress { worker: 0, slot: LaneSlot(client), generation: 0 }
    }

    pub(crate) fn caller(&mut self, client: u32, number: u32) -> Caller {
        let address = Self::address(client);
        let lane = self.node.shards[0].lane(address, &Arc::from([]), 0);
        Caller { lane, ticket: Ticket { lane: address, number }, namespace: 0 }
    }

    pub(crate) fn set(&mut self, client: u32, number: u32, path: &str, write: bool) -> Option<Grant> {
        let segment = |segment: &str| [&(segment.len() as u16).to_le_bytes(), segment.as_bytes()].concat();
        let path: Vec<u8> = path.split('/').flat_map(segment).collect();
        let acquire = AcquireSet {
            items: &[TreeItem { path: &path, write }],
            terms: AcquireTerms { wait_ms: u32::MAX, ..AcquireTerms::default() },
        };
        let (caller, before) = (self.caller(client, number), self.effects.said.len());
        self.node.shards[0].acquire_set(&caller, &acquire, &mut self.effects);
        self.granted_since(before)
    }

    pub(crate) fn permits(
        &mut self,
        client: u32,
        number: u32,
        permits: u64,
        session_lease: bool,
    ) -> Option<Grant> {
        let acquire = AcquirePermits {
            name: b"p",
            capacity: None,
            permits,
            order: PoolOrder::Arrival,
            timestamp_us: 0,
            terms: AcquireTerms { wait_ms: u32::MAX, session_lease, ..AcquireTerms::default() },
        };
        let (caller, before) = (self.caller(client, number), self.effects.said.len());
        self.node.shards[0].acquire_permits(&caller, &acquire, &mut self.effects);
        self.granted_since(before)
    }

    /// Asks for the key `k`.
    fn key(&mut self, client: u32, number: u32, shared: bool, wait_ms: u32) -> Option<Grant> {
        let (caller, before) = (self.caller(client, number), self.effects.said.len());
        let shard = &mut self.node.shards[0];
        let acquire = Acquire {
            key: b"k",
            hash: shard.hash(0, b"k"),
            shared,
            terms: AcquireTerms { wait_ms, ..AcquireTerms::default() },
        };
        shard.acquire(&caller, &acquire, &mut self.effects);
        self.granted_since(before)
    }

    pub(crate) fn set_capacity(&mut self, capacity: u64) {
        let caller = self.caller(u32::MAX - 1, 0);
        self.node.shards[0].set_capacity(&caller, b"p", capacity, PoolOrder::Arrival, &mut self.effects);
    }

    /// Asks for keys, each `true` to read it.
    pub(crate) fn keys(&mut self, client: u32, number: u32, wait_ms: u32, keys: &[(&str, bool, u16)]) {
        let keys: Vec<RequestedKey<'_>> = keys
            .iter()
            .map(|(key, shared, shard)| RequestedKey { key: key.as_bytes(), shared: *shared, shard: *shard })
            .collect();
        let request =
            AcquireMultiKey { keys: &keys, terms: AcquireTerms { wait_ms, ..AcquireTerms::default() } };
        let ticket = Ticket { lane: Self::address(client), number };
        let shards = Node::distinct(keys.iter().map(|key| key.shard));
        let owner: Arc<[u8]> = Arc::from([]);
        let mut participants = self.node.participants(&shards, Some((ticket.lane, &owner, 0)));
        multi_key::acquire(&mut participants, ticket, 0, &request, &mut self.effects);
    }

    pub(crate) fn granted_since(&self, before: usize) -> Option<Grant> {
        match self.effects.said.get(before) {
            Some(Effect::Answer(_, Answer::Granted(grant))) => Some(*grant),
            _ => None,
        }
    }

    pub(crate) fn release(&mut self, id: ClaimId) {
        let caller = self.caller(u32::MAX - 1, 0);
        let shard = &mut self.node.shards[usize::from(ClaimId::shard_of(id.place))];
        shard.release(&caller, id, None, &mut self.effects);
    }

    /// One turn of each shard. No more happens in it than may.
    pub(crate) fn turn(&mut self) {
        for shard in &mut self.node.shards {
            let (said, follow_ups) = (self.effects.said.len(), self.effects.follow_ups.len());
            shard.begin_turn(self.now, self.now, &mut self.effects);
            for happened in [self.effects.said.len() - said, self.effects.follow_ups.len() - follow_ups] {
                assert!(happened <= WORK_PER_TURN as usize, "{happened} effects in one turn");
            }
        }
    }

    /// Turns until nothing is left over. Says how many it took.
    pub(crate) fn turns(&mut self) -> u32 {
        let mut turns = 0;
        while self.node.shards.iter().any(|shard| shard.next_deadline() <= self.now) {
            self.turn();
            turns += 1;
        }
        turns
    }

    pub(crate) fn count(&self, matches: impl Fn(&Answer) -> bool) -> u32 {
        let is_answer = |effect: &&Effect| matches!(effect, Effect::Answer(_, answer) if matches(answer));
        self.effects.said.iter().filter(is_answer).count() as u32
    }

    pub(crate) fn granted_count(&self) -> u32 {
        self.count(|answer| matches!(answer, Answer::Granted(_) | Answer::GrantedMultiKey(_)))
    }

    pub(crate) fn numbers_granted(&self) -> Vec<u32> {
        let number = |effect: &Effect| match effect {
            Effect::Answer(ticket, Answer::Granted(_) | Answer::GrantedMultiKey(_)) => Some(ticket.number),
            _ => None,
        };
        self.effects.said.iter().filter_map(number).collect()
    }

    pub(crate) fn freeze(&mut self, freezes: &mut FreezeList, frozen: bool) {
        freezes.change(0, b"", frozen).expect("there is room");
        for shard in &mut self.node.shards {
            shard.set_freezes(freezes);
        }
    }
}

#[test]
fn many_tree_readers_are_granted_in_order_over_turns() {
    // To check a tree takes time in the square of what waits.
    for (count, verifies) in [(2 * WORK_PER_TURN, true), (MANY, false)] {
        let mut fan_out = FanOut::new(1);
        let root = fan_out.set(0, 0, "a", true).expect("it is free");
        for number in 1..=count {
            // Some on one path, others each on one of their own.
            let path = if number % 2 == 0 { "a/b".to_owned() } else { format!("a/{number}/x") };
            assert!(fan_out.set(1, number, &path, false).is_none());
        }
        fan_out.effects.said.clear();
        fan_out.turn();
        fan_out.release(root.id);
        assert!(fan_out.granted_count() <= WORK_PER_TURN);
        // Somebody who would write comes last, wherever the grants have got to, and others are served.
        assert!(fan_out.set(2, count + 1, "a/b", true).is_none());
        assert!(fan_out.set(3, count + 2, "c", true).is_some());
        if verifies {
            fan_out.node.verify();
        }
        assert!(fan_out.turns() >= count / WORK_PER_TURN);
        let mut granted = fan_out.numbers_granted();
        granted.retain(|number| *number != count + 2);
        assert_eq!(granted, Vec::from_iter(1..=count));
        if verifies {
            fan_out.node.verify();
        }
    }
}

#[test]
fn many_waiters_of_a_pool_are_granted_over_turns_when_its_capacity_rises() {
    let mut fan_out = FanOut::new(1);
    fan_out.set_capacity(1);
    fan_out.permits(0, 0, 1, false).expect("it is free");
    for number in 1..=MANY {
        assert!(fan_out.permits(1, number, 1, false).is_none());
    }
    fan_out.effects.said.clear();
    fan_out.turn();
    fan_out.set_capacity(u64::from(MANY));
    assert!(fan_out.granted_count() <= WORK_PER_TURN);
    assert!(fan_out.permits(2, MANY + 1, 1, false).is_none(), "those who wait come first");
    fan_out.node.verify();
    assert!(fan_out.turns() >= MANY / WORK_PER_TURN - 1);
    assert_eq!(fan_out.numbers_granted(), Vec::from_iter(1..MANY));
    fan_out.node.verify();
}

#[test]
fn many_readers_whose_waits_end_as_their_key_becomes_free_are_granted_over_turns() {
    let mut fan_out = FanOut::new(1);
    let holder = fan_out.key(0, 0, false, 0).expect("it is free");
    for number in 1..=MANY {
        assert!(fan_out.key(1, number, true, 100).is_none());
    }
    fan_out.effects.said.clear();
    fan_out.release(holder.id);
    fan_out.now = fan_out.now.after_ms(100);
    assert!(fan_out.turns() >= MANY / WORK_PER_TURN - 1);
    assert_eq!(fan_out.numbers_granted(), Vec::from_iter(1..=MANY));
    fan_out.node.verify();
}

#[test]
fn many_waiters_of_a_pool_are_refused_over_turns_when_its_capacity_falls() {
    let mut fan_out = FanOut::new(1);
    fan_out.set_capacity(10);
    let holder = fan_out.permits(0, 0, 10, false).expect("it is free");
    for number in 1..=MANY {
        // Every tenth one could still be served by half of the pool.
        let permits = if number % 10 == 0 { 5 } else { 6 };
        assert!(fan_out.permits(1, number, permits, false).is_none());
    }
    fan_out.effects.said.clear();
    fan_out.turn();
    fan_out.set_capacity(5);
    let refused =
        |answer: &Answer| matches!(answer, Answer::Refused(Refusal::BadInput { field: "permits", .. }));
    assert!(fan_out.count(refused) <= WORK_PER_TURN);
    // What becomes free meanwhile goes to the first one who may have it, once all before it were refused.
    fan_out.release(holder.id);
    fan_out.node.verify();
    assert!(fan_out.turns() >= MANY / 10 * 9 / WORK_PER_TURN);
    assert_eq!(fan_out.count(refused), MANY / 10 * 9);
    assert_eq!(fan_out.numbers_granted(), [10]);
    fan_out.node.verify();
}

#[test]
fn many_holds_of_a_session_end_over_turns() {
    let mut fan_out = FanOut::new(1);
    fan_out.set_capacity(u64::from(MANY));
    for number in 0..MANY {
        assert!(fan_out.permits(0, number, 1, true).is_some());
    }
    assert!(fan_out.permits(1, 0, u64::from(MANY), false).is_none());
    fan_out.effects.said.clear();
    fan_out.turn();
    fan_out.node.shards[0].close_lane(FanOut::address(0), true, &mut fan_out.effects);
    assert!(fan_out.node.shards[0].claim_count() > MANY - WORK_PER_TURN);
    assert_eq!(fan_out.granted_count(), 0);
    assert!(fan_out.turns() >= MANY / WORK_PER_TURN);
    assert_eq!(fan_out.granted_count(), 1, "the last one makes room for all that is wanted");
    assert_eq!(fan_out.node.shards[0].claim_count(), 1);
    fan_out.node.verify();
}

#[test]
fn many_waiters_are_granted_over_turns_when_a_prefix_is_thawed() {
    let mut fan_out = FanOut::new(2);
    let mut freezes = FreezeList::default();
    fan_out.freeze(&mut freezes, true);
    fan_out.turns();
    for number in 0..MANY / 2 {
        fan_out.keys(0, number, u32::MAX, &[("j", true, 0), ("k", true, 1)]);
    }
    assert_eq!(fan_out.granted_count(), 0);
    fan_out.turn();
    fan_out.freeze(&mut freezes, false);
    assert!(fan_out.turns() >= MANY / 2 / WORK_PER_TURN);
    fan_out.node.follow_up(fan_out.now, fan_out.now, &mut fan_out.effects);
    assert_eq!(fan_out.granted_count(), MANY / 2);
    fan_out.node.verify();
}

#[test]
fn many_multi_key_claims_become_clear_over_turns() {
    let mut fan_out = FanOut::new(2);
    fan_out.keys(0, 0, 0, &[("j", false, 0)]);
    let Some(Effect::Answer(_, Answer::GrantedMultiKey(grants))) = fan_out.effects.said.pop() else {
        panic!("it is free");
    };
    for number in 1..=MANY {
        let own = format!("k{number}");
        fan_out.keys(1, number, u32::MAX, &[("j", true, 0), (&own, false, 1)]);
    }
    fan_out.effects.said.clear();
    fan_out.turn();
    fan_out.release(grants[0].grant.id);
    assert!(fan_out.effects.follow_ups.len() <= WORK_PER_TURN as usize, "they are told of over turns");
    fan_out.node.follow_up(fan_out.now, fan_out.now, &mut fan_out.effects);
    fan_out.turns();
    fan_out.node.follow_up(fan_out.now, fan_out.now, &mut fan_out.effects);
    assert_eq!(fan_out.granted_count(), MANY);
    fan_out.node.verify();
}

#[test]
fn many_multi_key_claims_end_with_their_connection_over_turns() {
    let mut fan_out = FanOut::new(2);
    fan_out.keys(0, 0, 0, &[("k", false, 1)]);
    for number in 1..MANY {
        let own = format!("i{number}");
        fan_out.keys(1, number, u32::MAX, &[(&own, false, 0), ("j", true, 0), ("k", false, 1)]);
    }
    fan_out.effects.said.clear();
    fan_out.turn();
    for shard in &mut fan_out.node.shards {
        shard.close_lane(FanOut::address(1), true, &mut fan_out.effects);
    }
    // One of them becomes clear before it had to leave: nobody is there to be granted anything.
    let count = fan_out.effects.follow_ups.len();
    assert!(count <= WORK_PER_TURN as usize);
    assert!(fan_out.turns() >= MANY / WORK_PER_TURN - 1);
    fan_out.node.follow_up(fan_out.now, fan_out.now, &mut fan_out.effects);
    assert_eq!(fan_out.granted_count(), 0);
    assert_eq!(fan_out.node.shards.iter().map(Shard::claim_count).sum::<u32>(), 1);
    fan_out.node.verify();
}

/// More than a few turns can do.
const CROWD: u32 = 8 * WORK_PER_TURN;

/// A claim over `j` and `k`, of which `j` is held, before or behind so many that wait for `x`. Says who holds `j`.
fn one_among_many(fan_out: &mut FanOut, wait_ms: u32, comes_first: bool) -> ClaimId {
    fan_out.keys(0, 0, 0, &[("x", false, 1)]);
    fan_out.keys(0, 1, 0, &[("j", false, 0)]);
    let Some(Effect::Answer(_, Answer::GrantedMultiKey(grants))) = fan_out.effects.said.pop() else {
        panic!("it is free");
    };
    let one = [("j", false, 0), ("k", false, 1)];
    if comes_first {
        fan_out.keys(1, 0, wait_ms, &one);
    }
    for number in 1..CROWD {
        fan_out.keys(1, number, wait_ms, &[("i", true, 0), ("x", false, 1)]);
    }
    if !comes_first {
        fan_out.keys(1, CROWD, wait_ms, &one);
    }
    fan_out.effects.said.clear();
    grants[0].grant.id
}

/// Ends a hold, and looks at whom that makes clear as soon as it is known, before anything else that is left to be done.
fn release_and_look(fan_out: &mut FanOut, holder: ClaimId) {
    fan_out.release(holder);
    let is_recheck = |follow_up: &FollowUp| matches!(follow_up, FollowUp::Recheck(_));
    while !fan_out.effects.follow_ups.iter().any(is_recheck) {
        fan_out.turn();
    }
    let place = fan_out.effects.follow_ups.iter().position(is_recheck).unwrap_or_default();
    let recheck = fan_out.effects.follow_ups.remove(place).expect("it is there");
    fan_out.node.follow_up_one(&recheck, fan_out.now, fan_out.now, &mut fan_out.effects);
}

#[test]
fn a_claim_of_a_closed_connection_is_not_granted_before_its_removal() {
    let mut fan_out = FanOut::new(2);
    let holder = one_among_many(&mut fan_out, u32::MAX, true);
    fan_out.turn();
    for shard in &mut fan_out.node.shards {
        shard.close_lane(FanOut::address(1), true, &mut fan_out.effects);
    }
    fan_out.turn();
    assert!(fan_out.node.shards[0].claim_count() > WORK_PER_TURN / 2, "most of them are still there");
    release_and_look(&mut fan_out, holder);
    fan_out.turns();
    fan_out.node.follow_up(fan_out.now, fan_out.now, &mut fan_out.effects);
    assert_eq!(fan_out.granted_count(), 0);
    assert_eq!(fan_out.node.shards.iter().map(Shard::claim_count).sum::<u32>(), 1);
    fan_out.node.verify();
}

#[test]
fn a_claim_whose_wait_timed_out_is_not_granted_before_its_answer() {
    let mut fan_out = FanOut::new(2);
    let holder = one_among_many(&mut fan_out, 100, false);
    let timeout = |answer: &Answer| matches!(answer, Answer::Refused(Refusal::Timeout(_)));
    fan_out.now = fan_out.now.after_ms(100);
    while fan_out.count(timeout) == 0 {
        fan_out.turn();
    }
    // The waits of this instant end one after the other. Whoever has not been told yet comes no more.
    release_and_look(&mut fan_out, holder);
    while fan_out.node.follow_up(fan_out.now, fan_out.now, &mut fan_out.effects) + fan_out.turns() > 0 {}
    assert_eq!(fan_out.granted_count(), 0);
    assert_eq!(fan_out.count(timeout), CROWD);
    assert_eq!(fan_out.node.shards.iter().map(Shard::claim_count).sum::<u32>(), 1);
    fan_out.node.verify();
}
