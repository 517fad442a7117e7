//! Rule `guard`: the server holds the lock of a guard of a real client while the guard reports that it holds.
//!
//! A guard reports that it holds until its local deadline. Until then the server must neither report the end of the hold nor
//! grant a conflicting claim. A guard is excused if others acted on the hold without its knowledge: another process requested
//! the end of the hold, another lease, or the same claim under its request id; the server crashed; or the hold ends with its
//! connection sooner than the client can notice. Even then, its local deadline is no later than the server promised before.

use super::Auditor;
use crate::form::Form;
use crate::key::Key;
use crate::operation::{MADE_UP_REQUEST_ID, Operation};
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::LockId;

/// Shortest `release_after_ms` that a client takes into account. Below it, a guard may report its hold after
/// the hold has ended with its connection.
pub(super) const RELEASE_AFTER_BELIEVED_MIN_MS: u32 = 1_000;
/// Time within which a client with a connection releases a hold without a guard. Its process may pause for most of it.
const GIVEN_BACK_WITHIN_US: u64 = 5_000_000;
/// Stands for all adversarial clients and for the server.
const NOBODY: usize = usize::MAX;

/// State of one guard that reports that it holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GuardView {
    pub(crate) id: LockId,
    /// First microsecond in which the guard reports that it does not hold any more.
    pub(crate) until_us: u64,
    /// Lane that was granted the hold.
    pub(crate) lane: usize,
    pub(crate) is_on_session: bool,
    /// Whether the client renews its own lease.
    pub(crate) is_renewed: bool,
    /// Whether the lane has a connection, and has sent everything that is due.
    pub(crate) is_connected: bool,
    pub(crate) fence: u64,
    pub(crate) is_shared: bool,
    pub(crate) is_clamped: bool,
    /// Lease that the guard shows.
    pub(crate) lease_ms: Option<u32>,
}

/// All guards of real clients that report that they hold.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    /// Local deadline of each guard, by process.
    believed: BTreeMap<usize, BTreeMap<LockId, u64>>,
    /// Lanes of real clients.
    lanes: BTreeSet<usize>,
    /// Processes that may have ended a hold, or moved its end.
    meddlers: BTreeMap<LockId, BTreeSet<usize>>,
    /// Latest end of the lease that the server has reported for each hold.
    words: BTreeMap<LockId, u64>,
    /// Time at which each hold was last seen with a guard.
    guarded_us: BTreeMap<LockId, u64>,
    /// Holds that their guards left without a release. The value is the number of server starts until then,
    /// if the guard still reported that it held.
    forgotten: BTreeMap<LockId, Option<u32>>,
    /// Holds that a process has released by their ids, without the knowledge of its guards.
    released_by_id: BTreeSet<LockId>,
}

impl Guards {
    /// Returns whether this lane belongs to a real client.
    pub(super) fn is_real(&self, lane: usize) -> bool {
        self.lanes.contains(&lane)
    }

    /// Returns whether the guard of this hold left it without a release, and no crash may have brought back
    /// the hold since.
    pub(super) fn is_forgotten(&self, id: LockId, start_count: u32) -> bool {
        self.forgotten.get(&id).is_some_and(|count| *count == Some(start_count))
    }

    /// Returns whether a process has released this hold by its id, without the knowledge of its guard.
    pub(super) fn is_released_by_id(&self, id: LockId) -> bool {
        self.released_by_id.contains(&id)
    }

    fn meddle(&mut self, id: LockId, process: usize) {
        self.meddlers.entry(id).or_default().insert(process);
    }

    pub(super) fn is_excused(&self, process: usize, id: LockId) -> bool {
        self.meddlers.get(&id).is_some_and(|meddlers| meddlers.iter().any(|other| *other != process))
    }

    /// Returns a process with a guard that has no excuse and a local deadline after `at_us`, and this
    /// deadline.
    fn believer(&self, id: LockId, at_us: u64) -> Option<(usize, u64)> {
        let believed =
            self.believed.iter().filter_map(|(process, guards)| Some((*process, *guards.get(&id)?)));
        let mut sure =
            believed.filter(|(process, until_us)| *until_us > at_us && !self.is_excused(*process, id));
        sure.next()
    }
}

impl Auditor {
    /// Adds a lane of a real client.
    pub(crate) fn new_lane_of_process(&mut self, client: usize, process: usize) -> usize {
        let lane = self.new_lane_of(client, process);
        self.guards.lanes.insert(lane);
        lane
    }

    /// Returns the holds of this lane whose end the server has not reported.
    pub(crate) fn holds_granted_to(&self, lane: usize) -> impl Iterator<Item = LockId> {
        let living = self.holds.iter().filter(move |(_, hold)| hold.lane == lane && hold.over_ms.is_none());
        living.map(|(id, _)| *id)
    }

    /// Rule `guard` and others: checks the state of all guards of a process.
    pub(crate) fn note_guards(&mut self, process: usize, views: &[GuardView], now_us: u64) {
        let now = views.iter().map(|view| (view.id, view.until_us)).collect();
        let before = self.guards.believed.insert(process, now).unwrap_or_default();
        for id in before.into_keys().filter(|id| views.iter().all(|view| view.id != *id)) {
            self.doubts(id);
        }
        for view in views {
            self.believes(view.id, view.until_us, now_us);
            self.judge_by_heard(process, view);
            self.judge_guard_shown(process, view);
            self.judge_held_guard(process, view, now_us);
            let over_ms = self.holds.get(&view.id).and_then(|hold| hold.over_ms);
            if let Some(over_ms) = over_ms {
                self.judge_guard_of(view.id, over_ms, now_us, "has ended");
                self.judge_last_word(process, view, over_ms);
            }
        }
    }

    /// Rule `guard`: if a guard cannot know that its hold has ended, later responses must not have moved its
    /// deadline.
    fn judge_last_word(&mut self, process: usize, view: &GuardView, over_ms: u64) {
        let Some(hold) = self.holds.get(&view.id).filter(|hold| !hold.may_have_moved) else { return };
        let end_ms = match hold.session {
            // Workers still renew the session until they know of its end.
            Some(_) => self.latest_ms(over_ms) + u64::from(self.lease_ms_of_session(hold.session)),
            None => self.word_ms(view.id),
        };
        if view.until_us > self.end_us(end_ms) {
            let hold = format!("{hold:?}");
            self.accuse("guard", || {
                format!(
                    "process {process} moved the deadline of a guard after its hold had ended at {over_ms} ms: {view:?}: {hold}"
                )
            });
        }
    }

    /// Records the remaining lease of a hold that the server reported.
    pub(super) fn note_word(&mut self, id: LockId, stamp_ms: u64, remaining_ms: u32) {
        let end_ms = stamp_ms + u64::from(remaining_ms);
        let word = self.guards.words.entry(id).or_default();
        *word = end_ms.max(*word);
    }

    /// Returns the latest end of the lease of a hold that the server has reported.
    pub(super) fn word_ms(&self, id: LockId) -> u64 {
        self.guards.words.get(&id).copied().unwrap_or(u64::MAX)
    }

    /// Records that a caller releases a hold of its process by its id.
    pub(crate) fn note_release_by_id(&mut self, id: LockId) {
        self.guards.released_by_id.insert(id);
        self.guards.meddle(id, NOBODY);
    }

    /// Records that the holder left this hold without a release.
    pub(crate) fn note_forgotten(&mut self, id: LockId, was_held: bool) {
        self.guards.forgotten.insert(id, was_held.then_some(self.restarts.count));
    }

    /// Returns whether the server is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping_ms.is_some()
    }

    /// Records which holds a request may end or move.
    pub(super) fn note_meddling(&mut self, lane: usize, operation: &Operation) {
        let process = self.lanes[lane].process;
        if let Operation::Release { id, .. } = operation {
            self.judge_release_of_forgotten(lane, *id);
        }
        match operation {
            Operation::Release { id, .. } | Operation::Extend { id, .. } | Operation::ForceRelease { id } => {
                self.guards.meddle(*id, process);
            }
            Operation::Acquire(acquire) if acquire.request_id.is_some() => {
                let client = self.lanes[lane].client;
                let is_same =
                    |key| self.holds.iter().filter(move |(_, hold)| hold.is_named_by(client, key, acquire));
                let ids: Vec<LockId> =
                    acquire.keys().iter().flat_map(|(key, _)| is_same(*key).map(|(id, _)| *id)).collect();
                ids.into_iter().for_each(|id| self.guards.meddle(id, process));
            }
            _ => {}
        }
    }

    /// Checks the guards of conflicting holds when a hold becomes known.
    pub(super) fn note_guarded(&mut self, id: LockId, now_ms: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        let is_short = hold.release_after_ms.is_some_and(|ms| ms < RELEASE_AFTER_BELIEVED_MIN_MS);
        if hold.others_may_end || is_short {
            self.guards.meddle(id, NOBODY);
        }
        let (key, fence, form, shared, request) =
            (hold.key, hold.fence, hold.form, hold.shared, hold.request);
        if let Operation::Acquire(acquire) = self.requests[request].operation
            && acquire.request_id.is_some()
        {
            let others: Vec<usize> = self.same_requests(request, &acquire).collect();
            for other in others {
                self.guards.meddle(id, self.lanes[self.requests[other].lane].process);
            }
        }
        let conflicting = self.holds.iter().filter(|(_, hold)| {
            // Only earlier holds count: a hold with a smaller fence that becomes known late has ended already.
            hold.key == key
                && hold.fence < fence
                && Form::conflict((&form, shared), (&hold.form, hold.shared))
        });
        let conflicting: Vec<LockId> = conflicting.map(|(other, _)| *other).collect();
        let at_us = self.end_us(now_ms);
        for other in conflicting {
            self.judge_guard_of(other, now_ms, at_us, "conflicts with a granted claim");
        }
    }

    /// Records that the server reported the end of a hold, and checks its guards.
    pub(super) fn note_guarded_over(&mut self, id: LockId, now_ms: u64) {
        let at_us = self.end_us(now_ms);
        self.judge_guard_of(id, now_ms, at_us, "has ended");
    }

    /// Records that the server crashed and may have lost this hold.
    pub(super) fn note_guarded_lost(&mut self, id: LockId) {
        self.guards.meddle(id, NOBODY);
    }

    /// Rule `guard`: reports a guard without an excuse whose deadline is after `at_us`, although its hold has ended.
    fn judge_guard_of(&mut self, id: LockId, since_ms: u64, at_us: u64, what: &str) {
        if let Some((process, until_us)) = self.guards.believer(id, at_us) {
            let hold = format!("{:?}", self.holds.get(&id));
            self.accuse("guard", || {
                format!(
                    "a guard of process {process} reports that it holds {id} until {until_us} us, but the hold {what} (since {since_ms} ms): {hold}"
                )
            });
        }
    }

    /// Rule `needless-loss`: reports a guard that was lost at its local deadline without any fault.
    pub(crate) fn accuse_of_needless_loss(&mut self, process: usize, id: LockId) {
        let Some(hold) = self.holds.get(&id) else { return };
        if hold.over_ms.is_none() && !self.guards.is_excused(process, id) {
            let hold = format!("{hold:?}");
            self.accuse("needless-loss", || {
                format!(
                    "process {process} lost {id} at its local deadline, but the run has no fault that explains this: {hold}"
                )
            });
        }
    }

    /// Rule `unowned`: a connected lane soon releases a hold that has neither a guard nor a caller.
    pub(crate) fn judge_unowned_of(
        &mut self,
        lane: usize,
        down_us: u64,
        guarded: &BTreeSet<LockId>,
        wanted: &BTreeSet<Key>,
        now_us: u64,
    ) {
        let now_ms = self.settings.server_ms(now_us);
        self.guards.guarded_us.extend(guarded.iter().map(|id| (*id, now_us)));
        let left = self.holds.iter().find(|(id, hold)| {
            let guarded_us = self.guards.guarded_us.get(id).copied().unwrap_or(0);
            let since_us =
                down_us.max(guarded_us).max(self.to_us(hold.said_ms)).max(self.to_us(hold.settled_ms));
            hold.lane == lane
                && hold.over_ms.is_none()
                && hold.release_count == 0
                && hold.request_id.is_none_or(|number| number >= MADE_UP_REQUEST_ID)
                && since_us + GIVEN_BACK_WITHIN_US < now_us
                && !guarded.contains(id)
                && !wanted.contains(&hold.key)
                && !self.guards.forgotten.contains_key(id)
                && self.surely_lives(**id, now_ms)
                && !self.is_asked_about(lane, **id)
        });
        if let Some((id, hold)) = left {
            let (id, hold) = (*id, format!("{hold:?}"));
            self.accuse("unowned", || {
                format!("{id} has neither a guard nor a caller, but its lane does not release it: {hold}")
            });
        }
    }

    /// Rule `unowned`: a lane that has closed released all of its holds.
    pub(crate) fn judge_left_by(&mut self, lane: usize, now_us: u64) {
        let now_ms = self.settings.server_ms(now_us);
        let left = self.holds.iter().find(|(id, hold)| {
            hold.lane == lane
                && hold.over_ms.is_none()
                && hold.release_count == 0
                && hold.request_id.is_none_or(|number| number >= MADE_UP_REQUEST_ID)
                && !self.guards.forgotten.contains_key(id)
                && self.surely_lives(**id, now_ms)
        });
        if let Some((id, hold)) = left {
            let (id, hold) = (*id, format!("{hold:?}"));
            self.accuse("unowned", || format!("{id} was not released when its client was closed: {hold}"));
        }
    }

    /// Returns whether a STATUS or EXTEND request of this lane about a hold is unanswered. A client confirms
    /// a grant before it makes a guard.
    fn is_asked_about(&self, lane: usize, id: LockId) -> bool {
        self.requests.iter().filter(|record| record.lane == lane && !record.is_answered).any(
            |record| matches!(record.operation, Operation::Status { id: of } | Operation::Extend { id: of, .. } if of == id),
        )
    }

    /// Rule `unowned`: no hold of a real client is left after all guards were dropped.
    pub(crate) fn judge_unowned(&mut self, now_ms: u64) {
        let left = self.holds.iter().find(|(id, hold)| {
            self.guards.is_real(hold.lane)
                && !self.guards.forgotten.contains_key(id)
                && self.surely_lives(**id, now_ms)
        });
        if let Some((id, hold)) = left {
            let (id, hold) = (*id, format!("{hold:?}"));
            self.accuse("unowned", || format!("{id} is still held after all guards were dropped: {hold}"));
        }
    }

    /// Returns the last microsecond of this millisecond, in the time of the run.
    pub(super) fn end_us(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.settings.start_ms).saturating_mul(1000).saturating_add(999)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auditor::scene::{
        ALL, CONNECTION, PROCESS, granted_to_process, guard_view, id_of, rule, says,
    };
    use waymaker_protocol::{Event, Response};

    const START_MS: u64 = 100;

    /// Returns an auditor with a real client that has read the grant of its hold, and the connection of that
    /// client.
    fn guarded() -> (Auditor, usize) {
        let mut auditor = granted_to_process();
        auditor.note_heard(CONNECTION, ALL, START_MS * 1000);
        (auditor, CONNECTION)
    }

    fn believes(auditor: &mut Auditor, until_ms: u64, now_ms: u64) {
        auditor.note_guards(PROCESS, &[guard_view(until_ms)], now_ms * 1000);
    }

    fn expires(auditor: &mut Auditor, connection: usize, now_ms: u64) {
        says(auditor, connection, 0, &Response::Event(Event::Expired { id: id_of(1) }), now_ms);
    }

    #[test]
    fn a_guard_must_not_report_a_hold_after_its_end() {
        let (mut auditor, connection) = guarded();
        believes(&mut auditor, 790, 110);
        expires(&mut auditor, connection, 800);
        assert_eq!(auditor.violation(), None);
        let (mut auditor, _) = guarded();
        believes(&mut auditor, 805, 110);
        assert_eq!(rule(&auditor), Some("last-word"));
    }

    #[test]
    fn a_guard_may_report_a_stolen_hold_until_the_promised_end() {
        let (mut auditor, _) = guarded();
        believes(&mut auditor, 790, 110);
        auditor.asks(0, 9, Operation::Release { id: id_of(1), forged: false, own: false }, 0, 120);
        let released = Response::Released(waymaker_protocol::Released::default());
        says(&mut auditor, 0, 9, &released, 130);
        believes(&mut auditor, 790, 140);
        assert_eq!(auditor.violation(), None);
        believes(&mut auditor, 990, 150);
        assert_eq!(rule(&auditor), Some("last-word"));
    }

    #[test]
    fn a_client_that_is_closed_releases_its_holds() {
        let (mut auditor, connection) = guarded();
        let lane = auditor.connections[connection].lane;
        auditor.asks(connection, 2, Operation::Release { id: id_of(1), forged: false, own: false }, 0, 120);
        auditor.judge_left_by(lane, 130_000);
        assert_eq!(auditor.violation(), None);
        let (mut auditor, _) = guarded();
        auditor.judge_left_by(lane, 130_000);
        assert_eq!(rule(&auditor), Some("unowned"));
    }

    #[test]
    fn a_hold_without_a_guard_must_be_released() {
        let (mut auditor, _) = guarded();
        auditor.judge_unowned(900);
        assert_eq!(auditor.violation(), None, "its lease is over");
        auditor.judge_unowned(300);
        assert_eq!(rule(&auditor), Some("unowned"));
    }
}
