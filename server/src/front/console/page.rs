//! Files of the console, the server's web page for operators. They are compiled into the server, and the page loads
//! nothing from other servers.

use axum::Router;
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Content security policy: only scripts of this server run, and no page may embed this one in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

macro_rules! file {
    ($name:literal, $media_type:expr) => {
        (concat!("/console/", $name), $media_type, include_str!(concat!("page/", $name)))
    };
}

/// Path, media type and text of each file.
const FILES: &[(&str, &str, &str)] = &[
    ("/console", HTML, include_str!("page/console.html")),
    file!("console.css", CSS),
    file!("api.js", JAVASCRIPT),
    file!("charts.js", JAVASCRIPT),
    file!("console.js", JAVASCRIPT),
    file!("contention.js", JAVASCRIPT),
    file!("diagnosis.js", JAVASCRIPT),
    file!("dialogs.js", JAVASCRIPT),
    file!("dom.js", JAVASCRIPT),
    file!("format.js", JAVASCRIPT),
    file!("history.js", JAVASCRIPT),
    file!("key.js", JAVASCRIPT),
    file!("locks.js", JAVASCRIPT),
    file!("namespaces.js", JAVASCRIPT),
    file!("overview.js", JAVASCRIPT),
    file!("theme.js", JAVASCRIPT),
];

/// Returns the routes of the page.
pub(super) fn routes() -> Router {
    FILES.iter().fold(
        Router::new().route("/console/", get(Redirect::permanent("/console"))),
        |router, file| {
            let &(path, media_type, text) = file;
            router.route(path, get(move || async move { show(media_type, text) }))
        },
    )
}

fn show(media_type: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, media_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        // Let browsers ask for a newer version at each use, because a newer server has newer files.
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, text)
}
