//! Multi-key claims whose shards hear of a lost connection one after the other, or have no steps left to act on it.

use crate::node::Node;
use crate::recorder::{Effect, Recorder};
use std::sync::Arc;
use waymaker_engine::multi_key::{self, AcquireMultiKey, RequestedKey};
use waymaker_engine::{
    Acquire, AcquireOptions, AcquireTerms, Answer, Caller, CancelReason, ClaimId, LaneAddress, LaneSlot,
    Limits, LogState, Refusal, Scope, Shard, Ticket, Time,
};

const START: Time = Time::from_millis(1000);
/// The shard of the smallest key, which decides about a claim, and the shard of the other key.
const HOME: usize = 0;
const FAR: usize = 1;
const KEYS: [RequestedKey<'static>; 2] = [
    RequestedKey { key: b"j", shared: false, shard: HOME as u16 },
    RequestedKey { key: b"k", shared: false, shard: FAR as u16 },
];
/// More waiters of a lane than some turns of four steps can look at.
const CROWD: u32 = 40;

/// Two shards, and lanes of one owner.
struct Pair {
    node: Node,
    effects: Recorder,
    number: u32,
}

impl Pair {
    fn new() -> Self {
        let limits = Limits { work_per_turn: 4, ..Limits::default() };
        Self { node: Node::new(2, limits, START, 1), effects: Recorder::default(), number: 0 }
    }

    fn address(slot: u32) -> LaneAddress {
        LaneAddress { worker: 0, slot: LaneSlot(slot), generation: 0 }
    }

    fn ticket(&mut self, slot: u32) -> Ticket {
        self.number += 1;
        Ticket { lane: Self::address(slot), number: self.number }
    }

    fn caller(&mut self, slot: u32, shard: usize) -> Caller {
        self.begin_turns();
        let ticket = self.ticket(slot);
        let lane = self.node.shards[shard].lane(ticket.lane, &Arc::from(*b"owner"), 0);
        Caller { lane, ticket, namespace: 0 }
    }

    fn begin_turns(&mut self) {
        self.node.begin_turns(START, START, &mut self.effects);
    }

    /// Asks for both keys.
    fn acquire_both(&mut self, slot: u32, session_lease: bool, options: AcquireOptions<'_>) -> Ticket {
        self.begin_turns();
        let request = AcquireMultiKey {
            keys: &KEYS,
            terms: AcquireTerms {
                wait_ms: u32::MAX,
                session_lease,
                options: Some(&options),
                ..AcquireTerms::default()
            },
        };
        let ticket = self.ticket(slot);
        let asking = (ticket.lane, &Arc::from(*b"owner"), 0);
        let mut participants = self.node.participants(&[HOME as u16, FAR as u16], Some(asking));
        multi_key::acquire(&mut participants, ticket, 0, &request, &mut self.effects);
        ticket
    }

    fn acquire(&mut self, slot: u32, shard: usize, key: &[u8]) -> Ticket {
        self.acquire_as(slot, shard, key, AcquireOptions::default())
    }

    fn acquire_as(&mut self, slot: u32, shard: usize, key: &[u8], options: AcquireOptions<'_>) -> Ticket {
        let caller = self.caller(slot, shard);
        let hash = self.node.shards[shard].hash(0, key);
        let acquire = Acquire {
            key,
            hash,
            terms: AcquireTerms { wait_ms: u32::MAX, options: Some(&options), ..AcquireTerms::default() },
            ..Acquire::default()
        };
        self.node.shards[shard].acquire(&caller, &acquire, &mut self.effects);
        caller.ticket
    }

    /// Another client holds the far key.
    fn hold_far_key(&mut self) -> ClaimId {
        let ticket = self.acquire(9, FAR, b"k");
        match self.answer(ticket) {
            Some(Answer::Granted(grant)) => grant.id,
            other => panic!("{other:?}"),
        }
    }

    /// The holder of the far key releases it, and the claim over both is looked at.
    fn release_far_key(&mut self, id: ClaimId) {
        let caller = self.caller(9, FAR);
        self.node.shards[FAR].release(&caller, id, None, &mut self.effects);
        self.follow_up();
    }

    /// A lane waits so often for a key of its home shard that no turn can look at all of these claims.
    fn crowd(&mut self, slot: u32) {
        self.acquire(9, HOME, b"crowded");
        for _ in 0..CROWD {
            self.acquire(slot, HOME, b"crowded");
        }
    }

    fn tell(&mut self, shard: usize, tell: impl FnOnce(&mut Shard, &mut Recorder)) {
        self.begin_turns();
        tell(&mut self.node.shards[shard], &mut self.effects);
    }

    fn detach(&mut self, slot: u32, shard: usize) {
        self.tell(shard, |shard, effects| shard.detach_lane(Self::address(slot), effects));
    }

    fn attach(&mut self, slot: u32, shard: usize) {
        self.tell(shard, |shard, effects| shard.attach_lane(Self::address(slot), effects));
    }

    /// The connection of a lane is lost, and the next one takes it up.
    fn reconnect(&mut self, slot: u32) {
        for shard in [HOME, FAR] {
            self.detach(slot, shard);
            self.attach(slot, shard);
        }
    }

    fn close(&mut self, slot: u32, shard: usize) {
        self.tell(shard, |shard, effects| shard.close_lane(Self::address(slot), true, effects));
    }

    fn follow_up(&mut self) {
        self.node.follow_up(START, START, &mut self.effects);
        self.node.verify();
    }

    fn settle(&mut self) {
        self.node.settle(START, START, &mut self.effects);
        self.follow_up();
    }

    fn answer(&self, asked: Ticket) -> Option<&Answer> {
        self.effects.said.iter().find_map(|effect| match effect {
            Effect::Answer(ticket, answer) if *ticket == asked => Some(answer),
            _ => None,
        })
    }

    fn is_granted(&self, asked: Ticket) -> bool {
        matches!(self.answer(asked), Some(Answer::GrantedMultiKey(_)))
    }

    fn claim_counts(&self) -> [u32; 2] {
        [HOME, FAR].map(|shard| self.node.shards[shard].claim_count())
    }
}

fn named_durable() -> AcquireOptions<'static> {
    AcquireOptions { scope: Scope::Local, ..named() }
}

fn named() -> AcquireOptions<'static> {
    AcquireOptions { request_id: Some(b"id"), ..AcquireOptions::default() }
}

#[test]
fn a_hold_ends_at_once_in_shards_that_saw_the_connection_loss() {
    let mut pair = Pair::new();
    let holder = pair.hold_far_key();
    let options = AcquireOptions { release_after_ms: Some(0), ..AcquireOptions::default() };
    let asked = pair.acquire_both(0, false, options);
    pair.detach(0, FAR);
    pair.release_far_key(holder);
    assert!(pair.is_granted(asked), "the home of the claim has not heard of the loss");
    assert_eq!(pair.claim_counts(), [1, 0]);
    pair.detach(0, HOME);
    assert_eq!(pair.claim_counts(), [0, 0]);
}

#[test]
fn a_claim_is_refused_once_any_of_its_shards_stops() {
    for shard in [HOME, FAR] {
        let mut pair = Pair::new();
        pair.tell(shard, |shard, _| shard.stop());
        let asked = pair.acquire_both(0, false, AcquireOptions::default());
        let answer = pair.answer(asked);
        assert!(matches!(answer, Some(Answer::Refused(Refusal::Shutdown))), "shard {shard}: {answer:?}");
        assert_eq!(pair.claim_counts(), [0, 0]);
    }
}

#[test]
fn no_hold_begins_once_one_of_its_shards_saw_the_session_end() {
    let mut pair = Pair::new();
    let holder = pair.hold_far_key();
    let asked = pair.acquire_both(0, true, AcquireOptions::default());
    pair.close(0, FAR);
    pair.release_far_key(holder);
    assert_eq!(pair.answer(asked), None);
    pair.close(0, HOME);
    pair.follow_up();
    assert_eq!((pair.answer(asked), pair.claim_counts()), (None, [0, 0]));
}

#[test]
fn a_claim_of_a_lost_connection_is_not_granted_to_its_successor() {
    let mut pair = Pair::new();
    let holder = pair.hold_far_key();
    let asked = pair.acquire_both(0, false, AcquireOptions::default());
    pair.crowd(0);
    pair.reconnect(0);
    pair.release_far_key(holder);
    assert_eq!(pair.answer(asked), None, "no turn has looked at the claim yet");
    pair.settle();
    let lost = Answer::Refused(Refusal::Cancelled(CancelReason::ConnectionLost));
    assert_eq!(pair.answer(asked), Some(&lost));
}

/// No turn has looked at the claim since its connection was lost, when its record becomes durable.
#[test]
fn a_durable_hold_does_not_begin_for_a_lost_connection() {
    let mut pair = Pair::new();
    pair.node.set_log_state(LogState::Ready);
    pair.crowd(0);
    let asked = pair.acquire_as(0, HOME, b"durable", named_durable());
    pair.crowd(0);
    let sync = |pair: &mut Pair| pair.node.sync(usize::MAX, START, START, &mut pair.effects);
    sync(&mut pair);
    pair.detach(0, HOME);
    sync(&mut pair);
    pair.settle();
    let lost = Answer::Refused(Refusal::Cancelled(CancelReason::ConnectionLost));
    assert_eq!(pair.answer(asked), Some(&lost));
}

/// The shard that hears of the end first makes the claim unclear, so nothing is granted as the key becomes free.
#[test]
fn a_claim_unblocked_during_its_session_end_is_granted_when_repeated() {
    let mut pair = Pair::new();
    let holder = pair.hold_far_key();
    let asked = pair.acquire_both(0, false, named());
    pair.close(0, FAR);
    pair.release_far_key(holder);
    assert_eq!(pair.answer(asked), None);
    let again = pair.acquire_both(1, false, named());
    pair.follow_up();
    assert!(pair.is_granted(again));
    pair.close(0, HOME);
    assert_eq!(pair.claim_counts(), [1, 1], "the holds belong to the other lane");
}

#[test]
fn a_claim_unblocked_after_its_connection_loss_is_granted_when_repeated() {
    for other_lane in [false, true] {
        let mut pair = Pair::new();
        let holder = pair.hold_far_key();
        let asked = pair.acquire_both(0, false, named());
        pair.crowd(0);
        pair.reconnect(0);
        pair.release_far_key(holder);
        assert_eq!(pair.answer(asked), None, "no turn has looked at the claim yet");
        let again = pair.acquire_both(u32::from(other_lane), false, named());
        pair.settle();
        assert!(pair.is_granted(again), "to another lane: {other_lane}");
    }
}

/// The home gives the claim up. The other shard has not heard of that when the request comes again.
#[test]
fn a_repeated_request_is_granted_if_only_the_home_shard_ended_its_claim() {
    for is_cancelled in [false, true] {
        let mut pair = Pair::new();
        pair.node.set_log_state(LogState::Ready);
        let asked = pair.acquire_both(0, false, named_durable());
        if is_cancelled {
            let caller = pair.caller(0, HOME);
            pair.node.shards[HOME].cancel(&caller, asked.number, &mut pair.effects);
        } else {
            pair.detach(0, HOME);
            pair.attach(0, HOME);
        }
        assert_eq!(pair.claim_counts(), [0, 1]);
        let again = pair.acquire_both(0, false, named_durable());
        assert_eq!(pair.answer(again), None, "it waits for the log");
        assert_eq!(pair.claim_counts(), [1, 1]);
        pair.follow_up();
        assert_eq!(pair.claim_counts(), [1, 1], "the first claim is gone already");
        for _ in 0..2 {
            pair.node.sync(usize::MAX, START, START, &mut pair.effects);
        }
        pair.settle();
        assert!(pair.is_granted(again), "cancelled: {is_cancelled}");
    }
}

#[test]
fn a_repeated_request_drops_its_old_claims_in_all_shards() {
    let mut pair = Pair::new();
    pair.node = Node::new(3, Limits::default(), START, 1);
    pair.node.set_log_state(LogState::Ready);
    let key = |key, shard| RequestedKey { key, shared: false, shard };
    let keys: [RequestedKey<'static>; 4] = [key(b"j", 0), key(b"k", 1), key(b"l", 2), key(b"m", 2)];
    let ask = |pair: &mut Pair| {
        pair.begin_turns();
        let request = AcquireMultiKey {
            keys: &keys,
            terms: AcquireTerms {
                wait_ms: u32::MAX,
                options: Some(&named_durable()),
                ..AcquireTerms::default()
            },
        };
        let ticket = pair.ticket(0);
        let asking = (ticket.lane, &Arc::from(*b"owner"), 0);
        let mut participants = pair.node.participants(&[0, 1, 2], Some(asking));
        multi_key::acquire(&mut participants, ticket, 0, &request, &mut pair.effects);
        ticket
    };
    let counts = |pair: &Pair| [0, 1, 2].map(|shard| pair.node.shards[shard].claim_count());
    let asked = ask(&mut pair);
    let caller = pair.caller(0, HOME);
    pair.node.shards[HOME].cancel(&caller, asked.number, &mut pair.effects);
    assert_eq!(counts(&pair), [0, 1, 2]);
    let again = ask(&mut pair);
    assert_eq!((pair.answer(again), counts(&pair)), (None, [1, 1, 2]));
    pair.follow_up();
    assert_eq!(counts(&pair), [1, 1, 2]);
    for _ in 0..2 {
        pair.node.sync(usize::MAX, START, START, &mut pair.effects);
    }
    pair.settle();
    assert!(pair.is_granted(again));
}
