//! DynamoDB protocol as far as locks need it: Clever's `lock` and similar clients work unchanged.
//! `docs/reference/compatibility.md` lists the similarities and the differences.
//!
//! A table is the namespace `lazy/clever/TABLE`, and a row is a registration in it. Waymaker's own clients can use the
//! same namespaces, and then see the same locks.
//!
//! ```text
//!   body -> request (members, expression, meaning) -> lock, table -> Space -> Worker
//!   body <- answer  (row, problem)                 <-             <- Reply <-
//! ```
//!
//! Decoding a request and encoding an answer need no I/O. `lock` and `table` send requests to the worker, through a
//! `Space`.

mod answer;
mod attribute;
mod expression;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod instant;
mod lock;
mod meaning;
mod members;
mod problem;
mod request;
mod row;
mod space;
mod table;
mod tables;
mod write;

pub(super) use table::ServerTables;

use crate::access::NotSigned;
use crate::front::FrontCaller;
use crate::front::http::Connection;
use crate::front::probes::{healthz, readyz};
use crate::front::short_body::{self, BODY_LEN_MAX, NoBody};
use crate::front::trace_context;
use answer::answer;
use axum::body::{Body, Bytes};
use axum::extract::Request as HttpRequest;
use axum::response::Response;
use axum::routing::{any, post};
use axum::{Extension, Router};
use http::request::Parts;
use problem::{Kind, Problem};
use request::Request;
use waymaker_access::{SignatureRefusal, SignedRequest};
use waymaker_protocol::TraceParent;

const TARGET: &str = "x-amz-target";

/// Returns the routes of the DynamoDB port.
pub(super) fn router() -> Router {
    Router::new()
        .route("/", post(serve))
        .route("/healthz", any(healthz))
        .route("/readyz", any(readyz))
        .method_not_allowed_fallback(not_served)
        .fallback(not_served)
}

async fn not_served() -> Response {
    let message = "this server serves POST / for clients of DynamoDB, and /healthz and /readyz";
    answer(Err(Problem::new(Kind::UnknownOperation, message)))
}

async fn serve(Extension(connection): Extension<Connection>, request: HttpRequest) -> Response {
    answer(respond(&connection, request).await)
}

async fn respond(connection: &Connection, request: HttpRequest) -> Result<String, Problem> {
    let (parts, body) = request.into_parts();
    let body = read(body).await?;
    let caller = identify(connection, &parts, &body)?;
    let target = parts.headers.get(TARGET).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let request = Request::read(target, &body)?;
    perform(&caller, request, trace_context::of_headers(&parts.headers)).await
}

/// Reads a request body, which is limited in length and time. A row of the maximum length fits even if an SDK escapes
/// every character outside ASCII.
async fn read(body: Body) -> Result<Bytes, Problem> {
    short_body::read(body).await.map_err(|problem| match problem {
        NoBody::TooLong => Problem::new(
            Kind::BodyTooLarge,
            format!("the body is too long; the maximum is {BODY_LEN_MAX} bytes"),
        ),
        NoBody::Late => Problem::new(Kind::LateBody, "the body did not arrive in time"),
        NoBody::Broken => Problem::new(Kind::Serialization, "the body could not be read"),
    })
}

/// Identifies the caller of a request.
fn identify(connection: &Connection, parts: &Parts, body: &[u8]) -> Result<FrontCaller, Problem> {
    let headers: Vec<_> = parts
        .headers
        .iter()
        // Clients sign only headers whose values are text. So verify the signature as if any other value were empty.
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()))
        .collect();
    let request = SignedRequest { method: parts.method.as_str(), headers: &headers, body };
    connection.identify_signed(&request).map_err(|refusal| match refusal {
        NotSigned::Refused { refusal, .. } => Problem::new(kind_of(&refusal), refusal.to_string()),
        NotSigned::NotIdentified(refusal) => Problem::from(refusal),
    })
}

fn kind_of(refusal: &SignatureRefusal) -> Kind {
    match refusal {
        SignatureRefusal::Missing => Kind::MissingAuthenticationToken,
        SignatureRefusal::Incomplete(_) => Kind::IncompleteSignature,
        SignatureRefusal::UnknownKey | SignatureRefusal::ExpiredKey => Kind::UnrecognizedClient,
        SignatureRefusal::Wrong | SignatureRefusal::Scope(_) | SignatureRefusal::Skewed(_) => {
            Kind::InvalidSignature
        }
    }
}

/// Performs a request and returns the body of the response.
async fn perform(
    caller: &FrontCaller,
    request: Request,
    traceparent: Option<TraceParent>,
) -> Result<String, Problem> {
    match request {
        Request::Put(put) => lock::put(caller, &put, traceparent.as_ref()).await,
        Request::Delete(delete) => lock::delete(caller, &delete).await,
        Request::Get(get) => lock::get(caller, &get).await,
        Request::CreateTable(table) => table::create(caller, &table).await,
        Request::DescribeTable(table) => table::describe(caller, &table).await,
        Request::DeleteTable(table) => table::delete(caller, &table).await,
        Request::ListTables(list) => table::list(caller, &list).await,
    }
}
