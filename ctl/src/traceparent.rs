//! The trace of the caller: the environment variable TRACEPARENT, as other tools pass it.

use std::env::VarError;
use std::sync::LazyLock;

use waymaker_client::{AcquireBuilder, TraceParent};

use crate::output::note;

const NAME: &str = "TRACEPARENT";

/// Read once, so that a note about it is printed once.
static OF_ENVIRONMENT: LazyLock<Option<TraceParent>> = LazyLock::new(|| match std::env::var(NAME) {
    Ok(text) => read(&text).unwrap_or_else(|reason| {
        note(&reason);
        None
    }),
    Err(VarError::NotPresent) => None,
    Err(VarError::NotUnicode(_)) => {
        note(&format!("{NAME} is ignored: it is not UTF-8"));
        None
    }
});

/// Passes the trace of the caller on with an acquire. An invalid variable is ignored with a note: a trace is not worth a failed lock.
pub(crate) fn apply<G>(acquire: AcquireBuilder<G>) -> AcquireBuilder<G> {
    match *OF_ENVIRONMENT {
        Some(traceparent) => acquire.traceparent(traceparent),
        None => acquire,
    }
}

/// Returns the trace context of a variable, or why it is ignored. An empty variable is none.
fn read(text: &str) -> Result<Option<TraceParent>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| format!("{NAME} is ignored: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_variable_is_ignored_and_an_empty_one_is_none() {
        const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(""), Ok(None));
        assert_eq!(read(VALID), Ok(VALID.parse().ok()));
        let reason = read("00-1-2-3").unwrap_err();
        assert!(reason.starts_with("TRACEPARENT is ignored: a trace context has the form 00-"), "{reason}");
    }
}
