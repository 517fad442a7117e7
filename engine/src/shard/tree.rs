//! Sets of paths of a tree namespace, each granted and held as a whole.

use super::durable::answer_grant;
use super::freeze::Thaw;
use super::quota::NewClaims;
use super::{AcquireOptions, Caller, Shard};
use crate::claim::{Claim, Extra, LeaseKind, Position, Properties, State, flag};
use crate::effect::{Answer, Effects, Grant, Refusal};
use crate::entry::Kind;
use crate::fifo::Fifo;
use crate::handle::{ClaimIx, ItemIx, KeyIx, LaneIx, TreeIx};
use crate::ids::Ticket;
use crate::limits::{ITEM_COUNT_MAX, Limits};
use crate::measure::{FreedAt, Measure};
use crate::tree::{Enters, Tree, TreeItem, Verdict, fingerprint, segment_count};

/// Request for one hold on a set of paths.
#[derive(Clone, Copy, Debug)]
pub struct AcquireSet<'a> {
    /// One to [`ITEM_COUNT_MAX`] paths, which must be well formed.
    pub items: &'a [TreeItem<'a>],
    /// Length of the lease in milliseconds; 0 for the default, `u32::MAX` for none. Without a lease, the loss of the
    /// connection must end the hold.
    pub lease_ms: u32,
    /// Maximum wait in milliseconds; 0 for a try, `u32::MAX` for no limit.
    pub wait_ms: u32,
    /// Whether the hold lasts as long as the session of its lane.
    pub session_lease: bool,
    /// Whether to send `Queued` if the claim waits.
    pub notify_queued: bool,
    /// Rarely used options. Sets have no priority.
    pub options: AcquireOptions<'a>,
}

/// Tree namespace, which is in one shard as a whole.
#[derive(Debug)]
pub(super) struct TreeSpace {
    pub(super) tree: Tree,
    /// Number of waiting claims, and number of held claims.
    pub(super) waiter_count: u32,
    pub(super) holder_count: u32,
    /// Number of nodes that the shard counts for this tree, including the nodes of entering sets.
    node_count: u32,
    /// Number of sets that were requested and not refused.
    pub(super) set_count: u64,
    /// Requests for statistics that wait until all segments are counted. A work item is queued while there are any.
    pub(super) statistics_asked: Fifo<Ticket>,
    /// Number of the work item that will continue with sets that have become clear; 0 without one.
    pub(super) settling: u64,
    /// Time at which a hold last ended, until the resulting grants are finished.
    pub(super) freed_at: FreedAt,
    /// Version of the frozen prefixes up to which thawed sets were granted.
    pub(super) thawed: u64,
    /// Walk over the sets that the last thaw concerns.
    pub(super) thaw: Thaw,
}

/// Bound below which a tree may differ from its shard's count of its nodes. Tests have few nodes, so the count is exact
/// there.
const NODE_COUNT_STEP: u32 = if cfg!(debug_assertions) { 1 } else { 1024 };

impl AcquireSet<'_> {
    /// Returns the number of bytes that its claim keeps.
    fn counted_len(&self) -> usize {
        self.options.len() + self.items.iter().map(|item| item.path.len()).sum::<usize>()
    }
}

impl Shard {
    /// Serves an acquire of a set. The claim is granted, refused, or waits and gets its answer later.
    pub fn acquire_set(&mut self, caller: &Caller, acquire: &AcquireSet<'_>, effects: &mut impl Effects) {
        match self.decide_set(caller, acquire, effects) {
            Ok(Some(grant)) => answer_grant(caller.ticket, grant, effects),
            Ok(None) => {}
            Err(refusal) => effects.answer_acquire(caller.ticket, Answer::Refused(refusal)),
        }
    }

    fn decide_set(
        &mut self,
        caller: &Caller,
        acquire: &AcquireSet<'_>,
        effects: &mut impl Effects,
    ) -> Result<Option<Grant>, Refusal> {
        let AcquireSet { items, options, .. } = acquire;
        if items.is_empty() || items.len() > ITEM_COUNT_MAX {
            let message = "the number of paths is out of range";
            return Err(Refusal::bad_input("items", ITEM_COUNT_MAX as u64, message));
        }
        let endless = acquire.lease_ms == u32::MAX;
        if endless && options.release_after_ms.is_none() {
            let message = "a hold without a lease must end when its connection is lost: set release_after_ms";
            return Err(Refusal::bad_input("release_after_ms", 0, message));
        }
        if options.priority != 0 {
            return Err(Refusal::bad_input(
                "priority",
                0,
                "must be 0: path sets are served in order of arrival",
            ));
        }
        let asked_ms = if endless && !acquire.session_lease { 0 } else { acquire.lease_ms };
        let (lease_ms, clamped) = self.checked_terms(asked_ms, acquire.session_lease, options.scope)?;
        let entry = self.tree_entry(caller.namespace);
        let space = self.keys.entries[entry].tree();
        if let Some(request_id) = options.request_id {
            let owner = options.owner.unwrap_or(&self.lanes.lanes[caller.lane].owner);
            if let Some(claim) = self.find_request_id(caller.lane, entry, owner, request_id, None) {
                let own = self.details[self.claims[claim].detail].fingerprint();
                if own != Some(fingerprint(&self.hasher, items)) {
                    let message = "the request id belongs to a claim for other paths";
                    return Err(Refusal::bad_input("request_id", 0, message));
                }
                let shared = self.claims[claim].has(flag::SHARED);
                let asked = (shared, acquire.session_lease, acquire.notify_queued);
                let repeated = self.acquire_again(caller, asked, claim, effects)?;
                self.let_wait(claim, acquire.wait_ms);
                return Ok(repeated);
            }
        }
        self.may_grant()?;
        self.has_room(caller.lane, || NewClaims::of_key(b"").and(acquire.counted_len()))?;
        self.has_room_for_paths(caller.lane, space, items.len())?;
        self.may_count(entry, options.scope)?;
        let links = acquire.session_lease
            || options.release_after_ms.is_some()
            || self.is_reserved_first(entry, options.scope);
        if links {
            self.has_room_on_lane(caller.lane, 1)?;
        }
        let lease = if endless { LeaseKind::Endless } else { LeaseKind::of_session(acquire.session_lease) };
        let shared = items.iter().all(|item| !item.write);
        let properties = Properties { shared, ..Properties::new(lease, clamped, options.scope) };
        let order = self.order_of_newcomer(0);
        let claim = self.new_claim(caller.lane, entry, State::Waiting, properties);
        let later = self.enters_later(space, items);
        let held = if later || self.is_entry_frozen(entry) {
            None
        } else {
            self.trees[space].tree.try_hold(claim, items)
        };
        if held.is_none()
            && let Err(refusal) = self.may_wait_for_set(caller, acquire, entry, later)
        {
            self.free_claim(claim);
            return Err(refusal);
        }
        if held.is_none() || links || *options != AcquireOptions::default() {
            let hangs_on_lane = held.is_none() || links;
            self.note_options(claim, caller.ticket.number, lease_ms, options, order, hangs_on_lane);
            self.note_named_paths(claim, items);
        }
        self.trees[space].set_count += 1;
        if let Some(first_item) = held {
            self.note_paths(space, claim, first_item);
            self.trees[space].holder_count += 1;
            return Ok(self.begin(claim, lease_ms, acquire.wait_ms, effects));
        }
        let position = self.trees[space].waiter_count as usize;
        let may_wait = acquire.wait_ms > 0;
        let tree = &mut self.trees[space].tree;
        let first_item = if later {
            tree.enter_later(claim, order.arrival, items, may_wait)
        } else {
            tree.wait(claim, order.arrival, items)
        };
        self.note_paths(space, claim, first_item);
        self.trees[space].waiter_count += 1;
        self.counters_of(caller.namespace).waiting += 1;
        self.count_waiter(claim);
        // A set that may not wait is decided when it has entered, regardless of the time that this takes.
        self.wait_until(claim, if may_wait { acquire.wait_ms } else { u32::MAX });
        effects.waits(caller.ticket);
        if may_wait {
            effects.measure(Measure::Queued { depth: self.waiter_count(entry) });
            self.note_wait(claim);
        }
        if later {
            self.leave_tree(entry);
        }
        if acquire.notify_queued && may_wait {
            self.queued_event(claim, position, effects);
        }
        Ok(None)
    }

    /// Whether a set enters its tree over several turns: it has very many segments, or another set is entering.
    #[inline]
    fn enters_later(&self, space: TreeIx, items: &[TreeItem<'_>]) -> bool {
        self.trees[space].tree.is_entering() || items.len() > 1 && self.is_large_set(items)
    }

    #[cold]
    fn is_large_set(&self, items: &[TreeItem<'_>]) -> bool {
        segment_count(items) > self.limits.large_set_segment_count as usize
    }

    /// Allows an entering set that could not wait to wait as long as the request that took it over.
    fn let_wait(&mut self, claim: ClaimIx, wait_ms: u32) {
        let Claim { entry, position, .. } = self.claims[claim];
        let space = self.keys.entries[entry].tree();
        if wait_ms > 0 && self.trees[space].tree.let_wait(position.first_item()) {
            self.time_wait(claim, wait_ms);
        }
    }

    /// Refuses a set that must wait but may not. If `later`, the tree finds out later whether the set must wait.
    fn may_wait_for_set(
        &self,
        caller: &Caller,
        acquire: &AcquireSet<'_>,
        entry: KeyIx,
        later: bool,
    ) -> Result<(), Refusal> {
        if later {
            self.has_room_to_enter(entry, acquire)?;
        } else if acquire.wait_ms == 0 {
            let blocker = self.tree_at(entry).blocker(acquire.items);
            return Err(self.refusal_of_try(caller.lane, entry, blocker));
        }
        self.has_room_for_waiter(caller.lane, entry)?;
        self.has_room_on_lane(caller.lane, 1)
    }

    /// Returns the refusal of a set that is not clear, or may not be held. `blocker` is a claim that blocks it.
    fn refusal_of_try(&self, lane: LaneIx, entry: KeyIx, blocker: Option<ClaimIx>) -> Refusal {
        match blocker {
            None if self.is_entry_frozen(entry) => Refusal::Frozen,
            // There is no blocker if the blocking items belong to an ended claim and are still being removed.
            blocker => {
                Refusal::Busy(Box::new(self.contention_with(lane, entry, blocker.unwrap_or(ClaimIx::NONE))))
            }
        }
    }

    /// Returns the key record of a tree namespace. Creates the tree if it is new. The record stays, because its counter
    /// orders all grants of the tree.
    pub(super) fn tree_entry(&mut self, namespace: u16) -> KeyIx {
        let hash = self.hash(namespace, b"");
        let known = self.keys.find(namespace, b"", hash);
        if known.is_some() && self.keys.entries[known].kind() == Kind::Tree {
            return known;
        }
        // A restored counter has already created the record.
        let entry = if known.is_none() { self.insert_key(namespace, b"", hash) } else { known };
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

    /// Notes a hash of the paths of a set with a request id, so that a repeated request is recognized without a
    /// comparison of all paths.
    fn note_named_paths(&mut self, claim: ClaimIx, items: &[TreeItem<'_>]) {
        if self.detail_mut(claim).request_id.is_some() {
            self.detail_mut(claim).extra = Extra::Paths(fingerprint(&self.hasher, items));
        }
    }

    /// Restores the hold of a set.
    pub(super) fn restore_set(&mut self, entry: KeyIx, claim: ClaimIx, items: &[TreeItem<'_>]) {
        let number = self.keys.entries[entry].tree();
        let space = &mut self.trees[number];
        let first_item = space.tree.hold(claim, items);
        space.holder_count += 1;
        space.set_count += 1;
        self.note_paths(number, claim, first_item);
        self.note_named_paths(claim, items);
    }

    /// Checks that the tree, the shard and the lane have room for a set of `path_count` paths.
    fn has_room_for_paths(&self, lane: LaneIx, space: TreeIx, path_count: usize) -> Result<(), Refusal> {
        let Limits { path_count_per_lane_max, node_count_per_tree_max, node_count_max, .. } = self.limits;
        let full = |limit, value: u32| Err(Refusal::Overloaded { limit, value: u64::from(value) });
        // A set with one path is limited like any claim.
        if path_count > 1
            && self.lanes.lanes[lane].path_count as usize + path_count - 1 > path_count_per_lane_max as usize
        {
            return full("paths per connection", path_count_per_lane_max);
        }
        if self.trees[space].tree.node_count() >= node_count_per_tree_max {
            return full("nodes per tree namespace", node_count_per_tree_max);
        }
        if self.node_count >= node_count_max {
            return full("nodes per shard", node_count_max);
        }
        Ok(())
    }

    /// Refuses a set for which the tree may have no room once all sets have entered.
    fn has_room_to_enter(&self, entry: KeyIx, acquire: &AcquireSet<'_>) -> Result<(), Refusal> {
        if acquire.wait_ms == 0 && self.is_entry_frozen(entry) {
            return Err(Refusal::Frozen);
        }
        let limit = self.limits.node_count_per_tree_max;
        if self.tree_at(entry).node_count_to_come() >= limit {
            return Err(Refusal::Overloaded { limit: "nodes per tree namespace", value: u64::from(limit) });
        }
        Ok(())
    }

    /// Notes the items of a new set, and the paths and nodes that it adds.
    #[inline]
    fn note_paths(&mut self, space: TreeIx, claim: ClaimIx, first_item: ItemIx) {
        let space_of_set = &self.trees[space];
        let more_paths = space_of_set.tree.item_count_of(first_item) - 1;
        let node_count = space_of_set.tree.node_count_to_come();
        let has_grown = node_count.abs_diff(space_of_set.node_count) >= NODE_COUNT_STEP;
        let record = &mut self.claims[claim];
        record.position = Position::of_set(first_item, more_paths);
        if more_paths > 0 {
            self.lanes.lanes[record.lane].path_count += more_paths;
        }
        if has_grown {
            self.note_nodes(space);
        }
    }

    /// Frees the claim of a set that was removed from its tree.
    #[inline]
    fn free_set(&mut self, claim: ClaimIx) {
        let Claim { lane, position, .. } = self.claims[claim];
        if position.more_path_count() > 0 {
            self.lanes.lanes[lane].path_count -= position.more_path_count();
        }
        self.free_claim(claim);
    }

    /// Updates the shard's count of nodes. Small changes are skipped, because the limit of a shard is millions of
    /// nodes.
    #[cold]
    fn note_nodes(&mut self, space: TreeIx) {
        let space = &mut self.trees[space];
        let before = std::mem::replace(&mut space.node_count, space.tree.node_count_to_come());
        self.node_count = self.node_count - before + space.node_count;
    }

    /// Returns the tree of a claim.
    pub(super) fn tree_of(&self, claim: ClaimIx) -> &Tree {
        self.tree_at(self.claims[claim].entry)
    }

    /// Returns the tree of a key record that stands for one.
    pub(super) fn tree_at(&self, entry: KeyIx) -> &Tree {
        &self.trees[self.keys.entries[entry].tree()].tree
    }

    /// Ends the hold of a set, and grants the sets that it blocked.
    pub(super) fn end_set(&mut self, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects) {
        let space = self.keys.entries[entry].tree();
        self.trees[space].holder_count -= 1;
        self.trees[space].tree.remove(self.claims[claim].position.first_item(), &mut self.steps);
        self.trees[space].freed_at = FreedAt::at(self.cause);
        self.free_set(claim);
        self.settle_tree(entry, effects);
    }

    /// Ends the wait of a set, and grants the sets that it blocked.
    pub(super) fn end_set_wait(&mut self, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects) {
        self.drop_waiting_set(claim);
        self.settle_tree(entry, effects);
    }

    fn drop_waiting_set(&mut self, claim: ClaimIx) {
        let space = self.keys.entries[self.claims[claim].entry].tree();
        self.stop_waiting(claim);
        self.trees[space].waiter_count -= 1;
        self.trees[space].tree.remove_waiting(self.claims[claim].position.first_item(), &mut self.steps);
        self.free_set(claim);
    }

    /// Grants the sets that have become clear, within the budget of steps. Entering sets are left to
    /// [`Self::go_on_with_tree`]. Otherwise the end of each lease or wait could use up the steps of all others.
    pub(super) fn settle_tree(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let space = self.keys.entries[entry].tree();
        if self.trees[space].tree.is_settled() {
            // The hold that ended blocked no waiter.
            self.trees[space].freed_at = FreedAt::NEVER;
        } else {
            self.settle_what_is_due(entry, space, Enters::Later, effects);
        }
    }

    /// Continues with a tree that was left to later turns.
    pub(super) fn go_on_with_tree(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let space = self.keys.entries[entry].tree();
        let enters = if self.is_entry_frozen(entry) { Enters::AndWaits } else { Enters::AndHolds };
        self.settle_what_is_due(entry, space, enters, effects);
    }

    #[inline(never)]
    fn settle_what_is_due(
        &mut self,
        entry: KeyIx,
        space: TreeIx,
        enters: Enters,
        effects: &mut impl Effects,
    ) {
        while let Some(verdict) = self.trees[space].tree.next_verdict(enters, &mut self.steps) {
            match verdict {
                Verdict::Clear(claim) => self.grant_set_if_clear(claim, effects),
                Verdict::Refused(claim, blocker) => self.refuse_set(claim, blocker, effects),
            }
        }
        if self.trees[space].tree.is_settled() {
            self.trees[space].freed_at = FreedAt::NEVER;
        } else {
            self.leave_tree(entry);
        }
        self.note_nodes(space);
    }

    /// Leaves a tree to later turns.
    fn leave_tree(&mut self, entry: KeyIx) {
        let space = &mut self.trees[self.keys.entries[entry].tree()];
        self.work.push_tree(entry, space.tree.only_enters(), &mut space.settling);
    }

    /// Grants a waiting set if all its items are clear and nothing else prevents the grant.
    pub(super) fn grant_set_if_clear(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        if self.claims[claim].is_among_holders() {
            // The set is granted already, but its tree has not marked all items as held yet.
            return;
        }
        let (entry, first_item) = (self.claims[claim].entry, self.claims[claim].position.first_item());
        let space = self.keys.entries[entry].tree();
        if self.is_entry_frozen(entry) || !self.trees[space].tree.is_claim_clear(first_item) {
            return;
        }
        if !self.may_begin(claim, effects) {
            return self.drop_waiting_set(claim);
        }
        self.stop_waiting(claim);
        self.trees[space].waiter_count -= 1;
        self.trees[space].holder_count += 1;
        self.trees[space].tree.grant(first_item, &mut self.steps);
        self.begin_hold(claim, self.trees[space].freed_at, effects);
    }

    /// Answers a set that entered over several turns and may not wait.
    fn refuse_set(&mut self, claim: ClaimIx, blocker: Option<ClaimIx>, effects: &mut impl Effects) {
        let Claim { entry, lane, .. } = self.claims[claim];
        let space = self.keys.entries[entry].tree();
        let (ticket, listens) = (self.ticket(claim), self.is_asker_there(claim));
        if !listens {
            self.answer_lost(claim, effects);
        }
        self.drop_waiting_set(claim);
        self.trees[space].set_count -= 1;
        if listens {
            let refusal = self.refusal_of_try(lane, entry, blocker);
            effects.answer_waiter(ticket, Answer::Refused(refusal));
        }
    }

    pub(super) fn verify_trees(&self) {
        let node_counts = self.trees.iter().map(|space| space.node_count);
        assert_eq!(node_counts.sum::<u32>(), self.node_count, "nodes of all trees");
        for number in self.trees.handles() {
            let space = &self.trees[number];
            space.tree.verify();
            // Sets that ended since the last new set are not counted out yet, and the root of a tree without sets is
            // not counted yet.
            assert!(
                space.node_count == 0 || space.tree.node_count_to_come() < space.node_count + NODE_COUNT_STEP,
                "nodes of tree {number}"
            );
            let of_space = |claim: &ClaimIx| {
                let record = &self.claims[*claim];
                let entry = &self.keys.entries[record.entry];
                record.is_live() && entry.kind() == Kind::Tree && entry.tree() == number
            };
            let claims: Vec<ClaimIx> = self
                .claims
                .handles()
                .filter(|claim| self.claims[*claim].entry.is_some() && of_space(claim))
                .collect();
            let waiting: Vec<ClaimIx> =
                claims.iter().copied().filter(|claim| self.claims[*claim].is_waiting()).collect();
            assert_eq!(waiting.len() as u32, space.waiter_count, "waiters of tree {number}");
            let held = claims.len() - waiting.len();
            assert_eq!(held as u32, space.holder_count, "holders of tree {number}");
            for claim in claims {
                let position = self.claims[claim].position;
                assert_eq!(
                    space.tree.item_count_of(position.first_item()),
                    position.more_path_count() + 1,
                    "paths of set {claim}"
                );
            }
            let pending = space.settling != 0 || self.is_thawing();
            assert!(pending || space.tree.is_settled(), "no work continues with tree {number}");
            for claim in waiting {
                self.verify_waiter(claim);
                let clear = space.tree.is_claim_clear(self.claims[claim].position.first_item());
                let frozen = self.is_entry_frozen(self.claims[claim].entry);
                assert!(!clear || frozen || pending, "the waiting set {claim} could be granted");
            }
        }
    }
}
