//! One client of one shard, driven like a worker drives it; counts the effects and keeps the last grant.

use std::sync::Arc;
use waymaker_engine::{
    Acquire, AcquireOptions, AcquireSet, AcquireTerms, Answer, Caller, ClaimId, Effects, Event, Grant,
    LaneAddress, LaneSlot, Limits, Reading, Shard, ShardConfig, Ticket, Time, TreeItem,
};

/// Counts effects and keeps data for later requests.
#[derive(Debug, Default)]
pub struct Sink {
    /// Number of grants so far.
    pub granted: u64,
    /// Number of all other effects so far.
    pub other: u64,
    /// Number of these that the limiter allowed.
    pub allowed: u64,
    /// The newest grant.
    pub last: ClaimId,
    /// Sum of the fences of all grants: the check value of most runs.
    pub fences: u64,
}

impl Effects for Sink {
    #[inline]
    fn granted(&mut self, _: Ticket, grant: Grant) {
        self.granted += 1;
        self.last = grant.id;
        self.fences = self.fences.wrapping_add(grant.fence.get());
    }

    #[inline]
    fn released(&mut self, _: Ticket) {
        self.other += 1;
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        match answer {
            Answer::Granted(grant) => self.granted(ticket, grant),
            Answer::Throttled(allowance) => {
                self.other += 1;
                self.allowed += u64::from(allowance.allowed);
            }
            _ => self.other += 1,
        }
    }

    fn event(&mut self, _: LaneAddress, _: Event) {
        self.other += 1;
    }
}

/// A shard with one lane.
pub struct Bench {
    /// The shard.
    pub shard: Shard,
    /// Effects of the shard.
    pub sink: Sink,
    /// Caller of the next request.
    pub caller: Caller,
    now: Reading,
}

impl Default for Bench {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Bench {
    /// Creates an empty shard.
    pub fn new(limits: Limits) -> Self {
        let start = Time::from_millis(1_000_000);
        let mut shard = Shard::new(&ShardConfig {
            number: 0,
            limits,
            hash_seeds: [1, 2, 3, 4],
            secret_seed: [5; 32],
            start,
        });
        let address = LaneAddress { worker: 0, slot: LaneSlot(0), generation: 0 };
        let owner: Arc<[u8]> = Arc::from(*b"bench");
        let lane = shard.lane(address, &owner, 0);
        let caller = Caller { lane, ticket: Ticket { lane: address, number: 0 }, namespace: 0 };
        Self { shard, sink: Sink::default(), caller, now: start.into() }
    }

    /// Begins a turn `ms` milliseconds later.
    #[inline]
    pub fn turn(&mut self, later_ms: u64) {
        self.now = self.now.after_ms(later_ms);
        self.shard.begin_turn(self.now, self.now.time, &mut self.sink);
    }

    /// Returns the caller with a new request number.
    #[inline]
    pub fn next_caller(&mut self) -> Caller {
        self.caller.ticket.number = self.caller.ticket.number.wrapping_add(1);
        self.caller
    }

    /// Requests a key exclusively.
    #[inline]
    pub fn acquire(&mut self, key: &[u8], lease_ms: u32, wait_ms: u32) -> ClaimId {
        self.acquire_hashed(key, self.shard.hash(0, key), lease_ms, wait_ms)
    }

    /// Requests a key whose hash is already known.
    #[inline]
    pub fn acquire_hashed(&mut self, key: &[u8], hash: u64, lease_ms: u32, wait_ms: u32) -> ClaimId {
        self.caller.ticket.number = self.caller.ticket.number.wrapping_add(1);
        let acquire = Acquire {
            key,
            hash,
            terms: AcquireTerms { lease_ms, wait_ms, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        self.shard.acquire(&self.caller, &acquire, &mut self.sink);
        self.sink.last
    }

    /// Requests a key shared.
    pub fn share(&mut self, key: &[u8], lease_ms: u32, wait_ms: u32) {
        let hash = self.shard.hash(0, key);
        let acquire = Acquire {
            key,
            hash,
            shared: true,
            terms: AcquireTerms { lease_ms, wait_ms, ..AcquireTerms::default() },
        };
        let caller = self.next_caller();
        self.shard.acquire(&caller, &acquire, &mut self.sink);
    }

    /// Acquires a set of paths.
    #[inline]
    pub fn acquire_set(
        &mut self,
        items: &[TreeItem<'_>],
        lease_ms: u32,
        wait_ms: u32,
        options: Option<&AcquireOptions<'_>>,
    ) {
        let acquire = AcquireSet {
            items,
            terms: AcquireTerms { lease_ms, wait_ms, options, ..AcquireTerms::default() },
        };
        let caller = self.next_caller();
        self.shard.acquire_set(&caller, &acquire, &mut self.sink);
    }

    /// Releases a hold.
    #[inline]
    pub fn release(&mut self, id: ClaimId) {
        self.caller.ticket.number = self.caller.ticket.number.wrapping_add(1);
        self.shard.release(&self.caller, id, None, &mut self.sink);
    }
}
