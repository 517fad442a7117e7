//! Waiters of each key: the acquires that may wait, and those that seem to wait.

use super::{Asked, Auditor};
use crate::mix::kind_of;
use crate::operation::{Acquire, Key, Operation};
use std::collections::BTreeMap;
use waymaker_protocol::NamespaceKind;

/// The acquires of each key that may wait still, or have left only a while ago.
pub(crate) type Crowds = BTreeMap<Key, Crowd>;

#[derive(Debug, Default)]
pub(crate) struct Crowd {
    requests: Vec<usize>,
    /// Acquires that had left by then are forgotten.
    since_ms: u64,
    count: u32,
}

/// How long those who have left are remembered.
const REMEMBERED_MS: u64 = 3_000;
/// Acquires between two looks at who has left.
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
            // One that is asked again may have been forgotten.
            if !crowd.requests.contains(&request) {
                crowd.requests.push(request);
            }
            self.crowds.insert(key, crowd);
        }
    }

    /// When an acquire had surely left the queues that it waited in; `None` if it may wait still.
    pub(super) fn left_ms(&self, request: usize) -> Option<u64> {
        let asked = &self.requests[request];
        match asked.answered_ms.filter(|_| asked.is_answered) {
            Some(answered_ms) => Some(self.latest_ms(answered_ms)),
            None => self.abandoned_ms(request).or_else(|| self.last_effect_ms(request)),
        }
    }

    /// How many may wait for a key at some time from the first instant to the second, beside this request.
    pub(super) fn waiters_max(&self, key: Key, but: Option<usize>, from_ms: u64, to_ms: u64) -> u64 {
        let may_wait = |request: &&usize| {
            let asked = &self.requests[**request];
            asked.first_sent_ms <= to_ms && self.left_ms(**request).is_none_or(|left_ms| left_ms >= from_ms)
        };
        let Some(crowd) = self.crowds.get(&key) else { return 0 };
        if from_ms < crowd.since_ms {
            return u64::from(u32::MAX);
        }
        let others = crowd.requests.iter().filter(|request| Some(**request) != but);
        others.filter(may_wait).map(|request| u64::from(self.requests[*request].sent_count)).sum()
    }

    /// Those who wait for a key from the first instant to the second, unless they were granted and that was not said yet.
    pub(super) fn waiters(&self, key: Key, but: Option<usize>, from_ms: u64, to_ms: u64) -> Vec<usize> {
        let crowd = self.crowd(key).filter(|request| Some(*request) != but);
        crowd.filter(|request| self.seems_to_wait(*request, from_ms, to_ms)).collect()
    }

    /// The same of those who came before a request that is sent at `from_ms`, and are moved ahead at least as far as it is.
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

    /// Who may wait for a key, or has left it only a while ago.
    pub(super) fn crowd(&self, key: Key) -> impl Iterator<Item = usize> {
        self.crowds.get(&key).into_iter().flat_map(|crowd| crowd.requests.iter().copied())
    }

    /// Whether all who left the queue of a key since that time are known.
    pub(super) fn knows_crowd_since(&self, key: Key, from_ms: u64) -> bool {
        self.crowds.get(&key).is_none_or(|crowd| crowd.since_ms <= from_ms)
    }

    /// Whether a claim waits all the while, unless it was granted.
    pub(super) fn seems_to_wait(&self, request: usize, from_ms: u64, to_ms: u64) -> bool {
        let asked = &self.requests[request];
        let (
            Asked { queued: Some((.., queued_ms)), is_answered: false, sent_count: 1, .. },
            Operation::Acquire(acquire),
        ) = (asked, asked.operation)
        else {
            return false;
        };
        let wait_end_ms = if acquire.wait_ms == u32::MAX {
            u64::MAX
        } else {
            asked.first_sent_ms + u64::from(acquire.wait_ms)
        };
        let lane = &self.lanes[asked.lane];
        let is_there = lane.losses.iter().all(|loss| loss.at_ms < asked.first_sent_ms);
        let session_lives = lane.session.is_none_or(|id| self.session_floor_ms(Some(id)) > to_ms);
        // One whose grant must be durable ceases to wait before that is said.
        let is_prompt = acquire.keys().iter().all(|(key, _)| self.is_prompt(*key));
        *queued_ms < from_ms
            && wait_end_ms > to_ms
            && !asked.may_be_cancelled
            && !self.is_front(asked.lane)
            && is_there
            && session_lives
            && is_prompt
            && self.stopping_ms.is_none()
            && !self.restarts.happened_since(asked.first_sent_ms)
    }

    /// Whether the grant of an acquire is said when it is decided, on whichever of its keys.
    pub(super) fn is_prompt_claim(&self, request: usize) -> bool {
        match self.requests[request].operation {
            Operation::Acquire(acquire) => acquire.keys().iter().all(|(key, _)| self.is_prompt(*key)),
            _ => true,
        }
    }

    /// Whether no claim over several keys may concern this key, so that its grants depend on no other key.
    pub(super) fn is_plain(&self, key: Key) -> bool {
        self.settings.durability.is_none()
            || kind_of(key) != NamespaceKind::Flat
            || self.settings.mix.key_count.is_none()
    }

    /// Whether grants of a key are said when they are decided: nobody ever asked for it under a scope that must be durable.
    pub(super) fn is_prompt(&self, key: Key) -> bool {
        self.settings.durability.is_none()
            || self.keys.get(&key).is_none_or(|key| !key.is_local_asked && !key.is_counted_asked)
    }
}
