//! Failures, for people and for programs.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{Contention, Error, ErrorCode, Unavailable};

use crate::exit::Exit;
use crate::text;

/// A failure of this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Name of the server's error, or a name of waymaker-ctl if the failure is not an error of the server.
    pub(crate) code: &'static str,
    /// Sentence for people.
    pub(crate) message: String,
    /// Owner of the hold that is in the way, if its client gave one.
    pub(crate) holder: Option<Vec<u8>>,
    /// Time after which another attempt can succeed, if it is known.
    pub(crate) retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), holder: None, retry_after: None }
    }

    /// Returns the same problem with a name or a sentence in front of the message.
    pub(crate) fn about(mut self, subject: &[u8]) -> Self {
        self.message = format!("{}: {}", text::printable(subject), self.message);
        self
    }
}

/// An error on stderr.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Error")]
pub(crate) struct ErrorObject {
    /// Name of the server's error, such as busy, timeout, frozen or bad_input, or one of absent, command_not_executable,
    /// command_not_found, damaged, internal, lost, unreachable, usage and wrong_protocol.
    code: &'static str,
    /// Message for people.
    message: String,
    /// Exit code of waymaker-ctl.
    exit_code: u8,
    /// Owner of the hold that is in the way. Present only if the owner is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    /// Hexadecimal digits of the holder. Present only if the holder is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder_hex: Option<String>,
    /// Time in milliseconds after which another attempt can succeed. Present only if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl ErrorObject {
    pub(crate) fn new(problem: &Problem, exit: Exit) -> Self {
        let holder = problem.holder.as_deref().map(text::json);
        let (holder, holder_hex) = holder.map_or((None, None), |(text, hex)| (Some(text), hex));
        // Rounded up: an attempt that is a fraction of a millisecond too early fails again.
        let milliseconds =
            |time: Duration| u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Self {
            code: problem.code,
            message: problem.message.clone(),
            exit_code: exit.code(),
            holder,
            holder_hex,
            retry_after_ms: problem.retry_after.map(milliseconds),
        }
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let code = match error {
            Error::Unavailable(Unavailable::Unreachable { .. } | Unavailable::Disconnected { .. }) => {
                "unreachable"
            }
            Error::Lost(_) => "lost",
            Error::Protocol(_) => "wrong_protocol",
            Error::Url(_) | Error::Tls(_) => "usage",
            error => error.code().map_or("internal", ErrorCode::name),
        };
        let mut problem = Self::new(code, error.to_string());
        if let Error::Refused { code: ErrorCode::Unauthorized, field, message, .. } = error
            && field == "credentials"
        {
            problem.message = unauthorized(message);
        }
        if let Some(contention) = error.contention() {
            problem.message = format!("{code}: {}", sentence(contention));
            if contention.held && !contention.owner.is_empty() {
                problem.holder = Some(contention.owner.clone());
            }
        }
        problem.retry_after = error.retry_after();
        if let (Error::Throttled { .. }, Some(retry_after)) = (error, problem.retry_after) {
            problem.message = format!("throttled: try again in {}", text::pause(retry_after));
        }
        problem
    }
}

/// Describes the refusal of a client.
fn unauthorized(message: &str) -> String {
    let reason = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!(
        "the server refused the credentials{reason}; pass a valid token with --token-file FILE or WAYMAKER_TOKEN"
    )
}

/// Describes the holder or the waiter that is in the way.
fn sentence(contention: &Contention) -> String {
    let Contention { held, shared, age, remaining, waiter_count, owner } = contention;
    let verb = match (held, shared) {
        (true, false) => "held",
        (true, true) => "held for reading",
        (false, _) => "requested earlier",
    };
    let owner = match owner.as_slice() {
        b"" => "a client without a name".to_owned(),
        owner => format!("\"{}\"", text::printable(owner)),
    };
    let mut sentence = format!("{verb} by {owner} for {}", text::time(Some(*age)));
    if let (true, Some(remaining)) = (held, remaining) {
        match remaining.is_zero() {
            true => sentence.push_str(", lease expired"),
            false => sentence
                .push_str(&format!(", lease expires in {} unless renewed", text::time(Some(*remaining)))),
        }
    }
    if *waiter_count > 0 {
        sentence.push_str(&format!(", {waiter_count} waiting"));
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(owner: &[u8]) -> Problem {
        let contention = Contention {
            held: true,
            age: Duration::from_millis(1_250),
            remaining: Some(Duration::from_secs(3)),
            waiter_count: 2,
            owner: owner.to_vec(),
            ..Contention::default()
        };
        Problem::from(&Error::Busy(contention)).about("schlüssel".as_bytes())
    }

    #[test]
    fn a_busy_error_names_the_holder() {
        let problem = busy("größe \\".as_bytes());
        assert_eq!(
            problem.message,
            "schlüssel: busy: held by \"größe \\\" for 1.2s, lease expires in 3.0s unless renewed, 2 waiting"
        );
        assert_eq!(problem.holder.as_deref(), Some("größe \\".as_bytes()));
        assert!(busy(b"a\x1b[2J").message.contains(r#""a\x1b[2J""#));
        assert_eq!(busy(b"").holder, None);
    }

    #[test]
    fn refused_credentials_name_the_options_of_a_token() {
        let refused = |field: &str, message: &str| {
            let (code, field, message) = (ErrorCode::Unauthorized, field.to_owned(), message.to_owned());
            Problem::from(&Error::Refused { code, field, message, value: 0 })
        };
        let problem = refused("credentials", "the token is unknown");
        assert_eq!(
            problem.message,
            "the server refused the credentials: the token is unknown; \
             pass a valid token with --token-file FILE or WAYMAKER_TOKEN"
        );
        assert_eq!(problem.code, "unauthorized");
        // A client that may do other things needs other rights, not another token.
        assert_eq!(refused("key", "").message, "unauthorized: key");
    }

    #[test]
    fn an_expired_lease_is_not_called_running() {
        let contention = Contention { held: true, remaining: Some(Duration::ZERO), ..Contention::default() };
        let problem = Problem::from(&Error::Busy(contention));
        assert_eq!(problem.message, "busy: held by a client without a name for 0.0s, lease expired");
    }

    #[test]
    fn a_waiter_is_not_named_as_the_holder() {
        let contention = Contention { owner: b"a".to_vec(), ..Contention::default() };
        assert_eq!(Problem::from(&Error::Timeout(contention)).holder, None);
    }

    #[test]
    fn retry_after_is_rounded_up() {
        let retry_after = Some(Duration::from_nanos(1_000_001));
        let problem = Problem::from(&Error::Throttled { retry_after, bucket: None });
        let object = ErrorObject::new(&problem, Exit::Throttled);
        assert_eq!(object.retry_after_ms, Some(2));
        assert_eq!(object.message, "throttled: try again in 2ms");
        let never = Problem::from(&Error::Throttled { retry_after: None, bucket: None });
        assert_eq!(never.retry_after, None);
    }
}
