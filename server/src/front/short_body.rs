//! Bodies of HTTP requests that are short and have to arrive in time.

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use http_body_util::LengthLimitError;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum length of a body.
pub(super) const BODY_LEN_MAX: usize = 16 << 10;
/// Time in which a body has to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBody {
    /// It is longer than [`BODY_LEN_MAX`].
    TooLong,
    /// It did not arrive in time.
    Late,
    /// The connection ended, or the client broke the rules of HTTP.
    Broken,
}

/// Reads a body.
pub(super) async fn read(body: Body) -> Result<Bytes, NoBody> {
    // Before the body is read, so a client with `Expect: 100-continue` does not send it.
    if body.size_hint().lower() > BODY_LEN_MAX as u64 {
        return Err(NoBody::TooLong);
    }
    let read = timeout(BODY_TIME, to_bytes(body, BODY_LEN_MAX)).await.map_err(|_| NoBody::Late)?;
    read.map_err(
        |error| if error.into_inner().is::<LengthLimitError>() { NoBody::TooLong } else { NoBody::Broken },
    )
}
