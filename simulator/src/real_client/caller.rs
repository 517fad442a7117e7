//! Checks for the callers of a real client: each gets its answer in time, and each error has a reason.

use std::time::Duration;
use waymaker_client::{BootTime, Error, ErrorCode, NamespaceKind, Unavailable};

/// Time after the end of its wait during which an acquire may still wait for the server's response.
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);

/// Refusals of a repeated request that do not tell whether its first transmission took effect.
const INCONCLUSIVE: &[ErrorCode] = &[
    ErrorCode::NotFound,
    ErrorCode::Shutdown,
    ErrorCode::Recovering,
    ErrorCode::NoSpace,
    ErrorCode::QuorumUnavailable,
    ErrorCode::Overloaded,
];

/// One call into the client library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// Kind of the namespace of the call's lane.
    pub(super) kind: NamespaceKind,
    /// Time at which the call began, in microseconds of the run and on the clock of its process.
    pub(super) since_us: u64,
    pub(super) since: BootTime,
    /// Wait of an acquire in milliseconds: 0 for a try, `u32::MAX` without a limit. `None` for a release or
    /// an extend.
    pub(super) wait_ms: Option<u32>,
    /// True if other acquires may have the same request id. The call may take over the wait of one of them.
    pub(super) is_named: bool,
    /// Time for which callers wait for a connection, and for the response to a request without a wait.
    pub(super) patience: Duration,
}

/// Facts that may explain an error.
pub(super) struct Facts<'a> {
    pub(super) now: BootTime,
    /// True if the lane had no connection at some time since the call began.
    pub(super) was_down: bool,
    /// True if an outage of the lane lasted for `patience` since the call began.
    pub(super) gave_up: bool,
    /// True if a session of the process has ended since the call began.
    pub(super) session_ended: bool,
    /// Returns whether the server has refused a request with one of these codes since the call began.
    pub(super) has_heard: &'a dyn Fn(&[ErrorCode]) -> bool,
}

impl Call {
    /// Returns the end of the wait; `None` if it has no limit.
    fn wait_end(&self) -> Option<BootTime> {
        match self.wait_ms {
            Some(0) | None => Some(self.since.after(self.patience)),
            Some(u32::MAX) => None,
            Some(wait_ms) => Some(self.since.after(Duration::from_millis(wait_ms.into()))),
        }
    }

    fn has_wait(&self) -> bool {
        self.wait_ms.is_some_and(|wait_ms| wait_ms > 0 && wait_ms < u32::MAX)
    }

    /// Returns the time limit for the answer to the caller. An outage of the connection does not extend it.
    pub(super) fn answer_by(&self) -> Option<BootTime> {
        let end = self.wait_end()?;
        Some(if self.has_wait() { end.after(ANSWER_PATIENCE) } else { end })
    }

    /// Returns a description of the fault if the error has no valid reason.
    pub(super) fn problem_of(&self, error: &Error, facts: &Facts<'_>) -> Option<&'static str> {
        let is_over = self.wait_end().is_some_and(|end| end <= facts.now);
        let is_late = self.answer_by().is_some_and(|at| at <= facts.now.after(Duration::from_millis(2)));
        // Without a connection there is no response to wait for. A request that is too old to be repeated
        // waits for its turn again.
        let is_ending = is_over || self.has_wait() && self.is_about_over(facts.now);
        let is_given_up = facts.gave_up || is_late || is_ending && facts.was_down;
        let heard = |codes: &[ErrorCode]| (facts.has_heard)(codes);
        match error {
            Error::Protocol(_) | Error::Closed | Error::Url(_) | Error::Tls(_) => {
                Some("no caller may get this error")
            }
            Error::Busy(_) if self.wait_ms != Some(0) => Some("the acquire must wait"),
            Error::Timeout(_) if self.is_named && heard(&[ErrorCode::Timeout, ErrorCode::Busy]) => None,
            Error::Timeout(_) if !self.has_wait() => Some("the wait has no limit"),
            Error::Timeout(_) if !self.is_about_over(facts.now) => Some("the wait has not ended"),
            // A repetition at the end of the wait is sent as a try.
            Error::Timeout(_) if heard(&[ErrorCode::Timeout, ErrorCode::Busy]) => None,
            Error::Uncertain(_) if is_given_up || heard(&[ErrorCode::Unknown]) => None,
            // Another acquire with the same request id, whose wait had ended, may have taken the claim up
            // just before the connection was lost.
            Error::Uncertain(_) if self.is_named && facts.was_down => None,
            // Another client may have the hold by then, so the release is not sent again.
            Error::Uncertain(_) if self.wait_ms.is_none() && facts.session_ended => None,
            // An earlier process of the server or an earlier session may have served a release or an extend before
            // its repetition was refused.
            Error::Uncertain(_) if self.wait_ms.is_none() && facts.was_down && heard(INCONCLUSIVE) => None,
            Error::Uncertain(_) => Some("a response may still arrive"),
            Error::Unavailable(Unavailable::Unreachable { .. } | Unavailable::Disconnected { .. }) => {
                (!is_given_up).then_some("the lane may still reconnect")
            }
            Error::Unavailable(Unavailable::Refused { code: ErrorCode::Overloaded, field, .. })
                if field == "in_flight_max" =>
            {
                (!is_over).then_some("the request may still be sent")
            }
            // The client library itself rejects a lease that is too short.
            Error::Refused { code: ErrorCode::BadInput, field, .. } if field == "lease_ms" => None,
            // The server may refuse greetings until the callers have waited for too long.
            Error::Unavailable(Unavailable::Refused { .. }) if is_given_up => None,
            Error::Lost(_) => None,
            error => {
                let code = error.code()?;
                (!heard(&[code])).then_some("the server has not sent this error")
            }
        }
    }

    /// Returns whether the wait has ended on the clock of the server, which may be faster.
    fn is_about_over(&self, now: BootTime) -> bool {
        let wait = Duration::from_millis(self.wait_ms.unwrap_or(0).into());
        let slack = wait / 500 + Duration::from_millis(2);
        now.after(slack) >= self.since.after(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_client::Contention;

    const CALL: Call = Call {
        kind: NamespaceKind::Flat,
        since_us: 0,
        since: BootTime::from_nanos(0),
        wait_ms: Some(1_000),
        is_named: false,
        patience: Duration::from_secs(3),
    };

    fn contention() -> Contention {
        Contention {
            held: true,
            shared: false,
            age: Duration::ZERO,
            remaining: None,
            waiter_count: 0,
            owner: Vec::new(),
        }
    }

    /// Returns whether this error has a valid reason at `now_ms` after the server has sent these error codes.
    fn is_fair(call: Call, error: &Error, now_ms: u64, codes: &[ErrorCode]) -> bool {
        let facts = Facts {
            now: BootTime::from_nanos(now_ms * 1_000_000),
            was_down: false,
            gave_up: false,
            session_ended: false,
            has_heard: &|any| any.iter().any(|code| codes.contains(code)),
        };
        call.problem_of(error, &facts).is_none()
    }

    #[test]
    fn a_wait_times_out_only_after_its_end_and_a_response_of_the_server() {
        let error = Error::Timeout(contention());
        let forever = Call { wait_ms: Some(u32::MAX), ..CALL };
        let try_ = Call { wait_ms: Some(0), ..CALL };
        assert!(is_fair(CALL, &error, 1_000, &[ErrorCode::Timeout]));
        assert!(!is_fair(CALL, &error, 990, &[ErrorCode::Timeout]));
        assert!(!is_fair(CALL, &error, 1_000, &[]));
        assert!(!is_fair(forever, &error, 9_000_000, &[ErrorCode::Timeout]));
        assert!(!is_fair(try_, &error, 1_000, &[ErrorCode::Timeout]));
    }

    #[test]
    fn only_a_try_gets_the_error_busy() {
        let error = Error::Busy(contention());
        assert!(is_fair(Call { wait_ms: Some(0), ..CALL }, &error, 10, &[ErrorCode::Busy]));
        assert!(!is_fair(CALL, &error, 10, &[ErrorCode::Busy]));
    }

    #[test]
    fn a_caller_gets_its_answer_within_half_a_second_after_its_wait() {
        let ms = |call: Call| call.answer_by().map(|at| at.as_nanos() / 1_000_000);
        assert_eq!(ms(CALL), Some(1_500));
        assert_eq!(ms(Call { wait_ms: Some(0), ..CALL }), Some(3_000));
        assert_eq!(ms(Call { wait_ms: None, ..CALL }), Some(3_000));
        assert_eq!(ms(Call { wait_ms: Some(u32::MAX), ..CALL }), None);
    }
}
