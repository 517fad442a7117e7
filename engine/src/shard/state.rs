//! State of a shard in numbers, for metrics.

use super::Shard;

/// Numbers of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardState {
    /// Number of held claims. Each key of a multi-key claim counts.
    pub held: u64,
    /// Number of acquires that wait in a queue or for the durability of their fences.
    pub waiting: u64,
    /// Memory of the tables.
    pub memory: TableMemory,
}

/// Memory of the tables of a shard, without long keys, strings of claims and paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableMemory {
    /// Memory in bytes, in the order of [`TableMemory::PARTS`].
    pub bytes: [u64; Self::PARTS.len()],
}

impl TableMemory {
    /// Names of the parts in metrics.
    pub const PARTS: [&str; 5] = ["claims", "keys", "queues", "buckets", "connections"];
}

impl Shard {
    /// Returns the state of the shard.
    pub fn state(&self) -> ShardState {
        let waiting = u64::from(self.waiting_count());
        let far_stubs: u64 = self.counters.iter().map(|counters| counters.far_stub_count).sum();
        let claims = [self.claims.len_bytes(), self.details.len_bytes(), self.waiting.len_bytes()];
        let bytes = [
            claims.iter().sum::<usize>() + self.request_ids.len_bytes(),
            self.keys.len_bytes(),
            self.queues.len_bytes() + self.pools.len_bytes(),
            self.buckets.len_bytes(),
            self.lanes.len_bytes(),
        ];
        ShardState {
            held: u64::from(self.claim_count()).saturating_sub(waiting + far_stubs),
            waiting,
            memory: TableMemory { bytes: bytes.map(|bytes| bytes as u64) },
        }
    }
}
