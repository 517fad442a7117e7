//! Calls that a stopping server does not serve.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use tonic::Status;

/// Marker in a status that the server does not send to the client. The marked call changed nothing, so another server
/// or the next process may serve it.
#[derive(Debug)]
struct RefusedStream;

impl fmt::Display for RefusedStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the server did not process the call")
    }
}

impl Error for RefusedStream {}

/// Returns the status of a call that was not served and changed nothing. The call ends together with its connection,
/// with REFUSED_STREAM, so that clients retry it automatically.
pub(super) fn refused_stream() -> Status {
    let mut status = Status::unavailable("the server is stopping");
    status.set_source(Arc::new(RefusedStream));
    status
}

/// Returns whether the status was made by [`refused_stream`].
pub(super) fn is_refused_stream(status: &Status) -> bool {
    status.source().is_some_and(<dyn Error>::is::<RefusedStream>)
}
