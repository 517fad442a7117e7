//! One batch of requests in one turn, in three passes.

use super::apply::{BatchClock, apply};
use super::outbox::Outbox;
use crate::limits::TOLD_PER_BATCH_MAX;
use waymaker_engine::limits::PREFETCH_COUNT;
use waymaker_engine::{ClaimId, ClaimIx, LaneAddress, LaneIx, Shard};
use waymaker_protocol as wire;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{Frame, NamespaceKind, Route, route};

/// Requests that are served before the events that they said to watchers are counted.
const WATCHED_PART_LEN: usize = 2;

/// Where one frame lies, and where it is going.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located {
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) shard: u16,
    opcode: u8,
    /// The hash of the key of an acquire, or the slot of the claim of an id.
    target: u64,
}

impl Located {
    #[inline]
    pub(crate) fn new(offset: usize, frame: Frame<'_>, shard: u16) -> Self {
        Self { offset: offset as u32, len: frame.len() as u32, shard, opcode: frame.opcode(), target: 0 }
    }

    #[inline]
    fn frame<'a>(&self, bytes: &'a [u8]) -> Option<Frame<'a>> {
        let frame = bytes.get(self.offset as usize..)?.get(..self.len as usize)?;
        wire::next_frame(frame, wire::limits::FRAME_LEN_MAX).ok().flatten()
    }
}

/// Who sent a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) address: LaneAddress,
    /// Its number in the shard.
    pub(crate) lane: LaneIx,
    pub(crate) namespace: u16,
    pub(crate) kind: NamespaceKind,
    /// A claim may last as long as its session.
    pub(crate) has_session: bool,
}

/// Serves a batch. Most of the time of a request on a large table is waiting for memory, so what all of them will need
/// is asked for in passes before they are applied one after the other: first lines of the index and claims, then
/// entries.
///
/// Returns the number of requests that were served. The others come later: those served had very many watchers to tell.
#[inline]
pub(crate) fn serve_batch(
    shard: &mut Shard,
    sender: Sender,
    bytes: &[u8],
    batch: &mut [Located],
    clock: &BatchClock<'_>,
    outbox: &mut Outbox<'_>,
) -> usize {
    let told_before = shard.told_count();
    let part_len = if shard.is_watched() { WATCHED_PART_LEN } else { PREFETCH_COUNT };
    let mut served = 0;
    for part in batch.chunks_mut(part_len) {
        prefetch(shard, sender.namespace, bytes, part);
        for located in part.iter() {
            if let Some(frame) = located.frame(bytes) {
                apply(shard, sender, frame, located.target, clock, outbox);
            }
        }
        served += part.len();
        if shard.told_count().wrapping_sub(told_before) >= TOLD_PER_BATCH_MAX {
            break;
        }
    }
    served
}

/// The passes before some requests are applied.
#[inline]
fn prefetch(shard: &Shard, namespace: u16, bytes: &[u8], part: &mut [Located]) {
    let mut acquires = 0;
    for located in part.iter_mut() {
        let Some(frame) = located.frame(bytes) else { continue };
        match route(frame) {
            Route::Key(key) if located.opcode == opcode::ACQUIRE => {
                located.target = shard.hash(namespace, key);
                shard.prefetch_acquire(located.target, acquires);
                acquires += 1;
            }
            Route::Key(name) if located.opcode == opcode::THROTTLE => {
                located.target = shard.bucket_hash(namespace, name);
                shard.prefetch_bucket_index(located.target);
            }
            Route::Claim(id) => {
                located.target = u64::from(ClaimId::slot_of(id.place).number());
                shard.prefetch_claim(ClaimId::slot_of(id.place));
            }
            _ => {}
        }
    }
    for located in part.iter() {
        match located.opcode {
            opcode::ACQUIRE => shard.prefetch_entry(located.target),
            opcode::THROTTLE => shard.prefetch_bucket(located.target),
            opcode::RELEASE | opcode::EXTEND => shard.prefetch_around(ClaimIx::new(located.target as u32)),
            _ => {}
        }
    }
}
