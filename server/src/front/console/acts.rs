//! Operator actions in the console. Each action needs a reason, which is recorded in the audit log.

use super::keys;
use super::operator::{Operator, Space};
use super::problem::Problem;
use super::questions::json;
use crate::front::conversion::{cut, text};
use crate::front::short_body::{self, BODY_LEN_MAX, NoBody};
use axum::body::Body;
use axum::response::Response as Answer;
use http::HeaderMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use waymaker_engine::Rights;
use waymaker_protocol::limits::REASON_LEN_MAX;
use waymaker_protocol::{
    DescribePool, ForceRelease, Freeze, NamespaceKind, PoolOrder, Request, Response, SetCapacity,
};

/// Maximum length in characters of the decoder's error message about a request body. The message may quote the body.
const PROBLEM_CHARS_MAX: usize = 200;
/// Header that each action must have. A browser sends it for a page of another origin only after an OPTIONS response
/// that allows it, and no response of this server does. So other pages cannot cause actions.
const OWN_HEADER: &str = "x-waymaker-console";

type Result<T> = std::result::Result<T, Problem>;

/// Checks that the header [`OWN_HEADER`] is present, and decodes the JSON body of an action.
async fn read<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T> {
    if !headers.contains_key(OWN_HEADER) {
        return Err(Problem::bad_input(OWN_HEADER, "the header is required"));
    }
    let bytes = short_body::read(body).await.map_err(|problem| match problem {
        NoBody::TooLong => Problem::long_body(BODY_LEN_MAX),
        NoBody::Late => Problem::late_body(),
        NoBody::Broken => Problem::bad_input("body", "could not be read"),
    })?;
    // The body must be a JSON object. Check its first byte, because the decoder would also accept an array with the
    // values of the members in order.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::bad_input("body", "must be a JSON object"));
    }
    let body = serde_json::from_slice(&bytes);
    body.map_err(|error| Problem::bad_input("body", &cut(error.to_string(), PROBLEM_CHARS_MAX)))
}

fn check_reason(reason: &str) -> Result<&[u8]> {
    if reason.trim().is_empty() || reason.len() > REASON_LEN_MAX {
        let message = format!("must have 1 to {REASON_LEN_MAX} bytes: it is written to the audit log");
        return Err(Problem::bad_input("reason", &message));
    }
    Ok(reason.as_bytes())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForceReleaseBody {
    namespace: String,
    id: String,
    reason: String,
}

/// Ends a hold or a wait of any client.
pub(super) async fn force_release(operator: Operator, headers: HeaderMap, body: Body) -> Result<Answer> {
    #[derive(Serialize)]
    struct Released {
        key: String,
        owner: String,
        fence: String,
        was_waiting: bool,
    }
    let body: ForceReleaseBody = read(&headers, body).await?;
    let reason = check_reason(&body.reason)?;
    let id = body.id.parse();
    let id = id.map_err(|_| Problem::bad_input("id", "must be the 32 hexadecimal digits of a lock id"))?;
    let space = operator.space(&body.namespace, Rights::FORCE_RELEASE)?;
    let kind = space.kind;
    let read = |response: Response<'_>| match response {
        Response::ForceReleased(released) => Some(Released {
            key: keys::shown(kind, released.key),
            owner: text(released.owner),
            fence: released.fence.to_string(),
            was_waiting: released.was_waiting,
        }),
        _ => None,
    };
    space.ask(Request::ForceRelease(ForceRelease { id, reason }), read).await.map(json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FreezeBody {
    namespace: String,
    #[serde(default)]
    prefix: String,
    /// Hexadecimal form of the prefix, for a prefix that is not valid text. If it is set, `prefix` is ignored.
    prefix_hex: Option<String>,
    #[serde(default)]
    thaw: bool,
    reason: String,
}

/// Freezes or thaws a prefix of keys. Frozen keys get no new grants.
pub(super) async fn freeze(operator: Operator, headers: HeaderMap, body: Body) -> Result<Answer> {
    #[derive(Serialize)]
    struct Frozen {
        changed: bool,
        frozen_count: u16,
    }
    let body: FreezeBody = read(&headers, body).await?;
    let reason = check_reason(&body.reason)?;
    let space = operator.space(&body.namespace, Rights::FREEZE)?;
    let prefix = match &body.prefix_hex {
        Some(digits) => keys::of_hex("prefix_hex", digits)?,
        None => keys::of_text(space.kind, &body.prefix)?,
    };
    let freeze = Freeze { prefix: &prefix, thaw: body.thaw, reason };
    let read = |response: Response<'_>| match response {
        Response::Frozen(frozen) => {
            Some(Frozen { changed: frozen.changed, frozen_count: frozen.frozen_count })
        }
        _ => None,
    };
    space.ask(Request::Freeze(freeze), read).await.map(json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResizeBody {
    namespace: String,
    key_hex: String,
    capacity: u64,
    reason: String,
}

/// Sets the capacity of a pool. The order of its waiters stays the same.
pub(super) async fn resize(operator: Operator, headers: HeaderMap, body: Body) -> Result<Answer> {
    #[derive(Serialize)]
    struct Resized {
        capacity: u64,
        /// Permits in use; `None` if the pool could not be read after the action.
        in_use: Option<u64>,
    }
    let body: ResizeBody = read(&headers, body).await?;
    let reason = check_reason(&body.reason)?;
    if body.capacity == 0 {
        // Refuse capacity 0: the engine would remove the pool if it has no claims.
        return Err(Problem::bad_input("capacity", "must be at least 1"));
    }
    let space = operator.space(&body.namespace, Rights::RESIZE)?;
    if space.kind != NamespaceKind::Pool {
        return Err(Problem::bad_input("namespace", "has no pools"));
    }
    let name = keys::of_hex("key_hex", &body.key_hex)?;
    let order = pool(&space, &name).await?.0;
    let set = SetCapacity { capacity: body.capacity, order, name: &name, reason };
    let read = |response: Response<'_>| matches!(response, Response::CapacitySet(_)).then_some(());
    space.ask(Request::SetCapacity(set), read).await?;
    let in_use = pool(&space, &name).await.ok().map(|(_, in_use)| in_use);
    Ok(json(Resized { capacity: body.capacity, in_use }))
}

/// Returns the waiter order of a pool and the permits in use.
async fn pool(space: &Space, name: &[u8]) -> Result<(PoolOrder, u64)> {
    let read = |response: Response<'_>| match response {
        Response::PoolDescribed(pool) => Some((pool.order, pool.held)),
        _ => None,
    };
    space.ask(Request::DescribePool(DescribePool { name }), read).await
}
