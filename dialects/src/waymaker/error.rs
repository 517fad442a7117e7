//! What can go wrong, in the words of the contract.

use tonic::{Code, Status};

/// Why a call failed. Those with a text are the `result_code`s of the contract, the text is the server's `message`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The wait ended before the grant; a try met somebody.
    #[error("timeout: {0}")]
    Timeout(String),
    /// A field is not as it must be. A stream says the same of a fence scope that the server does not have.
    #[error("bad_input: {0}")]
    BadInput(String),
    /// The server does not have this fence scope.
    #[error("invalid_scope: {0}")]
    InvalidScope(String),
    /// No lock of this key has this id, or it is over.
    #[error("not_found: {0}")]
    NotFound(String),
    /// It waits still.
    #[error("not_held: {0}")]
    NotHeld(String),
    /// The batch has no keys.
    #[error("no_keys: {0}")]
    NoKeys(String),
    /// Somebody who knew the id gave it up while it waited.
    #[error("cancelled: {0}")]
    Cancelled(String),
    /// The server stops.
    #[error("shutdown: {0}")]
    Shutdown(String),
    /// The server could not, or said something that the contract does not know.
    #[error("internal: {0}")]
    Internal(String),
    /// Another stream with the same `request_id` replaced this stream.
    #[error("superseded: another stream with the same request_id replaced this stream")]
    Superseded,
    /// The call did not come through, or the answer did not. The call may have taken effect.
    #[error("transport: {0}")]
    Transport(#[from] Status),
}

impl Error {
    /// From a `result_code`, or from the word that the message of an event begins with.
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

    /// From the message of an event.
    pub(super) fn of_event(message: &str) -> Self {
        let (code, detail) = message.split_once(':').unwrap_or((message, ""));
        Self::of(code, detail.trim_start())
    }

    /// Asking again may help: the connection broke, or the server is not there for a while.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Shutdown(_) | Self::Internal(_) => true,
            // What breaks a connection has one of these, depending on where it is noticed.
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
