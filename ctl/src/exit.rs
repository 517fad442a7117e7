//! What the exit code tells.
//!
//! `lock` passes on the code of its command, so its own codes stand where commands rarely have theirs: just below
//! those that shells use for a command that could not be run.

use std::process::ExitCode;

use waymaker_client::{Error, ErrorCode, Unavailable};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// A server would not start on this data directory.
    Damaged,
    /// There is no such presence.
    Absent,
    /// The limiter said no.
    Throttled,
    /// Somebody else has the lock, and did not let go in time.
    Busy,
    /// The lock was lost while the command ran; the command was stopped.
    Lost,
    /// The server cannot be reached, or stopped answering.
    Unreachable,
    /// The server said no.
    Refused,
    /// The command line makes no sense.
    Usage,
    /// This program failed.
    Internal,
    /// The command exists and cannot be run.
    NotExecutable,
    /// There is no such command.
    NotFound,
    /// What the command ended with.
    Command(u8),
    /// What shells say of a command that this signal ended, or of this program if it was told to stop while it waited.
    Signal(u8),
}

impl Exit {
    /// The name of the problem behind it, for programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Success | Self::Command(_) => "none",
            Self::Damaged => "damaged",
            Self::Absent => "absent",
            Self::Throttled => "throttled",
            Self::Busy => "busy",
            Self::Lost => "lost",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Usage => "usage",
            Self::Internal => "internal",
            Self::NotExecutable => "command_not_executable",
            Self::NotFound => "command_not_found",
            Self::Signal(_) => "signal",
        }
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Damaged => 1,
            Self::Absent => 118,
            Self::Throttled => 119,
            Self::Busy => 120,
            Self::Lost => 121,
            Self::Unreachable => 122,
            Self::Refused => 123,
            Self::Usage | Self::Internal => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Command(code) => code,
            Self::Signal(number) => 128 + number,
        }
    }
}

/// For the help of subcommands that run a command; a test compares it with [`Exit::code`].
pub(crate) const HELP: &str = "\
Exit codes:
  CMD's own   CMD ran, and the lock was held all the while
  128+N       signal N ended CMD, or ended waymaker-ctl while it waited
  118         absent: there is no such entry (`presence get` alone)
  119         throttled: the bucket has not enough tokens (`throttle` alone)
  120         busy: the lock was not free within --wait
  121         lost: the lock was lost while CMD ran, so CMD was stopped
  122         the server cannot be reached, or did not answer in time
  123         the server refused
  125         wrong usage, or a failure of waymaker-ctl itself
  126         CMD cannot be executed
  127         CMD was not found";

/// For the help of the other subcommands.
pub(crate) const QUESTION_HELP: &str = "\
Exit codes:
  0    done
  121  not the newest fence (`verify` alone)
  122  the server cannot be reached, or did not answer in time
  123  the server refused
  125  wrong usage, or a failure of waymaker-ctl itself
  141  the reader of stdout has closed it";

/// For the help of the program.
pub(crate) const ERRORS_HELP: &str = "\
Errors and notes go to stderr. With --json each is an object on a line. An error
has `code`, `message` and `exit_code`; `holder` if a named holder is in the way,
and `retry_after_ms` if the time of another attempt is known. `code` is the name
of the server's error, such as busy, timeout, frozen or bad_input, or one of
  absent, command_not_executable, command_not_found, damaged, internal, lost,
  unreachable, usage, wrong_protocol
A note has `note`.";

impl From<&Error> for Exit {
    fn from(error: &Error) -> Self {
        match error {
            Error::Busy(_) | Error::Timeout(_) => Self::Busy,
            Error::Lost(_) => Self::Lost,
            Error::Unavailable(Unavailable::Refused { code, .. }) if *code != ErrorCode::Shutdown => {
                Self::Refused
            }
            Error::Unavailable(_) | Error::Uncertain(_) | Error::Protocol(_) => Self::Unreachable,
            Error::Throttled { .. } => Self::Throttled,
            Error::Refused { .. }
            | Error::Cancelled { .. }
            | Error::Frozen { .. }
            | Error::CapacityMismatch { .. }
            | Error::NotOwner(_) => Self::Refused,
            Error::Url(_) | Error::Tls(_) => Self::Usage,
            Error::Closed => Self::Internal,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_code_of_our_own() {
        use Exit::*;
        for exit in
            [Absent, Throttled, Busy, Lost, Unreachable, Refused, Usage, Internal, NotExecutable, NotFound]
        {
            assert!(HELP.contains(&format!("\n  {}  ", exit.code())), "{exit:?}");
        }
        assert_eq!(Signal(9).code(), 137);
    }
}
