//! Segments of paths.

use super::node::NodeIx;
use ahash::RandomState;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{BuildHasher, Hasher};

/// Length of the longest segment that is stored inside its node instead of in an allocation of its own, in bytes.
const INLINE_LEN: usize = 16;

/// Bytes of a segment.
#[derive(Debug)]
pub(super) enum Segment {
    /// Short segment, padded with zeros.
    Inline {
        len: u8,
        bytes: [u8; INLINE_LEN],
    },
    Long(Box<[u8]>),
}

impl Segment {
    #[inline]
    pub(super) fn new(segment: &[u8]) -> Self {
        match padded(segment) {
            Some(bytes) => Self::Inline { len: segment.len() as u8, bytes },
            None => Self::Long(segment.into()),
        }
    }

    #[inline]
    pub(super) fn is(&self, segment: &[u8]) -> bool {
        match self {
            Self::Inline { len, bytes } => bytes[..usize::from(*len)] == *segment,
            Self::Long(bytes) => **bytes == *segment,
        }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

#[inline]
fn padded(segment: &[u8]) -> Option<[u8; INLINE_LEN]> {
    let mut bytes = [0; INLINE_LEN];
    bytes.get_mut(..segment.len())?.copy_from_slice(segment);
    Some(bytes)
}

/// Returns the first segment of a path key, and the key of the segments that follow. Returns `None` at the end of the
/// key, and if the key is not well formed.
#[inline]
pub(super) fn first_segment(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, behind) = path.split_first_chunk()?;
    behind.split_at_checked(usize::from(u16::from_le_bytes(*len)))
}

/// Returns the segments of a path key.
pub(super) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = path;
    std::iter::from_fn(move || {
        let (segment, behind) = first_segment(rest)?;
        rest = behind;
        Some(segment)
    })
}

/// Number of nodes for each segment. Segments are distinguished by 64-bit hashes, which is enough for statistics. The
/// map is a B-tree, because a large hash table would delay all requests while it grows.
///
/// [`Trie::count_segments`](super::node::Trie::count_segments) counts existing nodes over several turns.
#[derive(Debug)]
pub(super) struct SegmentCounts {
    counts: BTreeMap<u64, u32>,
    hasher: RandomState,
    /// End of the nodes that `counts` includes so far: all nodes with a smaller number are counted.
    /// `Trie::count_segments` moves the end, some nodes in each turn; `None` once all nodes are counted.
    pub(super) counted_end: Option<u32>,
}

impl SegmentCounts {
    pub(super) fn new(hasher: RandomState) -> Self {
        Self { counts: BTreeMap::new(), hasher, counted_end: Some(0) }
    }

    /// Whether nodes with this number are counted.
    pub(super) fn is_counted(&self, node: NodeIx) -> bool {
        self.counted_end.is_none_or(|end| node.number() < end)
    }

    fn hash(&self, segment: &[u8]) -> u64 {
        let mut state = self.hasher.build_hasher();
        state.write(segment);
        state.finish()
    }

    /// Counts a node with this segment.
    pub(super) fn add(&mut self, segment: &[u8]) {
        let hash = self.hash(segment);
        *self.counts.entry(hash).or_default() += 1;
    }

    /// Subtracts a node with this segment.
    pub(super) fn remove(&mut self, segment: &[u8]) {
        let hash = self.hash(segment);
        if let Entry::Occupied(mut count) = self.counts.entry(hash) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Returns the number of distinct segments of the nodes that are counted so far.
    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }
}
