//! Reactions to responses and events of the server.

use std::time::Duration;

use waymaker_protocol::{
    DecodeError, ErrorAnswer, ErrorCode, ErrorDetail, Event, Extended, LockId, Pong, Response, RevokeReason,
    StatusAnswer,
};

use super::Lane;
use super::holds::ReportedBy;
use super::requests::arm_wait;
use super::window::{Pending, Sequence};
use crate::clock::BootTime;
use crate::deadline::Anchor;
use crate::error::{Error, Result};
use crate::key::{KeyHolder, KeyState};
use crate::loss::LossReason;
use crate::request::claim::Wait;
use crate::request::grant::Grant;
use crate::request::job::{AcquireJob, Job};
use crate::request::queue_place::QueuePlace;
use crate::request::reply::Awaited;

const SERVED_BEFORE: &str =
    "the server restarted or the session ended before the response, and the repeated request was refused";

impl Lane {
    pub(super) fn handle_event(&mut self, number: u32, event: Event<'_>, now: BootTime) -> Result<()> {
        match event {
            Event::Queued { id, position, ticket } => {
                self.window.queued(number, QueuePlace { id, position, ticket });
            }
            Event::Expired { id } => self.ended(id, LossReason::Expired, b""),
            Event::Revoked { id, reason, message } => self.ended(id, LossReason::Revoked(reason), message),
            Event::LeaseMoved { id, remaining_ms, stamp_ms } => {
                self.window.lease_moves(id);
                let extended = Extended { remaining_ms, stamp_ms, clamped: false };
                self.extended(id, ReportedBy::Event, extended, true, now);
            }
            Event::KeyHeld { fence, shared, owner } => {
                let holder = KeyHolder { shared, owner: owner.to_vec() };
                self.watches.tell(number, KeyState::Held { fence, holder: Some(holder) });
            }
            Event::KeyFreed { fence } => self.watches.tell(number, KeyState::Free { fence }),
            Event::Overrun => self.overrun(number),
            Event::TakenUp { id } => self.superseded(id, Some(number)),
            Event::Ping => Pong.encode(0, &mut self.out),
            Event::SessionExpired => {
                self.session.gone(self.welcome.session_id);
                self.session_gone();
                return Err(Error::disconnected("the session expired"));
            }
        }
        Ok(())
    }

    pub(super) fn handle_answer(
        &mut self,
        sequence: Sequence,
        pending: Pending,
        response: Response<'_>,
        now: BootTime,
    ) -> Result<()> {
        self.move_anchor(pending.sent, &response);
        if let Response::Error(error) = &response
            && error.code == ErrorCode::SessionGone
        {
            // The session has ended, so the server has not served this transmission of the request. Put the request
            // back: when the next session begins, `begin_anew` treats it like every other unanswered request.
            self.window.put_back(sequence, pending);
            self.session.gone(self.welcome.session_id);
            self.session_gone();
            return Err(Error::disconnected("the session expired"));
        }
        let carried = pending.carried;
        let by = ReportedBy::Answer(sequence);
        match (pending.job, response) {
            (Job::Acquire(job), Response::Granted(granted)) => {
                let grant = Grant::one(&job.claim, sequence.number(), granted);
                self.granted(job, grant, carried, now);
            }
            (Job::Acquire(job), Response::GrantedKeys(granted)) if !granted.keys.is_empty() => {
                let grant = Grant::multi_key(&job.claim, sequence.number(), &granted);
                self.granted(job, grant, carried, now);
            }
            (Job::Acquire(mut job), Response::Error(error)) if is_wait_for_nobody(&job, &error) => {
                job.wait = match job.wait {
                    // The lane sends the acquire again. With the present time as the end of the wait, it becomes a try.
                    // Keep an end that has already passed: the timer function `wait_over` allows the response until a
                    // fixed time after the end, and a later end would extend this limit.
                    Wait::Until(at) => Wait::Until(at.min(now)),
                    Wait::Try => Wait::Try,
                    Wait::Forever => Wait::Until(now),
                };
                self.ask_again(job);
            }
            (Job::Acquire(mut job), Response::Error(error)) => {
                arm_wait(&mut job, BootTime::NEVER, &mut self.timers);
                job.reply.answer(Err(refused(job.wait, error.into())));
            }
            (Job::Confirm(job), Response::Extended(Extended { remaining_ms, stamp_ms, .. }))
            | (Job::Confirm(job), Response::Status(StatusAnswer { remaining_ms, stamp_ms, .. })) => {
                self.confirmed(*job, remaining_ms, stamp_ms, now);
            }
            (Job::Confirm(job), Response::Error(error)) => self.not_confirmed(*job, &error),
            (Job::Cancel { .. }, Response::Cancelled(_) | Response::Error(_)) => {}
            (Job::Release { id, by_guard, mut reply, .. }, Response::Released(released)) => {
                if !by_guard {
                    let reason = LossReason::Revoked(RevokeReason::ReleasedElsewhere);
                    self.holds.lose(id, reason, &mut self.timers);
                }
                reply.answer(Ok(released.was_waiting));
            }
            (Job::Release { id, mut reply, .. }, Response::Error(error)) => {
                self.not_given_back(id);
                refuse_change(&mut reply, error);
            }
            (Job::Extend { id, lease_ms, mut reply, .. }, Response::Extended(extended)) => {
                if let Some(entry) = self.holds.get_mut(id)
                    && entry.renew_ms.is_some()
                {
                    entry.renew_ms = Some(lease_ms);
                }
                self.extended(id, by, extended, carried, now);
                // The local deadline is limited by `extends_bound` until all pending extends have a response. Lift this
                // limit only after the new lease is applied. If the limit were lifted first, the guard would briefly
                // rely on the old lease.
                self.extend_answered(id);
                reply.answer(Ok(Duration::from_millis(u64::from(extended.remaining_ms))));
            }
            (Job::Extend { id, mut reply, .. }, Response::Error(error)) => {
                if carried || reply.was_sent() || error.code == ErrorCode::Unknown {
                    // The server may have served the extend and shortened the lease: on an earlier connection, or on
                    // this one if the code is `unknown`. So `extend_unknown` keeps the earlier of the two possible
                    // deadlines.
                    self.extend_unknown(id);
                }
                self.not_extended(id, error.code, BootTime::default(), now);
                self.extend_answered(id);
                refuse_change(&mut reply, error);
            }
            (Job::Renew { id, .. }, Response::Extended(extended)) => {
                self.extended(id, by, extended, carried, now);
            }
            (Job::Renew { id, .. }, Response::Error(error)) => {
                let retry = self.retry_at(id, now);
                self.not_extended(id, error.code, retry, now);
            }
            (Job::Check { id }, Response::Status(status)) => self.checked(id, by, status, carried, now),
            (Job::Check { id }, Response::Error(error)) => self.not_checked(id, error.code, now),
            (Job::Holds { .. }, Response::Listed(listed)) => self.holds_listed(&listed),
            // If the server refuses to list the holds, check by its id each hold that still waits for the list to show
            // it.
            (Job::Holds { .. }, Response::Error(_)) => self.reconcile(false),
            (Job::Watch(job), Response::Watching(watching)) => {
                self.watching(job, sequence.number(), watching);
            }
            (Job::Watch(job), Response::Error(error)) => self.not_watching(job, error.into()),
            (Job::Unwatch { .. }, Response::Unwatched(_) | Response::Error(_)) => {}
            (Job::Ask(mut question), Response::Error(error)) if question.is_change() => {
                refuse_change(question.reply(), error);
            }
            (Job::Ask(mut question), Response::Error(error)) => question.reply().fail(error.into()),
            (Job::Ask(mut question), response) => {
                if !question.answer(response) {
                    let error = no_such_answer();
                    question.reply().fail(error.clone());
                    return Err(error);
                }
            }
            (Job::KeepAlive, Response::KeptAlive(kept)) => {
                let remaining = Duration::from_millis(u64::from(kept.remaining_ms));
                self.move_deadline(self.session_report(kept.stamp_ms, remaining), now);
                // Do not schedule the next keep-alive if this one was first sent on an earlier connection: the welcome
                // of the present connection has already scheduled it.
                if !carried {
                    self.schedule_keep_alive(pending.sent);
                }
            }
            // A server that cannot serve this keep-alive may serve the next one, so schedule it.
            (Job::KeepAlive, Response::Error(_)) if !carried => self.schedule_keep_alive(now),
            (Job::KeepAlive, Response::Error(_)) => {}
            (Job::Goodbye, Response::Farewell(_) | Response::Error(_)) => self.finish(),
            (mut job, _) => {
                let error = no_such_answer();
                job.fail(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Applies the server's report that it has ended a hold: removes the hold from those that count as held and from
    /// the forgotten ones, and reports the loss to its guard, if any. If a grant of the hold is being confirmed, the
    /// confirmation then counts as refused.
    fn ended(&mut self, id: LockId, reason: LossReason, message: &[u8]) {
        self.reconciliation.forgotten.remove(&id);
        self.window.ended(id);
        let message = String::from_utf8_lossy(message);
        self.holds.lose_with(id, reason, &message, &mut self.timers);
    }

    /// Makes the send time of this request and the server's stamp in its response the new anchor for deadlines. `sent`
    /// is then also the latest time at which the connection is known to have been alive. Does nothing for a kind of
    /// response that is not listed here, for a grant that waited or found an older claim, and if the request of the
    /// present anchor was sent later.
    fn move_anchor(&mut self, sent: BootTime, response: &Response<'_>) {
        let stamp_ms = match response {
            Response::KeptAlive(kept) => kept.stamp_ms,
            Response::Extended(extended) => extended.stamp_ms,
            Response::Status(status) => status.stamp_ms,
            Response::Inspected(inspected) => inspected.stamp_ms,
            Response::Verified(verified) => verified.stamp_ms,
            Response::PoolDescribed(described) => described.stamp_ms,
            Response::GrantedKeys(granted) if !granted.waited && !granted.repeated => granted.stamp_ms,
            // The anchor converts the server's stamps to local times, as if the server had decided its response when
            // the request was sent. So a grant that waited cannot be the anchor: its acquire was sent long before the
            // decision, and the deadlines would be too early. Nor can a repeated grant: it may have the stamp of an
            // older claim.
            Response::Granted(granted) if !granted.waited && !granted.repeated => granted.stamp_ms,
            _ => return,
        };
        // Make the newest round trip the anchor, from which all stamps are converted to local times: the clocks have
        // had the least time since then to drift apart. `sent` must be the time of the first transmission, because the
        // response to a repeated request may be as old as that.
        if self.anchor.sent <= sent {
            self.anchor = Anchor { sent, stamp_ms };
            self.holds.alive = sent;
        }
    }
}

/// Passes a refusal on to the caller of a request that changes something. An earlier server process or session may have
/// got the request too. A `not_found` or a temporary refusal then does not tell whether the earlier one served the
/// request, so the caller gets [`Error::Uncertain`].
fn refuse_change(reply: &mut dyn Awaited, error: ErrorAnswer<'_>) {
    let error = Error::from(error);
    let is_inconclusive = matches!(error, Error::Unavailable(_)) || error.code() == Some(ErrorCode::NotFound);
    if is_inconclusive && reply.was_sent() { reply.leave_uncertain(SERVED_BEFORE) } else { reply.fail(error) }
}

/// Returns the error for a response that does not fit its request.
fn no_such_answer() -> Error {
    Error::Protocol(DecodeError::BadValue { field: "opcode", value: 0 })
}

/// Returns whether the server reports a timeout without a claim in front, while the caller still waits. No claim is in
/// front if none is held, and no owner and age are given. The timeout may come from a frozen key, because the server
/// reports the freeze only to a try. So the lane sends the acquire again as a try.
fn is_wait_for_nobody(job: &AcquireJob, error: &ErrorAnswer<'_>) -> bool {
    let ErrorDetail::Contention(contention) = error.detail else { return false };
    let is_nobody = !contention.held && contention.owner.is_empty() && contention.age_ms == 0;
    error.code == ErrorCode::Timeout && is_nobody && job.reply.has_caller()
}

/// Converts the error of a refused acquire for its caller: `busy` becomes a timeout if the acquire has a wait with an
/// end. The server can answer such an acquire with `busy`, because the lane sends it as a try once its wait has ended.
fn refused(wait: Wait, error: Error) -> Error {
    match (wait, error) {
        (Wait::Until(_), Error::Busy(contention)) => Error::Timeout(contention),
        (_, error) => error,
    }
}

/// Returns why a hold is lost if the server refuses a request about it with this code. `None` if the refusal does not
/// mean that the hold has ended or was taken up.
pub(crate) fn lost_by(code: ErrorCode) -> Option<LossReason> {
    match code {
        ErrorCode::NotFound | ErrorCode::Expired | ErrorCode::NotHeld | ErrorCode::NotOwner => {
            Some(LossReason::Expired)
        }
        ErrorCode::Revoked => Some(LossReason::Revoked(RevokeReason::Other(0))),
        ErrorCode::SessionGone => Some(LossReason::SessionExpired),
        // The code `cancelled`: the request had the flag OWN, which limits it to holds of this lane. The server refuses
        // such a request with this code if another lane has taken up the hold.
        ErrorCode::Cancelled => Some(LossReason::Superseded),
        _ => None,
    }
}
