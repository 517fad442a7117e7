//! What an acquire wants: one key, several keys, a set of paths, or permits of a pool.

use crate::operation::Key;
use waymaker_protocol::PathKey;

/// Keys of one claim, at most.
pub(crate) const KEYS_MAX: usize = 5;
/// Paths of one set, at most.
pub(crate) const PATHS_MAX: usize = 3;
/// Segments of a path, at most.
pub(crate) const DEPTH_MAX: usize = 3;
/// All segments there are. An empty one is as good as any.
const SEGMENTS: [&[u8]; 3] = [b"", b"a", b"bc"];
/// How many there are.
pub(crate) const SEGMENT_COUNT: u64 = SEGMENTS.len() as u64;

/// What an acquire wants beside its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// The key, and nothing else.
    #[default]
    One,
    /// The key is the first of these.
    Keys(KeySet),
    /// The key stands for the whole tree.
    Paths(PathSet),
    /// The key is the pool.
    Permits(Permits),
}

/// Several keys in their bytewise order, each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct KeySet {
    count: usize,
    items: [(Key, bool); KEYS_MAX],
}

/// Several paths; they may repeat and cover each other.
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
    /// Without one, whatever the pool has.
    pub(crate) capacity: Option<u64>,
    /// Of a pool that serves in the order of timestamps.
    pub(crate) timestamp_us: Option<u64>,
}

impl KeySet {
    /// Of these keys, each shared or not. One that is named twice is exclusive if it is so once.
    pub(crate) fn new(wanted: impl IntoIterator<Item = (Key, bool)>) -> Self {
        let mut items: Vec<(Key, bool)> = wanted.into_iter().collect();
        // Names of keys sort as their numbers do.
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

    /// The naive rule: some path of the one and some path of the other lie above, below or at each other, and one of
    /// these two is written.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        self.items().iter().any(|mine| {
            other.items().iter().any(|theirs| (mine.write || theirs.write) && mine.overlaps(theirs))
        })
    }

    /// Nothing in it is written.
    pub(crate) fn is_shared(&self) -> bool {
        self.items().iter().all(|item| !item.write)
    }
}

impl PathItem {
    fn overlaps(&self, other: &Self) -> bool {
        let depth = self.depth.min(other.depth);
        self.segments[..depth] == other.segments[..depth]
    }

    /// The path that stands on the wire like this; `None` if it has a segment that no client asks for.
    pub(crate) fn of(path: PathKey<'_>, write: bool) -> Option<Self> {
        let mut item = Self { write, ..Self::default() };
        for segment in path.segments() {
            let number = SEGMENTS.iter().position(|other| *other == segment)?;
            *item.segments.get_mut(item.depth)? = number as u8;
            item.depth += 1;
        }
        Some(item)
    }

    /// Its segments.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static [u8]> {
        self.segments[..self.depth].iter().map(|segment| SEGMENTS[usize::from(*segment)])
    }

    /// As it stands on the wire.
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
    /// Whether two holds of one key cannot be there at once. What permits leave room for is not a matter of two.
    pub(crate) fn conflict((one, shared): (&Self, bool), (other, other_shared): (&Self, bool)) -> bool {
        match (one, other) {
            (Self::Paths(one), Self::Paths(other)) => one.conflicts_with(other),
            (Self::Permits(_), _) => false,
            _ => !(shared && other_shared),
        }
    }

    /// Whether of two that wait for one key the first to come must be the first to be granted.
    pub(crate) fn is_ordered(one: (&Self, bool), other: (&Self, bool)) -> bool {
        match (one.0, other.0) {
            (Self::One, Self::One) => true,
            (Self::Permits(permits), _) => permits.timestamp_us.is_none(),
            // A reader may be served while another one in front of it still lacks other keys.
            _ => Self::conflict(one, other),
        }
    }

    /// The place in the queue that it brought itself.
    pub(crate) fn timestamp_us(&self) -> Option<u64> {
        if let Self::Permits(permits) = self { permits.timestamp_us } else { None }
    }

    /// Whether a request id that names an acquire of this form names one of the other form too.
    pub(crate) fn is_same_request(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Keys(one), Self::Keys(other)) => one.has_keys_of(other),
            (Self::One, Self::Keys(_)) | (Self::Keys(_), Self::One) => false,
            _ => true,
        }
    }

    /// The keys on which it will be held.
    pub(crate) fn keys(&self, first: Key, shared: bool) -> Vec<(Key, bool)> {
        match self {
            Self::Keys(keys) => keys.items().to_vec(),
            _ => vec![(first, shared)],
        }
    }
}
