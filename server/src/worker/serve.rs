//! One batch of requests in one turn, in three passes.

use super::apply::{BatchClock, apply};
use super::outbox::Outbox;
use crate::limits::TOLD_PER_BATCH_MAX;
use waymaker_engine::limits::PREFETCH_COUNT;
use waymaker_engine::{ClaimId, ClaimIx, LaneAddress, LaneIx, Shard};
use waymaker_protocol as wire;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{Frame, NamespaceKind, Route, route};

/// Maximum number of requests that are served between two checks of the number of events to watchers.
const WATCHED_PART_LEN: usize = 2;

/// Position of one frame, and its destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameLocation {
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) shard: u16,
    opcode: u8,
    /// Hash of the key of an acquire, or slot of the claim with an id.
    target: u64,
}

impl FrameLocation {
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

/// Sender of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) address: LaneAddress,
    /// Number of the lane in the shard.
    pub(crate) lane: LaneIx,
    pub(crate) namespace: u16,
    pub(crate) kind: NamespaceKind,
    /// Whether the lane has a session, so that claims may use the session lease.
    pub(crate) has_session: bool,
}

/// Serves a batch. On a large table a request mostly waits for memory. So two passes prefetch the memory that all
/// requests need, before the last pass applies the requests in order. The first pass prefetches lines of the index
/// and claims, the second one entries.
///
/// Returns the number of requests that were served. The remaining requests come later, because the served ones caused
/// very many events to watchers.
#[inline]
pub(crate) fn serve_batch(
    shard: &mut Shard,
    sender: Sender,
    bytes: &[u8],
    batch: &mut [FrameLocation],
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

/// Runs the two prefetch passes before some requests are applied.
#[inline]
fn prefetch(shard: &Shard, namespace: u16, bytes: &[u8], part: &mut [FrameLocation]) {
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
                located.target = u64::from(ClaimId::slot_of(id.place));
                shard.prefetch_claim(ClaimIx::named_by(id.place));
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
