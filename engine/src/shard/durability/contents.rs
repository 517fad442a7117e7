//! All durable state of a shard as records, for a snapshot that is written from memory instead of the log.

use crate::entry;
use crate::ids::Fence;
use crate::shard::Shard;
use waymaker_log::Record;

impl Shard {
    /// Passes records to `put` that restore all counters, pools and holds of this shard, including ephemeral ones. The
    /// records have the same result as the log would have after a clean stop, which ends with
    /// [`record_ephemeral`](Self::record_ephemeral). The holds include grants that are not durable yet, as the log
    /// does.
    pub fn write_contents(&self, put: &mut dyn FnMut(&Record<'_>)) {
        put(&Record::Floor { fence: self.keys.floor() });
        for index in self.keys.entries.handles() {
            let entry = &self.keys.entries[index];
            if !entry.has(entry::flag::LIVE) {
                continue;
            }
            let (namespace, fence, key) = (entry.namespace, entry.fence, self.keys.key(index));
            if fence > Fence::NONE {
                put(&Record::Counter { namespace, scope: entry.scope(), fence, key });
            }
            if let Some((capacity, by_timestamp)) = self.set_pool_terms(index) {
                put(&Record::PoolSet { namespace, capacity, by_timestamp, name: key });
            }
        }
        for claim in self.claims.handles() {
            if self.claims[claim].is_among_holders() {
                self.with_hold(claim, |hold| put(&Record::Held(hold)));
            }
        }
    }
}
