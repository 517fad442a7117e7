//! Requests for tokens of buckets.

use super::multi_key::{Participant, place_of};
use super::{Caller, Shard};
use crate::effect::{Allowance, Answer, Effects, Refusal};
use crate::ids::Ticket;
use crate::limiter::Throttle;

impl Shard {
    /// Takes tokens from one bucket if it has enough, or returns tokens to it. `now_ns` is the time on the engine's
    /// clock in nanoseconds.
    #[inline]
    pub fn throttle(
        &mut self,
        caller: &Caller,
        now_ns: u64,
        throttle: &Throttle<'_>,
        effects: &mut impl Effects,
    ) {
        let taken = throttle.check().and_then(|()| self.buckets.take(now_ns, caller.namespace, throttle));
        answer(caller.ticket, taken, effects);
    }

    /// Returns the keyed hash of a bucket, for [`Throttle::hash`] and for prefetching.
    #[inline]
    pub fn bucket_hash(&self, namespace: u16, name: &[u8]) -> u64 {
        self.buckets.hash(namespace, name)
    }

    /// Prefetches the index group of a bucket. First of two prefetch passes over some requests of a batch.
    #[inline]
    pub fn prefetch_bucket_index(&self, hash: u64) {
        self.buckets.prefetch_index(hash);
    }

    /// Prefetches the bucket that most likely has this hash. Second of two prefetch passes over some requests of a
    /// batch.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        self.buckets.prefetch_candidate(hash);
    }

    /// Returns the number of buckets in memory. Some of them may be full again.
    pub fn bucket_count(&self) -> u32 {
        self.buckets.bucket_count()
    }
}

/// Request for one of several buckets.
#[derive(Clone, Copy, Debug)]
pub struct RequestedThrottle<'a> {
    /// Shard of the bucket.
    pub shard: u16,
    /// Request for the bucket; its hash is filled in by `throttle_all`.
    pub throttle: Throttle<'a>,
}

/// Takes tokens from (or returns them to) all of several buckets, or none. Answers with the state of the bucket with
/// the longest wait or, among equals, the fewest tokens left. `participants` are the shards of all buckets in rising
/// order, each with its turn held.
///
/// # Panics
/// Panics if the shard of a bucket is not among `participants`.
pub fn throttle_all(
    participants: &mut [Participant<'_>],
    ticket: Ticket,
    namespace: u16,
    now_ns: u64,
    throttles: &[RequestedThrottle<'_>],
    effects: &mut impl Effects,
) {
    answer(ticket, take_all(participants, namespace, now_ns, throttles), effects);
}

#[inline]
fn answer(ticket: Ticket, taken: Result<Allowance, Refusal>, effects: &mut impl Effects) {
    match taken {
        Ok(allowance) => effects.throttled(ticket, allowance),
        Err(refusal) => effects.answer(ticket, Answer::Refused(refusal)),
    }
}

fn take_all(
    participants: &mut [Participant<'_>],
    namespace: u16,
    now_ns: u64,
    throttles: &[RequestedThrottle<'_>],
) -> Result<Allowance, Refusal> {
    let not_once = || Refusal::bad_input("buckets", 0, "each bucket may be listed only once");
    let mut names: Vec<&[u8]> = throttles.iter().map(|multi_key| multi_key.throttle.name).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(not_once());
    }
    let mut asked = Vec::with_capacity(throttles.len());
    for RequestedThrottle { shard, throttle } in throttles {
        throttle.check()?;
        let place = place_of(participants, *shard);
        let hash = participants[place].shard.bucket_hash(namespace, throttle.name);
        asked.push((place, Throttle { hash, ..*throttle }));
    }
    let decide = |(place, throttle): &(usize, Throttle<'_>)| {
        participants[*place].shard.buckets.decide(now_ns, namespace, throttle)
    };
    let allowance = asked.iter().map(decide).reduce(Allowance::tightest).ok_or_else(not_once)?;
    if !allowance.allowed {
        return Ok(allowance);
    }
    for (number, (place, throttle)) in asked.iter().enumerate() {
        if let Err(refusal) = participants[*place].shard.buckets.take(now_ns, namespace, throttle) {
            // The table of this shard or the memory of the process has no room for this bucket. So the request fails as
            // a whole, and the changes to the buckets before it are undone.
            for (place, throttle) in &asked[..number] {
                let back = Throttle { refund: !throttle.refund, ..*throttle };
                let _ = participants[*place].shard.buckets.take(now_ns, namespace, &back);
            }
            return Err(refusal);
        }
    }
    Ok(allowance)
}
