//! Errors of the client, as one closed type.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol::message::throttle::RETRY_NEVER_NS;
use waymaker_protocol::{CancelReason, DecodeError, ErrorAnswer, ErrorCode, ErrorDetail, Readable};

use crate::allowance::Allowance;
use crate::contention::Contention;
use crate::loss::LossReason;
use crate::tls::{Tls, TlsError};
use crate::uncertain::Uncertain;
use crate::url::UrlError;

/// Result of a call of this client.
pub type Result<T> = std::result::Result<T, Error>;

/// Reason for which a call failed. The set is closed, so that a `match` can be complete. Clones are cheap, since one
/// broken connection fails many calls.
///
/// | Errors | Meaning |
/// |---|---|
/// | [`Busy`](Error::Busy), [`Timeout`](Error::Timeout), [`NotOwner`](Error::NotOwner) | another claim is in front; the error describes it |
/// | [`Throttled`](Error::Throttled), [`Frozen`](Error::Frozen), [`Unavailable`](Error::Unavailable) | nothing was done; a later attempt usually helps |
/// | [`Cancelled`](Error::Cancelled), [`Lost`](Error::Lost) | the claim or the lock was ended |
/// | [`Uncertain`](Error::Uncertain) | the request may have taken effect: [`Uncertain::resolve`] tries to find out |
/// | [`CapacityMismatch`](Error::CapacityMismatch), [`Refused`](Error::Refused) | the same request usually fails again |
/// | the others | the client, its settings, or the server's protocol is at fault |
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A holder or a waiter is in front: a try was not granted, the key of a registration has another owner, or a pool
    /// that is to be removed is in use.
    #[error("busy: {0}")]
    Busy(Contention),
    /// The wait ended before the grant.
    #[error("timeout: {0}")]
    Timeout(Contention),
    /// The claim ended while it waited: an operator or a client ended it, a newer acquire with the same request id
    /// replaced it, or the server ended it with its connection.
    #[error("cancelled: {}", cancelled(.message))]
    Cancelled {
        /// Why the claim ended.
        reason: CancelReason,
        /// Message for people; may be empty.
        message: String,
    },
    /// The registration belongs to another owner.
    #[error("not_owner: {0}")]
    NotOwner(Contention),
    /// A rate limit refused the request.
    #[error("throttled: {}", throttling(.retry_after))]
    Throttled {
        /// Time until another attempt can succeed. `None` if waiting cannot help, because the request needs more
        /// tokens than the bucket can ever hold.
        retry_after: Option<Duration>,
        /// Fill level of the bucket, or of the tightest of several; `None` if the server did not report it.
        bucket: Option<Allowance>,
    },
    /// An operator has stopped new grants of this key.
    #[error("frozen: {}", frozen(.message))]
    Frozen {
        /// Message for people; may be empty.
        message: String,
    },
    /// The pool has another capacity than the request.
    #[error("capacity_mismatch: the pool has {capacity} permits; request this capacity, or resize the pool")]
    CapacityMismatch {
        /// Number of permits of the pool.
        capacity: u64,
    },
    /// The server refused the request for a reason that has no variant of its own, or the client rejected the request
    /// because the server would refuse it.
    #[error("{}", refusal(*.code, .field, .message))]
    Refused {
        /// Code of the refusal.
        code: ErrorCode,
        /// Field or limit that the refusal concerns; may be empty.
        field: String,
        /// Message for people; may be empty.
        message: String,
        /// Limit that was violated, or another number that explains the code; 0 if there is none.
        value: u64,
    },
    /// The lock was lost; an acquire returns this if the hold was lost before a guard could be made of it. Work done
    /// under the lock since the loss was unprotected.
    #[error("the lock was lost: {0}")]
    Lost(LossReason),
    /// The server cannot serve the request now, and has not served it. An unsent release is the only request that the
    /// client may still send later; see [`Lock::release`](crate::Lock::release).
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// No response arrived in time, or the server failed while it served the request. The request may have taken
    /// effect; [`Uncertain::resolve`] tries to find out.
    #[error("disconnected: {0}")]
    Uncertain(Uncertain),
    /// The address of the server is malformed.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The TLS settings cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// The server sent bytes that are not valid in the protocol.
    #[error("the server sent bytes that are not valid in this protocol: {0}")]
    Protocol(#[from] DecodeError),
    /// The client was closed, or its runtime has shut down. A request that was already sent may have taken effect.
    #[error("the client is closed")]
    Closed,
}

/// Reason for which the server cannot serve a request now, in [`Error::Unavailable`]. A later attempt may succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unavailable {
    /// The server could not be reached.
    #[error("cannot reach {address}: {source}{}", hint_clause(.hint))]
    Unreachable {
        /// Address that the client tried, or `the clock` if the system has no timer left for the client.
        address: String,
        /// Advice for this error; may be empty.
        hint: &'static str,
        /// Error of the operating system or of TLS, a timeout, or a note that the server speaks another protocol.
        source: Arc<io::Error>,
    },
    /// There was no connection in time, so the request was not sent.
    #[error("disconnected: {reason}; the request was not sent")]
    Disconnected {
        /// Why there is no connection.
        reason: String,
    },
    /// The server refused the request: it is stopping or recovering, has no space on its disk, cannot reach its
    /// cluster, or a limit is reached. The client itself refuses with `overloaded` if too many of its requests already
    /// wait for the connection.
    #[error("{}", refusal(*.code, .field, .message))]
    Refused {
        /// Code of the refusal: `shutdown`, `recovering`, `no_space`, `quorum_unavailable` or `overloaded`.
        code: ErrorCode,
        /// Limit or field that the refusal concerns; may be empty.
        field: String,
        /// Message for people; may be empty.
        message: String,
        /// Limit that is reached, if the code is `overloaded` and the server names the limit as a number. `None` for
        /// the field `credentials`, whose number is a time (`retry_after`).
        limit: Option<u64>,
        /// Time until another attempt can succeed, if the server reports it. A server reports it with the code
        /// `recovering`, and if it refuses `credentials` because too many logins from this address failed.
        retry_after: Option<Duration>,
    },
}

impl Error {
    /// Returns the code of a refusal, and `unknown` for [`Error::Uncertain`]; `None` for other errors.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Busy(_) => Some(ErrorCode::Busy),
            Self::Timeout(_) => Some(ErrorCode::Timeout),
            Self::NotOwner(_) => Some(ErrorCode::NotOwner),
            Self::Throttled { .. } => Some(ErrorCode::Throttled),
            Self::Frozen { .. } => Some(ErrorCode::Frozen),
            Self::CapacityMismatch { .. } => Some(ErrorCode::CapacityMismatch),
            Self::Refused { code, .. } | Self::Unavailable(Unavailable::Refused { code, .. }) => Some(*code),
            Self::Cancelled { .. } => Some(ErrorCode::Cancelled),
            Self::Uncertain(_) => Some(ErrorCode::Unknown),
            Self::Lost(_) | Self::Unavailable(_) | Self::Url(_) | Self::Tls(_) | Self::Protocol(_) => None,
            Self::Closed => None,
        }
    }

    /// Returns the time until another attempt can succeed, if the server reported it.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after, .. } => *retry_after,
            Self::Unavailable(Unavailable::Refused { retry_after, .. }) => *retry_after,
            _ => None,
        }
    }

    /// Returns the claim in front for [`Error::Busy`], [`Error::Timeout`] and [`Error::NotOwner`]; `None` for other
    /// errors.
    pub fn contention(&self) -> Option<&Contention> {
        match self {
            Self::Busy(contention) | Self::Timeout(contention) | Self::NotOwner(contention) => {
                Some(contention)
            }
            _ => None,
        }
    }

    /// Returns the error for a refusal, by the server or by the client itself.
    pub(crate) fn refused(code: ErrorCode, field: &str, value: u64, message: impl Into<String>) -> Self {
        let (field, message) = (field.to_owned(), message.into());
        match code {
            // `cancelled` without a field means that a waiting claim ended, or that another acquire took up the hold.
            // With a field, the code concerns a HELLO or a repeated watch, so it stays an [`Error::Refused`].
            ErrorCode::Cancelled if field.is_empty() => {
                Self::Cancelled { reason: CancelReason::from_number(value), message }
            }
            ErrorCode::Shutdown
            | ErrorCode::Recovering
            | ErrorCode::NoSpace
            | ErrorCode::QuorumUnavailable
            | ErrorCode::Overloaded => {
                // `overloaded` with the field `credentials` means that too many logins from this address failed. The
                // server checks credentials again after `value` milliseconds.
                let is_pause = code == ErrorCode::Overloaded && field == "credentials";
                let limit = (code == ErrorCode::Overloaded && value > 0 && !is_pause).then_some(value);
                let is_time = code == ErrorCode::Recovering || is_pause;
                let retry_after = is_time.then(|| Duration::from_millis(value));
                Unavailable::Refused { code, field, message, limit, retry_after }.into()
            }
            // `unknown` means that the storage of the server failed, or that the server no longer has the response. So
            // no later response reports the outcome.
            ErrorCode::Unknown => Self::Uncertain(Uncertain::new(refusal(code, &field, &message)).0),
            _ => Self::Refused { code, field, message, value },
        }
    }

    pub(crate) fn disconnected(reason: impl Into<String>) -> Self {
        Unavailable::Disconnected { reason: reason.into() }.into()
    }

    pub(crate) fn connect(address: String, source: io::Error) -> Self {
        let hint = match source.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                "is the server running there? `waymaker-server` starts it"
            }
            io::ErrorKind::TimedOut => "a firewall may drop the packets, or the server may be stalled",
            io::ErrorKind::PermissionDenied => "the socket belongs to another user",
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                "a program listens there but closed the connection; 7420 is the default port of the binary protocol, and \
                 the address of a server with TLS begins with waymaker+tls://"
            }
            _ => Tls::hint(&source),
        };
        Unavailable::Unreachable { address, hint, source: Arc::new(source) }.into()
    }

    /// Returns the error for a system that has no timer for this client.
    pub(crate) fn no_timer(source: io::Error) -> Self {
        Unavailable::Unreachable { address: "the clock".to_owned(), hint: "", source: Arc::new(source) }
            .into()
    }
}

impl From<ErrorAnswer<'_>> for Error {
    fn from(answer: ErrorAnswer<'_>) -> Self {
        match (answer.code, answer.detail) {
            (ErrorCode::Timeout, ErrorDetail::Contention(contention)) => Self::Timeout(contention.into()),
            (ErrorCode::NotOwner, ErrorDetail::Contention(contention)) => Self::NotOwner(contention.into()),
            (_, ErrorDetail::Contention(contention)) => Self::Busy(contention.into()),
            (ErrorCode::Throttled, ErrorDetail::Text { value, .. }) => {
                Self::Throttled { retry_after: retry_after(value), bucket: None }
            }
            (ErrorCode::Frozen, ErrorDetail::Text { message, .. }) => {
                Self::Frozen { message: Readable(message).to_string() }
            }
            (ErrorCode::CapacityMismatch, ErrorDetail::Text { value, .. }) => {
                Self::CapacityMismatch { capacity: value }
            }
            (code, ErrorDetail::Text { value, field, message }) => {
                Self::refused(code, &Readable(field).to_string(), value, Readable(message).to_string())
            }
        }
    }
}

/// Converts the nanoseconds until the next attempt; `None` for the largest number, which means never.
pub(crate) fn retry_after(nanos: u64) -> Option<Duration> {
    (nanos != RETRY_NEVER_NS).then(|| Duration::from_nanos(nanos))
}

fn throttling(retry_after: &Option<Duration>) -> String {
    match retry_after {
        Some(retry_after) => format!("retry in {retry_after:?}"),
        None => "the request needs more tokens than the bucket can ever hold".to_owned(),
    }
}

fn cancelled(message: &str) -> &str {
    if message.is_empty() { "the claim ended while it waited" } else { message }
}

fn frozen(message: &str) -> &str {
    if message.is_empty() {
        "an operator froze a prefix of this key; grants resume when it is thawed"
    } else {
        message
    }
}

fn refusal(code: ErrorCode, field: &str, message: &str) -> String {
    // The message of a decode error already begins with the name of its field, so do not print the field twice.
    match (field, message) {
        ("", "") => code.to_string(),
        ("", message) => format!("{code}: {message}"),
        (field, "") => format!("{code}: {field}"),
        (field, message) if message.starts_with(field) => format!("{code}: {message}"),
        (field, message) => format!("{code}: {field}: {message}"),
    }
}

fn hint_clause(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!(" ({hint})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_says_how_to_start_the_server() {
        let error = Error::connect("127.0.0.1:7420".to_owned(), io::ErrorKind::ConnectionRefused.into());
        assert_eq!(
            error.to_string(),
            "cannot reach 127.0.0.1:7420: connection refused \
             (is the server running there? `waymaker-server` starts it)"
        );
    }

    #[test]
    fn refusals_explain_their_number_in_words() {
        let text = |code, value| {
            let detail = ErrorDetail::Text { value, field: b"", message: b"" };
            Error::from(ErrorAnswer { code, detail }).to_string()
        };
        assert_eq!(text(ErrorCode::Throttled, 1_500_000), "throttled: retry in 1.5ms");
        assert_eq!(
            text(ErrorCode::Throttled, u64::MAX),
            "throttled: the request needs more tokens than the bucket can ever hold"
        );
        assert_eq!(
            text(ErrorCode::CapacityMismatch, 5),
            "capacity_mismatch: the pool has 5 permits; request this capacity, or resize the pool"
        );
        assert_eq!(
            text(ErrorCode::Frozen, 0),
            "frozen: an operator froze a prefix of this key; grants resume when it is thawed"
        );
    }

    #[test]
    fn a_cancelled_claim_says_why_it_ended() {
        let told = |message| {
            let detail = ErrorDetail::Text { value: CancelReason::Forced.number(), field: b"", message };
            let error = Error::from(ErrorAnswer { code: ErrorCode::Cancelled, detail });
            assert!(matches!(error, Error::Cancelled { reason: CancelReason::Forced, .. }), "{error:?}");
            error.to_string()
        };
        assert_eq!(
            told(b"an operator ended it while it waited"),
            "cancelled: an operator ended it while it waited"
        );
        assert_eq!(told(b""), "cancelled: the claim ended while it waited");
    }

    /// A server that refuses to resume a lane, because a later attempt has resumed it, also uses the code `cancelled`.
    /// The number in its response is then that of the later attempt, not a cancel reason.
    #[test]
    fn a_cancelled_connection_attempt_is_not_reported_as_a_cancelled_claim() {
        let message = b"a later attempt has taken up this lane";
        let detail = ErrorDetail::Text { value: 1, field: b"attempt", message };
        let error = Error::from(ErrorAnswer { code: ErrorCode::Cancelled, detail });
        assert_eq!(error.code(), Some(ErrorCode::Cancelled));
        assert_eq!(error.to_string(), "cancelled: attempt: a later attempt has taken up this lane");
    }

    #[test]
    fn a_server_message_is_not_escaped_twice() {
        let message = b"key \\xff\"\x1b[2J is frozen \xc3\xbc";
        let detail = ErrorDetail::Text { value: 0, field: b"", message };
        let error = Error::from(ErrorAnswer { code: ErrorCode::Frozen, detail });
        assert_eq!(error.to_string(), "frozen: key \\xff\"\\x1b[2J is frozen ü");
    }

    #[test]
    fn an_unavailable_error_has_the_retry_delay_or_the_exceeded_limit() {
        let told_of = |code, field: &str, value| {
            let detail = ErrorDetail::Text { value, field: field.as_bytes(), message: b"" };
            let error = Error::from(ErrorAnswer { code, detail });
            let Error::Unavailable(Unavailable::Refused { limit, .. }) = &error else { panic!("{error}") };
            (*limit, error.retry_after())
        };
        let told = |code, value| told_of(code, "", value);
        assert_eq!(told(ErrorCode::Recovering, 2_500), (None, Some(Duration::from_millis(2_500))));
        assert_eq!(told(ErrorCode::Overloaded, 64), (Some(64), None));
        assert_eq!(told(ErrorCode::Overloaded, 0), (None, None));
        let paused = told_of(ErrorCode::Overloaded, "credentials", 900);
        assert_eq!(paused, (None, Some(Duration::from_millis(900))));
        assert_eq!(told(ErrorCode::Shutdown, 0), (None, None));
    }

    #[test]
    fn a_refusal_names_its_field_once() {
        let text = |field, message| Error::refused(ErrorCode::BadInput, field, 0, message).to_string();
        assert_eq!(text("key", "key: must not be empty"), "bad_input: key: must not be empty");
        assert_eq!(text("key", "too long"), "bad_input: key: too long");
        assert_eq!(text("", ""), "bad_input");
    }
}
