//! Errors, with the words of the contract.

use tonic::{Code, Status};

/// Reason why a call failed. The variants with a text are the `result_code`s of the contract; the text is the `message` of the
/// server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The wait ended before the grant, or a try found the key held.
    #[error("timeout: {0}")]
    Timeout(String),
    /// A field is not valid. A stream also reports an unavailable fence scope with this error.
    #[error("bad_input: {0}")]
    BadInput(String),
    /// The server does not have this fence scope.
    #[error("invalid_scope: {0}")]
    InvalidScope(String),
    /// No lock of this key has this id, or the lock has ended.
    #[error("not_found: {0}")]
    NotFound(String),
    /// The claim is still waiting.
    #[error("not_held: {0}")]
    NotHeld(String),
    /// The batch has no keys.
    #[error("no_keys: {0}")]
    NoKeys(String),
    /// A client that knew the id removed the claim while it waited.
    #[error("cancelled: {0}")]
    Cancelled(String),
    /// The server is stopping.
    #[error("shutdown: {0}")]
    Shutdown(String),
    /// The server failed, or sent a code that the contract does not define.
    #[error("internal: {0}")]
    Internal(String),
    /// Another stream with the same `request_id` replaced this stream.
    #[error("superseded: another stream with the same request_id replaced this stream")]
    Superseded,
    /// The call failed, or its response was lost. The call may have taken effect.
    #[error("transport: {0}")]
    Transport(#[from] Status),
}

impl Error {
    /// Returns the error for a `result_code`, or for the first word of the message of an event.
    pub(super) fn of(code: &str, message: &str) -> Self {
        let text = message.to_owned();
        match code {
            "timeout" => Self::Timeout(text),
            "bad_input" | "BadInput" => Self::BadInput(text),
            "invalid_scope" => Self::InvalidScope(text),
            "not_found" => Self::NotFound(text),
            "not_held" => Self::NotHeld(text),
            "no_keys" => Self::NoKeys(text),
            "cancelled" => Self::Cancelled(text),
            "shutdown" => Self::Shutdown(text),
            "internal" => Self::Internal(text),
            unknown => Self::Internal(format!("{unknown}: {message}")),
        }
    }

    /// Returns the error for the message of an event.
    pub(super) fn of_event(message: &str) -> Self {
        let (code, detail) = message.split_once(':').unwrap_or((message, ""));
        Self::of(code, detail.trim_start())
    }

    /// Returns whether another attempt may succeed: the connection broke, or the server is unavailable for a while.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Shutdown(_) | Self::Internal(_) => true,
            // A broken connection has one of these codes, depending on the place that detects it.
            Self::Transport(status) => matches!(
                status.code(),
                Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal | Code::DeadlineExceeded
            ),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contract_code_has_its_own_error_and_prints_its_code() {
        for code in [
            "timeout",
            "bad_input",
            "invalid_scope",
            "not_found",
            "not_held",
            "no_keys",
            "cancelled",
            "shutdown",
            "internal",
        ] {
            assert_eq!(Error::of(code, "why").to_string(), format!("{code}: why"));
        }
    }

    #[test]
    fn an_unknown_code_becomes_an_internal_error_that_names_it() {
        assert_eq!(Error::of("novel", "why").to_string(), "internal: novel: why");
    }

    #[test]
    fn an_event_message_starts_with_its_error_code() {
        assert!(
            matches!(Error::of_event("timeout: held by: x"), Error::Timeout(text) if text == "held by: x")
        );
        assert!(matches!(Error::of_event("BadInput: key is empty"), Error::BadInput(_)));
        assert!(matches!(Error::of_event(""), Error::Internal(_)));
    }
}
