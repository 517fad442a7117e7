//! Exit codes.
//!
//! `lock` passes on the exit code of its command. The codes of waymaker-ctl itself are therefore just below the codes that shells use
//! for a command that cannot run. Few commands use these.

use std::process::ExitCode;

use waymaker_client::{Error, ErrorCode, Unavailable};

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// A server would not start on this data directory, or a backup is damaged.
    Damaged,
    /// The server refuses all new claims for now.
    NotReady,
    /// The registry has no registration of this key, or a file no token with this id.
    Absent,
    /// The bucket has too few tokens.
    Throttled,
    /// The lock was not free in time.
    Busy,
    /// The lock was lost while the command ran, and the command was stopped. Or a fence is not the newest.
    Lost,
    /// The server cannot be reached, or it stopped responding.
    Unreachable,
    /// The server refused the request.
    Refused,
    /// The command line is wrong.
    Usage,
    /// waymaker-ctl failed.
    Internal,
    /// The command exists but cannot be executed.
    NotExecutable,
    /// The command does not exist.
    NotFound,
    /// Exit code of the command.
    Command(u8),
    /// A signal ended the command, or ended waymaker-ctl while it waited.
    Signal(u8),
}

impl Exit {
    /// Name of the failure, for programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Success | Self::Command(_) => "none",
            Self::Damaged => "damaged",
            Self::NotReady => "not_ready",
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
            Self::NotReady => 117,
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

/// One line of the table of exit codes.
pub(crate) struct Row {
    pub(crate) code: &'static str,
    /// Meaning, for help pages and the reference document.
    pub(crate) meaning: &'static str,
    /// The only commands with this exit code; empty if many commands have it.
    pub(crate) commands: &'static str,
    /// Example of a cause, for the reference document.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the reference document shows examples"))]
    pub(crate) example: &'static str,
    /// Kinds of commands whose help shows the line.
    uses: &'static [Use],
}

/// Kind of a command, by its exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Runs a command under a lock, which it can lose.
    Guarded,
    /// `elect`, which waits without a limit and stands by again after a loss.
    Elect,
    /// `throttle`.
    Throttle,
    /// `presence set`.
    Presence,
    /// Waits for a lock, or sets a key that may have another owner.
    Acquire,
    /// Looks up one registration.
    Get,
    /// `locks verify`.
    Verify,
    /// `pools remove`, which fails if the pool is in use. Used together with `Request`.
    Remove,
    /// `locks watch`, which a signal ends. Used together with `Request`.
    Watch,
    /// `server status`. Used together with `Request`.
    Status,
    /// Sends another request to the server.
    Request,
    /// Reads a data directory.
    Directory,
    /// Reads or writes a backup.
    Backup,
    /// `tokens revoke`. Used together with `Local`.
    Revoke,
    /// Needs neither a server nor a data directory.
    Local,
}

use Use::{
    Acquire, Backup, Directory, Elect, Get, Guarded, Local, Presence, Remove, Request, Revoke, Status,
    Throttle, Verify, Watch,
};

/// Every exit code. Help pages and `docs/reference/command-line.md` show this table.
pub(crate) const TABLE: [Row; 16] = [
    Row {
        code: "0",
        meaning: "success",
        commands: "",
        example: "`locks list` printed the list; `log verify` found a log on which a server starts",
        uses: &[Throttle, Presence, Acquire, Get, Verify, Request, Directory, Backup, Local],
    },
    Row {
        code: "CMD's own",
        meaning: "CMD ran; if it ran under a lock, the lock was held until CMD ended",
        commands: "",
        example: "`lock backup -- sh -c 'exit 7'` exits with 7",
        uses: &[Guarded, Elect, Throttle, Presence],
    },
    Row {
        code: "1",
        meaning: "a server would not start on this data directory, or the backup is damaged",
        commands: "`log inspect`, `log verify`, `backup`, `backup verify`, `restore`",
        example: "`log verify` found a frame with a wrong checksum",
        uses: &[Directory, Backup],
    },
    Row {
        code: "117",
        meaning: "not ready: the server refuses all new claims for now",
        commands: "`server status`",
        example: "`server status` while the server recovers from damage that was accepted",
        uses: &[Status],
    },
    Row {
        code: "118",
        meaning: "absent: there is no such registration or token",
        commands: "`registry get`, `registry remove`, `presence get`, `tokens revoke`",
        example: "`presence get worker/7` while no worker/7 runs",
        uses: &[Get, Revoke],
    },
    Row {
        code: "119",
        meaning: "throttled: the bucket has too few tokens",
        commands: "`throttle`",
        example: "the sixth `throttle alerts --rate 5/m` within a minute",
        uses: &[Throttle],
    },
    Row {
        code: "120",
        meaning: "busy: the lock was not free within --wait, the key has another owner, or the pool is in use",
        commands: "",
        example: "`lock backup --wait 0s -- true` while another client holds `backup`",
        uses: &[Guarded, Presence, Acquire, Remove],
    },
    Row {
        code: "121",
        meaning: "lost: the lock was lost while CMD ran, and CMD was stopped",
        commands: "`lock`, `semaphore`",
        example: "an operator released the lock with `locks force-release`",
        uses: &[Guarded],
    },
    Row {
        code: "121",
        meaning: "the fence is not the newest of its key",
        commands: "`locks verify`",
        example: "`locks verify feed 41` after the key was granted with fence 42",
        uses: &[Verify],
    },
    Row {
        code: "122",
        meaning: "the server cannot be reached, or did not respond in time",
        commands: "",
        example: "no server listens at the address of --server",
        uses: &[Guarded, Elect, Throttle, Presence, Acquire, Get, Verify, Request],
    },
    Row {
        code: "123",
        meaning: "the server refused the request",
        commands: "",
        example: "`semaphore jobs --capacity 3 -- true` while the pool has a capacity of 2",
        uses: &[Guarded, Elect, Throttle, Presence, Acquire, Get, Verify, Request],
    },
    Row {
        code: "125",
        meaning: "wrong usage, or a failure of waymaker-ctl itself",
        commands: "",
        example: "an unknown option; a data directory that cannot be read",
        uses: &[Guarded, Elect, Throttle, Presence, Acquire, Get, Verify, Request, Directory, Backup, Local],
    },
    Row {
        code: "126",
        meaning: "CMD cannot be executed",
        commands: "",
        example: "`lock backup -- /etc/passwd`",
        uses: &[Guarded, Elect, Throttle, Presence],
    },
    Row {
        code: "127",
        meaning: "CMD was not found",
        commands: "",
        example: "`lock backup -- no-such-command`",
        uses: &[Guarded, Elect, Throttle, Presence],
    },
    Row {
        code: "128+N",
        meaning: "signal N ended CMD, or ended waymaker-ctl while it waited or copied",
        commands: "",
        example: "Ctrl-C (SIGINT, 2) while `lock` waits: 130",
        uses: &[Guarded, Elect, Throttle, Presence, Acquire, Watch, Backup],
    },
    Row {
        code: "141",
        meaning: "the reader of stdout closed it",
        commands: "",
        example: "`locks list | head -1` with a long list",
        uses: &[Acquire, Get, Verify, Request, Directory, Local],
    },
];

/// Returns the exit codes for the help of a command.
fn help(uses: &[Use]) -> String {
    let rows = TABLE.iter().filter(|row| row.uses.iter().any(|kind| uses.contains(kind)));
    lines(rows.map(|row| (row.code, row.meaning.to_owned())).collect())
}

/// Returns the whole table, for the help of the program.
pub(crate) fn whole_help() -> String {
    let meaning = |row: &Row| match row.commands {
        "" => row.meaning.to_owned(),
        commands => format!("{} ({commands})", row.meaning),
    };
    lines(TABLE.iter().map(|row| (row.code, meaning(row))).collect())
}

fn lines(rows: Vec<(&str, String)>) -> String {
    let width = rows.iter().map(|(code, _)| code.len()).max().unwrap_or_default();
    let lines = rows.into_iter().map(|(code, meaning)| format!("\n  {code:width$}  {meaning}"));
    format!("Exit codes:{}", lines.collect::<String>())
}

/// Returns the text that follows the options in the help of a command: explanations, examples, then exit codes.
pub(crate) fn after(text: &str, uses: &[Use]) -> String {
    format!("{}\n\n{}", text.trim_end(), help(uses))
}

/// Describes errors and notes, for the help of the program.
pub(crate) const ERRORS_HELP: &str = "\
Errors and notes go to stderr. With --json each is one JSON object on one line.
`waymaker-ctl schema error` and `waymaker-ctl schema note` print their schemas.";

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
    use std::io;
    use std::sync::Arc;

    use waymaker_client::{CancelReason, Contention, DecodeError, LossReason, ServerAddress, TlsError};
    use waymaker_protocol::{ErrorAnswer, ErrorDetail};

    use super::*;

    /// Returns the error of a client to which the server sends this code.
    fn sent(code: ErrorCode) -> Error {
        let detail = match code {
            ErrorCode::Busy | ErrorCode::Timeout | ErrorCode::NotOwner => {
                ErrorDetail::Contention(waymaker_protocol::Contention::default())
            }
            _ => ErrorDetail::Text { value: 0, field: b"", message: b"" },
        };
        ErrorAnswer { code, detail }.into()
    }

    #[test]
    fn every_error_has_its_exit() {
        let refused = |code| {
            let (field, message) = (String::new(), String::new());
            Error::Unavailable(Unavailable::Refused { code, field, message, limit: None, retry_after: None })
        };
        let source = Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused));
        let address = "127.0.0.1:7420".to_owned();
        let (what, place, problem) = ("CA", "ca.pem".to_owned(), "no such file".to_owned());
        for (error, exit) in [
            (Error::Busy(Contention::default()), Exit::Busy),
            (Error::Timeout(Contention::default()), Exit::Busy),
            (Error::Cancelled { reason: CancelReason::Forced, message: String::new() }, Exit::Refused),
            (Error::NotOwner(Contention::default()), Exit::Refused),
            (Error::Throttled { retry_after: None, bucket: None }, Exit::Throttled),
            (Error::Frozen { message: String::new() }, Exit::Refused),
            (Error::CapacityMismatch { capacity: 2 }, Exit::Refused),
            (sent(ErrorCode::BadInput), Exit::Refused),
            (Error::Lost(LossReason::Expired), Exit::Lost),
            (Unavailable::Unreachable { address, hint: "", source }.into(), Exit::Unreachable),
            (Unavailable::Disconnected { reason: String::new() }.into(), Exit::Unreachable),
            (refused(ErrorCode::Shutdown), Exit::Unreachable),
            (refused(ErrorCode::Recovering), Exit::Refused),
            (refused(ErrorCode::NoSpace), Exit::Refused),
            (refused(ErrorCode::QuorumUnavailable), Exit::Refused),
            (refused(ErrorCode::Overloaded), Exit::Refused),
            (sent(ErrorCode::Unknown), Exit::Unreachable),
            ("http://".parse::<ServerAddress>().unwrap_err().into(), Exit::Usage),
            (TlsError::Unreadable { what, place, problem }.into(), Exit::Usage),
            (DecodeError::BadValue { field: "state", value: 9 }.into(), Exit::Unreachable),
            (Error::Closed, Exit::Internal),
        ] {
            assert_eq!(Exit::from(&error), exit, "{error:?}");
        }
    }

    #[test]
    fn the_reference_of_errors_has_the_exit_code_of_every_error() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/errors.md");
        let document = std::fs::read_to_string(path).expect("the document");
        let rows: Vec<Vec<_>> =
            document.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        let title = rows.iter().find(|row| row.get(1) == Some(&"Code")).expect("the table");
        let column = title.iter().position(|cell| *cell == "Exit code of waymaker-ctl").expect("the column");
        for code in ErrorCode::ALL {
            let first = format!("[`{0}`](#{0})", code.name());
            let row = rows.iter().find(|row| row.get(1) == Some(&&*first)).expect("a row of this code");
            assert_eq!(row[column], Exit::from(&sent(*code)).code().to_string(), "{code}");
        }
    }

    #[test]
    fn the_table_has_every_code_of_waymaker_ctl() {
        use Exit::*;
        for exit in [
            Success,
            Damaged,
            Absent,
            Throttled,
            Busy,
            Lost,
            Unreachable,
            Refused,
            Usage,
            Internal,
            NotExecutable,
            NotFound,
        ] {
            let code = exit.code().to_string();
            assert!(TABLE.iter().any(|row| row.code == code), "{exit:?}");
        }
        assert_eq!(Signal(9).code(), 137);
    }
}
