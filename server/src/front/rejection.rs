//! Rejection of calls that exceed a limit.

use crate::driver::Local;
use tonic::Status;

/// Returns the status of a call that this limit rejects, and counts the rejection.
#[cold]
pub(super) fn reject(limit: &'static str, message: String) -> Status {
    Local::note_rejected(limit);
    Status::resource_exhausted(message)
}
