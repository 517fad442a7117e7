//! Full checks of the invariants of a tree. For tests: they take quadratic time.

use super::node::{NodeIx, ROOT, class};
use super::waiting::{Order, Queues};
use super::{NO_ARRIVAL, State, Tree, TreeCounters};
use crate::handle::ItemIx;
use std::collections::{BTreeMap, BTreeSet};

/// Expected counts, holders and queues of a node, derived from the items.
#[derive(Default)]
struct Expected {
    item_count: u32,
    held: BTreeSet<ItemIx>,
    held_below: [u32; 2],
    waiting_here: Queues,
    waiting_below: Queues,
}

impl Tree {
    /// Checks that the index finds each node.
    pub(crate) fn verify_index(&self) {
        self.trie.verify_index();
    }

    /// Checks the invariants of the tree.
    ///
    /// # Panics
    /// Panics if an invariant does not hold; the message names it and the record.
    pub(crate) fn verify(&self) {
        let is_in = |item: &ItemIx| !matches!(self.items[*item].state, State::Free | State::Outside);
        let live: Vec<ItemIx> = self.items.handles().filter(is_in).collect();
        self.verify_items(&live);
        self.verify_nodes(&live);
        for item in &live {
            self.verify_mark(*item, &live);
        }
        for (node, cursor, region) in self.regions() {
            assert_eq!(self.trie.nodes[node].region, region, "region {region} is not found at its node");
            assert_eq!(self.region_cursor(node), cursor, "cursor of region {region}");
            assert!(cursor.is_some(), "region {region} has ended");
        }
        assert_eq!(self.regions().count(), self.region_count() as usize, "regions");
    }

    fn verify_items(&self, live: &[ItemIx]) {
        let outside = self.items.handles().filter(|item| self.items[*item].state == State::Outside);
        for first_item in outside.clone() {
            assert!(self.entering_item_count(first_item).is_some(), "item {first_item} never enters");
            assert_eq!(self.items[first_item].blocked_count, 1, "blocked items of claim at {first_item}");
        }
        let count = live.len() + outside.count();
        assert_eq!(count, self.items.live_count() as usize, "live items");
        let mut counters = TreeCounters { segment_count: 1, ..TreeCounters::default() };
        let mut blocked_counts = BTreeMap::<ItemIx, u32>::new();
        let mut paths = BTreeSet::new();
        for number in live {
            let item = &self.items[*number];
            let first = &self.items[item.first];
            let is_over = first.claim.is_none();
            assert!(is_over || first.claim == item.claim, "claim of item {number}");
            assert_eq!(first.arrival, item.arrival, "arrival of item {number}");
            let held = item.state == State::Held;
            let enters = self.entering_item_count(item.first).is_some();
            let is_in_part = is_over || enters || self.is_held_in_part(item.first);
            assert!(
                is_in_part || (first.state == State::Held) == held,
                "items of claim {} are held in part",
                item.claim
            );
            *blocked_counts.entry(item.first).or_default() += u32::from(item.state == State::Blocked);
            *(if held { &mut counters.held_item_count } else { &mut counters.pending_item_count }) += 1;
            counters.segment_count += u64::from(self.trie.nodes[item.node].depth);
            paths.insert(item.node);
        }
        for (first, mut blocked_count) in blocked_counts {
            blocked_count += u32::from(self.entering_item_count(first).is_some());
            assert_eq!(self.items[first].blocked_count, blocked_count, "blocked items of claim at {first}");
        }
        counters.path_count = paths.len() as u32;
        assert_eq!(self.counters(), counters);
    }

    fn verify_nodes(&self, live: &[ItemIx]) {
        let mut expected = BTreeMap::from([(ROOT, Expected::default())]);
        for number in live {
            let item = &self.items[*number];
            let order = Order { arrival: item.arrival, item: *number };
            for (node, _) in self.trie.spine(item.node) {
                let expected: &mut Expected = expected.entry(node).or_default();
                let held = item.state == State::Held;
                if held {
                    expected.held_below[usize::from(item.write)] += 1;
                }
                if node == item.node {
                    expected.item_count += 1;
                }
                match (held, node == item.node) {
                    (true, true) => drop(expected.held.insert(*number)),
                    (true, false) => {}
                    (false, true) => expected.waiting_here.insert(order, item.kind()),
                    (false, false) => expected.waiting_below.insert(order, item.kind()),
                }
            }
        }
        for (node, ..) in self.regions() {
            for (node, _) in self.trie.spine(node) {
                expected.entry(node).or_default();
            }
        }
        assert_eq!(expected.len(), self.trie.nodes.live_count() as usize, "nodes");
        self.verify_index();
        for (number, expected) in &expected {
            self.verify_node(*number, expected);
        }
        if let Some(segments) = &self.trie.segments {
            let named = expected.keys().filter(|number| **number != ROOT && segments.is_counted(**number));
            let names: BTreeSet<_> =
                named.map(|number| self.trie.nodes[*number].segment.as_slice()).collect();
            assert_eq!(segments.len(), names.len(), "segments");
        }
        let child_count: usize = expected.keys().map(|number| self.verify_children(*number)).sum();
        assert_eq!(child_count, expected.len() - 1, "children");
    }

    fn verify_node(&self, number: NodeIx, expected: &Expected) {
        let node = &self.trie.nodes[number];
        let place = self.trie.locate(&self.trie.path(number));
        assert!(place.exact && place.node == number, "node {number} is not found by its path");
        assert_eq!(self.trie.spine(number).count(), usize::from(node.depth) + 1, "depth of node {number}");
        assert_eq!(node.item_count, expected.item_count, "items of node {number}");
        assert_eq!(node.held_below, expected.held_below, "held below node {number}");
        let mut held = BTreeSet::new();
        let mut item = node.held;
        let mut previous = ItemIx::NONE;
        while item.is_some() {
            assert_eq!(self.items[item].held_previous, previous, "list of held items of node {number}");
            assert!(held.insert(item), "item {item} is held twice");
            (previous, item) = (item, self.items[item].held_next);
        }
        assert_eq!(held, expected.held, "held at node {number}");
        let write = held.iter().any(|item| self.items[*item].write);
        assert_eq!(node.holds_write, write, "mode of node {number}");
        assert!(!write || held.len() == 1, "holders of node {number} conflict");
        for (queues, expected) in
            [(&node.waiting_here, &expected.waiting_here), (&node.waiting_below, &expected.waiting_below)]
        {
            let queues = queues.as_deref();
            assert_eq!(queues.is_none(), expected.is_empty(), "whether node {number} has queues");
            assert!(queues.is_none_or(|queues| queues == expected), "queues of node {number}");
        }
    }

    fn verify_children(&self, number: NodeIx) -> usize {
        let mut count = 0;
        for class in [class::WRITES, class::READS, class::IDLE] {
            let mut previous = NodeIx::NONE;
            let mut child = self.trie.nodes[number].children[class];
            while child.is_some() {
                let node = &self.trie.nodes[child];
                assert_eq!(
                    (node.parent, node.previous),
                    (number, previous),
                    "child {child} of node {number}"
                );
                assert_eq!(node.class(), class, "class of node {child}");
                count += 1;
                (previous, child) = (child, node.next);
            }
        }
        count
    }

    /// Checks that the mark of an item (clear or blocked) is correct, or that a pending recheck will correct it.
    fn verify_mark(&self, number: ItemIx, live: &[ItemIx]) {
        let item = &self.items[number];
        let path = self.trie.path(item.node);
        let order = Order { arrival: item.arrival, item: number };
        // An item is clear if no other claim blocks it. An item that never waited was clear when it was added, and
        // items that queued later do not block it. So only a conflicting held item can show that it is not clear.
        let has_waited = item.arrival != NO_ARRIVAL;
        let reason = live.iter().find(|other| {
            let other = &self.items[**other];
            let other_path = self.trie.path(other.node);
            let overlaps = path.starts_with(&other_path) || other_path.starts_with(&path);
            if other.first == item.first || !overlaps {
                return false;
            }
            let conflicts = item.write || other.write;
            match other.state {
                State::Held => conflicts,
                State::Clear => has_waited && conflicts && other.arrival < item.arrival,
                State::Blocked => has_waited && other.arrival < item.arrival,
                State::Outside | State::Free => false,
            }
        });
        match item.state {
            State::Blocked => {
                let examined_later =
                    self.has_before_it(item.node, order) || self.offered_claim() == Some(item.first);
                assert!(
                    reason.is_some() || examined_later,
                    "nothing blocks item {number}, but no work grants it"
                );
            }
            _ => assert_eq!(reason, None, "item {number} is marked clear but is not"),
        }
    }
}
