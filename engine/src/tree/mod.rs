//! Lock rules of one tree namespace, in which a claim holds a set of paths. The rules say which sets may be held
//! together, and which waiting set is granted next.

mod entering;
mod granting;
mod inspect;
mod node;
mod recheck;
mod removal;
mod segment;
#[cfg(test)]
mod tests;
mod verify;
mod waiting;

use self::node::NodeIx;
use crate::handle::{ClaimIx, ItemIx};
use crate::slab::Slab;
use crate::steps::Steps;
use ahash::RandomState;
use entering::Entering;
pub(crate) use entering::{Enters, Verdict};
use granting::Granting;
use node::{Place, Trie};
use recheck::Recheck;
use removal::Removal;
use segment::segments;
use waiting::{Kind, Order};

/// One path of the set that an acquire requests, and whether the claim writes the path or only reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeItem<'a> {
    /// Path key: for each segment its length (u16, little endian) and its bytes. Empty for the whole namespace. Must be
    /// well formed.
    pub path: &'a [u8],
    /// Whether the item is a write, which conflicts with all items of other claims at its path, above it and below it.
    /// Otherwise it is a read, which conflicts only with writes there.
    pub write: bool,
}

/// Counts of the items of a tree, which are the paths of its sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct TreeCounters {
    /// Number of waiting items.
    pub(crate) pending_item_count: u32,
    /// Number of held items.
    pub(crate) held_item_count: u32,
    /// Number of distinct paths of all items.
    pub(crate) path_count: u32,
    /// Sum of the numbers of segments of all items' paths, plus one for the root. A segment that several paths share
    /// counts several times.
    pub(crate) segment_count: u64,
}

/// State of an item, which is one path of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    /// The item waits, but no other claim blocks it. It waits only for other items of its claim, or for the caller's
    /// decision to grant the claim.
    Clear,
    Blocked,
    /// The item belongs to an entering set (a large set whose items are added to the tree over several turns) and is
    /// not in the tree yet. Only the first item of a set can be in this state, because the other items get their
    /// records only when they are added.
    Outside,
    /// The record is not in use.
    Free,
}

/// Arrival number of items that never waited, because they were held at once. No waiting claim has this number.
const NO_ARRIVAL: u64 = u64::MAX;

/// Item of a tree: one path of a held or waiting set.
#[derive(Clone, Copy, Debug)]
struct Item {
    arrival: u64,
    node: NodeIx,
    /// Claim that the item belongs to. In the first item of a claim, `NONE` once the claim has ended and its items are
    /// being removed.
    claim: ClaimIx,
    /// First item of the claim that this item belongs to. The field `next` below is the item of the same claim that
    /// follows this item, or `NONE`.
    first: ItemIx,
    next: ItemIx,
    /// Next and previous item in the list of all items that are held at the same node of the trie.
    held_next: ItemIx,
    held_previous: ItemIx,
    /// Number of blocked items of the claim, kept in its first item. While items of a large claim are still to be added
    /// to the tree, the number is one higher, so it cannot be 0.
    blocked_count: u32,
    state: State,
    write: bool,
}

impl Default for Item {
    fn default() -> Self {
        Self {
            arrival: 0,
            node: NodeIx::NONE,
            claim: ClaimIx::NONE,
            first: ItemIx::NONE,
            next: ItemIx::NONE,
            held_next: ItemIx::NONE,
            held_previous: ItemIx::NONE,
            blocked_count: 0,
            state: State::Free,
            write: false,
        }
    }
}

impl Item {
    /// Returns the kind of a waiting item (read or write, clear or blocked). Each kind has a queue of its own at a
    /// node.
    fn kind(&self) -> Kind {
        Kind::new(self.write, self.state == State::Clear)
    }
}

/// Items of all claims of a tree namespace. An item is one path of the set that a claim is for.
///
/// Two items **overlap** if the path of one is a prefix of the path of the other. They **conflict** if they also are of
/// different claims and at least one of them writes. An item is **clear** under two conditions. It conflicts with no
/// held item, and each waiting item of an earlier claim that overlaps it does not conflict with it and is itself clear.
/// A claim may be held once all its items are clear. A clear item never becomes blocked again, because later claims
/// that conflict with it queue behind it.
///
/// Paths are nodes of a trie. Each node counts the held items, and queues the waiting items, at it and below it. So the
/// nodes from an item's own node up to the root show whether a held item or an earlier waiting item blocks the item. If
/// none does, the item is clear.
///
/// A waiting item is marked as clear (nothing blocks it) or blocked when it arrives. After a removal,
/// [`Tree::next_verdict`] checks the items that may have become clear and updates their marks, a few items in each
/// turn. Until it has finished, some items are marked as blocked although they are clear. No item is marked as clear
/// although it is blocked, because later claims that conflict with a clear item queue behind it. New items that
/// conflict with an outdated blocked item also queue behind it, and `next_verdict` checks them after it.
#[derive(Debug)]
pub(crate) struct Tree {
    trie: Trie,
    items: Slab<ItemIx, Item>,
    recheck: Recheck,
    removal: Removal,
    granting: Granting,
    entering: Entering,
    held_count: u32,
    clear_count: u32,
    blocked_count: u32,
    path_count: u32,
    segment_count: u64,
}

impl Tree {
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self {
            trie: Trie::new(hasher),
            items: Slab::default(),
            recheck: Recheck::default(),
            removal: Removal::default(),
            granting: Granting::default(),
            entering: Entering::default(),
            held_count: 0,
            clear_count: 0,
            blocked_count: 0,
            path_count: 0,
            segment_count: 0,
        }
    }

    /// Whether no held or waiting item blocks any item of a new request. The request would queue behind all waiting
    /// items.
    #[inline]
    pub(crate) fn is_clear(&self, items: &[TreeItem]) -> bool {
        items.iter().all(|item| self.is_open(self.trie.locate(item.path), item.write, u64::MAX))
    }

    /// Whether an item for the path of `place` would be clear: neither a held item nor a waiting item that arrived
    /// before `arrival` blocks it.
    #[inline]
    fn is_open(&self, place: Place, write: bool, arrival: u64) -> bool {
        let earlier = |first: Option<Order>| first.is_some_and(|first| first.arrival < arrival);
        self.trie.overlapping(place).all(|at| {
            let is_late = || at.queues().any(|queues| earlier(queues.first_in_the_way_of(write)));
            !at.conflicts(write) && !is_late()
        })
    }

    fn is_item_clear(&self, item: ItemIx) -> bool {
        let item = &self.items[item];
        self.is_open(Place { node: item.node, exact: true }, item.write, item.arrival)
    }

    /// Holds the items of a new request, except covered ones, if all of them would be clear behind all waiting items.
    /// Returns the first item of the claim. If an item is not clear, adds nothing and returns `None`.
    #[inline]
    pub(crate) fn try_hold(&mut self, claim: ClaimIx, items: &[TreeItem]) -> Option<ItemIx> {
        if let [item] = items {
            let found = self.trie.search(item.path);
            let is_clear = self.is_open(found.0, item.write, u64::MAX);
            return is_clear.then(|| self.place(claim, ItemIx::NONE, item, found, None));
        }
        self.is_clear(items).then(|| self.hold(claim, items))
    }

    /// Adds the items of a new request to the tree as held. Leaves out items that another item of the request covers.
    /// The caller must know that no held or waiting item blocks any of them. Returns the first item.
    pub(crate) fn hold(&mut self, claim: ClaimIx, items: &[TreeItem]) -> ItemIx {
        debug_assert!(self.is_clear(items), "a claim that is held must be clear");
        self.place_all(claim, items, None)
    }

    /// Adds the items of a request as waiting, except items that another item of the request covers. `arrival` must be
    /// larger than that of each earlier claim. Returns the first item.
    pub(crate) fn wait(&mut self, claim: ClaimIx, arrival: u64, items: &[TreeItem]) -> ItemIx {
        self.place_all(claim, items, Some(arrival))
    }

    fn place_all(&mut self, claim: ClaimIx, items: &[TreeItem], arrival: Option<u64>) -> ItemIx {
        debug_assert!(!items.is_empty(), "a claim has an item");
        if let [item] = items {
            let found = self.trie.search(item.path);
            return self.place(claim, ItemIx::NONE, item, found, arrival);
        }
        let (mut first, mut last) = (ItemIx::NONE, ItemIx::NONE);
        for index in needed(items) {
            let found = self.trie.search(items[index].path);
            let item = self.place(claim, first, &items[index], found, arrival);
            if first.is_none() {
                first = item;
            } else {
                self.items[last].next = item;
            }
            last = item;
        }
        first
    }

    /// Allocates an item and puts it into the tree: as waiting if `arrival` is given, otherwise as held. `found` must
    /// be the result of [`Trie::search`] for its path.
    #[inline]
    fn place(
        &mut self,
        claim: ClaimIx,
        first: ItemIx,
        wanted: &TreeItem,
        found: (Place, &[u8]),
        arrival: Option<u64>,
    ) -> ItemIx {
        let number = self.items.allocate();
        let item = Item {
            arrival: arrival.unwrap_or(NO_ARRIVAL),
            claim,
            first: if first.is_none() { number } else { first },
            write: wanted.write,
            ..Item::default()
        };
        self.stand(number, item, found, arrival.is_none());
        number
    }

    /// Puts an item into the tree, as held if `held`, otherwise as waiting. `found` must be the result of
    /// [`Trie::search`] for the path of the item.
    #[inline]
    fn stand(&mut self, number: ItemIx, item: Item, found: (Place, &[u8]), held: bool) {
        let node = self.trie.enter(found.0, found.1, held.then_some(item.write));
        self.items[number] = Item { node, ..item };
        let node = &self.trie.nodes[node];
        self.path_count += u32::from(node.item_count == 1);
        self.segment_count += u64::from(node.depth);
        if held {
            self.enter_held(number);
        } else {
            self.enter_waiting(number, self.is_item_clear(number));
        }
    }

    fn enter_waiting(&mut self, number: ItemIx, clear: bool) {
        let item = &mut self.items[number];
        item.state = if clear { State::Clear } else { State::Blocked };
        let first = item.first;
        self.trie.enter_queues(item.node, Order { arrival: item.arrival, item: number }, item.kind());
        if clear {
            self.clear_count += 1;
        } else {
            self.blocked_count += 1;
            self.items[first].blocked_count += 1;
        }
    }

    fn leave_waiting(&mut self, number: ItemIx) {
        let item = &self.items[number];
        let (first, clear) = (item.first, item.state == State::Clear);
        self.trie.leave_queues(item.node, Order { arrival: item.arrival, item: number }, item.kind());
        if clear {
            self.clear_count -= 1;
        } else {
            self.blocked_count -= 1;
            self.items[first].blocked_count -= 1;
        }
    }

    #[inline]
    fn enter_held(&mut self, number: ItemIx) {
        let item = &mut self.items[number];
        item.state = State::Held;
        let node = &mut self.trie.nodes[item.node];
        node.holds_write = item.write;
        let next = std::mem::replace(&mut node.held, number);
        item.held_next = next;
        item.held_previous = ItemIx::NONE;
        if next.is_some() {
            self.items[next].held_previous = number;
        }
        self.held_count += 1;
    }

    #[inline]
    fn leave_held(&mut self, number: ItemIx) {
        let Item { node, held_next, held_previous, .. } = self.items[number];
        if held_previous.is_none() {
            let node = &mut self.trie.nodes[node];
            node.held = held_next;
            node.holds_write = false;
        } else {
            self.items[held_previous].held_next = held_next;
        }
        if held_next.is_some() {
            self.items[held_next].held_previous = held_previous;
        }
        self.held_count -= 1;
    }

    /// Returns the number of nodes: one for each path of an item, and for each prefix of such a path. Nodes with a
    /// pending recheck count too, even without items.
    pub(crate) fn node_count(&self) -> u32 {
        self.trie.nodes.live_count()
    }

    /// Returns the number of items of a claim, including items that are still to be added to the tree.
    #[inline]
    pub(crate) fn item_count_of(&self, first_item: ItemIx) -> u32 {
        if self.is_entering()
            && let Some(count) = self.entering_item_count(first_item)
        {
            return count as u32;
        }
        if self.items[first_item].next.is_none() { 1 } else { self.items_of(first_item).count() as u32 }
    }

    /// Whether no other claim is known to block any item of a waiting claim. After a removal, the result may be false
    /// until [`Tree::next_verdict`] has checked the items again. The result stays true after the claim is granted.
    pub(crate) fn is_claim_clear(&self, first_item: ItemIx) -> bool {
        match self.items[first_item].blocked_count {
            0 => true,
            1 => self.offered_claim() == Some(first_item),
            _ => false,
        }
    }

    pub(crate) fn counters(&self) -> TreeCounters {
        TreeCounters {
            pending_item_count: self.clear_count + self.blocked_count,
            held_item_count: self.held_count,
            path_count: self.path_count,
            segment_count: self.segment_count + 1,
        }
    }

    #[cfg(debug_assertions)]
    pub(crate) fn records_touched(&self) -> u64 {
        self.trie.nodes.touched() + self.items.touched()
    }

    /// Continues counting the distinct segments of the paths of all items; the first call starts the count. Returns
    /// `None` until all are counted, and afterwards their number plus one for the root. Later changes of the tree keep
    /// the number up to date.
    pub(crate) fn count_distinct_segments(&mut self, steps: &mut Steps) -> Option<u64> {
        self.trie.count_segments(steps).map(|count| count as u64 + 1)
    }
}

/// Returns the sum of the numbers of segments of these items' paths.
pub(crate) fn segment_count(items: &[TreeItem]) -> usize {
    items.iter().map(|item| segments(item.path).count()).sum()
}

/// Returns a hash of a set of items. Two different sets have the same hash with negligible probability. The hash does
/// not depend on the order of the items, nor on items that another item of the set covers (see `needed`).
pub(crate) fn fingerprint(hasher: &RandomState, items: &[TreeItem]) -> u64 {
    let of_item = |index: usize| hasher.hash_one((items[index].path, items[index].write));
    needed(items).into_iter().map(of_item).fold(0, u64::wrapping_add)
}

/// Returns the indices in `items` of the items that no other item of the request covers. A write covers all items at
/// its path and below it. A read covers only reads at its path and below it. Of equal items, the first one is needed.
fn needed(items: &[TreeItem]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    // An item is needed unless another item of the request covers it. Each segment begins with its length. So a path is
    // a prefix of another path exactly if its key is a prefix of the other key. In sorted order, all paths below a path
    // directly follow it. So only the last needed read and the last needed write can cover an item.
    order.sort_unstable_by_key(|index| (items[*index].path, !items[*index].write, *index));
    let mut last_needed: [Option<&[u8]>; 2] = [None; 2];
    order.retain(|index| {
        let TreeItem { path, write } = items[*index];
        let is_covered_by =
            |by_write: bool| last_needed[usize::from(by_write)].is_some_and(|above| path.starts_with(above));
        let needed = !is_covered_by(true) && (write || !is_covered_by(false));
        if needed {
            last_needed[usize::from(write)] = Some(path);
        }
        needed
    });
    order.sort_unstable();
    order
}
