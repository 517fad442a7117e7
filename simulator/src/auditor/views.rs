//! What HOLDS and VERIFY show.

use super::Auditor;
use crate::operation::Key;
use std::collections::BTreeSet;
use waymaker_protocol::{Listed, LockId, Verified};

/// The pages of one question for all the holds of a lane.
#[derive(Debug, Default)]
pub(crate) struct HoldsView {
    since_ms: u64,
    shown: BTreeSet<LockId>,
}

impl Auditor {
    pub(super) fn note_holds_asked(&mut self, lane: usize, cursor: u64, now_ms: u64) {
        if cursor == 0 {
            self.lanes[lane].holds_view = HoldsView { since_ms: now_ms, shown: BTreeSet::new() };
        }
    }

    /// One page of the holds of a lane: all are its own, and at the end none that surely lives was left out.
    pub(super) fn judge_holds(&mut self, request: usize, listed: &Listed<'_>, now_ms: u64) {
        let (lane, sent_ms) = (self.requests[request].lane, self.requests[request].first_sent_ms);
        let shown: Vec<LockId> = listed.locks.iter().map(|lock| lock.id).collect();
        self.judge_shown(&shown, sent_ms);
        for id in &shown {
            let is_foreign = self.holds.get(id).is_some_and(|hold| {
                let client = self.lanes[lane].client;
                hold.client != client
                    || hold.lane != lane && !hold.may_have_moved && hold.request_id.is_none()
            });
            if is_foreign {
                self.accuse("view", || format!("lane {lane} does not have {id}: {listed:?}"));
            }
        }
        self.lanes[lane].holds_view.shown.extend(shown);
        if listed.next != 0 {
            return;
        }
        let view = std::mem::take(&mut self.lanes[lane].holds_view);
        let missing = self.holds.iter().find(|(id, hold)| {
            hold.lane == lane
                && hold.request_id.is_none()
                && !hold.was_repeated
                && !hold.may_have_moved
                && self.stamp_of(hold.key, hold.fence).is_some_and(|stamp_ms| stamp_ms < view.since_ms)
                && hold.over_ms.is_none()
                && !view.shown.contains(id)
                && self.floor_ms(**id) > now_ms
        });
        if let Some((id, hold)) = missing {
            let (id, hold) = (*id, format!("{hold:?}"));
            self.accuse("view", || format!("lane {lane} holds {id}, which is in none of its pages: {hold}"));
        }
    }

    pub(super) fn judge_verified(
        &mut self,
        request: usize,
        key: Key,
        fence: u64,
        verified: &Verified,
        now_ms: u64,
    ) {
        let asked = &self.requests[request];
        let (sent_ms, fence_before) = (asked.first_sent_ms, asked.fence_before);
        let is_forgetful = self.settings.is_forgetful;
        let is_consistent = verified.newest == (verified.newest_fence == fence && fence > 0)
            && (verified.newest || !verified.held)
            && (is_forgetful || verified.newest_fence >= fence_before);
        let named = self.holds.iter().find(|(_, hold)| hold.key == key && hold.fence == fence);
        let agrees = named.is_none_or(|(id, hold)| {
            let was_over = hold.over_ms.is_some_and(|over_ms| over_ms < sent_ms);
            let lives = hold.over_ms.is_none() && self.floor_ms(*id) > now_ms;
            !(verified.held && was_over || verified.newest && !verified.held && lives)
        });
        if !is_consistent || !agrees {
            self.accuse("view", || {
                format!("key {key}, fence {fence}, {fence_before} was said before: {verified:?}")
            });
        }
    }
}
