//! Shared parts of the claim services: conversion of ids, times, keys and page cursors, and requests that several
//! services have.

use super::connection::Connection;
use super::status;
use crate::front::conversion::{text, unix_ms};
use tonic::{Response as Answer, Status};
use waymaker_proto::v1;
use waymaker_protocol as wire;
use waymaker_protocol::limits::{LIST_PAGE_MAX, WAIT_FOREVER_MS};
use waymaker_protocol::{LockId, LockState, NamespaceKind, PathKey, Request, Response};

/// Parses a lock id.
pub(super) fn id(text: &str) -> Result<LockId, Status> {
    text.parse().map_err(|_| status::bad_input("id", 0, "must be the 32 hexadecimal digits of a lock id"))
}

/// Returns the start of a hold or wait, and the end of its lease or wait, in Unix milliseconds. At the server time
/// `stamp_ms` the hold or wait is `age_ms` old, and its lease or wait lasts `remaining_ms` more. An end of 0 means no
/// end.
pub(super) fn times(stamp_ms: u64, age_ms: u64, remaining_ms: u32) -> (i64, i64) {
    let now = unix_ms(stamp_ms);
    let since = now.saturating_sub_unsigned(age_ms);
    (since, if remaining_ms == WAIT_FOREVER_MS { 0 } else { now + i64::from(remaining_ms) })
}

/// Converts a wire key to a key text, or in a tree namespace to a path.
pub(super) fn place(kind: NamespaceKind, key: &[u8]) -> (String, Option<v1::Path>) {
    if kind != NamespaceKind::Tree {
        return (text(key), None);
    }
    let segments = PathKey::new(key).map(|path| path.segments().map(text).collect()).unwrap_or_default();
    (String::new(), Some(v1::Path { segments }))
}

/// Encodes a path as a path key. No path means the whole tree.
pub(super) fn path_key(path: Option<&v1::Path>) -> Result<Vec<u8>, Status> {
    let mut key = Vec::new();
    let segments = path.map_or(&[][..], |path| &path.segments);
    PathKey::append(segments, &mut key).map_err(|error| status::of_decode(&error))?;
    Ok(key)
}

/// Converts the key or path of a request to a wire key.
pub(super) fn key_of(
    kind: NamespaceKind,
    field: &str,
    key: &str,
    path: Option<&v1::Path>,
) -> Result<Vec<u8>, Status> {
    match (kind, path) {
        (NamespaceKind::Tree, _) if !key.is_empty() => {
            Err(status::bad_input(field, 0, "must be empty: a tree namespace uses paths instead of keys"))
        }
        (NamespaceKind::Tree, path) => path_key(path),
        (_, None) => Ok(key.as_bytes().to_vec()),
        (_, Some(_)) => Err(status::bad_input("path", 0, "must be empty: only a tree namespace has paths")),
    }
}

/// Parses a page cursor; an empty text is the first page.
pub(super) fn cursor(text: &str) -> Result<u64, Status> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse()
        .map_err(|_| status::bad_input("cursor", 0, "must be the value returned with the previous page"))
}

/// Encodes the cursor of the next page; empty after the last page.
pub(super) fn next_cursor(next: u64) -> String {
    if next == 0 { String::new() } else { next.to_string() }
}

/// Returns the page size, limited to the maximum.
pub(super) fn page_size(size: u32) -> u16 {
    size.min(u32::from(LIST_PAGE_MAX)) as u16
}

/// Releases a hold or cancels a waiting claim.
pub(super) async fn release(
    connection: &Connection,
    kind: NamespaceKind,
    request: &v1::ReleaseRequest,
) -> Result<Answer<v1::ReleaseResponse>, Status> {
    let release = Request::Release(wire::Release { id: id(&request.id)?, key: None, own: false });
    let read = |response: Response<'_>| match response {
        Response::Released(released) => Some(v1::ReleaseResponse { was_waiting: released.was_waiting }),
        _ => None,
    };
    connection.ask(kind, &request.namespace, release, read).await.map(Answer::new)
}

/// Changes the end of a lease.
pub(super) async fn extend(
    connection: &Connection,
    kind: NamespaceKind,
    request: &v1::ExtendRequest,
) -> Result<Answer<v1::ExtendResponse>, Status> {
    let extend = wire::Extend { id: id(&request.id)?, lease_ms: request.lease_ms, key: None, own: false };
    let read = |response: Response<'_>| match response {
        Response::Extended(extended) => Some(v1::ExtendResponse {
            remaining_ms: extended.remaining_ms,
            lease_expires_at_ms: times(extended.stamp_ms, 0, extended.remaining_ms).1,
            clamped: extended.clamped,
            stamp_ms: extended.stamp_ms,
        }),
        _ => None,
    };
    connection.ask(kind, &request.namespace, Request::Extend(extend), read).await.map(Answer::new)
}

/// Returns the state of a claim.
pub(super) async fn status(
    connection: &Connection,
    kind: NamespaceKind,
    request: &v1::StatusRequest,
) -> Result<Answer<v1::StatusResponse>, Status> {
    let asked = Request::Status(wire::Status { id: id(&request.id)?, key: None });
    let read = |response: Response<'_>| match response {
        Response::Status(answer) => Some(claim_of(kind, &request.id, &answer)),
        _ => None,
    };
    let claim = connection.ask(kind, &request.namespace, asked, read).await?;
    Ok(Answer::new(v1::StatusResponse { claim: Some(claim) }))
}

fn claim_of(kind: NamespaceKind, id: &str, answer: &wire::StatusAnswer<'_>) -> v1::status_response::Claim {
    let (key, path) = place(kind, answer.key);
    let (since, until) = times(answer.stamp_ms, answer.age_ms, answer.remaining_ms);
    let id = id.to_lowercase();
    match answer.state {
        LockState::Held => v1::status_response::Claim::Hold(v1::Hold {
            id,
            key,
            path,
            shared: answer.shared,
            fence: answer.fence,
            remaining_ms: answer.remaining_ms,
            lease_expires_at_ms: until,
            acquired_at_ms: since,
            priority: answer.priority,
            ..v1::Hold::default()
        }),
        LockState::Waiting => v1::status_response::Claim::Waiter(v1::Waiter {
            id,
            key,
            path,
            shared: answer.shared,
            remaining_ms: answer.remaining_ms,
            wait_ends_at_ms: until,
            waiting_since_ms: since,
            priority: answer.priority,
            ..v1::Waiter::default()
        }),
    }
}

/// Returns whether a fence is the newest of its key, whether it is the newest and its hold still exists, and the newest
/// fence.
pub(super) async fn verify(
    connection: &Connection,
    kind: NamespaceKind,
    request: &v1::VerifyRequest,
) -> Result<Answer<v1::VerifyResponse>, Status> {
    let key = key_of(kind, "key", &request.key, request.path.as_ref())?;
    let read = |response: Response<'_>| match response {
        Response::Verified(verified) => Some(v1::VerifyResponse {
            newest: verified.newest,
            held: verified.held,
            newest_fence: verified.newest_fence,
        }),
        _ => None,
    };
    let verify = Request::Verify(wire::Verify { fence: request.fence, key: &key });
    connection.ask(kind, &request.namespace, verify, read).await.map(Answer::new)
}
