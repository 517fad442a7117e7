//! What pages of other sites may ask: everything a simple request can. The rules of the original.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap,
    HeaderValue, ORIGIN,
};
use http::{Method, StatusCode};

/// Headers that any request may have.
const SIMPLE_HEADERS: [&str; 4] = ["Accept", "Accept-Language", "Content-Language", "Origin"];

/// Answers what a browser asks beforehand, and lets pages of any site read the other answers.
pub(super) async fn apply(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let has_origin = headers.get(ORIGIN).is_some_and(|origin| !origin.is_empty());
    let mut response = if request.method() != Method::OPTIONS {
        next.run(request).await
    } else if has_origin {
        match judge_preflight(headers) {
            StatusCode::OK => StatusCode::OK.into_response(),
            refused => return refused.into_response(),
        }
    } else {
        StatusCode::OK.into_response()
    };
    if has_origin {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    response
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
