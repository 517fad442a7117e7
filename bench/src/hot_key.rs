//! One contended key: each release grants the next waiter, and the old holder queues again.

use crate::lane::{Bench, Sink};
use waymaker_engine::{Answer, ClaimId, Effects, Event, LaneAddress, Ticket};

const LEASE_MS: u32 = 30_000;

/// A key with one holder and `waiter_count` waiters.
pub struct HotKey {
    bench: Bench,
    holder: ClaimId,
}

/// Keeps the grant of one step.
#[derive(Default)]
struct Granted(Option<ClaimId>);

impl Effects for Granted {
    #[inline]
    fn answer(&mut self, _: Ticket, answer: Answer) {
        if let Answer::Granted(grant) = answer {
            self.0 = Some(grant.id);
        }
    }

    fn event(&mut self, _: LaneAddress, _: Event) {}
}

impl HotKey {
    /// Fills the queue.
    pub fn new(waiter_count: u32) -> Self {
        let mut bench = Bench::default();
        let holder = bench.acquire(b"hot", LEASE_MS, 0);
        for _ in 0..waiter_count {
            bench.acquire(b"hot", LEASE_MS, u32::MAX);
        }
        Self { bench, holder }
    }

    /// Runs `count` hand-overs. Returns the number of grants to waiters.
    pub fn hand_overs(&mut self, count: u64) -> u64 {
        let mut granted_count = 0;
        for _ in 0..count {
            self.bench.turn(0);
            let mut granted = Granted::default();
            self.bench.shard.release(&self.bench.caller, self.holder, None, &mut granted);
            if let Some(next) = granted.0 {
                self.holder = next;
                granted_count += 1;
            }
            let mut sink = std::mem::take(&mut self.bench.sink);
            self.bench.acquire(b"hot", LEASE_MS, u32::MAX);
            std::mem::swap(&mut sink, &mut self.bench.sink);
        }
        granted_count
    }

    /// Returns the effects of filling the queue.
    pub fn sink(&self) -> &Sink {
        &self.bench.sink
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_grants_the_next_waiter() {
        let mut hot_key = HotKey::new(64);
        assert_eq!(hot_key.hand_overs(200), 200);
        assert_eq!(hot_key.sink().granted, 1);
        assert_eq!(hot_key.bench.shard.claim_count(), 65);
        hot_key.bench.shard.verify();
    }
}
