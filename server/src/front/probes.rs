//! `/healthz` and `/readyz`: report whether the process responds and whether the server is ready for new claims, as
//! text or JSON.

use crate::driver::Local;
use crate::front::conversion::json_text;
use crate::readiness::Readiness;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, StatusCode, Uri};

const JSON: &str = "application/json";

/// Responds, which shows that the process runs.
pub(super) async fn healthz(uri: Uri, headers: HeaderMap) -> Response {
    if wants_json(&uri, &headers) {
        return ([(CONTENT_TYPE, JSON)], r#"{"status":"ok"}"#).into_response();
    }
    "ok".into_response()
}

/// Reports whether the server is ready for new claims, and every reason why it is not ready or degraded. A degraded
/// server counts as ready.
pub(super) async fn readyz(uri: Uri, headers: HeaderMap) -> Response {
    let readiness = Local::with(|local| Readiness::of(&local.node));
    response(&readiness, wants_json(&uri, &headers))
}

fn response(readiness: &Readiness, is_json: bool) -> Response {
    let status = if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = if is_json {
        (status, [(CONTENT_TYPE, JSON)], json_text(readiness)).into_response()
    } else {
        (status, readiness.to_string()).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    if let Some(remaining_ms) = readiness.remaining_ms() {
        headers.insert(RETRY_AFTER, remaining_ms.div_ceil(1_000).into());
    }
    response
}

/// Returns whether a request wants JSON: by `format` in its query or, without that, by its `Accept` header.
fn wants_json(uri: &Uri, headers: &HeaderMap) -> bool {
    let query = uri.query().unwrap_or_default().as_bytes();
    let format = form_urlencoded::parse(query).find_map(|(name, value)| (name == "format").then_some(value));
    if let Some(format) = format {
        return format == "json";
    }
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = accepted.flat_map(|value| value.split(',')).filter_map(|range| range.split(';').next());
    types.any(|name| name.trim().eq_ignore_ascii_case(JSON))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::Facts;
    use waymaker_engine::{LogState, QuorumState};

    fn is_json(uri: &str, accept: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        wants_json(&uri.parse().unwrap(), &headers)
    }

    #[test]
    fn a_probe_answers_with_json_only_if_it_is_asked_for_it() {
        for (uri, accept, expected) in [
            ("/readyz", &[][..], false),
            ("/readyz?format=json", &[], true),
            ("/readyz?a=b&format=json", &["text/plain"], true),
            ("/readyz?format=text", &["application/json"], false),
            ("/readyz", &["application/json"], true),
            ("/readyz", &["text/html, Application/JSON;q=0.9"], true),
            ("/readyz", &["text/html", "application/json"], true),
            ("/readyz", &["*/*"], false),
            ("/readyz", &["application/jsonp"], false),
        ] {
            assert_eq!(is_json(uri, accept), expected, "{uri} {accept:?}");
        }
    }

    #[test]
    fn only_a_server_that_is_not_ready_answers_503() {
        let healthy = Facts {
            is_stopping: false,
            refused_ms: 0,
            log: LogState::Absent,
            compaction_failure: None,
            full_memory: None,
            quorum: QuorumState::Absent,
        };
        for (facts, status, retry_after) in [
            (healthy.clone(), 200, None),
            (Facts { full_memory: Some(1), ..healthy.clone() }, 200, None),
            (Facts { refused_ms: 1_001, ..healthy.clone() }, 503, Some("2")),
            (Facts { is_stopping: true, ..healthy }, 503, None),
        ] {
            let response = response(&Readiness::from_facts(&facts), false);
            let found = response.headers().get(RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!((response.status().as_u16(), found), (status, retry_after), "{facts:?}");
        }
    }
}
