//! Records of holds and counters for the log.

use crate::claim::{Detail, Extra, LeaseKind, State, flag};
use crate::effect::Effects;
use crate::entry;
use crate::handle::{ClaimIx, KeyIx};
use crate::ids::{Fence, Scope};
use crate::shard::Shard;
use crate::time::Time;
use waymaker_log::{Hold, Record};

impl Shard {
    /// Counts one more record and returns its number.
    fn next_record(&mut self) -> u64 {
        self.recorded += 1;
        self.recorded
    }

    pub(in crate::shard) fn record(&mut self, record: &Record<'_>, effects: &mut impl Effects) {
        let number = self.next_record();
        effects.record(self.number, number, record);
    }

    /// Records that a hold exists, with its present lease.
    pub(in crate::shard) fn record_hold(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        let number = self.next_record();
        self.with_hold(claim, |hold| effects.record(self.number, number, &Record::Held(hold)));
    }

    #[cold]
    pub(in crate::shard) fn record_end(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        self.record(&Record::Ended { id: self.id(claim) }, effects);
    }

    /// Records the present end of a hold's lease.
    pub(in crate::shard) fn record_lease(
        &mut self,
        claim: ClaimIx,
        deadline: Time,
        lease_ms: u32,
        effects: &mut impl Effects,
    ) {
        let (id, deadline_ms) = (self.id(claim), deadline.as_millis());
        self.record(&Record::LeaseMoved { id, deadline_ms, lease_ms }, effects);
    }

    /// Adds a key record for a key that has none. To make room, it may remove records of free keys. The floor (the
    /// fence at which unknown keys start) then rises to their counters. A later turn records the removed keys in the
    /// log; until then, the log has their exact counters.
    pub(in crate::shard) fn insert_key(&mut self, namespace: u16, key: &[u8], hash: u64) -> KeyIx {
        self.keys.insert(namespace, key, hash)
    }

    /// Records in the log each key whose counter is there, but whose record the shard has evicted from memory. The log
    /// then drops the counter. The floor (the fence at which counters of unknown keys start) is at least as high.
    pub(in crate::shard) fn record_folded(&mut self, effects: &mut impl Effects) {
        for (namespace, key) in std::mem::take(&mut self.keys.folded) {
            self.record(&Record::Folded { namespace, key: &key }, effects);
        }
    }

    /// Records the fence floor, and the state that survives only a clean stop: holds and counters that are not in the
    /// log.
    pub fn record_ephemeral(&mut self, effects: &mut impl Effects) {
        self.record(&Record::Floor { fence: self.keys.floor() }, effects);
        for index in self.keys.entries.handles() {
            let entry = &self.keys.entries[index];
            let (namespace, fence) = (entry.namespace, entry.fence);
            if entry.has(entry::flag::LIVE) && !entry.has(entry::flag::LOCAL) && fence > Fence::NONE {
                let number = self.next_record();
                let key = self.keys.key(index);
                let counter = Record::Counter { namespace, scope: Scope::Ephemeral, fence, key };
                effects.record(self.number, number, &counter);
            }
        }
        for claim in self.claims.handles() {
            // A claim without a record may be reserved: granted, but not held yet. It then is an ephemeral key of a
            // multi-key claim whose other keys are in the log. With its record, a restart restores all keys of that
            // claim or, if the cluster has not counted the claim, none.
            if self.claims[claim].is_among_holders() && !self.claims[claim].is_recorded() {
                self.record_hold(claim, effects);
            }
        }
    }

    /// Passes a claim that is among the holders to `put`, in the form in which the log stores it.
    pub(in crate::shard) fn with_hold(&self, index: ClaimIx, put: impl FnOnce(Hold<'_>)) {
        let claim = &self.claims[index];
        let none = Detail::default();
        let detail = self.details.get(claim.detail).unwrap_or(&none);
        let lane = &self.lanes.lanes[claim.lane];
        // A reserved claim has no lease yet. Its lease begins when this record and, for quorum scope, the record of its
        // count are durable.
        let begun = claim.is_held() && !claim.lease().is_untimed();
        let end = if claim.state() == State::Releasing { detail.lease_end } else { claim.deadline };
        let length_ms = match &detail.extra {
            Extra::Registration(registered) => registered
                .end_ms
                .saturating_sub(claim.began().round_up().as_millis() as i64)
                .clamp(0, u32::MAX.into()) as u32,
            _ if detail.lease_ms > 0 => detail.lease_ms,
            // The length of the lease is not in memory. The remaining lease replaces it: a lease that begins anew
            // after a restart with this length cannot end too early, because the restart comes later.
            _ => end.remaining_ms_since(self.now),
        };
        self.with_item(index, detail, |item| {
            put(Hold {
                id: self.id(index),
                namespace: self.namespace_of(index),
                scope: if claim.is_recorded() { self.scope_of(index) } else { Scope::Ephemeral },
                shared: claim.has(flag::SHARED),
                session_lease: claim.has_session_lease(),
                endless: claim.lease() == LeaseKind::Endless,
                clamped: claim.has(flag::CLAMPED),
                waited: detail.waited,
                repeated: detail.repeated,
                fence: claim.fence,
                begins_counted: false,
                awaits_count: claim.is_reserved() && detail.begins_counted,
                since_ms: claim.began().round_up().as_millis(),
                deadline_ms: (begun && end != Time::NEVER).then_some(end.as_millis()),
                lease_ms: length_ms,
                release_after_ms: detail.release_after_ms,
                priority: detail.priority,
                number: detail.number,
                session: lane.session,
                owner: self.owner_of(index),
                identity: self.identity_of(index).map(|identity| &**identity),
                request_id: detail.request_id.as_deref(),
                metadata: detail.text(),
                // The hash of the key set is recorded even if the acquire has no request id. A client may repeat the
                // acquire after a restart, and the answer must then contain all keys.
                set_hash: detail.key_set_hash(),
                item,
            });
        });
    }
}
