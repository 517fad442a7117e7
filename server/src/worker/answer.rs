//! What the engine says, as the wire says it. The one place where the two meet on the way out.

use waymaker_engine::{
    Answer, CancelReason, ClaimId, Event, Grant, HeldLock, Page, Refusal, RevokeReason, Scope, Time,
};
use waymaker_protocol as wire;
use waymaker_protocol::{ErrorAnswer, ErrorCode, ErrorDetail};

/// What an answer needs to know beside itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// The time of the turn in which it became true.
    pub(crate) stamp: Time,
    /// The shard that said it.
    pub(crate) shard: u16,
    pub(crate) shard_count: u16,
    /// The session of the lane lives at least until then.
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
                fence: status.fence,
                remaining_ms: status.remaining_ms,
                age_ms: status.age_ms,
                stamp_ms,
                priority: status.priority,
                key: &status.key,
            };
            answer.encode(number, out);
        }
        Answer::Inspected(status) => {
            let holders = status.holders.iter().map(holder).collect();
            let (holder_count, waiter_count) = (status.holder_count, status.waiter_count);
            wire::Inspected { fence: status.fence, stamp_ms, holder_count, waiter_count, holders }
                .encode(number, out);
        }
        Answer::Listed(page) => put_page(out, number, page, context),
    }
}

#[inline]
pub(crate) fn put_grant(out: &mut Vec<u8>, number: u32, grant: &Grant, context: Context) {
    let granted = wire::Granted {
        id: lock_id(grant.id),
        fence: grant.fence,
        remaining_ms: if grant.session_lease { context.session_remaining_ms() } else { grant.remaining_ms },
        stamp_ms: context.stamp.as_millis(),
        clamped: grant.clamped,
        waited: grant.waited,
        repeated: grant.repeated,
        session_lease: grant.session_lease,
    };
    granted.encode(number, out);
}

fn lock_id(id: ClaimId) -> wire::LockId {
    wire::LockId { place: id.place, secret: id.secret }
}

fn holder(lock: &HeldLock) -> wire::Holder<'_> {
    wire::Holder {
        id: lock_id(lock.id),
        shared: lock.shared,
        fence: lock.fence,
        held_ms: lock.held_ms,
        remaining_ms: lock.remaining_ms,
        owner: &lock.owner,
    }
}

fn put_page(out: &mut Vec<u8>, number: u32, page: &Page, context: Context) {
    let locks = page.locks.iter().map(|lock| wire::ListedLock {
        id: lock_id(lock.id),
        shared: lock.shared,
        fence: lock.fence,
        held_ms: lock.held_ms,
        remaining_ms: lock.remaining_ms,
        priority: lock.priority,
        key: &lock.key,
        owner: &lock.owner,
        request_id: &lock.request_id,
        metadata: &lock.metadata,
    });
    let next_shard = context.shard + 1;
    let next = match page.next {
        Some(slot) => list_cursor(context.shard, slot),
        None if next_shard < context.shard_count => list_cursor(next_shard, 0),
        None => 0,
    };
    wire::Listed { next, locks: locks.collect() }.encode(number, out);
}

/// The cursor of a page: the shard, and the slot in it. Zero is the first slot of the first shard, so it also says that
/// nothing follows.
fn list_cursor(shard: u16, slot: u32) -> u64 {
    u64::from(shard) << 32 | u64::from(slot)
}

/// The shard and the slot of a cursor that came from outside.
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
            let reason = match reason {
                RevokeReason::ReleasedElsewhere => wire::RevokeReason::ReleasedElsewhere,
                RevokeReason::ConnectionLost => wire::RevokeReason::ConnectionLost,
            };
            wire::Event::Revoked { id: lock_id(*id), reason, message: b"" }.encode(0, out);
        }
    }
}

/// Appends an error in words.
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

#[cold]
fn put_refusal(out: &mut Vec<u8>, number: u32, refusal: &Refusal) {
    let mut put =
        |code, value, field: &str, message: &str| put_error(out, number, code, value, field, message);
    match refusal {
        Refusal::Busy(contention) | Refusal::Timeout(contention) => {
            let code = if matches!(refusal, Refusal::Busy(_)) { ErrorCode::Busy } else { ErrorCode::Timeout };
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
            let message = match reason {
                CancelReason::Asked => "cancelled while it waited",
                CancelReason::Superseded => "a newer acquire with the same request id took its place",
                CancelReason::ConnectionLost => "its connection was lost while it waited",
            };
            put(ErrorCode::Cancelled, 0, "", message);
        }
        Refusal::NotFound => put(ErrorCode::NotFound, 0, "id", "no live claim has this id here"),
        Refusal::NotHeld => put(ErrorCode::NotHeld, 0, "id", "the claim waits and is not held yet"),
        Refusal::BadInput { field, limit, message } => put(ErrorCode::BadInput, *limit, field, message),
        Refusal::Overloaded { limit, value } => {
            put(ErrorCode::Overloaded, *value, limit, &format!("the limit is {value} {limit}"));
        }
        Refusal::ScopeUnavailable(scope) => {
            let message = match scope {
                Scope::Local => "scope local needs a durable log, which this server does not have",
                Scope::Quorum => "scope quorum needs a quorum of nodes, which this server does not have",
                Scope::Ephemeral => "this server does not offer the scope",
            };
            put(ErrorCode::ScopeUnavailable, 0, "scope", message);
        }
        Refusal::Shutdown => put(ErrorCode::Shutdown, 0, "", "the server is stopping"),
    }
}
