//! Tests of multi-key claims: the strings and key sets that the claims of one request share, the grant time of shards
//! whose clocks differ, the number of keys, the key set in the log, and when rechecks are requested.

use super::{AcquireMultiKey, MultiKeyClaim, Participant, RequestedKey, acquire, key_set_hash};
use crate::effect::{Answer, Effects, Event, LogState};
use crate::handle::{ClaimIx, LaneIx};
use crate::ids::{LaneAddress, LaneSlot, Scope, Ticket};
use crate::limits::{ITEM_COUNT_MAX, Limits};
use crate::shard::{AcquireOptions, AcquireTerms, Caller, Shard, ShardConfig};
use crate::time::{Reading, Time};
use std::sync::Arc;
use waymaker_log::Record;

/// Returns a shard in which one lane has requested three keys, twice with the same request id. If `key_is_held`, the
/// lane held the second key before, so the request waits.
fn asked(key_is_held: bool) -> Shard {
    let mut shards = Shards::at(&[1000]);
    let [a, b, c] = [b"a", b"b", b"c"].map(|name| key(name, false));
    let options = AcquireOptions {
        owner: Some(b"owner"),
        metadata: Some(b"metadata"),
        request_id: Some(b"request"),
        ..AcquireOptions::default()
    };
    if key_is_held {
        shards.acquire(0, &[b]);
    }
    for number in [1, 2] {
        shards.acquire_with(number, &[a, b, c], options);
    }
    shards.shards.remove(0).0
}

/// Metadata has up to 4 KiB, so 1,024 copies of it would take milliseconds, and 4 MiB.
#[test]
fn claims_of_one_request_share_their_strings_and_key_set() {
    for key_is_held in [false, true] {
        let shard = asked(key_is_held);
        let first = u32::from(key_is_held);
        assert_eq!(shard.claim_count(), first + 3, "the second request finds the claims of the first one");
        let details: Vec<_> = (first..first + 3)
            .map(|claim| shard.details.get(shard.claims[ClaimIx::new(claim)].detail).expect("it has options"))
            .collect();
        for detail in &details {
            let is_shared = |own: &Option<Arc<[u8]>>, of_first: &Option<Arc<[u8]>>| {
                own.as_ref().zip(of_first.as_ref()).is_some_and(|(own, first)| Arc::ptr_eq(own, first))
            };
            assert!(is_shared(&detail.owner, &details[0].owner), "owner");
            assert!(is_shared(&detail.metadata, &details[0].metadata), "metadata");
            let keys = detail.key_set().zip(details[0].key_set());
            assert!(keys.is_some_and(|(own, first)| Arc::ptr_eq(own, first)), "set of keys");
            assert_eq!(
                detail.multi_key().is_some(),
                key_is_held,
                "a hold has no use for the rest of its claim"
            );
        }
        assert_eq!(details[1].request_id.as_deref(), Some(&b"request"[..]));
        // While the claim waited, its waiter at the first key had a copy of the request id of its own. So the test
        // compares the request ids at the other two keys.
        let (one, other) = (details[1].request_id.as_ref(), details[2].request_id.as_ref());
        assert!(one.zip(other).is_some_and(|(one, other)| Arc::ptr_eq(one, other)), "request id");
    }
}

/// Shards, each with a current time that the test chooses, and with a lane of the same client in each.
struct Shards {
    shards: Vec<(Shard, LaneIx)>,
    heard: Heard,
}

#[derive(Default)]
struct Heard {
    answers: Vec<Answer>,
    recheck_count: u32,
    /// Hash of the key set in each recorded hold; `None` for a hold of one key.
    recorded_sets: Vec<Option<u64>>,
}

impl Effects for Heard {
    fn answer(&mut self, _: Ticket, answer: Answer) {
        self.answers.push(answer);
    }

    fn event(&mut self, _: LaneAddress, _: Event) {}

    fn recheck(&mut self, _: &Arc<MultiKeyClaim>) {
        self.recheck_count += 1;
    }

    fn record(&mut self, _: u16, _: u64, record: &Record<'_>) {
        if let Record::Held(hold) = record {
            self.recorded_sets.push(hold.set_hash);
        }
    }
}

impl Shards {
    const ADDRESS: LaneAddress = LaneAddress { worker: 0, slot: LaneSlot(0), generation: 0 };

    fn at(instants: &[u64]) -> Self {
        let shard = |(number, millis): (usize, &u64)| {
            let mut shard = Shard::new(&ShardConfig {
                number: number as u16,
                limits: Limits::default(),
                hash_seeds: [1, 2, 3, 4],
                secret_seed: [5; 32],
                start: Time::from_millis(*millis),
            });
            let lane = shard.lane(Self::ADDRESS, &Arc::from(*b"lane"), 0);
            (shard, lane)
        };
        Self { shards: instants.iter().enumerate().map(shard).collect(), heard: Heard::default() }
    }

    /// Requests keys without a limit of the wait.
    fn acquire(&mut self, number: u32, keys: &[RequestedKey<'_>]) {
        self.acquire_with(number, keys, AcquireOptions::default());
    }

    fn acquire_with(&mut self, number: u32, keys: &[RequestedKey<'_>], options: AcquireOptions<'_>) {
        let request = AcquireMultiKey {
            keys,
            terms: AcquireTerms {
                lease_ms: 2000,
                wait_ms: u32::MAX,
                options: Some(&options),
                ..AcquireTerms::default()
            },
        };
        let mut participants: Vec<_> =
            self.shards.iter_mut().map(|(shard, lane)| Participant { shard, lane: *lane }).collect();
        let ticket = Ticket { lane: Self::ADDRESS, number };
        acquire(&mut participants, ticket, 0, &request, &mut self.heard);
    }

    fn cancel(&mut self, number: u32) {
        let (shard, lane) = &mut self.shards[0];
        let ticket = Ticket { lane: Self::ADDRESS, number: u32::MAX };
        shard.cancel(&Caller { lane: *lane, ticket, namespace: 0 }, number, &mut self.heard);
    }
}

fn key(key: &[u8], shared: bool) -> RequestedKey<'_> {
    RequestedKey { key, shared, shard: 0 }
}

#[test]
fn shards_with_different_clocks_grant_at_the_latest_time() {
    let mut shards = Shards::at(&[1000, 5000]);
    shards.acquire(1, &[key(b"a", false), RequestedKey { shard: 1, ..key(b"b", false) }]);
    for (shard, _) in &shards.shards {
        let claim = &shard.claims[ClaimIx::new(0)];
        assert_eq!(
            (shard.reading(), claim.deadline, shard.age_ms(claim)),
            (Reading::from(Time::from_millis(5000)), Time::from_millis(7000), 0)
        );
        shard.verify();
    }
}

#[test]
fn a_claim_has_at_least_one_key_and_at_most_the_maximum() {
    let names: Vec<String> = (0..=ITEM_COUNT_MAX).map(|number| format!("{number:04}")).collect();
    let keys: Vec<RequestedKey<'_>> = names.iter().map(|name| key(name.as_bytes(), false)).collect();
    for (count, is_accepted) in [(0, false), (1, true), (ITEM_COUNT_MAX, true), (ITEM_COUNT_MAX + 1, false)] {
        let mut shards = Shards::at(&[1000]);
        shards.acquire(1, &keys[..count]);
        let is_granted = matches!(shards.heard.answers[..], [Answer::GrantedMultiKey(_)]);
        assert_eq!(is_granted, is_accepted, "{count} keys");
        // A second request for the same keys must wait, if their number is accepted.
        shards.acquire(2, &keys[..count]);
        let waiting = shards.shards[0].0.waiting_multi_key_claims();
        let key_counts: Vec<usize> = waiting.iter().map(|multi_key| multi_key.key_count()).collect();
        assert_eq!(key_counts, if is_accepted { vec![count] } else { vec![] });
    }
}

/// The log must record the hash of the key set: after a crash, the server repeats the answer to the acquire, and the
/// answer must contain all keys.
#[test]
fn the_log_records_the_key_set_of_claims_without_request_id() {
    let mut shards = Shards::at(&[1000]);
    shards.shards[0].0.set_log_state(LogState::Ready, 0);
    let options = AcquireOptions { scope: Scope::Local, ..AcquireOptions::default() };
    shards.acquire_with(1, &[key(b"a", false), key(b"b", true)], options);
    let set = key_set_hash([&b"a"[..], b"b"].into_iter());
    assert_eq!(shards.heard.recorded_sets, [Some(set), Some(set)]);
}

/// A needless recheck is expensive, because a worker must take the turns of all shards of the claim.
#[test]
fn a_leaving_waiter_does_not_recheck_the_clear_writer_ahead_of_it() {
    let mut shards = Shards::at(&[1000]);
    shards.acquire(1, &[key(b"a", false)]);
    shards.acquire(2, &[key(b"a", false), key(b"k", false)]);
    shards.acquire(3, &[key(b"k", true)]);
    shards.acquire(4, &[key(b"k", true)]);
    shards.cancel(3);
    shards.shards[0].0.verify();
    assert_eq!(shards.heard.recheck_count, 0);
}
