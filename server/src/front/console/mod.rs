//! Console: a web page for operators on the HTTP port, and the JSON interface that it uses.
//!
//! `page` serves the files of the page. `live` sends the state of the server about once per second. `questions`
//! contains the read requests and `acts` the changes. Both send worker requests through an `operator`, which has the
//! rights of the request's identity. `problem` defines the errors.

mod acts;
mod keys;
mod live;
mod operator;
mod page;
mod parameters;
mod problem;
mod questions;

use super::metrics::Metrics;
use axum::Router;
use axum::routing::{any, get, post};
use live::Live;
use problem::Problem;
use std::sync::Arc;

/// Returns the console's routes for the HTTP port.
pub(super) fn routes(metrics: &Arc<Metrics>) -> Router {
    let api = Router::new()
        .route("/live", get(live::show))
        .with_state(Arc::new(Live::new(Arc::clone(metrics))))
        .route("/namespaces", get(questions::namespaces))
        .route("/locks", get(questions::locks))
        .route("/waiting", get(questions::waiting))
        .route("/lock", get(questions::lock))
        .route("/frozen", get(questions::frozen))
        .route("/force-release", post(acts::force_release))
        .route("/freeze", post(acts::freeze))
        .route("/resize", post(acts::resize));
    let routes = Router::new().merge(page::routes()).nest("/console/api", api);
    routes.route("/console/{*path}", any(unknown)).method_not_allowed_fallback(wrong_method)
}

async fn unknown() -> Problem {
    Problem::not_found("the console has no such path".to_owned())
}

async fn wrong_method() -> Problem {
    Problem::wrong_method()
}
