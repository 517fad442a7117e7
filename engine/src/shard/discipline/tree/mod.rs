//! Sets of paths of a tree namespace, each granted and held as a whole.

mod acquire;
mod settle;
mod statistics;
mod status;

pub use acquire::AcquireSet;

use super::Discipline;
use crate::access::{Access, Rights};
use crate::claim::Detail;
use crate::effect::{Effects, KeyStatus, Refusal, Verified};
use crate::entry::Occupancy;
use crate::fifo::Fifo;
use crate::handle::{ClaimIx, KeyIx, LaneIx, TreeIx};
use crate::ids::{Fence, Ticket};
use crate::limits::{COMPARED_PATH_COUNT_MAX, KEY_LEN_MAX, OVERLAP_SCAN_COUNT_MAX};
use crate::measure::FreedAt;
use crate::shard::Shard;
use crate::shard::freeze::Thaw;
use crate::shard::work::Work;
use crate::tree::Tree;
use waymaker_log::Item;

/// Tree namespace, which is in one shard as a whole.
#[derive(Debug)]
pub(in crate::shard) struct TreeSpace {
    pub(in crate::shard) tree: Tree,
    /// Number of waiting sets.
    pub(in crate::shard) waiter_count: u32,
    /// Number of held sets, including reserved ones.
    pub(in crate::shard) holder_count: u32,
    /// Number of nodes of this tree in the shard's count of nodes. Includes the nodes of sets that are still being
    /// added to the tree.
    node_count: u32,
    /// Number of sets so far that were held or began to wait.
    pub(in crate::shard) set_count: u64,
    /// Requests for statistics that wait until all segments are counted. While there are any, a work item of the shard
    /// continues the count in later turns.
    pub(in crate::shard) statistics_asked: Fifo<Ticket>,
    /// Number of the work item that will continue in a later turn to add large sets to the tree, and to grant sets that
    /// nothing blocks any more; 0 if there is no such item.
    pub(in crate::shard) settling: u64,
    /// Time at which a hold last ended, while grants that this allows are left; otherwise `FreedAt::NEVER`. Each of
    /// these grants reports to the metrics how long after this time it came.
    pub(in crate::shard) freed_at: FreedAt,
    /// Version of the list of frozen prefixes for which a walk over the waiting sets was last requested. An operator
    /// freezes a prefix to stop grants of its paths, and a thaw ends that. After a thaw, the walk grants the waiting
    /// sets that nothing blocks any more.
    pub(in crate::shard) thawed: u64,
    /// Progress of that walk.
    pub(in crate::shard) thaw: Thaw,
}

/// Cost of comparing the rights of a client with the paths of a set, in units of one visited claim.
const COMPARED_SET_COST: u32 = 8 * COMPARED_PATH_COUNT_MAX as u32;

/// Number of nodes by which a tree must have changed before a new set updates the shard's count of nodes. Tests have
/// few nodes, so in debug builds each change updates the count.
const NODE_COUNT_STEP: u32 = if cfg!(debug_assertions) { 1 } else { 1024 };

/// Discipline of tree namespaces.
pub(in crate::shard) struct Paths;

impl Discipline for Paths {
    const COST_OF_COMPARED_RIGHTS: u32 = COMPARED_SET_COST;

    fn end_hold(shard: &mut Shard, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects) {
        let space = &mut shard.trees[shard.keys.entries[entry].tree()];
        space.holder_count -= 1;
        space.tree.remove(shard.claims[claim].position.first_item(), &mut shard.steps);
        space.freed_at = FreedAt::at(shard.cause);
        shard.free_set(claim);
        shard.settle_tree(entry, effects);
    }

    fn end_wait(shard: &mut Shard, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects) {
        shard.drop_waiting_set(claim);
        shard.settle_tree(entry, effects);
    }

    fn thaw(shard: &mut Shard, entry: KeyIx, _: &mut impl Effects) {
        let version = shard.freezes.version();
        let space = &mut shard.trees[shard.keys.entries[entry].tree()];
        if std::mem::replace(&mut space.thawed, version) < version && space.thaw.ask() {
            // The work item that is queued here lets later turns grant the waiting sets, in order of arrival.
            shard.work.push(Work::ThawSets(entry));
        }
    }

    /// A tree has no count of reserved sets: responses skip them one by one.
    fn count_reserved(_: &mut Shard, _: ClaimIx, _: bool) {}

    fn waiter_count(shard: &Shard, entry: KeyIx) -> u32 {
        shard.trees[shard.keys.entries[entry].tree()].waiter_count
    }

    fn position_of(shard: &Shard, claim: ClaimIx) -> usize {
        Self::waiter_count(shard, shard.claims[claim].entry) as usize - 1
    }

    fn blocker_of(shard: &Shard, claim: ClaimIx) -> ClaimIx {
        let first_item = shard.claims[claim].position.first_item();
        shard.tree_of(claim).blocker_of(first_item).unwrap_or(ClaimIx::NONE)
    }

    fn change_lane(shard: &mut Shard, claim: ClaimIx, from: LaneIx, to: LaneIx) {
        let path_count = shard.claims[claim].position.more_path_count();
        shard.lanes.lanes[from].path_count -= path_count;
        shard.lanes.lanes[to].path_count += path_count;
    }

    /// Returns the first path of the set that no other path of the set covers. If it is longer than a key may be,
    /// returns as many of its whole segments as fit.
    fn shown_key(shard: &Shard, claim: ClaimIx) -> Vec<u8> {
        shard.tree_of(claim).first_path(shard.claims[claim].position.first_item(), KEY_LEN_MAX)
    }

    fn has_prefix(shard: &Shard, claim: ClaimIx, prefix: &[u8], looked: &mut u32) -> bool {
        let first_item = shard.claims[claim].position.first_item();
        shard.tree_of(claim).paths(first_item).any(|(path, _)| {
            // In a path, 2 bytes with the length of a segment precede each segment. So half the length of the path is
            // the maximum number of segments, and each costs a comparison.
            *looked += 1 + path.len() as u32 / 2;
            path.starts_with(prefix)
        })
    }

    fn is_covered(shard: &Shard, claim: ClaimIx, access: &Access, right: Rights) -> bool {
        let mut paths = shard.tree_of(claim).paths(shard.claims[claim].position.first_item());
        // A set may have up to `ITEM_COUNT_MAX` paths. To bound the cost, only `COMPARED_PATH_COUNT_MAX` of them are
        // compared, and a larger set counts as not covered.
        paths.by_ref().take(COMPARED_PATH_COUNT_MAX).all(|(path, _)| access.covers(right, &path))
            && paths.next().is_none()
    }

    fn status(shard: &Shard, lane: LaneIx, entry: KeyIx, path: &[u8]) -> KeyStatus {
        shard.path_status(lane, entry, path)
    }

    fn verified(shard: &Shard, entry: KeyIx, path: &[u8], fence: Fence) -> Result<Verified, Refusal> {
        let newest_fence = shard.keys.entries[entry].fence;
        // All paths of the namespace share one counter, so a later grant of another path does not make an older fence
        // invalid. As long as the hold with this fence lasts, no conflicting path can have been granted.
        if fence > newest_fence {
            return Ok(Verified { newest_fence, newest: false, held: false });
        }
        let value = OVERLAP_SCAN_COUNT_MAX as u64;
        let held = shard
            .is_held_with_fence(entry, path, fence)
            .ok_or(Refusal::Overloaded { limit: "held paths to look at", value })?;
        let newest = newest_fence == fence && fence > Fence::NONE;
        Ok(Verified { newest_fence, newest: newest || held, held })
    }

    fn with_item(shard: &Shard, claim: ClaimIx, _: &Detail, put: impl FnOnce(Item<'_>)) {
        let paths: Vec<_> = shard.tree_of(claim).paths(shard.claims[claim].position.first_item()).collect();
        put(Item::Paths(paths.iter().map(|(path, write)| (&**path, *write)).collect()));
    }

    fn verify(shard: &Shard, entry: KeyIx, placed: &mut [u32]) {
        let number = shard.keys.entries[entry].tree();
        let space = &shard.trees[number];
        space.tree.verify();
        // `node_count` is updated when a set is added, but not each time that a set ends. So it may exceed the present
        // number of nodes, but be lower only by less than `NODE_COUNT_STEP`. Before its first update it is 0, although
        // the tree has a root.
        assert!(
            space.node_count == 0 || space.tree.node_count_to_come() < space.node_count + NODE_COUNT_STEP,
            "nodes of tree {number}"
        );
        let is_of_tree =
            |claim: &ClaimIx| shard.claims[*claim].is_live() && shard.claims[*claim].entry == entry;
        let claims: Vec<ClaimIx> = shard.claims.handles().filter(is_of_tree).collect();
        let waiting: Vec<ClaimIx> =
            claims.iter().copied().filter(|claim| shard.claims[*claim].is_waiting()).collect();
        assert_eq!(waiting.len() as u32, space.waiter_count, "waiters of tree {number}");
        let held = claims.len() - waiting.len();
        assert_eq!(held as u32, space.holder_count, "holders of tree {number}");
        for claim in claims {
            placed[claim.at()] += 1;
            let record = &shard.claims[claim];
            if record.is_among_holders() {
                shard.verify_holder(entry, claim);
            }
            assert_eq!(
                space.tree.item_count_of(record.position.first_item()),
                record.position.more_path_count() + 1,
                "paths of set {claim}"
            );
        }
        let pending = space.settling != 0 || shard.is_thawing();
        assert!(pending || space.tree.is_settled(), "no work continues with tree {number}");
        for claim in waiting {
            shard.verify_waiter(claim);
            let clear = space.tree.is_claim_clear(shard.claims[claim].position.first_item());
            let frozen = shard.is_entry_frozen(entry);
            assert!(!clear || frozen || pending, "the waiting set {claim} could be granted");
        }
    }
}

impl Shard {
    /// Returns the key record of a tree namespace. Creates the tree if it is new. The record is never evicted, because
    /// its counter orders all grants of the tree.
    pub(in crate::shard) fn tree_entry(&mut self, namespace: u16) -> KeyIx {
        if let Some(known) = self.tree_of_namespace(namespace) {
            return known;
        }
        let known = self.keys.find_whole(namespace);
        // `restore_counter` may have created the record already, for the counter of the tree.
        let entry =
            if known.is_none() { self.insert_key(namespace, b"", self.hash(namespace, b"")) } else { known };
        let tree = Tree::new(self.hasher.clone());
        let tree = self.trees.add(TreeSpace {
            tree,
            waiter_count: 0,
            holder_count: 0,
            node_count: 0,
            set_count: 0,
            statistics_asked: Fifo::default(),
            settling: 0,
            freed_at: FreedAt::NEVER,
            thawed: 0,
            thaw: Thaw::default(),
        });
        self.keys.entries[entry].set_tree(tree);
        self.keys.leave_idle();
        entry
    }

    /// Returns the key record that stands for the tree of a namespace; `None` if the namespace has no tree.
    pub(in crate::shard) fn tree_of_namespace(&self, namespace: u16) -> Option<KeyIx> {
        let whole = self.keys.find_whole(namespace);
        let record = self.keys.entries.get(whole)?;
        matches!(record.occupancy(), Occupancy::Tree(_)).then_some(whole)
    }

    /// Replaces the number of nodes of this tree in the shard's count of nodes by the present number. A new set calls
    /// this function only if the tree has changed by `NODE_COUNT_STEP` nodes. The limit of a shard is millions of
    /// nodes, so this small error does not matter.
    #[cold]
    fn note_nodes(&mut self, space: TreeIx) {
        let space = &mut self.trees[space];
        let before = std::mem::replace(&mut space.node_count, space.tree.node_count_to_come());
        self.node_count = self.node_count - before + space.node_count;
    }

    /// Returns the tree of a claim.
    fn tree_of(&self, claim: ClaimIx) -> &Tree {
        self.tree_at(self.claims[claim].entry)
    }

    /// Returns the tree of a key record that stands for a whole tree namespace.
    pub(in crate::shard) fn tree_at(&self, entry: KeyIx) -> &Tree {
        &self.trees[self.keys.entries[entry].tree()].tree
    }

    /// Checks the number of nodes of all trees. For tests.
    pub(in crate::shard) fn verify_node_count(&self) {
        let node_counts = self.trees.iter().map(|space| space.node_count);
        assert_eq!(node_counts.sum::<u32>(), self.node_count, "nodes of all trees");
    }
}
