//! One batch of requests in one turn, in three passes.

use super::answer::read_list_cursor;
use super::outbox::Outbox;
use std::borrow::Cow;
use waymaker_engine::limits::PREFETCH_COUNT;
use waymaker_engine::{
    Acquire, AcquireOptions, Answer, Caller, ClaimId, Effects, LaneAddress, Refusal, Scope, Shard, Ticket,
};
use waymaker_protocol as wire;
use waymaker_protocol::limits::{KEY_LEN_MAX, LIST_PAGE_BYTES_MAX, LIST_PAGE_MAX};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{Frame, Request, Route, route};

/// What a client is told whose request is part of the protocol but not of this server.
pub(crate) const NOT_SERVED: &str = "this server does not serve it yet";

/// Where one frame lies, and where it is going.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located {
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) shard: u16,
    opcode: u8,
    /// The hash of the key of an acquire, or the slot of the claim of an id.
    target: u64,
}

impl Located {
    #[inline]
    pub(crate) fn new(offset: usize, frame: Frame<'_>, shard: u16) -> Self {
        Self { offset: offset as u32, len: frame.len() as u32, shard, opcode: frame.opcode(), target: 0 }
    }

    #[inline]
    fn frame<'a>(&self, bytes: &'a [u8]) -> Option<Frame<'a>> {
        let frame = bytes.get(self.offset as usize..)?.get(..self.len as usize)?;
        wire::next_frame(frame, wire::limits::FRAME_LEN_MAX).ok().flatten()
    }
}

/// Who sent a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) address: LaneAddress,
    /// Its number in the shard.
    pub(crate) lane: u32,
    pub(crate) namespace: u16,
    /// A claim may last as long as its session.
    pub(crate) has_session: bool,
}

/// Serves a batch. Most of the time of a request on a large table is waiting for memory, so what all of them will need
/// is asked for in passes before they are applied one after the other: first lines of the index and claims, then
/// entries.
#[inline]
pub(crate) fn serve_batch(
    shard: &mut Shard,
    sender: Sender,
    bytes: &[u8],
    batch: &mut [Located],
    outbox: &mut Outbox<'_>,
) {
    for part in batch.chunks_mut(PREFETCH_COUNT) {
        prefetch(shard, sender.namespace, bytes, part);
        for located in part.iter() {
            if let Some(frame) = located.frame(bytes) {
                apply(shard, sender, frame, located, outbox);
            }
        }
    }
}

/// The passes before some requests are applied.
#[inline]
fn prefetch(shard: &Shard, namespace: u16, bytes: &[u8], part: &mut [Located]) {
    let mut acquires = 0;
    for located in part.iter_mut() {
        let Some(frame) = located.frame(bytes) else { continue };
        match route(frame) {
            Route::Key(key) if located.opcode == opcode::ACQUIRE => {
                located.target = shard.hash(namespace, key);
                shard.prefetch_acquire(located.target, acquires);
                acquires += 1;
            }
            Route::Place(place) => {
                located.target = u64::from(ClaimId::slot_of(place));
                shard.prefetch_claim(located.target as u32);
            }
            _ => {}
        }
    }
    for located in part.iter() {
        match located.opcode {
            opcode::ACQUIRE => shard.prefetch_entry(located.target),
            opcode::RELEASE | opcode::EXTEND => shard.prefetch_around(located.target as u32),
            _ => {}
        }
    }
}

#[inline]
fn apply(shard: &mut Shard, sender: Sender, frame: Frame<'_>, located: &Located, outbox: &mut Outbox<'_>) {
    let ticket = Ticket { lane: sender.address, number: frame.number() };
    let caller = Caller { lane: sender.lane, ticket, namespace: sender.namespace };
    match Request::decode(frame) {
        Ok(Request::Acquire(acquire)) => apply_acquire(shard, sender, &caller, &acquire, located, outbox),
        Ok(Request::Release(release)) => shard.release(&caller, claim_id(release.id), release.key, outbox),
        Ok(Request::Extend(extend)) => {
            shard.extend(&caller, claim_id(extend.id), extend.key, extend.lease_ms, outbox);
        }
        Ok(Request::Cancel(wire::Cancel { key: [], .. }) | Request::Inspect(wire::Inspect { key: [] })) => {
            refuse(outbox, ticket, "key", 0, "a key has 1 to 1024 bytes");
        }
        Ok(Request::Cancel(wire::Cancel { key, .. }) | Request::Inspect(wire::Inspect { key }))
            if key.len() > KEY_LEN_MAX =>
        {
            refuse(outbox, ticket, "key", KEY_LEN_MAX as u64, "a key has 1 to 1024 bytes");
        }
        Ok(Request::List(list)) if list.prefix.len() > KEY_LEN_MAX => {
            refuse(outbox, ticket, "prefix", KEY_LEN_MAX as u64, "a prefix has at most 1024 bytes");
        }
        Ok(Request::Cancel(cancel)) => shard.cancel(&caller, cancel.acquire_number, outbox),
        Ok(Request::Status(status)) => shard.status(&caller, claim_id(status.id), status.key, outbox),
        Ok(Request::Inspect(inspect)) => shard.inspect(&caller, inspect.key, outbox),
        Ok(Request::List(list)) => {
            let (_, from) = read_list_cursor(list.cursor);
            let count_max =
                if list.count_max == 0 { LIST_PAGE_MAX } else { list.count_max.min(LIST_PAGE_MAX) };
            shard.list(&caller, list.prefix, from, usize::from(count_max), LIST_PAGE_BYTES_MAX, outbox);
        }
        Ok(Request::Hello(_) | Request::KeepAlive(_) | Request::Goodbye(_)) => {
            refuse(outbox, ticket, "opcode", 0, "this request is no matter of a shard");
        }
        Ok(_) => refuse(outbox, ticket, "opcode", 0, NOT_SERVED),
        Err(error) => refuse(outbox, ticket, error.field(), error.limit(), error.to_string()),
    }
}

#[inline]
fn apply_acquire(
    shard: &mut Shard,
    sender: Sender,
    caller: &Caller,
    acquire: &wire::Acquire<'_>,
    located: &Located,
    outbox: &mut Outbox<'_>,
) {
    if acquire.session_lease && !sender.has_session {
        let message = "this connection has no session whose lease the claim could have";
        return refuse(outbox, caller.ticket, "flags", 0, message);
    }
    let mut engine_acquire = Acquire {
        key: acquire.key,
        hash: located.target,
        lease_ms: acquire.lease_ms,
        wait_ms: acquire.wait_ms,
        shared: acquire.shared,
        session_lease: acquire.session_lease,
        notify_queued: acquire.notify_queued,
        options: None,
    };
    if acquire.options == wire::AcquireOptions::default() {
        return shard.acquire(caller, &engine_acquire, outbox);
    }
    let scope = match acquire.options.scope {
        None | Some(0 | 1) => Scope::Ephemeral,
        Some(2) => Scope::Local,
        Some(3) => Scope::Quorum,
        Some(_) => {
            let message = "the scopes are 0 and 1 (ephemeral), 2 (local) and 3 (quorum)";
            return refuse(outbox, caller.ticket, "scope", 3, message);
        }
    };
    let options = AcquireOptions {
        release_after_ms: acquire.options.release_after_ms,
        priority: acquire.options.priority.unwrap_or(0),
        scope,
        request_id: acquire.options.request_id,
        owner: acquire.options.owner,
        metadata: acquire.options.metadata,
    };
    engine_acquire.options = Some(&options);
    shard.acquire(caller, &engine_acquire, outbox);
}

fn claim_id(id: wire::LockId) -> ClaimId {
    ClaimId { place: id.place, secret: id.secret }
}

/// Refuses a request before it reached the engine.
#[cold]
fn refuse(
    outbox: &mut Outbox<'_>,
    ticket: Ticket,
    field: &'static str,
    limit: u64,
    message: impl Into<Cow<'static, str>>,
) {
    outbox.answer(ticket, Answer::Refused(Refusal::bad_input(field, limit, message)));
}
