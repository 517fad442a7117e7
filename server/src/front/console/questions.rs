//! Read requests of the console: namespaces, held locks, waiters, single keys and frozen prefixes.

use super::keys;
use super::operator::{Operator, Permissions, Space};
use super::parameters::Parameters;
use super::problem::Problem;
use crate::driver::Local;
use crate::driver::front_turn::next_turn;
use crate::front::conversion::{json_text, text};
use crate::front::long_text::LongText;
use crate::front::operators::{frozen_prefixes, some_namespace};
use axum::body::Body;
use axum::response::{IntoResponse, Response as Answer};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;
use std::cmp::Reverse;
use std::sync::PoisonError;
use waymaker_engine::Rights;
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    DescribePool, Hex, Inspect, Inspected, List, Listed, ListedLock, NamespaceKind, Namespaces,
    PoolDescribed, Request, Response,
};

/// Maximum number of rows in a page; a request for locks may ask for fewer.
const ROW_COUNT_MAX: u16 = 256;
/// Maximum number of LIST responses of the worker that are read for one page of held locks. At this limit the page may
/// be empty although other pages follow.
const LOCK_PAGES_MAX: usize = 64;
/// Total length of keys, owners and metadata in bytes after which a page ends.
const LOCKS_LEN_MAX: usize = 64 * 1024;
/// Maximum number of waiters in a list of the longest waiters.
const WAITER_COUNT_MAX: usize = 100;
/// Maximum number of LIST responses of the worker that are read to find the claims that have waited longest. Each
/// response covers at most 4,096 claims.
const WAITING_PAGES_MAX: usize = 1_024;
/// Number of compared waiters after which the search ends.
const COMPARED_WAITERS_MAX: usize = 100_000;

type Result<T> = std::result::Result<T, Problem>;

/// Creates a JSON response that caches must not store.
pub(super) fn json(value: impl Serialize) -> Answer {
    let text = json_text(&value);
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (headers, Body::new(LongText::new(text.into()))).into_response()
}

#[derive(Serialize)]
struct NamespaceRow {
    name: String,
    /// Whether a request can name the namespace, which requires UTF-8.
    is_text: bool,
    kind: &'static str,
    held: u64,
    waiting: u64,
    timeouts: u64,
    expired: u64,
    revoked: u64,
    may: Permissions,
}

/// Returns one page of the namespaces that the operator may list.
pub(super) async fn namespaces(operator: Operator, parameters: Parameters) -> Result<Answer> {
    #[derive(Serialize)]
    struct Page {
        namespaces: Vec<NamespaceRow>,
        next: Option<String>,
    }
    let cursor = parameters.cursor()?;
    // The lane is opened by the name as text, so the name must be UTF-8.
    let is_text = |name: &[u8]| std::str::from_utf8(name).is_ok();
    let Some((_, name)) = some_namespace(operator.caller.identity.as_ref(), is_text).await else {
        return Ok(json(Page { namespaces: Vec::new(), next: None }));
    };
    let space = operator.space(&name, Rights::NONE)?;
    let asked = Request::Namespaces(Namespaces { cursor, count_max: ROW_COUNT_MAX });
    let read = |response: Response<'_>| match response {
        Response::NamespacesListed(page) => {
            let policy = Local::with(|local| local.node.access.policy());
            let may = operator.may(&policy);
            let rows = page.namespaces.iter().map(|row| NamespaceRow {
                name: text(row.name),
                is_text: is_text(row.name),
                kind: row.kind.name(),
                held: row.held,
                waiting: row.waiting,
                timeouts: row.timeouts,
                expired: row.expired,
                revoked: row.revoked,
                may: may(row.name, row.kind),
            });
            Some(Page { namespaces: rows.collect(), next: next(page.next) })
        }
        _ => None,
    };
    space.ask(asked, read).await.map(json)
}

fn next(cursor: u64) -> Option<String> {
    (cursor != 0).then(|| cursor.to_string())
}

#[derive(Serialize)]
struct LockRow {
    id: String,
    key: String,
    key_hex: String,
    shared: bool,
    fence: String,
    held_ms: u64,
    remaining_ms: Option<u32>,
    priority: u32,
    owner: String,
    request_id: String,
    metadata: String,
}

#[derive(Serialize)]
struct WaiterRow {
    id: String,
    key: String,
    key_hex: String,
    shared: bool,
    wait_ms: u64,
    remaining_ms: Option<u32>,
    priority: u32,
    owner: String,
    request_id: String,
}

/// Formats the id of a claim; empty if the operator may not see it.
fn id(id: waymaker_protocol::LockId) -> String {
    if id == waymaker_protocol::LockId::default() { String::new() } else { id.to_string() }
}

/// Returns the remaining time; `None` if it is unlimited.
fn remaining(remaining_ms: u32) -> Option<u32> {
    (remaining_ms != WAIT_FOREVER_MS).then_some(remaining_ms)
}

fn lock_row(kind: NamespaceKind, lock: &ListedLock<'_>) -> LockRow {
    LockRow {
        id: id(lock.id),
        key: keys::shown(kind, lock.key),
        key_hex: Hex(lock.key).to_string(),
        // The holders of a pool share it.
        shared: lock.shared || kind == NamespaceKind::Pool,
        fence: lock.fence.to_string(),
        held_ms: lock.held_ms,
        remaining_ms: remaining(lock.remaining_ms),
        priority: lock.priority,
        owner: text(lock.owner),
        request_id: text(lock.request_id),
        metadata: text(lock.metadata),
    }
}

fn waiter_row(kind: NamespaceKind, waiter: &ListedLock<'_>) -> WaiterRow {
    WaiterRow {
        id: id(waiter.id),
        key: keys::shown(kind, waiter.key),
        key_hex: Hex(waiter.key).to_string(),
        shared: waiter.shared || kind == NamespaceKind::Pool,
        wait_ms: waiter.held_ms,
        remaining_ms: remaining(waiter.remaining_ms),
        priority: waiter.priority,
        owner: text(waiter.owner),
        request_id: text(waiter.request_id),
    }
}

/// Claims of a namespace, read page by page.
struct Claims<'a> {
    space: &'a Space,
    prefix: &'a [u8],
    waiting: bool,
}

impl Claims<'_> {
    /// Reads the page at this cursor with at most `count_max` claims; 0 means as many as fit.
    async fn page<T>(&self, cursor: u64, count_max: u16, read: impl FnOnce(&Listed<'_>) -> T) -> Result<T> {
        let list = List { cursor, count_max, prefix: self.prefix, waiting: self.waiting };
        let read = |response: Response<'_>| match response {
            Response::Listed(page) => Some(read(&page)),
            _ => None,
        };
        self.space.ask(Request::List(list), read).await
    }
}

/// Lists a page of the held locks of a namespace, or of those with a prefix.
pub(super) async fn locks(operator: Operator, parameters: Parameters) -> Result<Answer> {
    #[derive(Serialize)]
    struct Page {
        kind: &'static str,
        locks: Vec<LockRow>,
        next: Option<String>,
    }
    let mut cursor = parameters.cursor()?;
    let count = parameters.number("count")?.unwrap_or(ROW_COUNT_MAX).clamp(1, ROW_COUNT_MAX);
    let space = operator.space(parameters.text("namespace"), Rights::LIST)?;
    let kind = space.kind;
    let prefix = keys::of_text(kind, parameters.text("prefix"))?;
    let claims = Claims { space: &space, prefix: &prefix, waiting: false };
    let (mut locks, mut len) = (Vec::new(), 0);
    // One LIST response covers at most 4,096 claims of one shard. So the page may need several responses.
    for _ in 0..LOCK_PAGES_MAX {
        let count_max = count - locks.len() as u16;
        let read = |page: &Listed<'_>| {
            locks.extend(page.locks.iter().map(|lock| lock_row(kind, lock)));
            len += page
                .locks
                .iter()
                .map(|lock| lock.key.len() + lock.owner.len() + lock.metadata.len())
                .sum::<usize>();
            page.next
        };
        cursor = claims.page(cursor, count_max, read).await?;
        if cursor == 0 || locks.len() >= usize::from(count) || len >= LOCKS_LEN_MAX {
            break;
        }
        // Let other connections have a turn before the next LIST request.
        next_turn().await;
    }
    Ok(json(Page { kind: kind.name(), locks, next: next(cursor) }))
}

/// Lists the claims that have waited longest, in a namespace or below a prefix. The search is limited; `complete` tells
/// whether it covered all claims.
pub(super) async fn waiting(operator: Operator, parameters: Parameters) -> Result<Answer> {
    #[derive(Serialize)]
    struct Longest {
        kind: &'static str,
        waiters: Vec<WaiterRow>,
        seen: usize,
        complete: bool,
    }
    let space = operator.space(parameters.text("namespace"), Rights::LIST)?;
    let kind = space.kind;
    let prefix = keys::of_text(kind, parameters.text("prefix"))?;
    let claims = Claims { space: &space, prefix: &prefix, waiting: true };
    let mut longest = Longest { kind: kind.name(), waiters: Vec::new(), seen: 0, complete: false };
    let mut cursor = 0;
    for _ in 0..WAITING_PAGES_MAX {
        let waiters = &mut longest.waiters;
        // Skip waiters that have waited no longer than the last of the longest waiters so far. On later pages these are
        // most waiters.
        let shortest_ms = waiters.get(WAITER_COUNT_MAX - 1).map(|waiter| waiter.wait_ms);
        let read = |page: &Listed<'_>| {
            let longer = page.locks.iter().filter(|waiter| shortest_ms.is_none_or(|ms| waiter.held_ms > ms));
            waiters.extend(longer.map(|waiter| waiter_row(kind, waiter)));
            (page.next, page.locks.len())
        };
        let (next, count) = claims.page(cursor, 0, read).await?;
        waiters.sort_by_key(|waiter| Reverse(waiter.wait_ms));
        waiters.truncate(WAITER_COUNT_MAX);
        longest.seen += count;
        longest.complete = next == 0;
        if next == 0 || longest.seen >= COMPARED_WAITERS_MAX {
            break;
        }
        cursor = next;
        next_turn().await;
    }
    Ok(json(longest))
}

#[derive(Serialize)]
struct KeyHolder {
    id: String,
    shared: bool,
    fence: String,
    held_ms: u64,
    remaining_ms: Option<u32>,
    owner: String,
    permits: Option<u64>,
}

#[derive(Serialize)]
struct KeyWaiter {
    id: String,
    shared: bool,
    wait_ms: u64,
    remaining_ms: Option<u32>,
    priority: u32,
    owner: String,
    permits: Option<u64>,
}

#[derive(Serialize)]
struct Pool {
    capacity: u64,
    in_use: u64,
}

/// State of one key.
#[derive(Serialize)]
struct Key {
    kind: &'static str,
    key: String,
    key_hex: String,
    fence: String,
    holder_count: u32,
    waiter_count: u32,
    frozen: bool,
    holders: Vec<KeyHolder>,
    waiters: Vec<KeyWaiter>,
    pool: Option<Pool>,
    may: Permissions,
}

/// Returns the holders and the queue of one key or pool.
pub(super) async fn lock(operator: Operator, parameters: Parameters) -> Result<Answer> {
    let space = operator.space(parameters.text("namespace"), Rights::INSPECT)?;
    let key = match parameters.text("key_hex") {
        "" => keys::of_text(space.kind, parameters.text("key"))?,
        digits => keys::of_hex("key_hex", digits)?,
    };
    if key.is_empty() && !matches!(space.kind, NamespaceKind::Tree | NamespaceKind::Registry) {
        return Err(Problem::bad_input("key", "must not be empty"));
    }
    let state = Key {
        kind: space.kind.name(),
        key: keys::shown(space.kind, &key),
        key_hex: Hex(&key).to_string(),
        fence: String::new(),
        holder_count: 0,
        waiter_count: 0,
        frozen: is_frozen(space.number, &key),
        holders: Vec::new(),
        waiters: Vec::new(),
        pool: None,
        may: space.may(),
    };
    if space.kind == NamespaceKind::Pool {
        let read = |response: Response<'_>| match response {
            Response::PoolDescribed(pool) => Some(pool_state(&pool, state)),
            _ => None,
        };
        return space.ask(Request::DescribePool(DescribePool { name: &key }), read).await.map(json);
    }
    let read = |response: Response<'_>| match response {
        Response::Inspected(inspected) => Some(key_state(&inspected, state)),
        _ => None,
    };
    space.ask(Request::Inspect(Inspect { key: &key }), read).await.map(json)
}

fn key_state(inspected: &Inspected<'_>, state: Key) -> Key {
    let holders = inspected.holders.iter().map(|holder| KeyHolder {
        id: id(holder.id),
        shared: holder.shared,
        fence: holder.fence.to_string(),
        held_ms: holder.held_ms,
        remaining_ms: remaining(holder.remaining_ms),
        owner: text(holder.owner),
        permits: None,
    });
    let waiters = inspected.waiters.iter().map(|waiter| KeyWaiter {
        id: id(waiter.id),
        shared: waiter.shared,
        wait_ms: waiter.age_ms,
        remaining_ms: remaining(waiter.remaining_ms),
        priority: waiter.priority,
        owner: text(waiter.owner),
        permits: None,
    });
    Key {
        fence: inspected.fence.to_string(),
        holder_count: inspected.holder_count,
        waiter_count: inspected.waiter_count,
        holders: holders.collect(),
        waiters: waiters.collect(),
        ..state
    }
}

fn pool_state(pool: &PoolDescribed<'_>, state: Key) -> Key {
    let holders = pool.holders.iter().map(|holder| KeyHolder {
        id: id(holder.id),
        shared: true,
        fence: holder.fence.to_string(),
        held_ms: holder.age_ms,
        remaining_ms: remaining(holder.remaining_ms),
        owner: text(holder.owner),
        permits: Some(holder.permits),
    });
    let waiters = pool.waiters.iter().map(|waiter| KeyWaiter {
        id: id(waiter.id),
        shared: true,
        wait_ms: waiter.age_ms,
        remaining_ms: remaining(waiter.remaining_ms),
        priority: 0,
        owner: text(waiter.owner),
        permits: Some(waiter.permits),
    });
    Key {
        fence: pool.fence.to_string(),
        holder_count: pool.holder_count,
        waiter_count: pool.waiter_count,
        holders: holders.collect(),
        waiters: waiters.collect(),
        pool: (pool.capacity > 0).then_some(Pool { capacity: pool.capacity, in_use: pool.held }),
        ..state
    }
}

/// Returns whether a frozen prefix covers this key, so that the key gets no new grants.
fn is_frozen(namespace: u16, key: &[u8]) -> bool {
    Local::with(|local| {
        let freezes = local.node.freezes.lock().unwrap_or_else(PoisonError::into_inner);
        freezes.prefixes(namespace).any(|prefix| key.starts_with(prefix))
    })
}

/// Lists the frozen prefixes of a namespace that the operator may list.
pub(super) async fn frozen(operator: Operator, parameters: Parameters) -> Result<Answer> {
    #[derive(Serialize)]
    struct Frozen {
        prefixes: Vec<Prefix>,
    }
    #[derive(Serialize)]
    struct Prefix {
        prefix: String,
        prefix_hex: String,
    }
    let space = operator.space(parameters.text("namespace"), Rights::LIST)?;
    let shown = |prefix: &[u8]| Prefix {
        prefix: keys::shown(space.kind, prefix),
        prefix_hex: Hex(prefix).to_string(),
    };
    let prefixes = frozen_prefixes(space.number, space.access.as_ref(), shown);
    Ok(json(Frozen { prefixes }))
}
