//! The nodes of a tree: one for each path that an item names, and for each prefix of one.

use super::segment::{SegmentTable, segments};
use super::waiting::{Kind, Order, Waiting};
use crate::slab::{NONE, Slab};
use ahash::RandomState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hasher};

/// The node of the empty path. It is always there.
pub(super) const ROOT: u32 = 0;

/// The lists of children of a node, by what is held at a child or below it: so a holder below is found without searching.
pub(super) mod class {
    pub(in super::super) const WRITES: usize = 0;
    pub(in super::super) const READS: usize = 1;
    pub(in super::super) const IDLE: usize = 2;
    pub(super) const COUNT: usize = 3;
}

/// One path, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Node {
    pub(super) parent: u32,
    pub(super) segment: u32,
    /// The first child of each class.
    pub(super) children: [u32; class::COUNT],
    /// Neighbours in the list of the parent.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// Items here, held or waiting.
    pub(super) item_count: u32,
    /// The first item held here.
    pub(super) held: u32,
    /// The items held here or below: reads, writes.
    pub(super) held_below: [u32; 2],
    /// The region that has to be examined again from here on.
    pub(super) region: u32,
    /// What is held here is a write.
    pub(super) holds_write: bool,
    pub(super) waiting: Option<Box<Waiting>>,
}

const _: () = assert!(size_of::<Node>() == 64, "a node is one cache line");

impl Default for Node {
    fn default() -> Self {
        Self {
            parent: NONE,
            segment: NONE,
            children: [NONE; class::COUNT],
            next: NONE,
            previous: NONE,
            item_count: 0,
            held: NONE,
            held_below: [0; 2],
            region: NONE,
            holds_write: false,
            waiting: None,
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

    /// Whether something held here conflicts.
    #[inline]
    pub(super) fn conflicts_here(&self, write: bool) -> bool {
        self.holds_write || write && self.held != NONE
    }

    /// Whether something held here or below conflicts.
    #[inline]
    pub(super) fn conflicts_below(&self, write: bool) -> bool {
        self.held_below[1] > 0 || write && self.held_below[0] > 0
    }

    #[inline]
    fn is_used(&self) -> bool {
        self.item_count > 0 || self.region != NONE || self.children != [NONE; class::COUNT]
    }
}

/// Where a path leads: to its node, or, if it has none, to the last node on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) node: u32,
    pub(super) exact: bool,
}

/// The nodes, found by parent and segment. A node to which nothing refers is taken away at once.
#[derive(Debug)]
pub(super) struct Trie {
    pub(super) nodes: Slab<Node>,
    index: HashTable<u32>,
    pub(super) segments: SegmentTable,
    hasher: RandomState,
}

impl Trie {
    pub(super) fn new(hasher: RandomState) -> Self {
        let mut nodes = Slab::default();
        let root = nodes.allocate();
        debug_assert_eq!(root, ROOT);
        Self { nodes, index: HashTable::new(), segments: SegmentTable::new(hasher.clone()), hasher }
    }

    #[inline]
    fn child(&self, parent: u32, segment: u32) -> Option<u32> {
        let is = |number: &u32| {
            let node = &self.nodes[*number];
            node.parent == parent && node.segment == segment
        };
        self.index.find(hash(&self.hasher, parent, segment), is).copied()
    }

    #[inline]
    pub(super) fn locate(&self, path: &[u8]) -> Place {
        let mut node = ROOT;
        for segment in segments(path) {
            let known = self.segments.find(self.segments.hash(segment), segment);
            match known.and_then(|segment| self.child(node, segment)) {
                Some(child) => node = child,
                None => return Place { node, exact: false },
            }
        }
        Place { node, exact: true }
    }

    /// The node of a path and its depth; nodes that are missing are made. Whoever asks gives it a use before anyone prunes.
    #[inline]
    pub(super) fn make(&mut self, path: &[u8]) -> (u32, u32) {
        let (mut node, mut depth) = (ROOT, 0);
        for bytes in segments(path) {
            depth += 1;
            let hash = self.segments.hash(bytes);
            node = match self.segments.find(hash, bytes) {
                Some(segment) => match self.child(node, segment) {
                    Some(child) => child,
                    None => self.add_child(node, segment),
                },
                None => {
                    let segment = self.segments.add(hash, bytes);
                    self.add_child(node, segment)
                }
            };
        }
        (node, depth)
    }

    fn add_child(&mut self, parent: u32, segment: u32) -> u32 {
        let number = self.nodes.allocate();
        self.segments.use_once(segment);
        self.nodes[number] = Node { parent, segment, ..Node::default() };
        self.link(number, class::IDLE);
        let Self { nodes, index, hasher, .. } = self;
        index.insert_unique(hash(hasher, parent, segment), number, |other| {
            hash(hasher, nodes[*other].parent, nodes[*other].segment)
        });
        number
    }

    /// Takes a node away if nothing refers to it, and then its parent in the same way.
    #[inline]
    pub(super) fn prune(&mut self, node: u32) {
        let mut number = node;
        while number != ROOT && !self.nodes[number].is_used() {
            let Node { parent, segment, .. } = self.nodes[number];
            self.unlink(number, class::IDLE);
            let hash = hash(&self.hasher, parent, segment);
            if let Ok(place) = self.index.find_entry(hash, |other| *other == number) {
                place.remove();
            }
            self.segments.leave_once(segment);
            self.nodes.release(number);
            number = parent;
        }
    }

    /// A node and its ancestors, up to the root.
    #[inline]
    pub(super) fn spine(&self, node: u32) -> impl Iterator<Item = (u32, &Node)> {
        let mut number = node;
        std::iter::from_fn(move || {
            let node = (number != NONE).then(|| (number, &self.nodes[number]))?;
            number = node.1.parent;
            Some(node)
        })
    }

    /// Counts one more, or one less, item held at a node.
    #[inline]
    pub(super) fn count_held(&mut self, node: u32, write: bool, held: bool) {
        let mut number = node;
        loop {
            let node = &mut self.nodes[number];
            let before = node.class();
            let count = &mut node.held_below[usize::from(write)];
            *count = if held { *count + 1 } else { *count - 1 };
            let (after, parent) = (node.class(), node.parent);
            if parent == NONE {
                return;
            }
            if before != after {
                self.unlink(number, before);
                self.link(number, after);
            }
            number = parent;
        }
    }

    /// Puts a node into a list of its parent.
    #[inline]
    fn link(&mut self, number: u32, class: usize) {
        let parent = self.nodes[number].parent;
        let next = std::mem::replace(&mut self.nodes[parent].children[class], number);
        if next != NONE {
            self.nodes[next].previous = number;
        }
        let node = &mut self.nodes[number];
        (node.next, node.previous) = (next, NONE);
    }

    /// Takes a node out of a list of its parent.
    #[inline]
    fn unlink(&mut self, number: u32, class: usize) {
        let Node { parent, next, previous, .. } = self.nodes[number];
        if previous == NONE {
            self.nodes[parent].children[class] = next;
        } else {
            self.nodes[previous].next = next;
        }
        if next != NONE {
            self.nodes[next].previous = previous;
        }
    }

    /// Lets an item wait at a node.
    pub(super) fn enter_queues(&mut self, node: u32, order: Order, kind: Kind) {
        self.nodes[node].waiting.get_or_insert_default().here.insert(order, kind);
        let mut number = node;
        while number != NONE {
            let node = &mut self.nodes[number];
            node.waiting.get_or_insert_default().below.insert(order, kind);
            number = node.parent;
        }
    }

    /// Takes a waiting item out.
    pub(super) fn leave_queues(&mut self, node: u32, order: Order, kind: Kind) {
        if let Some(waiting) = &mut self.nodes[node].waiting {
            waiting.here.remove(order, kind);
        }
        let mut number = node;
        while number != NONE {
            let node = &mut self.nodes[number];
            if let Some(waiting) = &mut node.waiting {
                waiting.below.remove(order, kind);
                if waiting.below.is_empty() {
                    node.waiting = None;
                }
            }
            number = node.parent;
        }
    }

    /// Gives a waiting item another kind.
    pub(super) fn change_queues(&mut self, node: u32, order: Order, from: Kind, to: Kind) {
        if let Some(waiting) = &mut self.nodes[node].waiting {
            waiting.here.remove(order, from);
            waiting.here.insert(order, to);
        }
        let mut number = node;
        while number != NONE {
            let node = &mut self.nodes[number];
            if let Some(waiting) = &mut node.waiting {
                waiting.below.remove(order, from);
                waiting.below.insert(order, to);
            }
            number = node.parent;
        }
    }

    /// The path key of a node.
    pub(super) fn path(&self, node: u32) -> Vec<u8> {
        let mut names: Vec<u32> = self.spine(node).map(|(_, node)| node.segment).collect();
        // The root has no name.
        names.pop();
        let mut path = Vec::new();
        for segment in names.iter().rev() {
            let bytes = self.segments.bytes(*segment);
            path.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
            path.extend_from_slice(bytes);
        }
        path
    }

    /// How many nodes the index finds: all but the root.
    pub(super) fn indexed_count(&self) -> usize {
        self.index.len()
    }
}

#[inline]
fn hash(hasher: &RandomState, parent: u32, segment: u32) -> u64 {
    let mut state = hasher.build_hasher();
    state.write_u64(u64::from(parent) << 32 | u64::from(segment));
    state.finish()
}
