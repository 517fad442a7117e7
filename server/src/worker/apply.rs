//! Calls of the engine for decoded requests. This module converts most requests from the wire to the engine.

use super::answer::read_list_cursor;
use super::outbox::Outbox;
use super::serve::Sender;
use crate::clock::Clock;
use crate::limits::TIMESTAMP_SKEW_MAX_US;
use std::borrow::Cow;
use std::cell::Cell;
use waymaker_engine::{
    Acquire, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Answer, Caller, ClaimId, Effects,
    Fence, Lease, PageBounds, PoolOrder, Refusal, Register, Scope, Shard, Throttle, Ticket, TreeItem,
};
use waymaker_protocol as wire;
use waymaker_protocol::limits::{KEY_LEN_MAX, LIST_PAGE_BYTES_MAX, LIST_PAGE_MAX};
use waymaker_protocol::{Frame, NamespaceKind, Request};

/// Maximum number of paths in a requested set that is converted without a heap allocation.
const FEW: usize = 8;

/// The clock of one batch. `nanos` is read when the first request needs it, and once for all of them. Other readings
/// are made for each request.
#[derive(Debug)]
pub(crate) struct BatchClock<'a> {
    clock: &'a dyn Clock,
    nanos: Cell<Option<u64>>,
}

impl<'a> BatchClock<'a> {
    #[inline]
    pub(crate) fn new(clock: &'a dyn Clock) -> Self {
        Self { clock, nanos: Cell::new(None) }
    }

    pub(crate) fn nanos(&self) -> u64 {
        if let Some(nanos) = self.nanos.get() {
            return nanos;
        }
        let nanos = self.clock.nanos();
        self.nanos.set(Some(nanos));
        nanos
    }
}

/// Serves one request. `target` is the hash that the prefetch computed: of the key of an `ACQUIRE`, or of the name of
/// the bucket of a `THROTTLE`. It is 0 for other requests.
#[inline]
pub(crate) fn apply(
    shard: &mut Shard,
    sender: Sender,
    frame: Frame<'_>,
    target: u64,
    clock: &BatchClock<'_>,
    outbox: &mut Outbox<'_>,
) {
    let ticket = Ticket { lane: sender.address, number: frame.number() };
    let caller = Caller { lane: sender.lane, ticket, namespace: sender.namespace };
    match Request::decode(frame) {
        Ok(Request::Acquire(acquire)) => {
            apply_acquire(shard, sender, &caller, &acquire, has_options(frame), target, outbox);
        }
        Ok(Request::Release(release)) if !release.own => {
            shard.release(&caller, claim_id(release.id), release.key, outbox);
        }
        Ok(Request::Extend(extend)) if !extend.own => {
            shard.extend(&caller, claim_id(extend.id), extend.key, extend.lease_ms, outbox);
        }
        Ok(Request::Throttle(wire::Throttle { bucket, refund })) => {
            let throttle = throttle_of(&bucket, target, refund);
            shard.throttle(&caller, clock.nanos(), &throttle, outbox);
        }
        Ok(request) => apply_rare(shard, sender, &caller, &request, has_options(frame), clock, outbox),
        Err(error) => refuse(outbox, ticket, error.field(), error.limit(), error.to_string()),
    }
}

/// Serves a request of a kind that is not among the most frequent ones.
#[inline(never)]
fn apply_rare(
    shard: &mut Shard,
    sender: Sender,
    caller: &Caller,
    request: &Request<'_>,
    has_options: bool,
    clock: &BatchClock<'_>,
    outbox: &mut Outbox<'_>,
) {
    if let Err((field, limit, message)) = checked_key(sender.kind, request) {
        return refuse(outbox, caller.ticket, field, limit, message);
    }
    let lazy = sender.kind == NamespaceKind::Lazy;
    match request {
        Request::Release(release) => {
            shard.release_own(caller, claim_id(release.id), release.key, outbox);
        }
        Request::Extend(extend) => {
            shard.extend_own(caller, claim_id(extend.id), extend.key, extend.lease_ms, outbox);
        }
        Request::Cancel(cancel) => shard.cancel(caller, cancel.acquire_number, outbox),
        Request::Status(status) => shard.status(caller, claim_id(status.id), status.key, outbox),
        Request::Inspect(inspect) => shard.inspect(caller, inspect.key, outbox),
        Request::List(list) => {
            let (_, from) = read_list_cursor(list.cursor);
            shard.list(caller, list.prefix, list.waiting, from, &page_bounds(list.count_max), outbox);
        }
        Request::Holds(holds) => {
            let (_, from) = read_list_cursor(holds.cursor);
            shard.holds(caller, from, &page_bounds(holds.count_max), outbox);
        }
        Request::Watch(watch) => shard.watch(caller, watch.key, outbox),
        Request::Unwatch(unwatch) => shard.unwatch(caller, unwatch.watch_number, outbox),
        Request::Verify(verify) => shard.verify_fence(caller, verify.key, Fence::new(verify.fence), outbox),
        Request::ForceRelease(release) => {
            shard.force_release(caller, claim_id(release.id), release.reason, outbox);
        }
        Request::AcquireSet(acquire) => {
            apply_acquire_set(shard, sender, caller, acquire, has_options, outbox);
        }
        Request::TreeStatistics(_) => shard.tree_statistics(caller, outbox),
        Request::AcquirePermits(acquire) => {
            apply_acquire_permits(shard, sender, caller, acquire, has_options, clock, outbox);
        }
        Request::DescribePool(describe) => shard.describe_pool(caller, describe.name, outbox),
        Request::SetCapacity(set) => {
            shard.set_capacity(caller, set.name, set.capacity, pool_order(set.order), outbox);
        }
        Request::ListPools(list) => {
            let (_, from) = read_list_cursor(list.cursor);
            shard.list_pools(caller, list.prefix, from, &page_bounds(list.count_max), outbox);
        }
        Request::Register(register) => {
            shard.register(caller, &registration(register, lazy, clock), outbox);
        }
        Request::Heartbeat(wire::Heartbeat(register)) => {
            shard.heartbeat(caller, &registration(register, lazy, clock), outbox);
        }
        Request::Unregister(unregister) => {
            shard.unregister(caller, unregister.key, unregister.owner, lazy, outbox);
        }
        Request::LookUp(look_up) => shard.look_up(caller, look_up.key, outbox),
        Request::ListEntries(list) => {
            let (_, from) = read_list_cursor(list.cursor);
            let type_name = (!list.any_type).then_some(list.type_name);
            shard.list_registrations(caller, type_name, from, &page_bounds(list.count_max), outbox);
        }
        _ => refuse(outbox, caller.ticket, "opcode", 0, "unexpected request for one shard"),
    }
}

/// Checks the key of a request, or the prefix of a list. A key of a tree namespace must be a path, which may be empty.
/// Of the other kinds, only a registry may have an empty key. Requests that are not listed here pass. Among them are
/// acquires, because their decoding checks the keys and paths already.
fn checked_key(kind: NamespaceKind, request: &Request<'_>) -> Result<(), (&'static str, u64, &'static str)> {
    let limit = KEY_LEN_MAX as u64;
    let (key, may_be_empty) = match request {
        Request::Cancel(cancel) => (cancel.key, false),
        Request::Inspect(inspect) => (inspect.key, kind == NamespaceKind::Registry),
        Request::Watch(watch) => (watch.key, kind == NamespaceKind::Registry),
        Request::Verify(verify) => (verify.key, kind == NamespaceKind::Registry),
        Request::Register(register) | Request::Heartbeat(wire::Heartbeat(register)) => {
            (register.key, kind == NamespaceKind::Registry)
        }
        Request::List(list) if kind != NamespaceKind::Tree && list.prefix.len() > KEY_LEN_MAX => {
            return Err(("prefix", limit, "the prefix is too long; the maximum is 1024 bytes"));
        }
        _ => return Ok(()),
    };
    if kind == NamespaceKind::Tree {
        return wire::PathKey::new(key)
            .map(|_| ())
            .map_err(|_| ("key", 0, "the key is not a path; a tree namespace needs a path"));
    }
    if key.is_empty() && !may_be_empty {
        return Err(("key", 0, "the key is empty"));
    }
    if key.len() > KEY_LEN_MAX {
        return Err(("key", limit, "the key is too long; the maximum is 1024 bytes"));
    }
    Ok(())
}

fn page_bounds(count_max: u16) -> PageBounds {
    let count_max = if count_max == 0 { LIST_PAGE_MAX } else { count_max.min(LIST_PAGE_MAX) };
    PageBounds { count_max: usize::from(count_max), bytes_max: LIST_PAGE_BYTES_MAX }
}

#[inline]
fn apply_acquire(
    shard: &mut Shard,
    sender: Sender,
    caller: &Caller,
    acquire: &wire::Acquire<'_>,
    has_options: bool,
    hash: u64,
    outbox: &mut Outbox<'_>,
) {
    let mut options = None;
    match terms_of(shard, sender.namespace, sender.has_session, &acquire.terms, has_options, &mut options) {
        Ok(terms) => {
            let wire::Acquire { key, shared, .. } = *acquire;
            shard.acquire(caller, &Acquire { key, hash, shared, terms }, outbox);
        }
        Err(refusal) => outbox.answer(caller.ticket, Answer::Refused(refusal)),
    }
}

fn apply_acquire_set(
    shard: &mut Shard,
    sender: Sender,
    caller: &Caller,
    acquire: &wire::AcquireSet<'_>,
    has_options: bool,
    outbox: &mut Outbox<'_>,
) {
    let mut options = None;
    let terms =
        terms_of(shard, sender.namespace, sender.has_session, &acquire.terms, has_options, &mut options);
    let terms = match terms {
        Ok(terms) => terms,
        Err(refusal) => return outbox.answer(caller.ticket, Answer::Refused(refusal)),
    };
    let mut few = [TreeItem { path: b"", write: false }; FEW];
    let many: Vec<TreeItem<'_>>;
    let items = if acquire.items.len() <= FEW {
        for (place, wanted) in few.iter_mut().zip(acquire.items) {
            *place = tree_item(wanted);
        }
        &few[..acquire.items.len()]
    } else {
        many = acquire.items.iter().map(tree_item).collect();
        &many
    };
    shard.acquire_set(caller, &AcquireSet { items, terms }, outbox);
}

fn tree_item(item: wire::PathItem<'_>) -> TreeItem<'_> {
    TreeItem { path: item.path.as_bytes(), write: item.write }
}

fn apply_acquire_permits(
    shard: &mut Shard,
    sender: Sender,
    caller: &Caller,
    acquire: &wire::AcquirePermits<'_>,
    has_options: bool,
    clock: &BatchClock<'_>,
    outbox: &mut Outbox<'_>,
) {
    let mut options = None;
    let terms =
        terms_of(shard, sender.namespace, sender.has_session, &acquire.terms, has_options, &mut options);
    let terms = match terms {
        Ok(terms) => terms,
        Err(refusal) => return outbox.answer(caller.ticket, Answer::Refused(refusal)),
    };
    // With `any_capacity`, an existing pool stays as it is. The capacity and the order then apply only to a new pool.
    let existing =
        if acquire.any_capacity { shard.order_of_pool(caller.namespace, acquire.name) } else { None };
    let says_nothing = acquire.any_capacity && acquire.capacity == 0;
    let order = existing.unwrap_or_else(|| pool_order(acquire.order));
    let acquire = AcquirePermits {
        name: acquire.name,
        capacity: (existing.is_none() && !says_nothing).then_some(acquire.capacity),
        permits: acquire.permits,
        order,
        timestamp_us: match order {
            PoolOrder::Arrival => 0,
            PoolOrder::Timestamp => clamped_timestamp(acquire.timestamp_us, clock),
        },
        terms,
    };
    shard.acquire_permits(caller, &acquire, outbox);
}

/// Returns the timestamp of a client, or the time of day if it is 0. Replaces a timestamp that differs from the time of
/// day by more than an hour by the nearest one within the hour.
fn clamped_timestamp(timestamp_us: u64, clock: &BatchClock<'_>) -> u64 {
    let now_us = u64::try_from(clock.clock.unix_micros()).unwrap_or(0);
    if timestamp_us == 0 {
        return now_us;
    }
    timestamp_us
        .clamp(now_us.saturating_sub(TIMESTAMP_SKEW_MAX_US), now_us.saturating_add(TIMESTAMP_SKEW_MAX_US))
}

fn pool_order(order: wire::PoolOrder) -> PoolOrder {
    match order {
        wire::PoolOrder::Arrival => PoolOrder::Arrival,
        wire::PoolOrder::Timestamp => PoolOrder::Timestamp,
    }
}

/// Converts a registration to the engine's form, with its lease on the engine's clock.
fn registration<'a>(register: &wire::Register<'a>, lazy: bool, clock: &BatchClock<'_>) -> Register<'a> {
    let lease = if register.absolute {
        // Read the time of day and the server's clock together now. The time of the shard is too old for that: it is
        // the time of the batch, and the thread may have been interrupted since.
        let unix_ms = clock.clock.unix_micros().div_euclid(1000);
        let now_ms = i64::try_from(clock.clock.now().as_millis()).unwrap_or(i64::MAX);
        Lease::Until(register.lease_ms.saturating_sub(unix_ms).saturating_add(now_ms))
    } else {
        Lease::FromNow(register.lease_ms)
    };
    let wire::Register { key, owner, value, type_name, ephemeral, .. } = *register;
    Register { key, owner, value, type_name, lease, lazy, ephemeral }
}

/// Returns the engine's form of a request for one bucket. `hash` is the hash of its name, or 0 if the caller has not
/// computed it.
pub(crate) fn throttle_of<'a>(bucket: &wire::Bucket<'a>, hash: u64, refund: bool) -> Throttle<'a> {
    let wire::Bucket { rate, burst, cost, period_ns, name } = *bucket;
    Throttle { name, hash, rate, period_ns, burst, cost, refund }
}

/// Whether an acquire has any optional field.
#[inline]
pub(super) fn has_options(frame: Frame<'_>) -> bool {
    frame.flags() & wire::message::acquire_terms::flag::OPTIONAL != 0
}

/// Returns the terms of an acquire in the engine's form, completed by the terms of its namespace. If there are options,
/// the function stores them in `options`, and the returned terms refer to them.
///
/// # Errors
/// Returns the refusal of a session lease on a connection without a session, or of an unknown scope.
#[inline]
pub(super) fn terms_of<'a>(
    shard: &Shard,
    namespace: u16,
    has_session: bool,
    terms: &wire::AcquireTerms<'a>,
    has_options: bool,
    options: &'a mut Option<AcquireOptions<'a>>,
) -> Result<AcquireTerms<'a>, Refusal> {
    check_session(has_session, terms)?;
    let mut engine_terms = terms_without_options(terms);
    // In the common case the acquire has no options, and no namespace has configured terms, such as a default lease or
    // a minimum scope. Then the engine gets no options.
    if has_options || shard.has_terms() {
        let options = options.insert(acquire_options(&terms.options)?);
        shard.apply_terms(namespace, &mut engine_terms, options);
        engine_terms.options = (*options != AcquireOptions::NONE).then_some(options);
    }
    Ok(engine_terms)
}

#[inline]
fn terms_without_options(terms: &wire::AcquireTerms<'_>) -> AcquireTerms<'static> {
    let wire::AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, .. } = *terms;
    AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options: None }
}

/// Refuses a hold on the session lease if the connection has no session.
#[inline]
fn check_session(has_session: bool, terms: &wire::AcquireTerms<'_>) -> Result<(), Refusal> {
    if !terms.session_lease || has_session {
        return Ok(());
    }
    let message = "SESSION_LEASE needs a session, but this connection has none";
    Err(Refusal::bad_input("flags", 0, message))
}

/// Converts the options of an acquire to the engine's form.
fn acquire_options<'a>(options: &wire::AcquireOptions<'a>) -> Result<AcquireOptions<'a>, Refusal> {
    let scope = match options.scope {
        None | Some(0 | 1) => Scope::Ephemeral,
        Some(2) => Scope::Local,
        Some(3) => Scope::Quorum,
        Some(_) => {
            let message = "unknown scope; use 0 or 1 (ephemeral), 2 (local) or 3 (quorum)";
            return Err(Refusal::bad_input("scope", 3, message));
        }
    };
    Ok(AcquireOptions {
        release_after_ms: options.release_after_ms,
        priority: options.priority.unwrap_or(0),
        scope,
        request_id: options.request_id,
        owner: options.owner,
        metadata: options.metadata,
    })
}

pub(crate) fn claim_id(id: wire::LockId) -> ClaimId {
    ClaimId { place: id.place, secret: id.secret }
}

/// Refuses a request before it reaches the engine.
#[cold]
pub(crate) fn refuse(
    outbox: &mut Outbox<'_>,
    ticket: Ticket,
    field: &'static str,
    limit: u64,
    message: impl Into<Cow<'static, str>>,
) {
    outbox.answer(ticket, Answer::Refused(Refusal::bad_input(field, limit, message)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_engine::Time;

    /// A clock that stands still, 30 s after boot and 60 s after 1970.
    #[derive(Debug)]
    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Time {
            Time::from_millis(30_000)
        }

        fn nanos(&self) -> u64 {
            30_000_000_000
        }

        fn unix_micros(&self) -> i64 {
            60_000_000
        }
    }

    #[test]
    fn an_absolute_lease_does_not_depend_on_the_time_of_its_batch() {
        let register = wire::Register { lease_ms: 60_600, absolute: true, ..wire::Register::default() };
        let registered = registration(&register, false, &BatchClock::new(&Stopped));
        assert_eq!(registered.lease, Lease::Until(30_600));
    }
}
