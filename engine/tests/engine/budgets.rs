//! Work that is more than one turn may do: it is spread over turns, requests are served in between, and in the end
//! everything is as if it had been done at once.

use crate::recorder::{Effect, Recorder};
use std::sync::Arc;
use waymaker_engine::limits::{POSITION_COUNT_MAX, WORK_PER_TURN};
use waymaker_engine::{
    Acquire, AcquireOptions, AcquireTerms, Answer, Caller, ClaimId, Event, Fence, Grant, LaneAddress,
    LaneSlot, Limits, Refusal, RevokeReason, Shard, ShardConfig, Ticket, Time,
};

const MANY: u32 = 3 * WORK_PER_TURN + 100;

/// A shard with a lane for each of many clients, and turns on demand.
struct Crowd {
    shard: Shard,
    now: u64,
    effects: Recorder,
}

/// What one client asks for.
#[derive(Clone, Copy)]
struct Wish<'a> {
    key: &'a str,
    shared: bool,
    lease_ms: u32,
    wait_ms: u32,
    options: Option<&'a AcquireOptions<'a>>,
}

impl<'a> Wish<'a> {
    fn to_read(key: &'a str) -> Self {
        Self { shared: true, ..Self::to_write(key) }
    }

    fn to_write(key: &'a str) -> Self {
        Self { key, shared: false, lease_ms: 10_000, wait_ms: u32::MAX, options: None }
    }
}

impl Crowd {
    fn new() -> Self {
        let config = ShardConfig {
            number: 0,
            limits: Limits::default(),
            hash_seeds: [1, 2, 3, 4],
            secret_seed: [5; 32],
            start: Time::from_millis(1000),
        };
        Self { shard: Shard::new(&config), now: 1000, effects: Recorder::default() }
    }

    fn address(client: u32) -> LaneAddress {
        LaneAddress { worker: 0, slot: LaneSlot(client), generation: 0 }
    }

    fn caller(&mut self, client: u32, number: u32) -> Caller {
        let address = Self::address(client);
        let owner: Arc<[u8]> = Arc::from([]);
        let lane = self.shard.lane(address, &owner, 0);
        Caller { lane, ticket: Ticket { lane: address, number }, namespace: 0 }
    }

    fn acquire(&mut self, client: u32, number: u32, wish: Wish<'_>) -> Option<Grant> {
        let caller = self.caller(client, number);
        let key = wish.key.as_bytes();
        let hash = self.shard.hash(0, key);
        let acquire = Acquire {
            key,
            hash,
            shared: wish.shared,
            terms: AcquireTerms {
                lease_ms: wish.lease_ms,
                wait_ms: wish.wait_ms,
                options: wish.options,
                ..AcquireTerms::default()
            },
        };
        let before = self.effects.said.len();
        self.shard.acquire(&caller, &acquire, &mut self.effects);
        match self.effects.said.get(before) {
            Some(Effect::Answer(_, Answer::Granted(grant))) => Some(*grant),
            _ => None,
        }
    }

    fn release(&mut self, client: u32, id: ClaimId) {
        let caller = self.caller(client, u32::MAX);
        self.shard.release(&caller, id, None, &mut self.effects);
    }

    /// One turn. Says how much happened in it.
    fn turn(&mut self) -> usize {
        let before = self.effects.said.len();
        let now = Time::from_millis(self.now);
        self.shard.begin_turn(now, now, &mut self.effects);
        self.effects.said.len() - before
    }

    /// Turns until nothing is left over, each within its budget. Says how many it took.
    fn turns(&mut self) -> u32 {
        let mut turns = 0;
        loop {
            let happened = self.turn();
            assert!(happened <= WORK_PER_TURN as usize, "{happened} effects in one turn");
            turns += 1;
            self.shard.verify();
            if self.shard.next_deadline() > Time::from_millis(self.now) {
                return turns;
            }
        }
    }

    fn advance(&mut self, millis: u64) -> u32 {
        self.now += millis;
        self.turns()
    }

    /// The first client loses its connection, and another takes up its lane before all of that was worked off.
    fn lose_and_come_back(&mut self) {
        self.effects.said.clear();
        self.turn();
        self.shard.detach_lane(Self::address(0), &mut self.effects);
        self.turn();
        self.shard.attach_lane(Self::address(0), &mut self.effects);
        self.shard.verify();
    }

    fn take_grants(&mut self) -> Vec<(Ticket, Grant)> {
        let granted = |effect| match effect {
            Effect::Answer(ticket, Answer::Granted(grant)) => Some((ticket, grant)),
            _ => None,
        };
        std::mem::take(&mut self.effects.said).into_iter().filter_map(granted).collect()
    }

    fn count(&self, matches: impl Fn(&Effect) -> bool) -> u32 {
        self.effects.said.iter().filter(|effect| matches(effect)).count() as u32
    }
}

fn is_expired(effect: &Effect) -> bool {
    matches!(effect, Effect::Event(_, Event::Expired { .. }))
}

fn is_granted(effect: &Effect) -> bool {
    matches!(effect, Effect::Answer(_, Answer::Granted(_)))
}

fn is_timeout(effect: &Effect) -> bool {
    matches!(effect, Effect::Answer(_, Answer::Refused(Refusal::Timeout(_))))
}

#[test]
fn many_readers_behind_a_writer_are_granted_in_order_over_turns() {
    let mut crowd = Crowd::new();
    let writer = crowd.acquire(0, 0, Wish::to_write("k")).expect("it is free");
    for reader in 1..=MANY {
        assert!(crowd.acquire(reader, reader, Wish::to_read("k")).is_none());
    }
    crowd.effects.said.clear();
    crowd.turn();
    crowd.release(0, writer.id);
    crowd.shard.verify();
    assert_eq!(crowd.count(is_granted), WORK_PER_TURN, "one turn grants what its budget allows");
    assert_eq!(crowd.shard.next_deadline(), Time::ZERO, "the rest wants a turn at once");

    // A writer that comes in between waits behind all of them, a reader too; a try meets those who still wait.
    assert!(crowd.acquire(MANY + 1, MANY + 1, Wish::to_write("k")).is_none());
    assert!(crowd.acquire(MANY + 2, MANY + 2, Wish::to_read("k")).is_none());
    assert!(crowd.acquire(MANY + 3, 0, Wish { wait_ms: 0, ..Wish::to_read("k") }).is_none());
    crowd.shard.verify();
    assert!(crowd.turns() >= 3);

    let grants = crowd.take_grants();
    assert_eq!(grants.len() as u32, MANY);
    for (index, (ticket, grant)) in grants.iter().enumerate() {
        assert_eq!(ticket.number, index as u32 + 1, "readers come in order of arrival");
        assert_eq!(grant.fence, Fence::new(index as u64 + 2));
    }
    for (ticket, grant) in grants {
        crowd.turn();
        crowd.release(ticket.lane.slot.0, grant.id);
    }
    let last = crowd.take_grants();
    assert_eq!(last.iter().map(|(ticket, _)| ticket.number).collect::<Vec<_>>(), [MANY + 1]);
    crowd.shard.verify();
}

#[test]
fn requests_are_served_while_many_waiters_are_granted() {
    let mut crowd = Crowd::new();
    let writer = crowd.acquire(0, 0, Wish::to_write("k")).expect("it is free");
    for reader in 1..=MANY {
        assert!(crowd.acquire(reader, reader, Wish::to_read("k")).is_none());
    }
    crowd.turn();
    crowd.release(0, writer.id);
    // Somebody at the end of the crowd gives up, somebody in it goes away for ever, and another key is not held up.
    let caller = crowd.caller(MANY, u32::MAX);
    crowd.shard.cancel(&caller, MANY, &mut crowd.effects);
    crowd.shard.close_lane(Crowd::address(MANY - 1), false, &mut crowd.effects);
    crowd.shard.detach_lane(Crowd::address(MANY - 2), &mut crowd.effects);
    crowd.shard.verify();
    assert!(crowd.acquire(MANY + 1, 0, Wish::to_write("other")).is_some());
    crowd.effects.said.clear();
    crowd.turns();
    let told = crowd.take_grants();
    assert_eq!(told.len() as u32, MANY - WORK_PER_TURN - 3);
    assert!(told.iter().all(|(ticket, _)| ticket.number < MANY - 2), "those who left are granted nothing");
    assert_eq!(crowd.shard.claim_count(), MANY - 3 + 1);
}

#[test]
fn many_leases_of_one_tick_expire_over_turns_before_its_wait_timeouts() {
    let mut crowd = Crowd::new();
    for client in 0..MANY {
        let key = format!("key {client}");
        let wish = Wish { lease_ms: 500, ..Wish::to_write(&key) };
        assert!(crowd.acquire(client, 0, wish).is_some());
        if client % 2 == 0 {
            // Its wait ends in the tick in which the key becomes free: it gets the key.
            assert!(crowd.acquire(client, 1, Wish { wait_ms: 500, ..wish }).is_none());
        }
        crowd.turn();
    }
    // Nothing frees this one.
    assert!(crowd.acquire(MANY, 0, Wish::to_write("kept")).is_some());
    assert!(crowd.acquire(MANY, 1, Wish { wait_ms: 500, ..Wish::to_write("kept") }).is_none());
    crowd.effects.said.clear();
    crowd.advance(499);
    assert_eq!(crowd.effects.said, []);
    assert!(crowd.advance(1) > 4);
    assert_eq!(crowd.count(is_expired), MANY);
    assert_eq!(crowd.count(is_granted), MANY / 2);
    assert_eq!(crowd.count(is_timeout), 1);
    assert!(is_timeout(&crowd.effects.said[crowd.effects.said.len() - 1]), "waits end last");
}

#[test]
fn many_waits_of_one_tick_time_out_over_turns_without_grants_between() {
    let mut crowd = Crowd::new();
    crowd.acquire(0, 0, Wish::to_read("k")).expect("it is free");
    for client in 1..=MANY {
        // Writers and readers by turns: as each writer leaves, the reader behind it would be next.
        let wish = Wish { shared: client % 2 == 0, wait_ms: 100, ..Wish::to_write("k") };
        assert!(crowd.acquire(client, client, wish).is_none());
    }
    assert!(crowd.acquire(MANY + 1, MANY + 1, Wish::to_read("k")).is_none());
    crowd.effects.said.clear();
    assert!(crowd.advance(100) > 3);
    assert_eq!(crowd.count(is_timeout), MANY);
    let grants = crowd.take_grants();
    assert_eq!(grants.iter().map(|(ticket, _)| ticket.number).collect::<Vec<_>>(), [MANY + 1]);
}

#[test]
fn a_release_during_a_tick_grants_waiters_whose_waits_end_in_it() {
    let mut crowd = Crowd::new();
    let first = crowd.acquire(0, 0, Wish::to_write("k")).expect("it is free");
    let second = crowd.acquire(0, 1, Wish::to_write("m")).expect("it is free");
    for client in 1..=MANY {
        let key = if client % 2 == 0 { "k" } else { "m" };
        assert!(crowd.acquire(client, client, Wish { wait_ms: 40, ..Wish::to_read(key) }).is_none());
    }
    crowd.effects.said.clear();
    crowd.now += 40;
    crowd.turn();
    assert_eq!(crowd.count(is_timeout), 0, "timers come first");
    crowd.release(0, first.id);
    crowd.shard.verify();
    while crowd.count(is_timeout) == 0 {
        crowd.turn();
    }
    // Waits for the other key need not wait for the grants of this one.
    assert!(crowd.count(is_granted) < MANY / 2);
    crowd.release(0, second.id);
    crowd.shard.verify();
    crowd.turns();
    assert_eq!(crowd.count(is_granted), MANY / 2, "one key became free in the tick in which the waits end");
    assert_eq!(crowd.count(is_timeout), MANY / 2, "each is answered once");
}

#[test]
fn a_lost_connection_with_many_claims_is_handled_over_turns() {
    let options = AcquireOptions { release_after_ms: Some(0), ..AcquireOptions::default() };
    let mut crowd = Crowd::new();
    for number in 0..MANY {
        let key = format!("key {number}");
        // Every third one waits, the others hold; somebody else waits behind half of the holds.
        if number % 3 == 0 {
            assert!(crowd.acquire(1, number, Wish::to_write(&key)).is_some());
            assert!(crowd.acquire(0, number, Wish::to_write(&key)).is_none());
        } else {
            let wish = Wish { options: Some(&options), ..Wish::to_write(&key) };
            assert!(crowd.acquire(0, number, wish).is_some());
            if number % 2 == 0 {
                assert!(crowd.acquire(1, number, Wish::to_write(&key)).is_none());
            }
        }
    }
    crowd.effects.said.clear();
    crowd.turn();
    crowd.shard.close_lane(Crowd::address(0), false, &mut crowd.effects);
    crowd.shard.verify();
    assert!(crowd.acquire(2, 0, Wish::to_write("other")).is_some(), "others are served in between");
    assert!(crowd.turns() > 2);
    let told: Vec<Ticket> = crowd.take_grants().into_iter().map(|(ticket, _)| ticket).collect();
    assert!(told.iter().all(|ticket| ticket.lane != Crowd::address(0)), "nobody is there to be told");
    let waited = (0..MANY).filter(|number| number % 3 != 0 && number % 2 == 0).count();
    assert_eq!(told.len(), waited + 1);
    assert_eq!(crowd.shard.claim_count(), MANY.div_ceil(3) + told.len() as u32);
}

#[test]
fn an_immediate_reconnect_keeps_many_holds() {
    let options = AcquireOptions { release_after_ms: Some(50), ..AcquireOptions::default() };
    let mut crowd = Crowd::new();
    for number in 0..MANY {
        let key = format!("key {number}");
        assert!(crowd.acquire(0, number, Wish { options: Some(&options), ..Wish::to_write(&key) }).is_some());
    }
    crowd.lose_and_come_back();
    crowd.advance(60);
    assert_eq!(crowd.effects.said, []);
    assert_eq!(crowd.shard.claim_count(), MANY);
    crowd.shard.detach_lane(Crowd::address(0), &mut crowd.effects);
    crowd.turns();
    crowd.advance(50);
    assert_eq!(crowd.shard.claim_count(), 0);
    assert_eq!(crowd.effects.said, [], "nobody was there to be told");
}

/// What is left over of the loss is still to be done when the lane is back. Whoever asked is gone all the same.
#[test]
fn an_immediate_reconnect_finds_none_of_its_many_waiters() {
    let mut crowd = Crowd::new();
    let holder = crowd.acquire(1, 0, Wish::to_write("k")).expect("it is free");
    for number in 0..MANY {
        assert!(crowd.acquire(0, number, Wish::to_read("k")).is_none());
    }
    crowd.lose_and_come_back();
    assert!(crowd.acquire(0, MANY, Wish::to_read("k")).is_none());
    crowd.release(1, holder.id);
    crowd.turns();
    crowd.shard.verify();
    let grants: Vec<u32> = crowd.take_grants().into_iter().map(|(ticket, _)| ticket.number).collect();
    assert_eq!(grants, [MANY], "what the new connection asked, and nothing else");
    assert_eq!(crowd.shard.claim_count(), 1);
}

#[test]
fn a_stop_refuses_many_waiters_over_turns_and_grants_none() {
    let mut crowd = Crowd::new();
    let holder = crowd.acquire(0, 0, Wish::to_read("k")).expect("it is free");
    let other = crowd.acquire(0, 1, Wish::to_write("m")).expect("it is free");
    for client in 1..=MANY {
        let wish = Wish { shared: client % 2 == 0, ..Wish::to_write(if client % 4 < 2 { "k" } else { "m" }) };
        assert!(crowd.acquire(client, client, wish).is_none());
    }
    crowd.effects.said.clear();
    crowd.turn();
    crowd.shard.stop();
    // What is released before the stop came through lets nobody in either.
    crowd.release(0, holder.id);
    crowd.shard.verify();
    crowd.turn();
    crowd.release(0, other.id);
    crowd.shard.verify();
    crowd.turns();
    let refused = |effect: &Effect| matches!(effect, Effect::Answer(_, Answer::Refused(Refusal::Shutdown)));
    assert_eq!(crowd.count(refused), MANY);
    assert_eq!(crowd.count(is_granted), 0);
    assert_eq!(crowd.shard.claim_count(), 0);
}

#[test]
fn a_new_key_evicts_only_a_few_of_many_idle_keys() {
    let limits = Limits { idle_key_count_max: 10, ..Limits::default() };
    let config = ShardConfig {
        number: 0,
        limits,
        hash_seeds: [1, 2, 3, 4],
        secret_seed: [5; 32],
        start: Time::from_millis(1000),
    };
    let mut crowd = Crowd { shard: Shard::new(&config), ..Crowd::new() };
    let mut ids = Vec::new();
    for number in 0..MANY {
        ids.push(crowd.acquire(0, number, Wish::to_write(&format!("key {number}"))).expect("it is free").id);
    }
    for id in ids {
        crowd.release(0, id);
    }
    let mut idle = crowd.shard.idle_key_count();
    for number in 0..MANY {
        let grant = crowd.acquire(0, number, Wish::to_write(&format!("later {number}"))).expect("it is free");
        assert!(crowd.shard.idle_key_count() + 32 >= idle, "{number}: {idle} idle keys, and then too few");
        idle = crowd.shard.idle_key_count();
        crowd.release(0, grant.id);
        idle = idle.max(crowd.shard.idle_key_count());
    }
    // Two rounds of the hand at 32 records for each new key.
    assert!(crowd.shard.idle_key_count() < 10 + 2 * MANY / 32, "in time they are gone");
    crowd.shard.verify();
}

#[test]
fn a_holder_is_notified_once_of_a_release_by_another_lane() {
    let mut crowd = Crowd::new();
    let grant = crowd.acquire(0, 0, Wish::to_write("k")).expect("it is free");
    crowd.effects.said.clear();
    crowd.release(1, grant.id);
    let revoked = Event::Revoked { id: grant.id, reason: RevokeReason::ReleasedElsewhere };
    let told = |effect: &Effect| *effect == Effect::Event(Crowd::address(0), revoked.clone());
    assert_eq!(crowd.count(told), 1);
}

#[test]
fn a_hold_moves_to_the_lane_that_repeats_its_request() {
    let options = AcquireOptions { request_id: Some(b"id"), ..AcquireOptions::default() };
    let wish = Wish { options: Some(&options), ..Wish::to_write("k") };
    let mut crowd = Crowd::new();
    let grant = crowd.acquire(0, 7, wish).expect("it is free");
    let again = crowd.acquire(0, 7, wish).expect("it has the hold");
    assert_eq!((again.id, again.repeated), (grant.id, true));
    assert_eq!(crowd.count(|effect| matches!(effect, Effect::Event(..))), 0, "nothing has moved");
    crowd.effects.said.clear();
    crowd.acquire(1, 7, wish);
    let taken_up = Event::TakenUp { number: 7, id: grant.id };
    assert_eq!(crowd.effects.said[0], Effect::Event(Crowd::address(0), taken_up));
    assert_eq!(crowd.take_grants()[0].1, again, "it has the request id");
    let (first, second) = (crowd.caller(0, 8), crowd.caller(1, 8));
    crowd.shard.release_own(&first, grant.id, None, &mut crowd.effects);
    assert_eq!(crowd.shard.claim_count(), 1, "the first lane has it no longer");
    crowd.shard.release_own(&second, grant.id, None, &mut crowd.effects);
    assert_eq!(crowd.shard.claim_count(), 0);
}

#[test]
fn one_turn_ends_leases_and_waits_due_at_several_instants() {
    let mut crowd = Crowd::new();
    for client in 0..10 {
        let key = format!("key {client}");
        let wish = Wish { lease_ms: 100 * (client + 1), ..Wish::to_write(&key) };
        assert!(crowd.acquire(client, 0, wish).is_some());
        let wish = Wish { wait_ms: 100 * client + 50, ..wish };
        assert!(crowd.acquire(client, 1, wish).is_none());
    }
    crowd.now += 1000;
    crowd.turn();
    assert_eq!((crowd.count(is_timeout), crowd.count(is_expired)), (10, 10));
    assert_eq!(crowd.shard.next_deadline(), Time::NEVER);
}

/// The position of any other waiter is counted up to a limit, because counting takes time.
#[test]
fn the_last_waiter_of_a_long_queue_gets_its_exact_position() {
    let mut crowd = Crowd::new();
    let before = POSITION_COUNT_MAX as u32 + 100;
    assert!(crowd.acquire(0, 0, Wish::to_write("k")).is_some());
    for client in 0..before {
        let wish = if client % 2 == 0 { Wish::to_write("k") } else { Wish::to_read("k") };
        assert!(crowd.acquire(client, 1, wish).is_none());
    }
    for (number, priority, expected) in [(2, 0, before), (3, 1, 0), (4, 0, before + 2)] {
        crowd.effects.said.clear();
        let caller = crowd.caller(0, number);
        let options = AcquireOptions { priority, ..AcquireOptions::default() };
        let hash = crowd.shard.hash(0, b"k");
        let acquire = Acquire {
            key: b"k",
            hash,
            terms: AcquireTerms {
                wait_ms: u32::MAX,
                notify_queued: true,
                options: Some(&options),
                ..AcquireTerms::default()
            },
            ..Acquire::default()
        };
        crowd.shard.acquire(&caller, &acquire, &mut crowd.effects);
        let position = crowd.effects.said.iter().find_map(|effect| match effect {
            Effect::Event(_, Event::Queued { position, .. }) => Some(*position),
            _ => None,
        });
        assert_eq!(position, Some(expected), "priority {priority}");
    }
}
