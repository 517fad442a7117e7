//! CORS rules for pages of other origins that may use the server: they may send simple requests only, as with the
//! original server.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN,
};
use http::{Method, StatusCode};

/// Headers that every cross-origin request may have.
const SIMPLE_HEADERS: [&str; 4] = ["Accept", "Accept-Language", "Content-Language", "Origin"];

/// Answers every `OPTIONS` request as a CORS preflight, with status 200 if it names no origin. Passes other requests
/// on.
pub(super) async fn apply(request: Request, next: Next) -> Response {
    if request.method() != Method::OPTIONS {
        return next.run(request).await;
    }
    let has_origin = request.headers().get(ORIGIN).is_some_and(|origin| !origin.is_empty());
    let status = if has_origin { judge_preflight(request.headers()) } else { StatusCode::OK };
    status.into_response()
}

fn judge_preflight(headers: &HeaderMap) -> StatusCode {
    let Some(method) = headers.get(ACCESS_CONTROL_REQUEST_METHOD) else { return StatusCode::BAD_REQUEST };
    if !["GET", "HEAD", "POST"].iter().any(|simple| method == simple) {
        return StatusCode::METHOD_NOT_ALLOWED;
    }
    let wanted = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).map_or(&b""[..], HeaderValue::as_bytes);
    let is_simple = |name: &[u8]| {
        let name = name.trim_ascii();
        name.is_empty() || SIMPLE_HEADERS.iter().any(|simple| name.eq_ignore_ascii_case(simple.as_bytes()))
    };
    if wanted.split(|&byte| byte == b',').all(is_simple) { StatusCode::OK } else { StatusCode::FORBIDDEN }
}
