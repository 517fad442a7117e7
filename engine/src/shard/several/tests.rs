//! Strings and sets of keys that the claims of one request share.

use super::{AcquireSeveral, Participant, SeveralKey, acquire};
use crate::effect::{Answer, Effects, Event, LaneAddress, Ticket};
use crate::limits::Limits;
use crate::shard::{AcquireOptions, Shard, ShardConfig};
use crate::time::Time;
use std::sync::Arc;

struct Silent;

impl Effects for Silent {
    fn answer(&mut self, _: Ticket, _: Answer) {}
    fn event(&mut self, _: LaneAddress, _: Event) {}
}

/// A shard of which one lane has asked for three keys, twice with the same request id.
fn asked(wait_ms: u32, key_is_held: bool) -> Shard {
    let mut shard = Shard::new(&ShardConfig {
        number: 0,
        limits: Limits::default(),
        hash_seeds: [1, 2, 3, 4],
        secret_seed: [5; 32],
        start: Time::from_millis(1000),
    });
    let address = LaneAddress { worker: 0, slot: 0, generation: 0 };
    let lane = shard.lane(address, &Arc::from(*b"lane"), 0);
    let key = |key: &'static [u8]| SeveralKey { key, shared: false, shard: 0 };
    let (one, all) = ([key(b"b")], [key(b"a"), key(b"b"), key(b"c")]);
    let options = AcquireOptions {
        owner: Some(b"owner"),
        metadata: Some(b"metadata"),
        request_id: Some(b"request"),
        ..AcquireOptions::default()
    };
    let held: &[_] = if key_is_held { &[(&one[..], AcquireOptions::default())] } else { &[] };
    let requests = [(&all[..], options), (&all[..], options)];
    for (number, (keys, options)) in held.iter().chain(&requests).enumerate() {
        let request = AcquireSeveral {
            keys,
            lease_ms: 0,
            wait_ms,
            session_lease: false,
            notify_queued: false,
            options: *options,
        };
        let ticket = Ticket { lane: address, number: number as u32 };
        acquire(&mut [Participant { shard: &mut shard, lane }], ticket, 0, &request, &mut Silent);
    }
    shard
}

/// Metadata has up to 4 KiB, so 1,024 copies of it take milliseconds, and 4 MiB.
#[test]
fn the_claims_of_one_request_share_their_strings_and_their_set_of_keys() {
    for key_is_held in [false, true] {
        let shard = asked(u32::MAX, key_is_held);
        let first = u32::from(key_is_held);
        assert_eq!(shard.claim_count(), first + 3, "the second request finds the claims of the first one");
        let details: Vec<_> = (first..first + 3)
            .map(|claim| shard.details.get(shard.claims[claim].detail).expect("it has options"))
            .collect();
        for detail in &details {
            let is_shared = |own: &Option<Arc<[u8]>>, of_first: &Option<Arc<[u8]>>| {
                own.as_ref().zip(of_first.as_ref()).is_some_and(|(own, first)| Arc::ptr_eq(own, first))
            };
            assert!(is_shared(&detail.owner, &details[0].owner), "owner");
            assert!(is_shared(&detail.metadata, &details[0].metadata), "metadata");
            let keys = detail.key_set().zip(details[0].key_set());
            assert!(keys.is_some_and(|(own, first)| Arc::ptr_eq(own, first)), "set of keys");
        }
        assert_eq!(details[1].request_id.as_deref(), Some(&b"request"[..]));
        // While it waits, the home is found by a string of its own.
        let (one, other) = (details[1].request_id.as_ref(), details[2].request_id.as_ref());
        assert!(one.zip(other).is_some_and(|(one, other)| Arc::ptr_eq(one, other)), "request id");
    }
}
