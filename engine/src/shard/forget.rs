//! Removal of the idle keys of unused namespaces, and reports of namespaces that are not empty.

use super::Shard;
use super::work::Work;
use crate::effect::Effects;
use crate::handle::KeyIx;
use crate::limiter::BucketIx;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Progress of the removal that [`Shard::forget_namespaces`] begins. The removal visits all key records and buckets one
/// after the other.
#[derive(Debug)]
pub(super) struct Forgetting {
    number: u64,
    /// Numbers of the namespaces, in rising order.
    namespaces: Arc<[u16]>,
    in_use: BTreeSet<u16>,
}

impl Forgetting {
    fn concerns(&self, namespace: u16) -> bool {
        self.namespaces.binary_search(&namespace).is_ok() && !self.in_use.contains(&namespace)
    }
}

impl Shard {
    /// Removes the idle keys and the full buckets of these namespaces over several turns. `namespaces` must be in
    /// rising order. A namespace that is found in use keeps the rest of its keys. At the end,
    /// [`Effects::namespaces_forgotten`] reports with this number which of the namespaces are in use. The floor, at
    /// which unknown keys start, rises to the counters of the removed keys. So if a namespace of the same name is
    /// created again, its fences may jump up, but never go back.
    ///
    /// Only one such removal may be in progress at a time, so the caller must wait for the report before it calls
    /// again. Otherwise the report of the earlier call never comes, and the new removal may skip keys.
    pub fn forget_namespaces(&mut self, number: u64, namespaces: Arc<[u16]>) {
        self.forgetting = Some(Forgetting { number, namespaces, in_use: BTreeSet::new() });
        self.work.push(Work::Forget(0));
    }

    /// Continues to remove the idle keys and the full buckets of unused namespaces, which `forget_namespaces` began, at
    /// the slot `from`. The slots are the places in the table of key records, and after them those in the table of
    /// buckets. Each slot takes one step of the limited follow-up work of this turn. If no step is left, a later turn
    /// continues.
    pub(super) fn go_on_forgetting(&mut self, from: u32, effects: &mut impl Effects) {
        let Some(mut walk) = self.forgetting.take() else { return };
        let key_end = self.keys.entries.end();
        let end = key_end + self.buckets.end();
        // A full bucket is removed. By itself, the limiter would decide by the time of its last request, which may be
        // long ago. So `forget_full` also gets the time of the shard.
        let now_ns = self.now.as_millis().saturating_mul(1_000_000);
        for slot in from..end {
            if !self.steps.take() {
                self.forgetting = Some(walk);
                return self.work.push(Work::Forget(slot));
            }
            let in_use = if slot < key_end {
                self.keys.forget(KeyIx::new(slot), |namespace| walk.concerns(namespace))
            } else {
                self.buckets
                    .forget_full(BucketIx::new(slot - key_end), now_ns, |namespace| walk.concerns(namespace))
            };
            walk.in_use.extend(in_use);
        }
        self.top_waits.forget(|namespace| walk.concerns(namespace));
        // Record the removed keys first: the log must have them before the removal of their namespace. The server
        // removes the namespace only after all shards have called `namespaces_forgotten`.
        self.record_folded(effects);
        effects.namespaces_forgotten(walk.number, walk.in_use.into_iter().collect());
    }
}
