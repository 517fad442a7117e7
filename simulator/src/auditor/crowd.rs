//! Waiters of each key: acquires that may be in its queue, and acquires that surely are.

use super::{Auditor, RequestRecord};
use crate::key::{Key, kind_of};
use crate::operation::{Acquire, Operation};
use std::collections::BTreeMap;
use waymaker_protocol::NamespaceKind;

/// Acquires of each key that may still wait, or left the queue only a short time ago.
pub(crate) type Crowds = BTreeMap<Key, Crowd>;

#[derive(Debug, Default)]
pub(crate) struct Crowd {
    requests: Vec<usize>,
    /// Acquires that had left the queue by this time are forgotten.
    since_ms: u64,
    count: u32,
}

/// Time for which acquires are remembered after they left the queue.
const REMEMBERED_MS: u64 = 3_000;
/// Number of acquires between two removals of acquires that have left the queue.
const LOOK_EVERY: u32 = 32;

impl Auditor {
    pub(super) fn note_in_crowd(&mut self, request: usize, acquire: &Acquire) {
        for (key, _) in acquire.keys() {
            let mut crowd = self.crowds.remove(&key).unwrap_or_default();
            crowd.count += 1;
            if crowd.count.is_multiple_of(LOOK_EVERY) {
                crowd.since_ms = self.requests[request].sent_ms.saturating_sub(REMEMBERED_MS);
                let is_known =
                    |other: &usize| self.left_ms(*other).is_none_or(|left_ms| left_ms >= crowd.since_ms);
                crowd.requests.retain(is_known);
            }
            // A repeated acquire may have been removed.
            if !crowd.requests.contains(&request) {
                crowd.requests.push(request);
            }
            self.crowds.insert(key, crowd);
        }
    }

    /// Returns when an acquire had surely left its queues; `None` if it may still wait.
    pub(super) fn left_ms(&self, request: usize) -> Option<u64> {
        let record = &self.requests[request];
        match record.answered_ms.filter(|_| record.is_answered) {
            Some(answered_ms) => Some(self.latest_ms(answered_ms)),
            None => self.abandoned_ms(request).or_else(|| self.last_effect_ms(request)),
        }
    }

    /// Returns the maximum number of waiters of a key, except `but`, at any time from `from_ms` to `to_ms`.
    pub(super) fn waiters_max(&self, key: Key, but: Option<usize>, from_ms: u64, to_ms: u64) -> u64 {
        let may_wait = |request: &&usize| {
            let record = &self.requests[**request];
            record.first_sent_ms <= to_ms && self.left_ms(**request).is_none_or(|left_ms| left_ms >= from_ms)
        };
        let Some(crowd) = self.crowds.get(&key) else { return 0 };
        if from_ms < crowd.since_ms {
            return u64::from(u32::MAX);
        }
        let others = crowd.requests.iter().filter(|request| Some(**request) != but);
        others.filter(may_wait).map(|request| u64::from(self.requests[*request].sent_count)).sum()
    }

    /// Returns the acquires that wait for a key from `from_ms` to `to_ms`, unless they have an unreported
    /// grant.
    pub(super) fn waiters(&self, key: Key, but: Option<usize>, from_ms: u64, to_ms: u64) -> Vec<usize> {
        let crowd = self.crowd(key).filter(|request| Some(*request) != but);
        crowd.filter(|request| self.seems_to_wait(*request, from_ms, to_ms)).collect()
    }

    /// Like `waiters`, but only acquires that arrived before a request sent at `from_ms` and have at least
    /// its priority boost.
    pub(super) fn waiters_before(
        &self,
        key: Key,
        but: usize,
        boost_ms: u64,
        from_ms: u64,
        to_ms: u64,
    ) -> Vec<usize> {
        let is_ahead = |request: &usize| match self.requests[*request].operation {
            Operation::Acquire(acquire) => self.settings.boost_ms(acquire.priority.unwrap_or(0)) >= boost_ms,
            _ => false,
        };
        self.waiters(key, Some(but), from_ms, to_ms).into_iter().filter(is_ahead).collect()
    }

    /// Returns the acquires that may wait for a key, or left the queue only a short time ago.
    pub(super) fn crowd(&self, key: Key) -> impl Iterator<Item = usize> {
        self.crowds.get(&key).into_iter().flat_map(|crowd| crowd.requests.iter().copied())
    }

    /// Returns whether all acquires that left the queue of a key since `from_ms` are known.
    pub(super) fn knows_crowd_since(&self, key: Key, from_ms: u64) -> bool {
        self.crowds.get(&key).is_none_or(|crowd| crowd.since_ms <= from_ms)
    }

    /// Returns whether an acquire waits during the whole interval, unless it has an unreported grant.
    pub(super) fn seems_to_wait(&self, request: usize, from_ms: u64, to_ms: u64) -> bool {
        let record = &self.requests[request];
        let (
            RequestRecord { queued: Some((.., queued_ms)), is_answered: false, sent_count: 1, .. },
            Operation::Acquire(acquire),
        ) = (record, record.operation)
        else {
            return false;
        };
        let wait_end_ms = if acquire.wait_ms == u32::MAX {
            u64::MAX
        } else {
            record.first_sent_ms + u64::from(acquire.wait_ms)
        };
        let lane = &self.lanes[record.lane];
        let is_there = lane.losses.iter().all(|loss| loss.at_ms < record.first_sent_ms);
        let session_lives = lane.session.is_none_or(|id| self.session_floor_ms(Some(id)) > to_ms);
        // A claim whose grant must become durable leaves the queue before the grant is reported.
        let is_prompt = acquire.keys().iter().all(|(key, _)| self.is_prompt(*key));
        *queued_ms < from_ms
            && wait_end_ms > to_ms
            && !record.may_be_cancelled
            && !self.is_front(record.lane)
            && is_there
            && session_lives
            && is_prompt
            && self.stopping_ms.is_none()
            && !self.restarts.happened_since(record.first_sent_ms)
    }

    /// Returns whether the grant of an acquire is reported when it is decided, for all of its keys.
    pub(super) fn is_prompt_claim(&self, request: usize) -> bool {
        match self.requests[request].operation {
            Operation::Acquire(acquire) => acquire.keys().iter().all(|(key, _)| self.is_prompt(*key)),
            _ => true,
        }
    }

    /// Returns whether no multi-key claim may include this key, so that its grants depend on no other key.
    pub(super) fn is_plain(&self, key: Key) -> bool {
        self.settings.durability.is_none()
            || kind_of(key) != NamespaceKind::Flat
            || self.settings.mix.key_count.is_none()
    }

    /// Returns whether grants of a key are reported when they are decided: no acquire ever requested the key
    /// under a durable scope.
    pub(super) fn is_prompt(&self, key: Key) -> bool {
        self.settings.durability.is_none()
            || self.keys.get(&key).is_none_or(|key| !key.is_local_asked && !key.is_counted_asked)
    }
}
