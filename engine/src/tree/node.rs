//! The nodes of a tree: one for each path that an item names, and for each prefix of one.

use super::recheck::RegionIx;
use super::segment::{Segment, SegmentCounts, first_segment};
use super::waiting::{Kind, Order, Queues};
use crate::handle::{ItemIx, handle};
use crate::index::HashIndex;
use crate::slab::Slab;
use crate::steps::Steps;
use ahash::RandomState;
use std::hash::{BuildHasher, Hasher};

/// The node of the empty path. It is always there.
pub(super) const ROOT: NodeIx = NodeIx::new(0);

handle! {
    /// A node of the trie.
    pub(super) NodeIx
}

/// The lists of children of a node, by what is held at a child or below it: so a holder below is found without searching.
pub(super) mod class {
    pub(in super::super) const WRITES: usize = 0;
    pub(in super::super) const READS: usize = 1;
    pub(in super::super) const IDLE: usize = 2;
    pub(super) const COUNT: usize = 3;
}

/// One path.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) parent: NodeIx,
    /// The first child of each class.
    pub(super) children: [NodeIx; class::COUNT],
    /// Neighbours in the list of the parent.
    pub(super) next: NodeIx,
    pub(super) previous: NodeIx,
    /// Items here, held or waiting.
    pub(super) item_count: u32,
    /// The first item held here.
    pub(super) held: ItemIx,
    /// The items held here or below: reads, writes.
    pub(super) held_below: [u32; 2],
    /// The region that has to be examined again from here on.
    pub(super) region: RegionIx,
    /// Segments of the path.
    pub(super) depth: u16,
    /// What is held here is a write.
    pub(super) holds_write: bool,
    /// Of the parent and the segment.
    hash: u64,
    pub(super) segment: Segment,
    /// What waits here, while something does.
    pub(super) waiting_here: Option<Box<Queues>>,
    /// What waits below, while something does.
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

    /// Whether something held here conflicts.
    #[inline]
    pub(super) fn conflicts_here(&self, write: bool) -> bool {
        self.holds_write || write && self.held.is_some()
    }

    /// Whether something held here or below conflicts.
    #[inline]
    pub(super) fn conflicts_below(&self, write: bool) -> bool {
        self.held_below[1] > 0 || write && self.held_below[0] > 0
    }

    #[inline]
    fn is_used(&self) -> bool {
        self.item_count > 0 || self.region.is_some() || self.children != [NodeIx::NONE; class::COUNT]
    }
}

/// Where a path leads: to its node, or, if it has none, to the last node on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) node: NodeIx,
    pub(super) exact: bool,
}

/// A node, and whether what is below it counts too.
#[derive(Clone, Copy)]
pub(super) struct Overlapping<'a> {
    pub(super) node: &'a Node,
    pub(super) with_below: bool,
}

impl<'a> Overlapping<'a> {
    /// Whether something held conflicts.
    #[inline]
    pub(super) fn conflicts(self, write: bool) -> bool {
        if self.with_below { self.node.conflicts_below(write) } else { self.node.conflicts_here(write) }
    }

    /// What waits.
    #[inline]
    pub(super) fn queues(self) -> impl Iterator<Item = &'a Queues> {
        let below = self.node.waiting_below.iter().filter(move |_| self.with_below);
        self.node.waiting_here.iter().chain(below).map(|queues| &**queues)
    }
}

/// The index of nodes sets aside address space for this many.
const NODE_COUNT_MAX: usize = 1 << 24;

/// Nodes whose segments are counted in one step.
const NODES_COUNTED_PER_STEP: u32 = if cfg!(test) { 1 } else { 4 };

/// The nodes, found by parent and segment. A node to which nothing refers is taken away at once.
#[derive(Debug)]
pub(super) struct Trie {
    pub(super) nodes: Slab<NodeIx, Node>,
    index: HashIndex<NodeIx>,
    hasher: RandomState,
    /// Kept from the first question for statistics on, because most trees are never asked.
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

    /// Where a path leads, and what of its key is behind that.
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

    /// Adds an item to the node of a path; nodes that are missing are made. If it is held, `held` says whether it writes.
    /// The path was searched: it leads to `place`, with `rest` behind that. Gives the node.
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
        // Nobody refers to a node that was taken away, so the rest of it is as in a new one.
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

    /// Takes an item away from its node, and then every node to which nothing refers any more. If it was held, `held` says
    /// whether it wrote.
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

    /// Takes a node away if nothing refers to it, and then its parent in the same way.
    pub(super) fn prune(&mut self, node: NodeIx) {
        let mut number = node;
        while number != ROOT && !self.nodes[number].is_used() {
            let parent = self.nodes[number].parent;
            self.unlink(number, class::IDLE);
            self.remove(number);
            number = parent;
        }
    }

    /// Forgets a node that stands in no list.
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

    /// A node and its ancestors, up to the root.
    #[inline]
    pub(super) fn spine(&self, node: NodeIx) -> impl Iterator<Item = (NodeIx, &Node)> {
        let mut number = node;
        std::iter::from_fn(move || {
            let node = (number.is_some()).then(|| (number, &self.nodes[number]))?;
            number = node.1.parent;
            Some(node)
        })
    }

    /// The nodes at which is seen what overlaps a path: its own, where also what is below it counts, and its ancestors.
    #[inline]
    pub(super) fn overlapping(&self, place: Place) -> impl Iterator<Item = Overlapping<'_>> {
        let at = move |(number, node)| Overlapping { node, with_below: place.exact && number == place.node };
        self.spine(place.node).map(at)
    }

    /// Counts an item as held at a node, or no longer.
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

    /// Puts a node into a list of its parent.
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

    /// Takes a node out of a list of its parent.
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

    /// Lets an item wait at a node.
    pub(super) fn enter_queues(&mut self, node: NodeIx, order: Order, kind: Kind) {
        self.for_queues(node, |queues| queues.get_or_insert_default().insert(order, kind));
    }

    /// Takes a waiting item out.
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

    /// All queues in which what waits at a node stands.
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

    /// The path key of a node.
    pub(super) fn path(&self, node: NodeIx) -> Vec<u8> {
        self.path_within(node, usize::MAX)
    }

    /// As many segments from the front of the path key of a node as fit `len_max`.
    pub(super) fn path_within(&self, node: NodeIx, len_max: usize) -> Vec<u8> {
        let mut names = Vec::with_capacity(usize::from(self.nodes[node].depth) + 1);
        names.extend(self.spine(node).map(|(_, node)| node.segment.as_slice()));
        // The root has no name.
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

    /// Goes on counting the segments of all nodes; the first call begins. Returns the number of distinct segments once all nodes
    /// are counted.
    pub(super) fn count_segments(&mut self, steps: &mut Steps) -> Option<usize> {
        let Self { nodes, hasher, segments, .. } = self;
        let segments = segments.get_or_insert_with(|| SegmentCounts::new(hasher.clone()));
        while let Some(counted_end) = segments.counted_end {
            if !steps.take() {
                return None;
            }
            let end = nodes.end().min(counted_end + NODES_COUNTED_PER_STEP);
            for number in (counted_end..end).map(NodeIx::new) {
                // Removed nodes keep their last segment until they are used again.
                let node = &nodes[number];
                if number != ROOT && node.is_used() {
                    segments.add(node.segment.as_slice());
                }
            }
            segments.counted_end = (end < nodes.end()).then_some(end);
        }
        Some(segments.len())
    }

    /// Checks the index, which finds all nodes but the root. For tests.
    pub(super) fn verify_index(&self) {
        self.index.verify(|number| self.nodes[number].hash);
        assert_eq!(self.index.len() + 1, self.nodes.live_count() as usize, "nodes that are found");
    }
}
