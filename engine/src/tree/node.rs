//! Nodes of the trie of a tree namespace. Each path of an item, and each prefix of such a path, has one node.

use super::recheck::RegionIx;
use super::segment::{Segment, SegmentCounts, first_segment};
use super::waiting::{Kind, Order, Queues};
use crate::handle::{ItemIx, handle};
use crate::index::HashIndex;
use crate::slab::Slab;
use crate::steps::Steps;
use ahash::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Node of the empty path, which always exists.
pub(super) const ROOT: NodeIx = NodeIx::new(0);

handle! {
    /// Handle of a node of the trie.
    pub(super) NodeIx
}

/// Classes of the children of a node, by the items that are held at a child or below it: writes, reads only, or none. A
/// node has one list of children for each class, so code that looks for a holder below the node skips all other
/// children.
pub(super) mod class {
    pub(in super::super) const WRITES: usize = 0;
    pub(in super::super) const READS: usize = 1;
    pub(in super::super) const IDLE: usize = 2;
    pub(super) const COUNT: usize = 3;
}

/// Node of a path.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) parent: NodeIx,
    /// First child of each class.
    pub(super) children: [NodeIx; class::COUNT],
    /// Neighbours in the parent's list of children.
    pub(super) next: NodeIx,
    pub(super) previous: NodeIx,
    /// Number of items at this node, held or waiting.
    pub(super) item_count: u32,
    /// First item that is held at this node.
    pub(super) held: ItemIx,
    /// Number of reads and number of writes that are held at this node or below it.
    pub(super) held_below: [u32; 2],
    /// Recheck region of this node: a pending check whether waiting items that overlap the node have become clear.
    /// `NONE` if no check is pending.
    pub(super) region: RegionIx,
    /// Number of segments of the path.
    pub(super) depth: u16,
    /// Whether a write is held at this node. A held write excludes every other held item at the node.
    pub(super) holds_write: bool,
    /// Hash of the parent and the segment.
    hash: u64,
    pub(super) segment: Segment,
    /// Items that wait at this node, if there are any.
    pub(super) waiting_here: Option<Box<Queues>>,
    /// Items that wait below this node, if there are any.
    pub(super) waiting_below: Option<Box<Queues>>,
}

const _: () = assert!(size_of::<Node>() <= 96, "two nodes take three cache lines");

impl Default for Node {
    fn default() -> Self {
        Self {
            parent: NodeIx::NONE,
            children: [NodeIx::NONE; class::COUNT],
            next: NodeIx::NONE,
            previous: NodeIx::NONE,
            item_count: 0,
            held: ItemIx::NONE,
            held_below: [0; 2],
            region: RegionIx::NONE,
            depth: 0,
            holds_write: false,
            hash: 0,
            segment: Segment::new(&[]),
            waiting_here: None,
            waiting_below: None,
        }
    }
}

impl Node {
    #[inline]
    pub(super) fn class(&self) -> usize {
        match self.held_below {
            [0, 0] => class::IDLE,
            [_, 0] => class::READS,
            _ => class::WRITES,
        }
    }

    #[inline]
    fn count_held(&mut self, write: bool, held: bool) {
        let count = &mut self.held_below[usize::from(write)];
        if held {
            *count += 1;
        } else {
            *count -= 1;
        }
    }

    /// Whether an item that is held at this node conflicts with a new item that writes or, unless `write`, reads.
    #[inline]
    pub(super) fn conflicts_here(&self, write: bool) -> bool {
        self.holds_write || write && self.held.is_some()
    }

    /// Whether an item that is held at this node or below it conflicts with a new item that writes or, unless `write`,
    /// reads.
    #[inline]
    pub(super) fn conflicts_below(&self, write: bool) -> bool {
        self.held_below[1] > 0 || write && self.held_below[0] > 0
    }

    #[inline]
    fn is_used(&self) -> bool {
        self.item_count > 0 || self.region.is_some() || self.children != [NodeIx::NONE; class::COUNT]
    }
}

/// Result of a search for a path: its node, with `exact` set. If the path has no node, the node of its longest prefix
/// that has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) node: NodeIx,
    pub(super) exact: bool,
}

/// Node that has items whose paths overlap a searched path. The items at the node always overlap it; items below the
/// node do so only if `with_below`.
#[derive(Clone, Copy)]
pub(super) struct Overlapping<'a> {
    pub(super) node: &'a Node,
    pub(super) with_below: bool,
}

impl<'a> Overlapping<'a> {
    /// Whether a held item conflicts.
    #[inline]
    pub(super) fn conflicts(self, write: bool) -> bool {
        if self.with_below { self.node.conflicts_below(write) } else { self.node.conflicts_here(write) }
    }

    /// Returns the queues of waiting items.
    #[inline]
    pub(super) fn queues(self) -> impl Iterator<Item = &'a Queues> {
        let below = self.node.waiting_below.iter().filter(move |_| self.with_below);
        self.node.waiting_here.iter().chain(below).map(|queues| &**queues)
    }
}

/// Number of nodes for which the hash index of a trie reserves address space once it is large, so that its growth
/// copies nothing. A trie may have more nodes; its index is copied when it grows beyond this number.
const NODE_COUNT_MAX: usize = 1 << 24;

/// Number of nodes for each step when the segments of all nodes are counted for statistics. The steps limit the
/// follow-up work of a turn.
const NODES_COUNTED_PER_STEP: u32 = if cfg!(test) { 1 } else { 4 };

/// Nodes of the paths, found by parent and segment. A node is removed at once if it has no items, no children and no
/// recheck region. A recheck region is a pending check of the waiting items that overlap the node.
#[derive(Debug)]
pub(super) struct Trie {
    pub(super) nodes: Slab<NodeIx, Node>,
    index: HashIndex<NodeIx>,
    hasher: RandomState,
    /// Counts of distinct segments. They exist only after the first request for statistics, because most trees never
    /// get one.
    pub(super) segments: Option<SegmentCounts>,
}

impl Trie {
    pub(super) fn new(hasher: RandomState) -> Self {
        let mut nodes = Slab::default();
        let root = nodes.allocate();
        debug_assert_eq!(root, ROOT);
        Self { nodes, index: HashIndex::new(NODE_COUNT_MAX), hasher, segments: None }
    }

    #[inline]
    fn hash(&self, parent: NodeIx, segment: &[u8]) -> u64 {
        let mut state = self.hasher.build_hasher();
        state.write_u32(parent.number());
        state.write(segment);
        state.finish()
    }

    #[inline]
    fn child(&self, parent: NodeIx, segment: &[u8], hash: u64) -> Option<NodeIx> {
        let is = |number: NodeIx| {
            let node = &self.nodes[number];
            node.hash == hash && node.parent == parent && node.segment.is(segment)
        };
        self.index.find(hash, is)
    }

    #[inline]
    pub(super) fn locate(&self, path: &[u8]) -> Place {
        self.search(path).0
    }

    /// Returns the node of the longest prefix of a path that has a node, and the segments of the path key that follow
    /// that prefix.
    #[inline]
    pub(super) fn search<'a>(&self, path: &'a [u8]) -> (Place, &'a [u8]) {
        let (mut node, mut rest) = (ROOT, path);
        while let Some((segment, behind)) = first_segment(rest) {
            match self.child(node, segment, self.hash(node, segment)) {
                Some(child) => (node, rest) = (child, behind),
                None => return (Place { node, exact: false }, rest),
            }
        }
        (Place { node, exact: true }, rest)
    }

    /// Adds an item to the node of its path and creates missing nodes. `held` is `None` for a waiting item; for a held
    /// item, it says whether the item writes. `place` and `rest` must be the result of [`Self::search`] for the path.
    /// Returns the node.
    #[inline]
    pub(super) fn enter(&mut self, place: Place, rest: &[u8], held: Option<bool>) -> NodeIx {
        let (mut number, mut rest) = (place.node, rest);
        if let Some(write) = held {
            self.count_held(number, write, true);
        }
        while let Some((segment, behind)) = first_segment(rest) {
            number = self.add_child(number, segment, held);
            rest = behind;
        }
        self.nodes[number].item_count += 1;
        number
    }

    #[inline]
    fn add_child(&mut self, parent: NodeIx, segment: &[u8], held: Option<bool>) -> NodeIx {
        let hash = self.hash(parent, segment);
        let depth = self.nodes[parent].depth + 1;
        let number = self.nodes.allocate();
        let node = &mut self.nodes[number];
        // The fields that are not written here have their defaults, even in a record that was used before: a node is
        // removed only when it has no items, children or region.
        (node.parent, node.depth, node.hash) = (parent, depth, hash);
        node.segment = Segment::new(segment);
        if let Some(write) = held {
            node.held_below[usize::from(write)] = 1;
        }
        let class = node.class();
        self.link(number, class);
        self.index.insert(hash, number, |other| self.nodes[other].hash);
        if let Some(segments) = &mut self.segments
            && segments.is_counted(number)
        {
            segments.add(segment);
        }
        number
    }

    /// Removes an item from its node, and removes the node and its ancestors if they became unused. `held` is `None`
    /// for an item that waited; for a held item, it says whether the item wrote.
    #[inline]
    pub(super) fn leave(&mut self, node: NodeIx, held: Option<bool>) {
        self.nodes[node].item_count -= 1;
        let mut number = node;
        while number != ROOT && (held.is_some() || !self.nodes[number].is_used()) {
            let node = &mut self.nodes[number];
            let (class, parent) = (node.class(), node.parent);
            if let Some(write) = held {
                node.held_below[usize::from(write)] -= 1;
            }
            if !node.is_used() {
                self.unlink(number, class);
                self.remove(number);
            } else if node.class() != class {
                let class_now = node.class();
                self.unlink(number, class);
                self.link(number, class_now);
            }
            number = parent;
        }
        if let Some(write) = held {
            self.nodes[ROOT].held_below[usize::from(write)] -= 1;
        }
    }

    /// Removes a node if it has no items, no children and no recheck region (a pending check of the waiting items that
    /// overlap the node). Then removes each ancestor that became unused in this way.
    pub(super) fn prune(&mut self, node: NodeIx) {
        let mut number = node;
        while number != ROOT && !self.nodes[number].is_used() {
            let parent = self.nodes[number].parent;
            self.unlink(number, class::IDLE);
            self.remove(number);
            number = parent;
        }
    }

    /// Removes a node that is no longer in the list of its parent's children.
    #[inline]
    fn remove(&mut self, number: NodeIx) {
        let node = &mut self.nodes[number];
        self.index.remove(node.hash, number);
        if let Some(segments) = &mut self.segments
            && segments.is_counted(number)
        {
            segments.remove(node.segment.as_slice());
        }
        if matches!(node.segment, Segment::Long(_)) {
            node.segment = Segment::new(&[]);
        }
        self.nodes.release(number);
    }

    /// Returns a node and its ancestors, up to the root.
    #[inline]
    pub(super) fn spine(&self, node: NodeIx) -> impl Iterator<Item = (NodeIx, &Node)> {
        let mut number = node;
        std::iter::from_fn(move || {
            let node = (number.is_some()).then(|| (number, &self.nodes[number]))?;
            number = node.1.parent;
            Some(node)
        })
    }

    /// Returns the nodes whose items overlap a path: the node of the path, including all items below it, and its
    /// ancestors.
    #[inline]
    pub(super) fn overlapping(&self, place: Place) -> impl Iterator<Item = Overlapping<'_>> {
        let at = move |(number, node)| Overlapping { node, with_below: place.exact && number == place.node };
        self.spine(place.node).map(at)
    }

    /// Adds a held item to `held_below` of a node and its ancestors if `held`, otherwise subtracts it.
    #[inline]
    pub(super) fn count_held(&mut self, node: NodeIx, write: bool, held: bool) {
        let mut number = node;
        while number != ROOT {
            self.count_one_held(number, write, held);
            number = self.nodes[number].parent;
        }
        self.nodes[ROOT].count_held(write, held);
    }

    #[inline]
    fn count_one_held(&mut self, number: NodeIx, write: bool, held: bool) {
        let node = &mut self.nodes[number];
        let before = node.class();
        node.count_held(write, held);
        let after = node.class();
        if before != after {
            self.unlink(number, before);
            self.link(number, after);
        }
    }

    /// Adds a node to one of its parent's lists of children: the list of `class`. The classes are children with held
    /// writes at or below them, with held reads only, and with nothing held.
    #[inline]
    fn link(&mut self, number: NodeIx, class: usize) {
        let parent = self.nodes[number].parent;
        let next = std::mem::replace(&mut self.nodes[parent].children[class], number);
        if next.is_some() {
            self.nodes[next].previous = number;
        }
        let node = &mut self.nodes[number];
        (node.next, node.previous) = (next, NodeIx::NONE);
    }

    /// Removes a node from its parent's list of children of this class.
    #[inline]
    fn unlink(&mut self, number: NodeIx, class: usize) {
        let Node { parent, next, previous, .. } = self.nodes[number];
        if previous.is_none() {
            self.nodes[parent].children[class] = next;
        } else {
            self.nodes[previous].next = next;
        }
        if next.is_some() {
            self.nodes[next].previous = previous;
        }
    }

    /// Adds a waiting item to the queues of a node and its ancestors.
    pub(super) fn enter_queues(&mut self, node: NodeIx, order: Order, kind: Kind) {
        self.for_queues(node, |queues| queues.get_or_insert_default().insert(order, kind));
    }

    /// Removes a waiting item from the queues of a node and its ancestors.
    pub(super) fn leave_queues(&mut self, node: NodeIx, order: Order, kind: Kind) {
        self.for_queues(node, |place| {
            if let Some(queues) = place {
                queues.remove(order, kind);
                if queues.is_empty() {
                    *place = None;
                }
            }
        });
    }

    /// Calls `change` for all queues that contain the items that wait at this node. These are the queue of the node for
    /// items at it, and the queue of each ancestor for items below it. The callers add an item to all of them, or
    /// remove it.
    #[inline]
    fn for_queues(&mut self, node: NodeIx, mut change: impl FnMut(&mut Option<Box<Queues>>)) {
        let Node { waiting_here, parent, .. } = &mut self.nodes[node];
        change(waiting_here);
        let mut number = *parent;
        while number.is_some() {
            let node = &mut self.nodes[number];
            change(&mut node.waiting_below);
            number = node.parent;
        }
    }

    /// Returns the path key of a node.
    pub(super) fn path(&self, node: NodeIx) -> Vec<u8> {
        self.path_within(node, usize::MAX)
    }

    /// Returns the beginning of the path key of a node: as many whole segments as fit into `len_max` bytes.
    pub(super) fn path_within(&self, node: NodeIx, len_max: usize) -> Vec<u8> {
        let mut names = Vec::with_capacity(usize::from(self.nodes[node].depth) + 1);
        names.extend(self.spine(node).map(|(_, node)| node.segment.as_slice()));
        // The root has no segment.
        names.pop();
        let mut path =
            Vec::with_capacity(names.iter().map(|segment| 2 + segment.len()).sum::<usize>().min(len_max));
        for segment in names.into_iter().rev() {
            if path.len() + 2 + segment.len() > len_max {
                break;
            }
            path.extend_from_slice(&(segment.len() as u16).to_le_bytes());
            path.extend_from_slice(segment);
        }
        path
    }

    /// Continues counting the segments of all nodes; the first call starts the count. Returns the number of distinct
    /// segments once all nodes are counted.
    pub(super) fn count_segments(&mut self, steps: &mut Steps) -> Option<usize> {
        let Self { nodes, hasher, segments, .. } = self;
        let segments = segments.get_or_insert_with(|| SegmentCounts::new(hasher.clone()));
        while let Some(counted_end) = segments.counted_end {
            if !steps.take() {
                return None;
            }
            let end = nodes.end().min(counted_end + NODES_COUNTED_PER_STEP);
            for number in (counted_end..end).map(NodeIx::new) {
                // Removed nodes keep their last segment until their record is used again, so the loop skips unused
                // nodes.
                let node = &nodes[number];
                if number != ROOT && node.is_used() {
                    segments.add(node.segment.as_slice());
                }
            }
            segments.counted_end = (end < nodes.end()).then_some(end);
        }
        Some(segments.len())
    }

    /// Checks the hash index: it must find every node except the root. For tests.
    pub(super) fn verify_index(&self) {
        self.index.verify(|number| self.nodes[number].hash);
        assert_eq!(self.index.len() + 1, self.nodes.live_count() as usize, "nodes that are found");
    }
}
