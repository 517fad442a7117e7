//! The forms of an acquire: one key, several keys, a set of paths, or permits of a pool.

use crate::key::Key;
use waymaker_protocol::PathKey;

/// Largest number of keys in one claim.
pub(crate) const KEYS_MAX: usize = 5;
/// Largest number of paths in one set.
pub(crate) const PATHS_MAX: usize = 3;
/// Largest number of segments in a path.
pub(crate) const DEPTH_MAX: usize = 3;
/// All segments that paths consist of. An empty segment is valid.
const SEGMENTS: [&[u8]; 3] = [b"", b"a", b"bc"];
/// Number of different segments.
pub(crate) const SEGMENT_COUNT: u64 = SEGMENTS.len() as u64;

/// Form of an acquire: its request in addition to the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// One key.
    #[default]
    One,
    /// Several keys. The key of the acquire is the first of them.
    Keys(KeySet),
    /// A set of paths. The key of the acquire stands for the whole tree.
    Paths(PathSet),
    /// Permits. The key of the acquire is the pool.
    Permits(Permits),
}

/// Several keys in bytewise order, each once. The flag of a key is true if it is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct KeySet {
    count: usize,
    items: [(Key, bool); KEYS_MAX],
}

/// Several paths. They may repeat and cover each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct PathSet {
    count: usize,
    items: [PathItem; PATHS_MAX],
}

/// One path of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct PathItem {
    pub(crate) write: bool,
    pub(crate) depth: usize,
    pub(crate) segments: [u8; DEPTH_MAX],
}

/// Permits of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) permits: u64,
    /// Capacity that the client expects; `None` accepts any capacity.
    pub(crate) capacity: Option<u64>,
    /// Timestamp in microseconds, for pools that serve in the order of timestamps.
    pub(crate) timestamp_us: Option<u64>,
}

impl KeySet {
    /// Creates a set of these keys, each of them shared or not. A key that is named twice is exclusive if
    /// either of the two is.
    pub(crate) fn new(wanted: impl IntoIterator<Item = (Key, bool)>) -> Self {
        let mut items: Vec<(Key, bool)> = wanted.into_iter().collect();
        // The names of the keys sort in the order of their numbers.
        items.sort_unstable();
        items.dedup_by_key(|(key, _)| *key);
        let mut set = Self { count: items.len().min(KEYS_MAX), ..Self::default() };
        set.items.iter_mut().zip(items).for_each(|(place, item)| *place = item);
        set
    }

    pub(crate) fn items(&self) -> &[(Key, bool)] {
        &self.items[..self.count]
    }

    fn has_keys_of(&self, other: &Self) -> bool {
        let keys = |set: &Self| set.items().iter().map(|(key, _)| *key).collect::<Vec<_>>();
        keys(self) == keys(other)
    }
}

impl PathSet {
    pub(crate) fn new(wanted: &[PathItem]) -> Self {
        let mut set = Self { count: wanted.len().min(PATHS_MAX), ..Self::default() };
        set.items.iter_mut().zip(wanted).for_each(|(place, item)| *place = *item);
        set
    }

    pub(crate) fn items(&self) -> &[PathItem] {
        &self.items[..self.count]
    }

    /// Applies the naive rule: two sets conflict if they have two paths of which at least one is a write, and
    /// which are equal or one above the other.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        self.items().iter().any(|mine| {
            other.items().iter().any(|theirs| (mine.write || theirs.write) && mine.overlaps(theirs))
        })
    }

    /// Returns whether the set has no writes.
    pub(crate) fn is_shared(&self) -> bool {
        self.items().iter().all(|item| !item.write)
    }
}

impl PathItem {
    fn overlaps(&self, other: &Self) -> bool {
        let depth = self.depth.min(other.depth);
        self.segments[..depth] == other.segments[..depth]
    }

    /// Parses a path from its encoding on the wire. Returns `None` if it has a segment that no client uses.
    pub(crate) fn of(path: PathKey<'_>, write: bool) -> Option<Self> {
        let mut item = Self { write, ..Self::default() };
        for segment in path.segments() {
            let number = SEGMENTS.iter().position(|other| *other == segment)?;
            *item.segments.get_mut(item.depth)? = number as u8;
            item.depth += 1;
        }
        Some(item)
    }

    /// Returns the segments of the path.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static [u8]> {
        self.segments[..self.depth].iter().map(|segment| SEGMENTS[usize::from(*segment)])
    }

    /// Returns the encoding of the path on the wire.
    pub(crate) fn path_key(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for segment in self.names() {
            bytes.extend_from_slice(&(segment.len() as u16).to_le_bytes());
            bytes.extend_from_slice(segment);
        }
        bytes
    }
}

impl Form {
    /// Returns whether two holds of one key exclude each other. Permits never do: the pool limits
    /// their sum.
    pub(crate) fn conflict((one, shared): (&Self, bool), (other, other_shared): (&Self, bool)) -> bool {
        match (one, other) {
            (Self::Paths(one), Self::Paths(other)) => one.conflicts_with(other),
            (Self::Permits(_), _) => false,
            _ => !(shared && other_shared),
        }
    }

    /// Returns whether the earlier of two waiters for one key must be granted first.
    pub(crate) fn is_ordered(one: (&Self, bool), other: (&Self, bool)) -> bool {
        match (one.0, other.0) {
            (Self::One, Self::One) => true,
            (Self::Permits(permits), _) => permits.timestamp_us.is_none(),
            // A reader may be granted before an earlier reader that still lacks other keys.
            _ => Self::conflict(one, other),
        }
    }

    /// Returns the timestamp that the client chose as its queue position.
    pub(crate) fn timestamp_us(&self) -> Option<u64> {
        if let Self::Permits(permits) = self { permits.timestamp_us } else { None }
    }

    /// Returns whether a request id can name acquires of both forms.
    pub(crate) fn is_same_request(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Keys(one), Self::Keys(other)) => one.has_keys_of(other),
            (Self::One, Self::Keys(_)) | (Self::Keys(_), Self::One) => false,
            _ => true,
        }
    }

    /// Returns the keys on which the claim is held.
    pub(crate) fn keys(&self, first: Key, shared: bool) -> Vec<(Key, bool)> {
        match self {
            Self::Keys(keys) => keys.items().to_vec(),
            _ => vec![(first, shared)],
        }
    }
}
