//! The state of the shards. Workers publish it, because a scrape cannot read a shard while a worker has its turn.

use super::contended::Contended;
use crate::namespaces::LOCKET_TYPES;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use waymaker_engine::{ShardState, TableMemory};

/// The state of one shard as a worker last published it. Workers publish it every half second; it is older only while
/// the shard or that worker is busy with other work.
#[derive(Debug, Default)]
pub(crate) struct ShardGauges {
    held: AtomicU64,
    waiting: AtomicU64,
    memory: [AtomicU64; TableMemory::PARTS.len()],
    locket: [AtomicU64; LOCKET_TYPES.len()],
    contended: Mutex<Vec<Contended>>,
}

impl ShardGauges {
    /// Publishes the state of the shard. `locket` has the numbers of its Locket resources, in the order of
    /// [`LOCKET_TYPES`].
    pub(crate) fn publish(&self, state: &ShardState, locket: [u64; LOCKET_TYPES.len()]) {
        for (gauge, count) in self.locket.iter().zip(locket) {
            gauge.store(count, Ordering::Relaxed);
        }
        self.held.store(state.held, Ordering::Relaxed);
        self.waiting.store(state.waiting, Ordering::Relaxed);
        for (gauge, bytes) in self.memory.iter().zip(state.memory.bytes) {
            gauge.store(bytes, Ordering::Relaxed);
        }
    }

    /// Publishes the keys of the shard that claims have waited for most often.
    pub(crate) fn publish_contended(&self, contended: Vec<Contended>) {
        let former =
            mem::replace(&mut *self.contended.lock().unwrap_or_else(PoisonError::into_inner), contended);
        // Drop the previous list without the lock.
        drop(former);
    }

    /// Adds the published keys of the shard that claims have waited for most often to `keys`.
    pub(crate) fn add_contended(&self, keys: &mut Vec<Contended>) {
        keys.extend_from_slice(&self.contended.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the numbers of Locket resources, in the order of [`LOCKET_TYPES`].
    pub(crate) fn locket(&self) -> [u64; LOCKET_TYPES.len()] {
        std::array::from_fn(|place| self.locket[place].load(Ordering::Relaxed))
    }

    pub(crate) fn get(&self) -> ShardState {
        ShardState {
            held: self.held.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            memory: TableMemory {
                bytes: std::array::from_fn(|part| self.memory[part].load(Ordering::Relaxed)),
            },
        }
    }
}
