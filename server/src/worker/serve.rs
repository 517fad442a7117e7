//! Serving of one batch of requests in one turn of a shard: two passes that prefetch memory, and a pass that applies
//! the requests.

use super::apply::{BatchClock, apply};
use super::outbox::Outbox;
use crate::limits::TOLD_PER_BATCH_MAX;
use waymaker_engine::limits::PREFETCH_COUNT;
use waymaker_engine::{ClaimIx, LaneAddress, LaneIx, Shard};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{Frame, NamespaceKind, Route};

/// Maximum number of requests that are served between two checks of the number of events to watchers, if the shard has
/// watched keys.
const WATCHED_PART_LEN: usize = 2;

/// Position of one frame in the bytes of its batch, and its shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameLocation {
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) shard: u16,
    opcode: u8,
    target: Target,
}

/// Record of the engine that a frame needs, as far as it is worth a prefetch.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// No record, or none that the frame names.
    Other,
    /// Key of an acquire or name of a bucket: its bytes within the frame.
    Key { start: u32, len: u32 },
    /// Hash of the key of an acquire or of the name of a bucket. The prefetch has replaced `Key` with it.
    Hashed(u64),
    /// Claim that the frame names by its id.
    Claim(ClaimIx),
}

impl FrameLocation {
    /// Returns the location of a frame, with the record that the frame's `route` names. So no later pass parses the
    /// frame for its route again.
    #[inline]
    pub(crate) fn new(offset: usize, frame: Frame<'_>, shard: u16, route: &Route<'_>) -> Self {
        let target = match route {
            Route::Key(key) => {
                let start = key.as_ptr() as usize - frame.bytes().as_ptr() as usize;
                Target::Key { start: start as u32, len: key.len() as u32 }
            }
            Route::Claim(id) => Target::Claim(ClaimIx::named_by(id.place)),
            _ => Target::Other,
        };
        Self { offset: offset as u32, len: frame.len() as u32, shard, opcode: frame.opcode(), target }
    }

    #[inline]
    fn bytes<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.offset as usize..)?.get(..self.len as usize)
    }

    /// Returns the key or bucket name that decides the shard of this frame; `bytes` has the whole batch. Returns `None`
    /// if the frame has no such key, or after the prefetch has replaced the key with its hash.
    #[inline]
    fn key<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let Target::Key { start, len } = self.target else { return None };
        self.bytes(bytes)?.get(start as usize..)?.get(..len as usize)
    }

    /// Returns the hash of the key if the prefetch computed it, otherwise 0.
    #[inline]
    fn hash(&self) -> u64 {
        if let Target::Hashed(hash) = self.target { hash } else { 0 }
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

/// Serves a batch in parts. On a large table a request mostly waits for memory. So two passes prefetch the memory that
/// all requests of a part need, before the last pass applies them in order. The first pass prefetches lines of the
/// index and claims, the second one records of keys and buckets.
///
/// Returns the number of requests that were served. Serving stops early when the requests have caused
/// `TOLD_PER_BATCH_MAX` events to watchers. The caller then queues the remaining requests at the shard as a batch of
/// their own.
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
            if let Some(frame) = located.bytes(bytes).and_then(Frame::whole) {
                apply(shard, sender, frame, located.hash(), clock, outbox);
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
        match (located.opcode, located.target) {
            (opcode::ACQUIRE, _) => {
                let Some(key) = located.key(bytes) else { continue };
                let hash = shard.hash(namespace, key);
                located.target = Target::Hashed(hash);
                shard.prefetch_acquire(hash, acquires);
                acquires += 1;
            }
            (opcode::THROTTLE, _) => {
                let Some(name) = located.key(bytes) else { continue };
                let hash = shard.bucket_hash(namespace, name);
                located.target = Target::Hashed(hash);
                shard.prefetch_bucket_index(hash);
            }
            (_, Target::Claim(claim)) => shard.prefetch_claim(claim),
            _ => {}
        }
    }
    for located in part.iter() {
        match (located.opcode, located.target) {
            (opcode::ACQUIRE, Target::Hashed(hash)) => shard.prefetch_entry(hash),
            (opcode::THROTTLE, Target::Hashed(hash)) => shard.prefetch_bucket(hash),
            (opcode::RELEASE | opcode::EXTEND, Target::Claim(claim)) => shard.prefetch_around(claim),
            _ => {}
        }
    }
}
