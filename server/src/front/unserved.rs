//! Calls that a server which stops does not serve.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use tonic::Status;

/// The mark of a status that no client is to see: nothing was done, and another server, or the next one, may serve the call.
#[derive(Debug)]
struct Unserved;

impl fmt::Display for Unserved {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the server did not process the call")
    }
}

impl Error for Unserved {}

/// Returns the status of a call that was not served and changed nothing. The call ends with its connection, and with
/// REFUSED_STREAM, so that clients make it again by themselves.
pub(super) fn unserved() -> Status {
    let mut status = Status::unavailable("the server is stopping");
    status.set_source(Arc::new(Unserved));
    status
}

/// Whether the status is one of [`unserved`].
pub(super) fn is_unserved(status: &Status) -> bool {
    status.source().is_some_and(<dyn Error>::is::<Unserved>)
}
