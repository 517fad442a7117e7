//! Encoding of the engine's answers and events. Other modules convert only a few of them to the wire.

use waymaker_engine::{
    Allowance, Answer, CancelReason, ClaimId, Event, Grant, HeldLock, KeyGrant, ListedPool, Page, PoolStatus,
    Refusal, Registered, Registration, RevokeReason, Scope, Time, Verified, WaitingClaim,
};
use waymaker_log::limits::LOG_STALLED_MS;
use waymaker_protocol as wire;
use waymaker_protocol::{ErrorAnswer, ErrorCode, ErrorDetail};

/// Data for the encoding of an answer that the answer itself does not contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// Time of the turn that produced the answer. Remaining times in the answer count from it.
    pub(crate) stamp: Time,
    /// Shard that produced the answer.
    pub(crate) shard: u16,
    pub(crate) shard_count: u16,
    /// Earliest end of the lane's session.
    pub(crate) session_end: Time,
}

impl Context {
    fn session_remaining_ms(self) -> u32 {
        self.session_end.remaining_ms_since(self.stamp)
    }
}

/// Appends the answer to a request.
#[inline]
pub(crate) fn put_answer(out: &mut Vec<u8>, number: u32, answer: &Answer, context: Context) {
    let stamp_ms = context.stamp.as_millis();
    match answer {
        Answer::Granted(grant) => put_grant(out, number, grant, context),
        Answer::Released { was_waiting } => wire::Released { was_waiting: *was_waiting }.encode(number, out),
        Answer::Extended { remaining_ms, clamped } => {
            wire::Extended { remaining_ms: *remaining_ms, stamp_ms, clamped: *clamped }.encode(number, out);
        }
        Answer::Cancelled { was_waiting } => {
            wire::Cancelled { was_waiting: *was_waiting }.encode(number, out);
        }
        Answer::Refused(refusal) => put_refusal(out, number, refusal),
        Answer::Status(status) => {
            let state = if status.held { wire::LockState::Held } else { wire::LockState::Waiting };
            let answer = wire::StatusAnswer {
                state,
                shared: status.shared,
                session_lease: status.session_lease,
                fence: status.fence.get(),
                remaining_ms: status.remaining_ms,
                age_ms: status.age_ms,
                stamp_ms,
                priority: status.priority,
                waited_ms: status.waited_ms,
                key: &status.key,
            };
            answer.encode(number, out);
        }
        Answer::Inspected(status) => {
            let holders = status.holders.iter().map(holder).collect();
            let (holder_count, waiter_count) = (status.holder_count, status.waiter_count);
            let waiters = status.waiters.iter().map(waiter).collect();
            wire::Inspected {
                fence: status.fence.get(),
                stamp_ms,
                holder_count,
                waiter_count,
                holders,
                waiters,
            }
            .encode(number, out);
        }
        Answer::Listed(page) => put_page(out, number, page, context),
        other => put_rare_answer(out, number, other, context),
    }
}

/// Appends an answer of a kind that is not among the most frequent ones.
fn put_rare_answer(out: &mut Vec<u8>, number: u32, answer: &Answer, context: Context) {
    let stamp_ms = context.stamp.as_millis();
    match answer {
        Answer::Throttled(allowance) => put_allowance(out, number, allowance),
        Answer::GrantedMultiKey(grants) => put_grants(out, number, grants, context),
        Answer::Watching { fence, holder_count, waiter_count } => {
            let (fence, holder_count, waiter_count) = (*fence, *holder_count, *waiter_count);
            wire::Watching { fence: fence.get(), stamp_ms, holder_count, waiter_count }.encode(number, out);
        }
        Answer::Unwatched { was_watching } => {
            wire::Unwatched { was_watching: *was_watching }.encode(number, out);
        }
        Answer::Verified(verified) => {
            let Verified { newest_fence, newest, held } = *verified;
            wire::Verified { newest, held, newest_fence: newest_fence.get(), stamp_ms }.encode(number, out);
        }
        Answer::ForceReleased(released) => wire::ForceReleased {
            fence: released.fence.get(),
            key: &released.key,
            owner: &released.owner,
            was_waiting: released.was_waiting,
        }
        .encode(number, out),
        Answer::Frozen { changed, frozen_count } => {
            wire::Frozen { changed: *changed, frozen_count: *frozen_count }.encode(number, out);
        }
        Answer::NamespaceRemoved => wire::NamespaceRemoved.encode(number, out),
        Answer::TreeStatistics(statistics) => {
            wire::TreeStatisticsAnswer {
                sets: statistics.set_count,
                waiting_sets: statistics.waiting_set_count,
                held_sets: statistics.held_set_count,
                waiting_paths: statistics.waiting_path_count,
                held_paths: statistics.held_path_count,
                distinct_paths: statistics.distinct_path_count,
                segments: statistics.segment_count,
                distinct_segments: statistics.distinct_segment_count,
            }
            .encode(number, out);
        }
        Answer::PoolDescribed(pool) => put_pool(out, number, pool, stamp_ms),
        Answer::CapacitySet { previous } => wire::CapacitySet { previous: *previous }.encode(number, out),
        Answer::Registered(registered) => {
            let Registered { id, fence, remaining_ms, renewed } = *registered;
            wire::Registered { id: lock_id(id), fence: fence.get(), remaining_ms, stamp_ms, renewed }
                .encode(number, out);
        }
        Answer::Unregistered { was_expired } => {
            wire::Unregistered { was_expired: *was_expired }.encode(number, out);
        }
        Answer::LookedUp(found) => {
            let registration = found.as_deref().map(entry).unwrap_or_default();
            wire::LookedUp { stamp_ms, found: found.is_some(), entry: registration }.encode(number, out);
        }
        Answer::RegistrationsListed(page) => {
            let entries = page.registrations.iter().map(entry).collect();
            wire::EntriesListed { next: next_cursor(page.next, context), entries }.encode(number, out);
        }
        Answer::PoolsListed(page) => {
            let pools = page.pools.iter().map(listed_pool).collect();
            wire::PoolsListed { next: next_cursor(page.next, context), pools }.encode(number, out);
        }
        Answer::Granted(_)
        | Answer::Released { .. }
        | Answer::Extended { .. }
        | Answer::Cancelled { .. }
        | Answer::Status(_)
        | Answer::Inspected(_)
        | Answer::Listed(_)
        | Answer::Refused(_) => debug_assert!(false, "{answer:?} is appended by `put_answer`"),
    }
}

fn put_grants(out: &mut Vec<u8>, number: u32, grants: &[KeyGrant], context: Context) {
    let keys = grants.iter().map(|KeyGrant { grant, shared, key }| wire::GrantedKey {
        id: lock_id(grant.id),
        fence: grant.fence.get(),
        remaining_ms: if grant.session_lease { context.session_remaining_ms() } else { grant.remaining_ms },
        shared: *shared,
        key,
    });
    // The keys were granted together, so the flags of the first grant apply to all.
    let Some(KeyGrant { grant, .. }) = grants.first() else { return };
    let granted = wire::GrantedKeys {
        stamp_ms: context.stamp.as_millis(),
        clamped: grant.clamped,
        waited: grant.waited,
        repeated: grant.repeated,
        session_lease: grant.session_lease,
        keys: keys.collect(),
    };
    granted.encode(number, out);
}

fn put_pool(out: &mut Vec<u8>, number: u32, pool: &PoolStatus, stamp_ms: u64) {
    let holders = pool.holders.iter().map(|holder| wire::PermitHolder {
        id: lock_id(holder.id),
        permits: holder.permits,
        fence: holder.fence.get(),
        age_ms: holder.age_ms,
        remaining_ms: holder.remaining_ms,
        owner: &holder.owner,
    });
    let waiters = pool.waiters.iter().map(|waiter| wire::PermitWaiter {
        id: lock_id(waiter.id),
        permits: waiter.permits,
        ticket: waiter.ticket,
        age_ms: waiter.age_ms,
        remaining_ms: waiter.remaining_ms,
        owner: &waiter.owner,
    });
    let described = wire::PoolDescribed {
        capacity: pool.capacity,
        held: pool.held,
        fence: pool.fence.get(),
        stamp_ms,
        order: pool_order(pool),
        is_set: pool.is_set,
        holder_count: pool.holder_count,
        waiter_count: pool.waiter_count,
        holders: holders.collect(),
        waiters: waiters.collect(),
    };
    described.encode(number, out);
}

fn listed_pool(pool: &ListedPool) -> wire::ListedPool<'_> {
    let status = &pool.status;
    wire::ListedPool {
        capacity: status.capacity,
        held: status.held,
        fence: status.fence.get(),
        order: pool_order(status),
        is_set: status.is_set,
        holder_count: status.holder_count,
        waiter_count: status.waiter_count,
        name: &pool.name,
    }
}

fn pool_order(pool: &PoolStatus) -> wire::PoolOrder {
    if pool.by_timestamp { wire::PoolOrder::Timestamp } else { wire::PoolOrder::Arrival }
}

fn entry(registration: &Registration) -> wire::Entry<'_> {
    wire::Entry {
        id: lock_id(registration.id),
        fence: registration.fence.get(),
        age_ms: registration.age_ms,
        remaining_ms: registration.remaining_ms,
        key: &registration.key,
        owner: &registration.owner,
        value: &registration.value,
        type_name: &registration.type_name,
    }
}

#[inline]
pub(crate) fn put_grant(out: &mut Vec<u8>, number: u32, grant: &Grant, context: Context) {
    let granted = wire::Granted {
        id: lock_id(grant.id),
        fence: grant.fence.get(),
        remaining_ms: if grant.session_lease { context.session_remaining_ms() } else { grant.remaining_ms },
        stamp_ms: context.stamp.as_millis(),
        clamped: grant.clamped,
        waited: grant.waited,
        repeated: grant.repeated,
        session_lease: grant.session_lease,
    };
    granted.encode(number, out);
}

#[inline]
pub(crate) fn put_allowance(out: &mut Vec<u8>, number: u32, allowance: &Allowance) {
    let Allowance { allowed, remaining, retry_after_ns, reset_after_ns } = *allowance;
    wire::Throttled { allowed, remaining, retry_after_ns, reset_after_ns }.encode(number, out);
}

pub(super) fn lock_id(id: ClaimId) -> wire::LockId {
    wire::LockId { place: id.place, secret: id.secret }
}

fn holder(lock: &HeldLock) -> wire::Holder<'_> {
    wire::Holder {
        id: lock_id(lock.id),
        shared: lock.shared,
        fence: lock.fence.get(),
        held_ms: lock.held_ms,
        remaining_ms: lock.remaining_ms,
        owner: &lock.owner,
    }
}

fn waiter(claim: &WaitingClaim) -> wire::Waiter<'_> {
    wire::Waiter {
        id: lock_id(claim.id),
        shared: claim.shared,
        ticket: claim.ticket,
        age_ms: claim.age_ms,
        remaining_ms: claim.remaining_ms,
        priority: claim.priority,
        owner: &claim.owner,
    }
}

fn put_page(out: &mut Vec<u8>, number: u32, page: &Page, context: Context) {
    let locks = page.locks.iter().map(|lock| wire::ListedLock {
        id: lock_id(lock.id),
        shared: lock.shared,
        fence: lock.fence.get(),
        held_ms: lock.held_ms,
        remaining_ms: lock.remaining_ms,
        priority: lock.priority,
        key: &lock.key,
        owner: &lock.owner,
        request_id: &lock.request_id,
        metadata: &lock.metadata,
    });
    wire::Listed { next: next_cursor(page.next, context), locks: locks.collect() }.encode(number, out);
}

/// Returns the cursor of the next page, which begins in this shard or in the next one; 0 if there is none.
fn next_cursor(next: Option<u32>, context: Context) -> u64 {
    let next_shard = context.shard + 1;
    match next {
        Some(slot) => list_cursor(context.shard, slot),
        None if next_shard < context.shard_count => list_cursor(next_shard, 0),
        None => 0,
    }
}

/// Returns the cursor of a page, made of the shard and the slot in it. A cursor of 0 means the first slot of the
/// first shard, and after the last page it means that no page follows.
fn list_cursor(shard: u16, slot: u32) -> u64 {
    u64::from(shard) << 32 | u64::from(slot)
}

/// Returns the shard and the slot of a cursor that a client sent.
pub(crate) fn read_list_cursor(cursor: u64) -> (u64, u32) {
    (cursor >> 32, cursor as u32)
}

/// Appends an event.
pub(crate) fn put_event(out: &mut Vec<u8>, event: &Event, stamp: Time) {
    match event {
        Event::Queued { number, id, position, ticket } => {
            wire::Event::Queued { id: lock_id(*id), position: *position, ticket: *ticket }
                .encode(*number, out);
        }
        Event::Expired { id } => wire::Event::Expired { id: lock_id(*id) }.encode(0, out),
        Event::LeaseMoved { id, remaining_ms } => {
            let (id, remaining_ms, stamp_ms) = (lock_id(*id), *remaining_ms, stamp.as_millis());
            wire::Event::LeaseMoved { id, remaining_ms, stamp_ms }.encode(0, out);
        }
        Event::Revoked { id, reason } => {
            let (reason, message): (_, &[u8]) = match reason {
                RevokeReason::ReleasedElsewhere => (wire::RevokeReason::ReleasedElsewhere, b""),
                RevokeReason::Forced(message) => (wire::RevokeReason::Forced, message),
            };
            wire::Event::Revoked { id: lock_id(*id), reason, message }.encode(0, out);
        }
        Event::KeyHeld { number, fence, shared, owner } => {
            wire::Event::KeyHeld { fence: fence.get(), shared: *shared, owner }.encode(*number, out);
        }
        Event::KeyFreed { number, fence } => {
            wire::Event::KeyFreed { fence: fence.get() }.encode(*number, out);
        }
        Event::TakenUp { number, id } => wire::Event::TakenUp { id: lock_id(*id) }.encode(*number, out),
    }
}

/// Appends an error with a text.
pub(crate) fn put_error(
    out: &mut Vec<u8>,
    number: u32,
    code: ErrorCode,
    value: u64,
    field: &str,
    message: &str,
) {
    let detail = ErrorDetail::Text { value, field: field.as_bytes(), message: message.as_bytes() };
    ErrorAnswer { code, detail }.encode(number, out);
}

/// Appends a refusal.
#[cold]
pub(crate) fn put_refusal(out: &mut Vec<u8>, number: u32, refusal: &Refusal) {
    let mut put =
        |code, value, field: &str, message: &str| put_error(out, number, code, value, field, message);
    match refusal {
        Refusal::Busy(contention) | Refusal::Timeout(contention) | Refusal::NotOwner(contention) => {
            let code = match refusal {
                Refusal::Busy(_) => ErrorCode::Busy,
                Refusal::Timeout(_) => ErrorCode::Timeout,
                _ => ErrorCode::NotOwner,
            };
            let detail = ErrorDetail::Contention(wire::Contention {
                held: contention.held,
                shared: contention.shared,
                age_ms: contention.age_ms,
                remaining_ms: contention.remaining_ms,
                waiter_count: contention.waiter_count,
                owner: &contention.owner,
            });
            ErrorAnswer { code, detail }.encode(number, out);
        }
        Refusal::Cancelled(reason) => {
            let (reason, message) = match reason {
                CancelReason::Asked => (wire::CancelReason::Asked, "the claim was cancelled while it waited"),
                CancelReason::Superseded => {
                    let message = "a newer acquire with the same request id replaced the claim";
                    (wire::CancelReason::Superseded, message)
                }
                CancelReason::ConnectionLost => (
                    wire::CancelReason::ConnectionLost,
                    "the connection of the claim was lost while it waited",
                ),
                CancelReason::Forced => {
                    (wire::CancelReason::Forced, "an operator ended the claim while it waited")
                }
            };
            put(ErrorCode::Cancelled, reason.number(), "", message);
        }
        Refusal::NotFound => put(
            ErrorCode::NotFound,
            0,
            "id",
            "no claim of this namespace has this id; it may have expired or been released",
        ),
        Refusal::NamespaceNotFound => {
            put(ErrorCode::NotFound, 0, "namespace", "there is no namespace of this name");
        }
        Refusal::NotHeld => {
            put(ErrorCode::NotHeld, 0, "id", "the claim is still waiting and is not held yet");
        }
        Refusal::BadInput { field, limit, message } => put(ErrorCode::BadInput, *limit, field, message),
        Refusal::Overloaded { limit, value } => {
            put(ErrorCode::Overloaded, *value, limit, &format!("the limit of {value} {limit} is reached"));
        }
        Refusal::ScopeUnavailable(scope) => {
            let message = match scope {
                Scope::Local => {
                    "scope local needs a durable log, but this server runs with `--data-dir none`"
                }
                Scope::Quorum => {
                    "scope quorum needs an etcd cluster, but this server runs without --quorum-endpoints"
                }
                Scope::Ephemeral => "this server does not offer the scope",
            };
            put(ErrorCode::ScopeUnavailable, 0, "scope", message);
        }
        Refusal::LogStalled => {
            let message = format!(
                "the durable log has not confirmed a write for {} s; durable grants resume when it does",
                LOG_STALLED_MS / 1000
            );
            put(ErrorCode::ScopeUnavailable, 0, "scope", &message);
        }
        Refusal::CapacityMismatch { capacity } => {
            let message = format!("the pool has a capacity of {capacity}");
            put(ErrorCode::CapacityMismatch, *capacity, "capacity", &message);
        }
        Refusal::QuorumUnavailable => {
            let message = "the etcd cluster that keeps the fences is unavailable, or its counter for this key cannot be used; see the log of the server";
            put(ErrorCode::QuorumUnavailable, 0, "scope", message);
        }
        Refusal::Frozen => put(
            ErrorCode::Frozen,
            0,
            "key",
            "an operator froze a prefix of the key; grants resume when the prefix is thawed",
        ),
        Refusal::Recovering { remaining_ms } => {
            let message = format!(
                "holds may have been lost; grants resume in {} s, when the longest possible lease has expired",
                remaining_ms.div_ceil(1000)
            );
            put(ErrorCode::Recovering, *remaining_ms, "", &message);
        }
        Refusal::Shutdown => put(ErrorCode::Shutdown, 0, "", "the server is stopping"),
        Refusal::NoSpace => put(
            ErrorCode::NoSpace,
            0,
            "",
            "the disk of the durable log is full; durable grants resume when space is free",
        ),
        Refusal::Unknown => {
            put(
                ErrorCode::Unknown,
                0,
                "",
                "the durable log failed; the outcome of this request is unknown until the server restarts",
            );
        }
    }
}
