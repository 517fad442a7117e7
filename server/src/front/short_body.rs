//! HTTP request bodies that are limited in length and time.

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use http_body_util::LengthLimitError;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum length of a body in bytes.
pub(super) const BODY_LEN_MAX: usize = 16 << 10;
/// Time limit for the arrival of a body.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Reason why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBody {
    /// The body is longer than [`BODY_LEN_MAX`].
    TooLong,
    /// The body did not arrive in time.
    Late,
    /// The connection ended, or the client violated HTTP.
    Broken,
}

/// Reads a body.
pub(super) async fn read(body: Body) -> Result<Bytes, NoBody> {
    // Check the announced length before the first read. A client with `Expect: 100-continue` then does not send a body
    // that is too long.
    if body.size_hint().lower() > BODY_LEN_MAX as u64 {
        return Err(NoBody::TooLong);
    }
    let read = timeout(BODY_TIME, to_bytes(body, BODY_LEN_MAX)).await.map_err(|_| NoBody::Late)?;
    read.map_err(
        |error| if error.into_inner().is::<LengthLimitError>() { NoBody::TooLong } else { NoBody::Broken },
    )
}
