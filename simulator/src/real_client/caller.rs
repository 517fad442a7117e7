//! Callers of a real client: each has its answer in time, and an error that something explains.

use std::time::Duration;
use waymaker_client::{BootTime, Error, ErrorCode, NamespaceKind, Unavailable};

/// How long after the end of its wait an acquire may still wait for the answer of the server.
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);

/// One call of a caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The kind of its lane.
    pub(super) kind: NamespaceKind,
    /// When it began, by the run and by the clock of its process.
    pub(super) since_us: u64,
    pub(super) since: BootTime,
    /// The wait of an acquire, 0 of a try, `u32::MAX` without end; `None` of a release or an extend.
    pub(super) wait_ms: Option<u32>,
    /// Whether other acquires have its request id. It may take over the wait of one of them.
    pub(super) is_named: bool,
    /// For how long callers wait for a connection, and for the answer to a request without a wait.
    pub(super) patience: Duration,
}

/// What explains an error.
pub(super) struct Facts<'a> {
    pub(super) now: BootTime,
    /// Whether the lane was without a connection at any time since the call began.
    pub(super) was_down: bool,
    /// Whether the lane had no connection for as long as callers wait, since the call began.
    pub(super) gave_up: bool,
    /// Whether a session of the process has ended since the call began.
    pub(super) session_ended: bool,
    /// Whether the server has refused anything with one of these codes since the call began.
    pub(super) has_heard: &'a dyn Fn(&[ErrorCode]) -> bool,
}

impl Call {
    /// The end of its wait; `None` if it has none.
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

    /// When its caller has its answer at the latest, whatever happens to the connection.
    pub(super) fn answer_by(&self) -> Option<BootTime> {
        let end = self.wait_end()?;
        Some(if self.has_wait() { end.after(ANSWER_PATIENCE) } else { end })
    }

    /// Returns what is wrong with this error, if anything is.
    pub(super) fn problem_of(&self, error: &Error, facts: &Facts<'_>) -> Option<&'static str> {
        let is_over = self.wait_end().is_some_and(|end| end <= facts.now);
        let is_late = self.answer_by().is_some_and(|at| at <= facts.now);
        // Without a connection there is no answer to wait for. A request that is too old to be repeated waits for its turn again.
        let is_given_up = facts.gave_up || is_late || is_over && facts.was_down;
        let heard = |codes: &[ErrorCode]| (facts.has_heard)(codes);
        match error {
            Error::Protocol(_) | Error::Closed | Error::Url(_) | Error::Tls(_) => Some("no caller may be told so"),
            Error::Busy(_) if self.wait_ms != Some(0) => Some("it was to wait"),
            Error::Timeout(_) if self.is_named && heard(&[ErrorCode::Timeout, ErrorCode::Busy]) => None,
            Error::Timeout(_) if !self.has_wait() => Some("its wait has no end"),
            Error::Timeout(_) if !self.is_about_over(facts.now) => Some("its wait is not over"),
            // A repetition at the end of the wait is a try.
            Error::Timeout(_) if heard(&[ErrorCode::Timeout, ErrorCode::Busy]) => None,
            Error::Uncertain(_) if is_given_up || heard(&[ErrorCode::Unknown]) => None,
            // Another client may have the hold by then, so the release is not sent again.
            Error::Uncertain(_) if self.wait_ms.is_none() && facts.session_ended => None,
            Error::Uncertain(_) => Some("an answer may still come"),
            Error::Unavailable(Unavailable::Unreachable { .. } | Unavailable::Disconnected { .. }) => {
                (!is_given_up).then_some("the connection may still come back")
            }
            Error::Unavailable(Unavailable::Refused { code: ErrorCode::Overloaded, field, .. })
                if field == "in_flight_max" =>
            {
                (!is_over).then_some("it may still be sent")
            }
            // The client itself refuses a lease that is too short.
            Error::Refused { code: ErrorCode::BadInput, field, .. } if field == "lease_ms" => None,
            // The server may refuse greetings until its callers have waited for too long.
            Error::Unavailable(Unavailable::Refused { .. }) if is_given_up => None,
            Error::Lost(_) => None,
            error => {
                let code = error.code()?;
                (!heard(&[code])).then_some("the server has not said so")
            }
        }
    }

    /// Returns whether its wait is over by the clock of the server, which may be faster.
    fn is_about_over(&self, now: BootTime) -> bool {
        let wait = Duration::from_millis(self.wait_ms.unwrap_or(0).into());
        let slack = wait / 500 + Duration::from_millis(2);
        now.after(slack) >= self.since.after(wait)
    }
}
