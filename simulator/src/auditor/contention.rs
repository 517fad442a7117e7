//! Rule `busy`: the server refuses an acquire without a wait only if a conflicting claim was possible.

use super::Auditor;
use super::holds::Hold;
use crate::form::Form;
use crate::key::Key;
use crate::operation::{Acquire, Operation};

impl Auditor {
    /// Returns whether a claim may have conflicted with an acquire without a wait at any time between request
    /// and response: a hold that was not known to have ended, or a claim that may have waited.
    pub(super) fn may_be_busy(&self, request: usize, acquire: &Acquire, now_ms: u64) -> bool {
        let since_ms = self.requests[request].first_sent_ms;
        let is_met = |hold: &Hold, (key, shared): (Key, bool)| {
            let is_pool = matches!(acquire.form, Form::Permits(_));
            let conflicts = is_pool || Form::conflict((&acquire.form, shared), (&hold.form, hold.shared));
            hold.key == key && conflicts
        };
        let held = |hold: &Hold| {
            !hold.was_over_before(since_ms)
                && !self.surely_over_before(hold, since_ms)
                && acquire.keys().into_iter().any(|wish| is_met(hold, wish))
        };
        let overlaps = |other: &Acquire| {
            acquire.keys().iter().any(|(key, _)| other.keys().iter().any(|(other, _)| other == key))
        };
        let waited = |other: usize| match self.requests[other].operation {
            Operation::Acquire(earlier) => {
                other != request && self.may_have_waited(other, since_ms) && overlaps(&earlier)
            }
            _ => false,
        };
        // Claims that wait for a thaw, or have not continued after it, conflict too.
        self.may_be_frozen(acquire.key, since_ms, now_ms)
            || self.holds.values().any(held)
            || (0..self.requests.len()).any(waited)
    }

    /// Returns whether a claim may have waited at `at_ms` or later, or be held without the knowledge of any
    /// client.
    fn may_have_waited(&self, request: usize, at_ms: u64) -> bool {
        let record = &self.requests[request];
        let over_ms = match record.refused_ms {
            // An earlier attempt may have been granted.
            _ if record.sent_count > 1 => self.unheard_until_ms(request),
            // Some shards learn only later that a multi-key claim has ended.
            Some(refused_ms) => Some(self.latest_ms(refused_ms)),
            // Its holds are known.
            None if record.is_granted => Some(0),
            None => self.unheard_until_ms(request),
        };
        over_ms.is_none_or(|over_ms| over_ms >= at_ms)
    }

    /// Returns how long an unreported hold of an acquire may last: for its lease after the acquire left the
    /// queue. `None` if that is unknown.
    fn unheard_until_ms(&self, request: usize) -> Option<u64> {
        let record = &self.requests[request];
        let Operation::Acquire(acquire) = record.operation else { return None };
        let may_be_extended = self.tampered.values().any(|tampering| !tampering.may_move.is_empty());
        if may_be_extended
            || self.restarts.happened_since(record.first_sent_ms)
            || !self.is_prompt_claim(request)
        {
            return None;
        }
        let left_ms = self.left_ms(request)?;
        if acquire.is_endless() {
            return None;
        }
        if !acquire.session_lease {
            return Some(self.latest_ms(left_ms + u64::from(self.settings.given_lease_ms(acquire.lease_ms))));
        }
        let session = self.lanes[record.lane].session.and_then(|id| self.sessions.get(&id))?;
        let end_ms = session.over_ms().unwrap_or_else(|| session.ceiling_ms());
        Some(self.latest_ms(end_ms).max(left_ms))
    }
}
