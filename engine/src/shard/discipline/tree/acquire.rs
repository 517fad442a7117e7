//! Acquires of sets of paths.

use super::NODE_COUNT_STEP;
use crate::claim::{Claim, Extra, LeaseKind, Position, Properties, State, flag};
use crate::effect::{Effects, Grant, Refusal};
use crate::handle::{ClaimIx, ItemIx, KeyIx, LaneIx, TreeIx};
use crate::limits::{ITEM_COUNT_MAX, Limits};
use crate::measure::Measure;
use crate::shard::quota::NewClaims;
use crate::shard::{AcquireOptions, AcquireTerms, Caller, Shard};
use crate::tree::{TreeItem, fingerprint, segment_count};

/// Request for one hold on a set of paths.
#[derive(Clone, Copy, Debug)]
pub struct AcquireSet<'a> {
    /// One to [`ITEM_COUNT_MAX`] paths, which must be well formed.
    pub items: &'a [TreeItem<'a>],
    /// Terms of the acquire.
    pub terms: AcquireTerms<'a>,
}

impl AcquireSet<'_> {
    /// Returns the number of bytes of the options and of all requested paths, which quota accounts count for the claim.
    fn counted_len(&self) -> usize {
        self.terms.options().len() + self.items.iter().map(|item| item.path.len()).sum::<usize>()
    }
}

impl Shard {
    /// Serves an acquire of a set of paths. The claim is granted or refused, or the answer comes later: the claim
    /// waits, or its fence is not durable yet.
    pub fn acquire_set(&mut self, caller: &Caller, acquire: &AcquireSet<'_>, effects: &mut impl Effects) {
        let decided = self.decide_set(caller, acquire, effects);
        self.answer_decided(caller, decided, effects);
    }

    fn decide_set(
        &mut self,
        caller: &Caller,
        acquire: &AcquireSet<'_>,
        effects: &mut impl Effects,
    ) -> Result<Option<Grant>, Refusal> {
        let AcquireSet { items, terms } = acquire;
        let options = terms.options();
        if items.is_empty() || items.len() > ITEM_COUNT_MAX {
            let message = "the number of paths is out of range";
            return Err(Refusal::bad_input("items", ITEM_COUNT_MAX as u64, message));
        }
        let endless = terms.lease_ms == u32::MAX;
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
        // `checked_terms` would reduce a lease without an end to the maximum lease, and report that to the client. So
        // the call passes 0, the default lease, and still checks all other terms.
        let asked_ms = if endless && !terms.session_lease { 0 } else { terms.lease_ms };
        let (lease_ms, clamped) = self.checked_terms(&AcquireTerms { lease_ms: asked_ms, ..*terms })?;
        let entry = self.tree_entry(caller.namespace);
        let space = self.keys.entries[entry].tree();
        if let Some(claim) = self.claim_of_request(caller, entry, options) {
            let own = self.details[self.claims[claim].detail].fingerprint();
            if own != Some(fingerprint(&self.hasher, items)) {
                let message = "the request id belongs to a claim for other paths";
                return Err(Refusal::bad_input("request_id", 0, message));
            }
            // The fingerprint is a keyed hash of the paths and of the mode of each path. So with an equal fingerprint,
            // the mode of the whole set counts as the same, too.
            let shared = self.claims[claim].has(flag::SHARED);
            let repeated = self.acquire_again(caller, shared, terms, claim, effects)?;
            self.let_wait(claim, terms.wait_ms);
            return Ok(repeated);
        }
        self.may_grant()?;
        self.has_room(caller.lane, || NewClaims::of_key(b"").and(acquire.counted_len()))?;
        self.has_room_for_paths(caller.lane, space, items.len())?;
        let scope = self.raised_scope(entry, options.scope);
        self.may_count_in(scope)?;
        let links = terms.hangs_on_lane(scope);
        if links {
            self.has_room_on_lane(caller.lane, 1)?;
        }
        let lease = if endless { LeaseKind::Endless } else { LeaseKind::of_session(terms.session_lease) };
        let shared = items.iter().all(|item| !item.write);
        let properties = Properties { shared, ..Properties::new(lease, clamped, options.scope) };
        let order = self.order_of_newcomer(0);
        // The tree stores the claim with each path, so the claim must exist before the tree decides.
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
        // A plain hold needs no detail.
        if held.is_none() || links || terms.options.is_some_and(|options| *options != AcquireOptions::NONE) {
            let hangs_on_lane = held.is_none() || links;
            self.note_options(claim, caller.ticket.number, lease_ms, options, order, hangs_on_lane);
            self.note_named_paths(claim, items);
        }
        let counts = &mut self.trees[space];
        counts.set_count += 1;
        if let Some(first_item) = held {
            counts.holder_count += 1;
            self.note_paths(space, claim, first_item);
            return Ok(self.begin(claim, lease_ms, terms.wait_ms, effects));
        }
        let position = self.trees[space].waiter_count as usize;
        let may_wait = terms.wait_ms > 0;
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
        // A set that may not wait gets no timer. The tree refuses it at its first path that is blocked, or else grants
        // it once it contains all its paths.
        self.wait_until(claim, if may_wait { terms.wait_ms } else { u32::MAX });
        effects.waits(caller.ticket);
        if may_wait {
            effects.measure(Measure::Queued { depth: self.waiter_count(entry) });
            self.note_wait(claim);
        }
        if later {
            self.leave_tree(entry);
        }
        if terms.notify_queued && may_wait {
            self.queued_event(claim, position, effects);
        }
        Ok(None)
    }

    /// Whether a set is added to its tree over several turns: it has several paths with very many segments, or the tree
    /// is still adding another set.
    #[inline]
    fn enters_later(&self, space: TreeIx, items: &[TreeItem<'_>]) -> bool {
        self.trees[space].tree.is_entering() || items.len() > 1 && self.is_large_set(items)
    }

    #[cold]
    fn is_large_set(&self, items: &[TreeItem<'_>]) -> bool {
        segment_count(items) > self.limits.large_set_segment_count as usize
    }

    /// Called when a repeated request has taken over the claim of a set. If the set is still being added to its tree
    /// and may not wait, allows it to wait up to `wait_ms`; 0 changes nothing.
    fn let_wait(&mut self, claim: ClaimIx, wait_ms: u32) {
        let Claim { entry, position, .. } = self.claims[claim];
        let space = self.keys.entries[entry].tree();
        if wait_ms > 0 && self.trees[space].tree.let_wait(position.first_item()) {
            self.time_wait(claim, wait_ms);
        }
    }

    /// Refuses a set that was not held at once, if it must wait but may not, or if there is no room for one more
    /// waiter. If `later`, the set is added to its tree over several turns, in which the tree finds out whether another
    /// claim blocks the set. So here, only a frozen tree is then a reason to refuse the set because it may not wait.
    fn may_wait_for_set(
        &self,
        caller: &Caller,
        acquire: &AcquireSet<'_>,
        entry: KeyIx,
        later: bool,
    ) -> Result<(), Refusal> {
        if later {
            self.has_room_to_enter(entry, acquire)?;
        } else if acquire.terms.wait_ms == 0 {
            let blocker = self.tree_at(entry).blocker(acquire.items);
            return Err(self.refusal_of_try(caller.lane, entry, blocker));
        }
        self.has_room_for_waiter(caller.lane, entry)?;
        self.has_room_on_lane(caller.lane, 1)
    }

    /// Returns the refusal of a set that is not held and may not wait: `Frozen` if no claim blocks it and its tree is
    /// frozen, otherwise `Busy`. `blocker` is a claim that blocks it, if one was found.
    pub(super) fn refusal_of_try(&self, lane: LaneIx, entry: KeyIx, blocker: Option<ClaimIx>) -> Refusal {
        match blocker {
            None if self.is_entry_frozen(entry) => Refusal::Frozen,
            // `blocker` is `None` here if the path that was found to block the set belongs to an ended claim, whose
            // paths the tree has not all removed yet. `Busy` then describes no claim.
            blocker => {
                Refusal::Busy(Box::new(self.contention_with(lane, entry, blocker.unwrap_or(ClaimIx::NONE))))
            }
        }
    }

    /// Stores a hash of the paths of a set and of their modes in the `Detail` (the rare data) of its claim, if the
    /// claim has a request id. If an acquire with the same request id arrives, `decide_set` compares the hashes instead
    /// of all paths.
    fn note_named_paths(&mut self, claim: ClaimIx, items: &[TreeItem<'_>]) {
        if self.detail_mut(claim).request_id.is_some() {
            self.detail_mut(claim).extra = Extra::Paths(fingerprint(&self.hasher, items));
        }
    }

    /// Restores the hold of a set.
    pub(in crate::shard) fn restore_set(&mut self, entry: KeyIx, claim: ClaimIx, items: &[TreeItem<'_>]) {
        let number = self.keys.entries[entry].tree();
        let space = &mut self.trees[number];
        let first_item = space.tree.hold(claim, items);
        space.holder_count += 1;
        space.set_count += 1;
        self.note_paths(number, claim, first_item);
        self.note_named_paths(claim, items);
    }

    /// Checks that a lane has room for one more set, with `path_count` paths. Also checks that neither the tree nor the
    /// shard has reached its maximum number of nodes.
    fn has_room_for_paths(&self, lane: LaneIx, space: TreeIx, path_count: usize) -> Result<(), Refusal> {
        let Limits { path_count_per_lane_max, node_count_per_tree_max, node_count_max, .. } = self.limits;
        let full = |limit, value: u32| Err(Refusal::Overloaded { limit, value: u64::from(value) });
        // The limit counts only the further paths of each set, so a set with one path needs no check.
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

    /// Refuses a set that would be added to its tree over several turns, if the tree may have no room for it. For this
    /// check, the sets that are already being added count with all their nodes. Also refuses a set that may not wait if
    /// the tree is frozen.
    fn has_room_to_enter(&self, entry: KeyIx, acquire: &AcquireSet<'_>) -> Result<(), Refusal> {
        if acquire.terms.wait_ms == 0 && self.is_entry_frozen(entry) {
            return Err(Refusal::Frozen);
        }
        let limit = self.limits.node_count_per_tree_max;
        if self.tree_at(entry).node_count_to_come() >= limit {
            return Err(Refusal::Overloaded { limit: "nodes per tree namespace", value: u64::from(limit) });
        }
        Ok(())
    }

    /// Stores the position of a new set in its tree, and counts the paths that it adds. Updates the shard's count of
    /// nodes if the number of nodes of the tree has changed by at least `NODE_COUNT_STEP`.
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
}
