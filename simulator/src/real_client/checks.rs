//! Checks of the callers and guards of a process, and the report of its guards to the auditor.

use super::caller::{Call, Facts};
use super::{LOOK_US, Phase, RealClient};
use crate::auditor::GuardView;
use crate::world::World;
use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};
use waymaker_client::{Clock, Error, LossReason};

impl RealClient {
    /// Reports a violation if a caller should have its answer by now. Returns true, because the caller still
    /// waits.
    pub(super) fn judge_pending(&self, world: &mut World, call: &Call) -> bool {
        let (index, now) = (self.index, self.clock.now());
        if call.answer_by().is_some_and(|at| at <= now) {
            world.auditor.accuse("late-caller", || {
                format!("process {index} still waits for {call:?} at {now:?}, past the time limit")
            });
        }
        true
    }

    /// Reports a violation if the error of a call has no valid reason. Returns false, because the caller
    /// waits no longer.
    pub(super) fn judge_refusal(&self, world: &mut World, call: &Call, error: &Error) -> bool {
        if self.is_closed() && matches!(error, Error::Closed) {
            return false;
        }
        let index = self.index;
        let auditor = &world.auditor;
        let facts = Facts {
            now: self.clock.now(),
            was_down: self.lane_of(call.kind).was_down_since(call.since_us),
            gave_up: self.lane_of(call.kind).gave_up_since(call.since_us),
            session_ended: auditor.has_heard_session_end(index, call.since_us),
            has_heard: &|codes| auditor.has_heard_refusal(index, codes, call.since_us),
        };
        if let Some(problem) = call.problem_of(error, &facts) {
            world.auditor.accuse("caller", || format!("process {index}: {problem}: {error:?} for {call:?}"));
        }
        false
    }

    /// Checks how each newly lost guard learned of its loss.
    pub(super) fn judge_losses(&mut self, world: &mut World) {
        let (index, now_us, is_closed) = (self.index, world.now_us, self.is_closed());
        let context = &mut Context::from_waker(Waker::noop());
        for guard in self.guards.iter_mut().filter(|guard| !guard.is_judged && !guard.lock.is_held()) {
            guard.is_judged = true;
            let id = guard.lock.id();
            let Some(reason) = guard.lock.loss_reason() else {
                world.auditor.accuse("loss-reason", || {
                    format!("process {index} lost {id} and its guard did not report the loss")
                });
                continue;
            };
            let loss = (reason, guard.lock.loss_message());
            if !(is_closed && reason == LossReason::ClientClosed) {
                world.auditor.judge_loss(index, id, loss, guard.until_us, now_us);
            }
            let reported = std::pin::pin!(guard.lock.lost()).poll(context);
            let called = guard.losses.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if reported != Poll::Ready(reason) || called.len() != 1 {
                world.auditor.accuse("loss-reason", || {
                    format!("process {index} lost {id} by {reason:?}, but the guard reported {reported:?} and the callback {called:?}")
                });
            }
        }
    }

    /// Checks that each hold of the client has a guard, or a caller that may still get it.
    pub(super) fn look_for_unowned(&mut self, world: &mut World) {
        if self.phase == Phase::Gone || self.looks_at_us > world.now_us {
            return;
        }
        self.looks_at_us = world.now_us + LOOK_US;
        let guarded = self.guards.iter().map(|guard| guard.lock.id()).collect();
        let wanted = self.acquires.iter().flat_map(|one| one.acquire.keys()).map(|(key, _)| key).collect();
        for lane in self.lanes.iter().filter(|lane| lane.is_open()) {
            let (number, down_us) = (lane.auditor_lane(), lane.down_us());
            world.auditor.judge_unowned_of(number, down_us, &guarded, &wanted, world.now_us);
            world.auditor.judge_uncalled_of(self.index, number, &wanted);
        }
    }

    /// Tells the auditor the state of all guards.
    pub(super) fn tell_beliefs(&mut self, world: &mut World) {
        self.judge_losses(world);
        let now = self.clock.now();
        let mut ids = BTreeSet::new();
        let mut views = Vec::new();
        for guard in self.guards.iter_mut().filter(|guard| guard.lock.is_held()) {
            let id = guard.lock.id();
            let until_us = self.clock.first_us_at(now.after(guard.lock.remaining()));
            guard.until_us = until_us;
            let lane = self.lanes.iter().find(|lane| lane.kind == guard.terms.kind);
            views.push(GuardView {
                id,
                until_us,
                lane: guard.lane,
                is_on_session: guard.terms.is_on_session,
                is_renewed: guard.terms.is_renewed && guard.terms.has_end,
                is_connected: lane.is_some_and(|lane| lane.is_open() && lane.auditor_lane() == guard.lane),
                fence: guard.lock.fence(),
                is_shared: guard.lock.is_shared(),
                is_clamped: guard.lock.is_clamped(),
                lease_ms: guard.lock.lease_ms(),
            });
            if !ids.insert(id) {
                let index = self.index;
                world.auditor.accuse("one-owner", || {
                    format!("two guards of process {index} both report that they hold {id}")
                });
            }
        }
        world.auditor.note_guards(self.index, &views, world.now_us);
    }
}
