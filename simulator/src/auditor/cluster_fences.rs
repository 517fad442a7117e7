//! Rule `fence-counted`: fences that a cluster counts rise, even if the server or its disk is lost.
//!
//! The first grant of a key under scope quorum makes the key counted. The cluster then counts all later grants of the key, as
//! long as the server knows this. A server that has lost its disk, or records of a damaged log, learns it again with the next
//! grant under scope quorum. The fence of that grant is above all earlier ones.

use super::Auditor;
use crate::key::{FullName, Key, kind_of};
use crate::operation::Acquire;
use std::collections::BTreeMap;
use waymaker_engine::Scope;
use waymaker_protocol::{Granted, LockId};
use waymaker_server::limits::{QUORUM_ANSWER_MS, QUORUM_ATTEMPT_MS, QUORUM_PROBE_MS};

/// Known state of the cluster, and the counted fences that clients know.
#[derive(Debug, Default)]
pub(crate) struct ClusterFences {
    /// Current counters of the cluster.
    counters: BTreeMap<FullName, u64>,
    /// Fences of counted grants that clients know.
    reported: BTreeMap<Key, BTreeMap<u64, LockId>>,
    /// Time until which the cluster is unreachable, or did not answer.
    troubled_until_ms: u64,
}

/// State of one key when an acquire requested it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlierCount {
    key: Key,
    /// Newest fence that was counted and sent to a client.
    fence: u64,
    /// Number of losses before the server learned that the key is counted; `None` if the server does not
    /// know.
    loss_count: Option<u32>,
}

impl Auditor {
    /// Records that the cluster has counted up to this fence.
    pub(crate) fn note_counted(&mut self, namespace: Box<[u8]>, key: Box<[u8]>, fence: u64) {
        self.cluster_fences.counters.insert((namespace, key), fence);
    }

    /// Records that the cluster does not answer until this time, or that a request to it had no answer.
    pub(crate) fn note_trouble(&mut self, until_ms: u64) {
        self.cluster_fences.troubled_until_ms = self.cluster_fences.troubled_until_ms.max(until_ms);
    }

    /// Returns the lower bounds for the fences of an acquire that is sent now.
    pub(super) fn counted_before(&mut self, acquire: &Acquire) -> Vec<EarlierCount> {
        let mut before = Vec::new();
        for (key, _) in acquire.keys() {
            if acquire.scope == Scope::Quorum {
                self.key(key).is_counted_asked = true;
            }
            let is_known = !self.settings.is_forgetful && self.key(key).is_counted();
            let loss_count = is_known.then_some(self.restarts.loss_count);
            let reported =
                self.cluster_fences.reported.get(&key).and_then(|reported| reported.last_key_value());
            before.push(EarlierCount { key, fence: reported.map_or(0, |(fence, _)| *fence), loss_count });
        }
        before
    }

    /// Rule `fence-counted` for one grant, also for a grant that is repeated after a restart.
    pub(super) fn judge_counted(&mut self, request: usize, acquire: &Acquire, granted: &Granted) {
        let key = acquire.key;
        let before_of = |request: usize| {
            self.requests[request].counted_before.iter().find(|before| before.key == key).copied()
        };
        let (Some(mut before), false) = (before_of(request), granted.repeated) else { return };
        let taken_over = self.taken_over(request, acquire, granted).filter_map(before_of);
        before.fence = taken_over.map(|earlier| earlier.fence).fold(before.fence, u64::min);
        let is_asked = acquire.scope == Scope::Quorum && acquire.request_id.is_none();
        if !is_asked && before.loss_count != Some(self.restarts.loss_count) {
            return;
        }
        let (id, fence) = (granted.id, granted.fence);
        let name = (Box::from(kind_of(key).name().as_bytes()), self.settings.name_of(key).into());
        let counted = self.cluster_fences.counters.get(&name).copied().unwrap_or(0);
        let other = self.cluster_fences.reported.entry(key).or_default().insert(fence, id);
        if fence > counted || fence <= before.fence || other.is_some_and(|other| other != id) {
            self.accuse("fence-counted", || {
                format!(
                    "key {key}: {id} got fence {fence}, but fences must be above the earlier ones, unique, and at most {counted}, the counter of the cluster; known before: {before:?}, {other:?}"
                )
            });
        }
    }

    /// Returns whether the cluster may not have answered in time.
    pub(super) fn may_be_uncounted(&self, acquire: &Acquire, now_ms: u64) -> bool {
        let over_ms =
            self.cluster_fences.troubled_until_ms + QUORUM_ANSWER_MS + QUORUM_PROBE_MS + QUORUM_ATTEMPT_MS;
        acquire.keys().iter().any(|(key, _)| self.keys.get(key).is_some_and(|key| key.is_counted_asked))
            && self.cluster_fences.troubled_until_ms > 0
            && now_ms <= self.latest_ms(over_ms)
    }
}
