//! The distinct segments of the paths of a tree.

use crate::slab::Slab;
use ahash::RandomState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hasher};

/// Longest segment that is kept in its record.
const INLINE_LEN: usize = 16;

/// The bytes of a segment.
#[derive(Debug, PartialEq)]
enum Bytes {
    /// Followed by zeros.
    Inline {
        len: u8,
        bytes: [u8; INLINE_LEN],
    },
    Long(Box<[u8]>),
}

impl Bytes {
    #[inline]
    fn new(segment: &[u8]) -> Self {
        if segment.len() > INLINE_LEN {
            return Self::Long(segment.into());
        }
        let mut bytes = [0; INLINE_LEN];
        bytes[..segment.len()].copy_from_slice(segment);
        Self::Inline { len: segment.len() as u8, bytes }
    }

    #[inline]
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

#[derive(Debug)]
struct Segment {
    hash: u64,
    /// How many nodes it names.
    node_count: u32,
    bytes: Bytes,
}

impl Default for Segment {
    fn default() -> Self {
        Self { hash: 0, node_count: 0, bytes: Bytes::new(&[]) }
    }
}

/// Each segment that names a node, once, however many nodes it names. A node knows the number of its segment only.
#[derive(Debug)]
pub(super) struct SegmentTable {
    segments: Slab<Segment>,
    index: HashTable<u32>,
    hasher: RandomState,
}

impl SegmentTable {
    pub(super) fn new(hasher: RandomState) -> Self {
        Self { segments: Slab::default(), index: HashTable::new(), hasher }
    }

    #[inline]
    pub(super) fn hash(&self, segment: &[u8]) -> u64 {
        let mut state = self.hasher.build_hasher();
        state.write(segment);
        state.finish()
    }

    /// The number of a segment that names a node.
    #[inline]
    pub(super) fn find(&self, hash: u64, segment: &[u8]) -> Option<u32> {
        let is = |number: &u32| {
            let known = &self.segments[*number];
            known.hash == hash && known.bytes.as_slice() == segment
        };
        self.index.find(hash, is).copied()
    }

    /// Adds a segment that is not there, for no node yet.
    #[inline]
    pub(super) fn add(&mut self, hash: u64, segment: &[u8]) -> u32 {
        let number = self.segments.allocate();
        self.segments[number] = Segment { hash, node_count: 0, bytes: Bytes::new(segment) };
        self.index.insert_unique(hash, number, |other| self.segments[*other].hash);
        number
    }

    /// One more node has this name.
    #[inline]
    pub(super) fn use_once(&mut self, number: u32) {
        self.segments[number].node_count += 1;
    }

    /// One node less has this name; a segment without nodes is forgotten.
    #[inline]
    pub(super) fn leave_once(&mut self, number: u32) {
        let segment = &mut self.segments[number];
        segment.node_count -= 1;
        if segment.node_count > 0 {
            return;
        }
        if let Bytes::Long(bytes) = &mut segment.bytes {
            *bytes = Box::default();
        }
        if let Ok(place) = self.index.find_entry(segment.hash, |other| *other == number) {
            place.remove();
        }
        self.segments.release(number);
    }

    pub(super) fn bytes(&self, number: u32) -> &[u8] {
        self.segments[number].bytes.as_slice()
    }

    /// How many distinct segments there are.
    pub(super) fn count(&self) -> u32 {
        self.segments.live_count()
    }

    /// How many nodes a segment names.
    pub(super) fn node_count(&self, number: u32) -> u32 {
        self.segments[number].node_count
    }
}

/// The segments of a path key, in order. Ends where the key is not well formed.
#[inline]
pub(super) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = path;
    std::iter::from_fn(move || {
        let (len, behind) = rest.split_first_chunk()?;
        let (segment, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        rest = behind;
        Some(segment)
    })
}
