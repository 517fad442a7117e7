//! Protection of the HTTP ports against web pages. A browser on the same machine or network sends requests on behalf of
//! any page that it shows.
//!
//! Requests of pages of other origins are recognizable: WebSocket handshakes and requests with side effects carry
//! `Origin`, and other requests carry `Sec-Fetch-Site`. A page that rebinds its own DNS name to the address of this
//! server looks like the same origin, but its `Host` header contains that name. `rule` decides from such headers
//! whether the server serves a request; it never refuses health checks. The options `--http-hosts` and `--http-origins`
//! allow further names and origins.

mod authority;
mod options;
mod rule;

pub use options::{AllowedHost, AllowedOrigin, BadHost, BadOrigin, BrowserConfig};
pub(super) use rule::Rule;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::Method;
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue, VARY};
use rule::Refusal;
use std::sync::Arc;

/// Wraps a router in a filter that applies `rule`, so that a refused request reaches none of its routes.
pub(super) fn guard(router: Router, rule: Rule) -> Router {
    router.layer(from_fn_with_state(Arc::new(rule), apply))
}

async fn apply(State(rule): State<Arc<Rule>>, request: Request, next: Next) -> Response {
    let reader = match rule.judge(&request) {
        Ok(reader) => reader,
        Err(refusal) => {
            tracing::debug!(path = request.uri().path(), %refusal, "an HTTP request was refused");
            return refusal.into_response();
        }
    };
    let is_preflight = request.method() == Method::OPTIONS;
    let mut response = next.run(request).await;
    let refuses_preflight = is_preflight && !response.status().is_success();
    if let Some(origin) = reader.filter(|_| !refuses_preflight) {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    if rule.tells_origins_apart() {
        response.headers_mut().append(VARY, HeaderValue::from_static("Origin"));
    }
    response
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status(), format!("{self}\n")).into_response()
    }
}
