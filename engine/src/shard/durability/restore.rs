//! Restore of the state that an earlier server process wrote to the durable log. The restore ends before the first
//! request.

use crate::claim::{Extra, LeaseKind, Properties, RegisteredAs, State};
use crate::effect::{Effects, Refusal};
use crate::entry;
use crate::handle::{ClaimIx, KeyIx};
use crate::ids::{ClaimId, Fence, LaneAddress, LaneSlot, Scope};
use crate::lane::LaneState;
use crate::pool::PoolOrder;
use crate::registrations::Registrations;
use crate::shard::Shard;
use crate::time::Time;
use crate::tree::TreeItem;
use std::sync::Arc;
use waymaker_log::image::KeyCounter;
use waymaker_log::{Hold, Item};

/// Returns the address of a lane that represents all lost lanes of this namespace from an earlier server process. No
/// client ever uses it.
fn nobody(namespace: u16) -> LaneAddress {
    LaneAddress { worker: u16::MAX, slot: LaneSlot(u32::from(namespace)), generation: u32::MAX }
}

impl Shard {
    /// Restores the floor: no unknown key begins below this fence.
    pub fn restore_floor(&mut self, fence: Fence) {
        self.keys.raise_floor(fence);
    }

    /// Restores the counter of a key.
    pub fn restore_counter(&mut self, counter: &KeyCounter<'_>) {
        let KeyCounter { namespace, key, fence, scope } = *counter;
        let hash = self.hash(namespace, key);
        let mut entry = self.keys.find(namespace, key, hash);
        if entry.is_none() {
            if !self.keys.has_room_for_idle() {
                // There is no room for the record, so the floor rises to this counter instead. All unknown keys then
                // start at it or above it, and their fences may skip numbers.
                return self.keys.raise_floor(fence);
            }
            entry = self.keys.insert_beside(namespace, key, hash);
        }
        self.restore_fence(entry, fence, scope);
    }

    fn restore_fence(&mut self, entry: KeyIx, fence: Fence, scope: Scope) {
        let entry = &mut self.keys.entries[entry];
        entry.fence = entry.fence.max(fence);
        if scope.is_durable() {
            entry.flags |= entry::flag::LOCAL;
        }
        if scope == Scope::Quorum {
            entry.flags |= entry::flag::QUORUM;
        }
    }

    /// Restores a pool with a capacity that a request set explicitly.
    pub fn restore_pool(&mut self, namespace: u16, name: &[u8], capacity: u64, by_timestamp: bool) {
        let entry = self.restored_pool(namespace, name, capacity, by_timestamp);
        self.set_capacity_of(entry, capacity);
    }

    fn restored_pool(&mut self, namespace: u16, name: &[u8], capacity: u64, by_timestamp: bool) -> KeyIx {
        let hash = self.hash(namespace, name);
        let known = self.keys.find(namespace, name, hash);
        let order = if by_timestamp { PoolOrder::Timestamp } else { PoolOrder::Arrival };
        self.pool_entry(namespace, name, hash, known, capacity, order)
    }

    /// Restores a hold, with the lane of its session if that was restored too. A restart counts as the loss of the
    /// connection. The hold is restored even if the shard then exceeds its limit, because limits only apply to new
    /// claims.
    ///
    /// # Errors
    /// Returns an error if the hold contradicts an earlier record.
    pub fn restore_hold(
        &mut self,
        hold: &Hold<'_>,
        lane: Option<LaneAddress>,
        effects: &mut impl Effects,
    ) -> Result<(), Refusal> {
        let Hold { namespace, fence, .. } = *hold;
        let name = hold.item.counter_name();
        let hash = self.hash(namespace, name);
        let known = self.keys.find(namespace, name, hash);
        if known.is_some()
            && !self.keys.entries[known].is_free()
            && self.keys.entries[known].kind() != kind_of(&hold.item)
        {
            return Err(Refusal::bad_input("hold", 0, "its key has holds of another kind"));
        }
        let entry = match &hold.item {
            Item::Key(_) | Item::Registration { .. } if known.is_none() => {
                self.keys.insert_beside(namespace, name, hash)
            }
            Item::Key(_) | Item::Registration { .. } => known,
            Item::Permits { capacity, by_timestamp, name, .. } => {
                self.restored_pool(namespace, name, *capacity, *by_timestamp)
            }
            Item::Paths(_) => self.tree_entry(namespace),
        };
        let is_clear = match &hold.item {
            Item::Key(_) | Item::Registration { .. } => self.is_clear(entry, hold.shared),
            Item::Paths(paths) => self.tree_at(entry).is_clear(&tree_items(paths)),
            // A pool may have fewer permits than are held, because an operator can lower its capacity.
            Item::Permits { permits, .. } => {
                self.pool_at(entry).is_some_and(|pool| pool.can_hold_more(*permits))
            }
        };
        if !is_clear {
            return Err(Refusal::bad_input("hold", 0, "it conflicts with another hold"));
        }
        self.restore_fence(entry, fence, hold.scope);
        let owner: Arc<[u8]> = Arc::from(hold.owner);
        let lane_number = self.lanes.open(lane.unwrap_or_else(|| nobody(namespace)), &owner, namespace);
        self.account_for(lane_number);
        let claim = self.new_claim(lane_number, entry, State::Held, restored_properties(hold));
        let record = &mut self.claims[claim];
        (record.secret, record.fence) = (hold.id.secret, fence);
        record.set_granted(Time::from_millis(hold.since_ms).min(self.now).into());
        let extra = restored_extra(hold, &mut self.registrations);
        let detail = self.detail_mut(claim);
        detail.number = hold.number;
        (detail.waited, detail.repeated) = (hold.waited, hold.repeated);
        detail.lease_ms = hold.lease_ms;
        detail.priority = hold.priority;
        detail.release_after_ms = hold.release_after_ms;
        detail.owner = Some(owner);
        detail.identity = hold.identity.map(Arc::from);
        detail.request_id = hold.request_id.map(Arc::from);
        if !matches!(hold.item, Item::Registration { .. }) {
            detail.metadata = hold.metadata.map(Arc::from);
        }
        detail.restored_place = Some(hold.id.place);
        detail.extra = extra;
        self.count_len(claim, counted_len(hold));
        self.stand_where_it_was(claim, entry, &hold.item);
        self.time_restored(claim, hold);
        self.restored.insert(ClaimId { ..hold.id }, claim);
        if hold.request_id.is_some() {
            self.remember_request_id(claim);
        }
        if hold.session_lease || hold.release_after_ms.is_some() {
            self.lanes.link(&mut self.claims, &mut self.details, claim);
        }
        let record = &mut self.lanes.lanes[lane_number];
        record.set_state(if lane.is_some() { LaneState::Detached } else { LaneState::Closed });
        (record.session, record.lost_at) = (hold.session, self.now);
        // If the session was not restored, it ended before. `settle_lane` then ends this hold if the hold lasts only as
        // long as its session.
        record.session_ended = lane.is_none();
        record.is_restored = true;
        self.settle_lane(lane_number, effects);
        Ok(())
    }

    /// Adds a restored hold to the holders of its key, pool or tree.
    fn stand_where_it_was(&mut self, claim: ClaimIx, entry: KeyIx, item: &Item<'_>) {
        match item {
            Item::Key(_) | Item::Registration { .. } => self.join_holders(claim),
            Item::Permits { permits, .. } => {
                self.hold_permits(self.keys.entries[entry].pool(), claim, *permits);
            }
            Item::Paths(paths) => self.restore_set(entry, claim, &tree_items(paths)),
        }
    }

    /// Sets the end of a restored hold. A timed lease without a recorded end begins now. A hold on a session's lease,
    /// and an endless hold, get no end.
    fn time_restored(&mut self, claim: ClaimIx, hold: &Hold<'_>) {
        if let Item::Registration { lazy: true, .. } = hold.item {
            return self.time_lazy(claim);
        }
        let end = match hold.item {
            Item::Registration { end_ms, .. } => Some(u64::try_from(end_ms).unwrap_or(0)),
            _ if hold.session_lease || hold.endless => None,
            _ => {
                Some(hold.deadline_ms.unwrap_or_else(|| self.now.after_ms(hold.lease_ms.into()).as_millis()))
            }
        };
        if let Some(end_ms) = end {
            self.set_deadline(claim, Time::from_millis(end_ms));
        }
    }

    /// Returns slot and generation of the claim with this id, which an earlier server process may have granted.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn restored_place(&self, id: ClaimId) -> (ClaimIx, u16) {
        match self.restored.get(&id) {
            Some(claim) => (*claim, self.claims[*claim].generation),
            None => (ClaimIx::named_by(id.place), ClaimId::generation_of(id.place)),
        }
    }
}

fn kind_of(item: &Item<'_>) -> entry::Kind {
    match item {
        Item::Key(_) | Item::Registration { .. } => entry::Kind::Flat,
        Item::Permits { .. } => entry::Kind::Pool,
        Item::Paths(_) => entry::Kind::Tree,
    }
}

fn tree_items<'a>(paths: &[(&'a [u8], bool)]) -> Vec<TreeItem<'a>> {
    paths.iter().map(|(path, write)| TreeItem { path, write: *write }).collect()
}

fn restored_properties(hold: &Hold<'_>) -> Properties {
    let lease = match hold.item {
        Item::Registration { .. } => LeaseKind::Registered,
        _ if hold.session_lease => LeaseKind::Session,
        _ if hold.endless => LeaseKind::Endless,
        _ => LeaseKind::Timed,
    };
    Properties { shared: hold.shared, ..Properties::new(lease, hold.clamped, hold.scope) }
}

/// Returns the number of bytes of a hold that quota accounts count besides its key. The log has an owner for each hold,
/// so the bytes of the owner count even if it was the owner of the lane.
fn counted_len(hold: &Hold<'_>) -> usize {
    let strings = [Some(hold.owner), hold.metadata, hold.request_id];
    let own: usize = strings.into_iter().flatten().map(<[u8]>::len).sum();
    own + match &hold.item {
        Item::Paths(paths) => paths.iter().map(|(path, _)| path.len()).sum(),
        Item::Registration { type_name, .. } => type_name.len(),
        Item::Key(_) | Item::Permits { .. } => 0,
    }
}

fn restored_extra(hold: &Hold<'_>, registrations: &mut Registrations) -> Extra {
    match (&hold.item, hold.set_hash) {
        (Item::Permits { permits, .. }, _) => Extra::Permits(*permits),
        (Item::Registration { type_name, end_ms, lazy, .. }, _) => {
            let type_name = registrations.begin(hold.namespace, type_name);
            let value = Arc::from(hold.metadata.unwrap_or_default());
            Extra::Registration(Box::new(RegisteredAs { type_name, value, end_ms: *end_ms, lazy: *lazy }))
        }
        (Item::Key(_), Some(hash)) => Extra::RestoredSibling(hash),
        _ => Extra::None,
    }
}
