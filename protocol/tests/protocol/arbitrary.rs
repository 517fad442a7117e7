//! Messages of every kind with any contents that a peer may send.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use waymaker_protocol::items::Item;
use waymaker_protocol::limits::{
    CREDENTIALS_LEN_MAX, KEY_LEN_MAX, METADATA_LEN_MAX, NAMESPACE_LEN_MAX, OWNER_LEN_MAX,
    REASON_CODE_LEN_MAX, REASON_LEN_MAX, REASON_MESSAGE_LEN_MAX, REQUEST_ID_LEN_MAX, SEGMENT_LEN_MAX,
    SERVER_ADDRESSES_LEN_MAX, SERVER_VERSION_LEN_MAX, TYPE_LEN_MAX, VALUE_LEN_MAX,
};
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Bucket, Cancel,
    Cancelled, Capabilities, CapacitySet, Contention, DescribePool, EntriesListed, Entry, ErrorAnswer,
    ErrorCode, ErrorDetail, Event, Extend, Extended, Farewell, ForceRelease, ForceReleased, Freeze, Frozen,
    Goodbye, Granted, GrantedKey, GrantedKeys, Heartbeat, Hello, Holder, Holds, Inspect, Inspected, Items,
    KeepAlive, KeptAlive, KeyItem, List, ListEntries, ListPools, Listed, ListedLock, ListedNamespace,
    ListedPool, LockId, LockState, LookUp, LookedUp, NamespaceKind, NamespaceRemoved, Namespaces,
    NamespacesListed, PathItem, PathKey, PermitHolder, PermitWaiter, Pong, PoolDescribed, PoolOrder,
    PoolsListed, Readiness, Register, Registered, Release, Released, RemoveNamespace, Request, Response,
    RevokeReason, ServerReason, ServerStatus, ServerStatusAnswer, SessionId, SessionRequest, SetCapacity,
    Status, StatusAnswer, Throttle, ThrottleAll, Throttled, TraceParent, TraceParentBytes, TreeStatistics,
    TreeStatisticsAnswer, Unregister, Unregistered, Unwatch, Unwatched, Verified, Verify, Waiter, Watch,
    Watching, Welcome,
};

use crate::direction::Message;

const CASES: u32 = 4096;

/// Returns a number of cases that covers every kind of message many times and is fast enough to run after every change.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig::with_cases(CASES)
}

/// Generates messages of both directions.
pub(crate) fn message() -> impl Strategy<Value = Message<'static>> {
    prop_oneof![request().prop_map(Message::Request), response().prop_map(Message::Response)]
}

/// Generates requests.
pub(crate) fn request() -> impl Strategy<Value = Request<'static>> {
    prop_oneof![
        hello().prop_map(Request::Hello),
        Just(Request::KeepAlive(KeepAlive)),
        Just(Request::Goodbye(Goodbye)),
        Just(Request::Pong(Pong)),
        acquire().prop_map(Request::Acquire),
        (lock_id(), of(key()), any::<bool>()).prop_map(|(id, key, own)| Request::Release(Release {
            id,
            key,
            own
        })),
        (lock_id(), any::<u32>(), of(key()), any::<bool>())
            .prop_map(|(id, lease_ms, key, own)| Request::Extend(Extend { id, lease_ms, key, own })),
        (any::<u32>(), key_or_path())
            .prop_map(|(acquire_number, key)| Request::Cancel(Cancel { acquire_number, key })),
        (lock_id(), of(key())).prop_map(|(id, key)| Request::Status(Status { id, key })),
        key_or_path().prop_map(|key| Request::Inspect(Inspect { key })),
        (any::<u64>(), any::<u16>(), key_or_path(), any::<bool>()).prop_map(
            |(cursor, count_max, prefix, waiting)| Request::List(List { cursor, count_max, prefix, waiting })
        ),
        multi_key_request(),
        request_of_pool_or_limiter(),
        request_of_registry(),
        request_of_watcher_or_operator(),
    ]
}

fn multi_key_request() -> impl Strategy<Value = Request<'static>> {
    prop_oneof![acquire_set().prop_map(Request::AcquireSet), acquire_keys().prop_map(Request::AcquireKeys)]
}

fn request_of_pool_or_limiter() -> impl Strategy<Value = Request<'static>> {
    prop_oneof![
        acquire_permits().prop_map(Request::AcquirePermits),
        key().prop_map(|name| Request::DescribePool(DescribePool { name })),
        (any::<u64>(), pool_order(), key(), string(0, REASON_LEN_MAX)).prop_map(
            |(capacity, order, name, reason)| Request::SetCapacity(SetCapacity {
                capacity,
                order,
                name,
                reason
            })
        ),
        (any::<u64>(), any::<u16>(), string(0, KEY_LEN_MAX)).prop_map(|(cursor, count_max, prefix)| {
            Request::ListPools(ListPools { cursor, count_max, prefix })
        }),
        (bucket(), any::<bool>()).prop_map(|(bucket, refund)| Request::Throttle(Throttle { bucket, refund })),
        (items(bucket()), any::<bool>())
            .prop_map(|(buckets, refund)| Request::ThrottleAll(ThrottleAll { buckets, refund })),
    ]
}

fn request_of_registry() -> impl Strategy<Value = Request<'static>> {
    prop_oneof![
        Just(Request::TreeStatistics(TreeStatistics)),
        register().prop_map(Request::Register),
        register().prop_map(|register| {
            Request::Heartbeat(Heartbeat(Register { ephemeral: false, traceparent: None, ..register }))
        }),
        (entry_key(), owner()).prop_map(|(key, owner)| Request::Unregister(Unregister { key, owner })),
        entry_key().prop_map(|key| Request::LookUp(LookUp { key })),
        (any::<u64>(), any::<u16>(), any::<bool>(), string(0, TYPE_LEN_MAX)).prop_map(
            |(cursor, count_max, any_type, type_name)| {
                Request::ListEntries(ListEntries { cursor, count_max, any_type, type_name })
            }
        ),
    ]
}

fn request_of_watcher_or_operator() -> impl Strategy<Value = Request<'static>> {
    prop_oneof![
        (any::<u64>(), any::<u16>())
            .prop_map(|(cursor, count_max)| Request::Holds(Holds { cursor, count_max })),
        key_or_path().prop_map(|key| Request::Watch(Watch { key })),
        (any::<u32>(), key_or_path())
            .prop_map(|(watch_number, key)| Request::Unwatch(Unwatch { watch_number, key })),
        (any::<u64>(), key_or_path()).prop_map(|(fence, key)| Request::Verify(Verify { fence, key })),
        (lock_id(), string(0, REASON_LEN_MAX))
            .prop_map(|(id, reason)| Request::ForceRelease(ForceRelease { id, reason })),
        (key_or_path(), any::<bool>(), string(0, REASON_LEN_MAX))
            .prop_map(|(prefix, thaw, reason)| Request::Freeze(Freeze { prefix, thaw, reason })),
        (any::<u64>(), any::<u16>())
            .prop_map(|(cursor, count_max)| Request::Namespaces(Namespaces { cursor, count_max })),
        string(1, NAMESPACE_LEN_MAX).prop_map(|name| Request::RemoveNamespace(RemoveNamespace { name })),
        Just(Request::ServerStatus(ServerStatus)),
    ]
}

/// Generates responses.
pub(crate) fn response() -> impl Strategy<Value = Response<'static>> {
    prop_oneof![
        welcome().prop_map(Response::Welcome),
        (any::<u32>(), any::<u64>())
            .prop_map(|(remaining_ms, stamp_ms)| Response::KeptAlive(KeptAlive { remaining_ms, stamp_ms })),
        Just(Response::Farewell(Farewell)),
        Just(Response::NamespaceRemoved(NamespaceRemoved)),
        granted().prop_map(Response::Granted),
        any::<bool>().prop_map(|was_waiting| Response::Released(Released { was_waiting })),
        (any::<u32>(), any::<u64>(), any::<bool>()).prop_map(|(remaining_ms, stamp_ms, clamped)| {
            Response::Extended(Extended { remaining_ms, stamp_ms, clamped })
        }),
        any::<bool>().prop_map(|was_waiting| Response::Cancelled(Cancelled { was_waiting })),
        status_answer().prop_map(Response::Status),
        inspected().prop_map(Response::Inspected),
        (any::<u64>(), vec(listed_lock(), 0..3))
            .prop_map(|(next, locks)| Response::Listed(Listed { next, locks })),
        response_about_claims(),
        response_about_pool_or_limiter(),
        response_of_registry(),
        response_to_watcher_or_operator(),
        event().prop_map(Response::Event),
        error().prop_map(Response::Error),
    ]
}

fn response_about_claims() -> impl Strategy<Value = Response<'static>> {
    let key = (lock_id(), any::<u64>(), any::<u32>(), any::<bool>(), key()).prop_map(
        |(id, fence, remaining_ms, shared, key)| GrantedKey { id, fence, remaining_ms, shared, key },
    );
    (any::<u64>(), any::<[bool; 4]>(), vec(key, 0..4)).prop_map(
        |(stamp_ms, [clamped, waited, repeated, session_lease], keys)| {
            Response::GrantedKeys(GrantedKeys { stamp_ms, clamped, waited, repeated, session_lease, keys })
        },
    )
}

fn response_about_pool_or_limiter() -> impl Strategy<Value = Response<'static>> {
    prop_oneof![
        pool_described().prop_map(Response::PoolDescribed),
        tree_statistics_answer().prop_map(Response::TreeStatistics),
        any::<u64>().prop_map(|previous| Response::CapacitySet(CapacitySet { previous })),
        (any::<u64>(), vec(listed_pool(), 0..3))
            .prop_map(|(next, pools)| Response::PoolsListed(PoolsListed { next, pools })),
        (any::<bool>(), any::<[u64; 3]>()).prop_map(
            |(allowed, [remaining, retry_after_ns, reset_after_ns])| {
                Response::Throttled(Throttled { allowed, remaining, retry_after_ns, reset_after_ns })
            }
        ),
    ]
}

fn response_of_registry() -> impl Strategy<Value = Response<'static>> {
    prop_oneof![
        (lock_id(), any::<[u64; 2]>(), any::<i64>(), any::<bool>()).prop_map(
            |(id, [fence, stamp_ms], remaining_ms, renewed)| {
                Response::Registered(Registered { id, fence, remaining_ms, stamp_ms, renewed })
            }
        ),
        any::<bool>().prop_map(|was_expired| Response::Unregistered(Unregistered { was_expired })),
        (any::<u64>(), any::<bool>(), entry())
            .prop_map(|(stamp_ms, found, entry)| Response::LookedUp(LookedUp { stamp_ms, found, entry })),
        (any::<u64>(), vec(entry(), 0..3))
            .prop_map(|(next, entries)| Response::EntriesListed(EntriesListed { next, entries })),
    ]
}

fn response_to_watcher_or_operator() -> impl Strategy<Value = Response<'static>> {
    prop_oneof![
        (any::<[u64; 2]>(), any::<[u32; 2]>()).prop_map(
            |([fence, stamp_ms], [holder_count, waiter_count])| {
                Response::Watching(Watching { fence, stamp_ms, holder_count, waiter_count })
            }
        ),
        any::<bool>().prop_map(|was_watching| Response::Unwatched(Unwatched { was_watching })),
        (any::<[bool; 2]>(), any::<[u64; 2]>()).prop_map(|([newest, held], [newest_fence, stamp_ms])| {
            Response::Verified(Verified { newest, held, newest_fence, stamp_ms })
        }),
        (any::<u64>(), key_or_path(), owner(), any::<bool>()).prop_map(|(fence, key, owner, was_waiting)| {
            Response::ForceReleased(ForceReleased { fence, key, owner, was_waiting })
        }),
        (any::<bool>(), any::<u16>())
            .prop_map(|(changed, frozen_count)| Response::Frozen(Frozen { changed, frozen_count })),
        (any::<u64>(), vec(listed_namespace(), 0..3)).prop_map(|(next, namespaces)| {
            Response::NamespacesListed(NamespacesListed { next, namespaces })
        }),
        server_status_answer().prop_map(Response::ServerStatus),
    ]
}

fn server_status_answer() -> impl Strategy<Value = ServerStatusAnswer<'static>> {
    let readiness = prop_oneof![Just(Readiness::Ready), Just(Readiness::Degraded), Just(Readiness::NotReady)];
    let reason = (string(0, REASON_CODE_LEN_MAX), string(0, REASON_MESSAGE_LEN_MAX), any::<u64>())
        .prop_map(|(code, message, remaining_ms)| ServerReason { code, message, remaining_ms });
    let texts = (string(0, SERVER_VERSION_LEN_MAX), string(0, SERVER_ADDRESSES_LEN_MAX));
    (any::<u64>(), readiness, texts, vec(reason, 0..4)).prop_map(
        |(uptime_ms, readiness, (version, addresses), reasons)| ServerStatusAnswer {
            uptime_ms,
            readiness,
            version,
            addresses,
            reasons,
        },
    )
}

/// Generates strings, mostly short and sometimes of the maximum length. Leaks them, because messages borrow their
/// strings.
fn string(len_min: usize, len_max: usize) -> impl Strategy<Value = &'static [u8]> {
    let short = vec(any::<u8>(), len_min..24);
    let longest = any::<u8>().prop_map(move |byte| std::vec![byte; len_max]);
    prop_oneof![15 => short, 1 => longest].prop_map(|bytes| &*bytes.leak())
}

fn key() -> impl Strategy<Value = &'static [u8]> {
    string(1, KEY_LEN_MAX)
}

/// Generates a key or a path key. The codec of most messages does not distinguish them.
fn key_or_path() -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![7 => string(0, KEY_LEN_MAX), 3 => path().prop_map(PathKey::as_bytes)]
}

/// Generates the key of a registration.
fn entry_key() -> impl Strategy<Value = &'static [u8]> {
    string(0, KEY_LEN_MAX)
}

fn path() -> impl Strategy<Value = PathKey<'static>> {
    let lens = prop_oneof![15 => vec(0..4_usize, 0..6), 1 => Just(vec![SEGMENT_LEN_MAX])];
    (lens, any::<u8>()).prop_map(|(lens, byte)| {
        let mut bytes = Vec::new();
        PathKey::append(lens.iter().map(|len| vec![byte; *len]), &mut bytes).expect("within the limits");
        PathKey::new(bytes.leak()).expect("a path key")
    })
}

fn items<T: Item<'static> + std::fmt::Debug>(
    item: impl Strategy<Value = T>,
) -> impl Strategy<Value = Items<'static, T>> {
    vec(item, 1..4).prop_map(|items| {
        let buffer = Box::leak(Box::new(Vec::new()));
        Items::new(items, buffer).expect("within the limits")
    })
}

fn owner() -> impl Strategy<Value = &'static [u8]> {
    string(0, OWNER_LEN_MAX)
}

fn lock_id() -> impl Strategy<Value = LockId> {
    (any::<u64>(), any::<u64>()).prop_map(|(place, secret)| LockId { place, secret })
}

fn session_id() -> impl Strategy<Value = SessionId> {
    (any::<u64>(), any::<u64>()).prop_map(|(place, secret)| SessionId { place, secret })
}

fn hello() -> impl Strategy<Value = Hello<'static>> {
    let session = prop_oneof![
        Just(SessionRequest::None),
        any::<u32>().prop_map(|lease_ms| SessionRequest::New { lease_ms }),
        (session_id(), any::<u16>()).prop_map(|(id, lane)| SessionRequest::Resume { id, lane }),
        session_id().prop_map(|id| SessionRequest::Join { id }),
    ];
    let kind = proptest::sample::select(&NamespaceKind::ALL[..]);
    let numbers = (any::<u16>(), any::<u16>(), any::<u16>(), any::<Option<u32>>());
    let strings = (string(1, NAMESPACE_LEN_MAX), owner(), string(0, CREDENTIALS_LEN_MAX));
    let offers = (any::<bool>(), capabilities());
    (kind, session, numbers, strings, offers).prop_map(
        |(kind, session, numbers, strings, (notify_taken_up, capabilities))| {
            let (version_min, version_max, worker, attempt) = numbers;
            let (namespace, owner, credentials) = strings;
            Hello {
                version_min,
                version_max,
                kind,
                session,
                worker,
                namespace,
                owner,
                credentials,
                attempt,
                notify_taken_up,
                capabilities,
            }
        },
    )
}

/// Generates known and unknown bits, or no set.
fn capabilities() -> impl Strategy<Value = Option<Capabilities>> {
    of(any::<u64>().prop_map(Capabilities::from_bits))
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let of_session = (session_id(), any::<u16>(), any::<u32>(), any::<bool>());
    (any::<[u16; 4]>(), any::<[u32; 6]>(), any::<[u64; 2]>(), of_session, capabilities()).prop_map(
        |(shorts, words, longs, (session_id, lane, session_lease_ms, resumed), capabilities)| {
            let [version, worker, worker_count, shard_count] = shorts;
            let [
                slot_map_version,
                lease_default_ms,
                lease_min_ms,
                lease_max_ms,
                in_flight_max,
                frame_len_max,
            ] = words;
            let [stamp_ms, server_id] = longs;
            Welcome {
                version,
                worker,
                worker_count,
                shard_count,
                slot_map_version,
                session_id,
                lane,
                session_lease_ms,
                stamp_ms,
                server_id,
                lease_default_ms,
                lease_min_ms,
                lease_max_ms,
                in_flight_max,
                frame_len_max,
                resumed,
                capabilities,
            }
        },
    )
}

fn acquire() -> impl Strategy<Value = Acquire<'static>> {
    let options = prop_oneof![Just(AcquireOptions::default()), acquire_options()];
    (any::<[u32; 2]>(), key(), any::<[bool; 3]>(), options).prop_map(|(periods, key, bits, options)| {
        let [lease_ms, wait_ms] = periods;
        let [shared, session_lease, notify_queued] = bits;
        Acquire {
            key,
            shared,
            terms: AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
        }
    })
}

fn acquire_options() -> impl Strategy<Value = AcquireOptions<'static>> {
    let numbers = (of(any::<u32>()), of(any::<u32>()), of(any::<u8>()));
    let strings = (of(string(1, REQUEST_ID_LEN_MAX)), of(owner()), of(string(0, METADATA_LEN_MAX)));
    (numbers, strings, of(traceparent_bytes())).prop_map(
        |(numbers, (request_id, owner, metadata), traceparent)| {
            let (release_after_ms, priority, scope) = numbers;
            AcquireOptions { release_after_ms, priority, scope, request_id, owner, metadata, traceparent }
        },
    )
}

fn traceparent_bytes() -> impl Strategy<Value = &'static TraceParentBytes> {
    traceparent().prop_map(|context| &*Box::leak(Box::new(*context.as_bytes())))
}

pub(crate) fn traceparent() -> impl Strategy<Value = TraceParent> {
    let parts = (any::<[u8; 16]>(), any::<[u8; 8]>(), any::<u8>());
    parts.prop_filter_map("an id is all zeros", |(trace_id, span_id, flags)| {
        TraceParent::new(trace_id, span_id, flags).ok()
    })
}

fn options_without_priority() -> impl Strategy<Value = AcquireOptions<'static>> {
    prop_oneof![Just(AcquireOptions::default()), acquire_options()]
        .prop_map(|options| AcquireOptions { priority: None, ..options })
}

fn acquire_set() -> impl Strategy<Value = AcquireSet<'static>> {
    let item = (any::<bool>(), path()).prop_map(|(write, path)| PathItem { write, path });
    (any::<[u32; 2]>(), any::<[bool; 2]>(), items(item), options_without_priority()).prop_map(
        |([lease_ms, wait_ms], [session_lease, notify_queued], items, options)| AcquireSet {
            items,
            terms: AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
        },
    )
}

fn acquire_keys() -> impl Strategy<Value = AcquireKeys<'static>> {
    let item = (any::<bool>(), key()).prop_map(|(shared, key)| KeyItem { shared, key });
    let options = prop_oneof![Just(AcquireOptions::default()), acquire_options()];
    (any::<[u32; 2]>(), any::<[bool; 2]>(), items(item), options).prop_map(
        |([lease_ms, wait_ms], [session_lease, notify_queued], items, options)| AcquireKeys {
            items,
            terms: AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
        },
    )
}

fn pool_order() -> impl Strategy<Value = PoolOrder> {
    prop_oneof![Just(PoolOrder::Arrival), Just(PoolOrder::Timestamp)]
}

fn acquire_permits() -> impl Strategy<Value = AcquirePermits<'static>> {
    let capacity = prop_oneof![
        (1..=u64::MAX).prop_map(|capacity| (capacity, false)),
        any::<u64>().prop_map(|capacity| (capacity, true))
    ];
    let numbers = (capacity, 1..=u64::MAX, any::<u64>(), any::<[u32; 2]>());
    (numbers, any::<[bool; 2]>(), pool_order(), key(), options_without_priority()).prop_map(
        |(numbers, [session_lease, notify_queued], order, name, options)| {
            let ((capacity, any_capacity), permits, timestamp_us, [lease_ms, wait_ms]) = numbers;
            AcquirePermits {
                capacity,
                permits,
                order,
                timestamp_us,
                name,
                any_capacity,
                terms: AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options },
            }
        },
    )
}

fn pool_described() -> impl Strategy<Value = PoolDescribed<'static>> {
    let claim = || (lock_id(), any::<[u64; 3]>(), any::<u32>(), owner());
    let holder = claim().prop_map(|(id, [permits, fence, age_ms], remaining_ms, owner)| PermitHolder {
        id,
        permits,
        fence,
        age_ms,
        remaining_ms,
        owner,
    });
    let waiter = claim().prop_map(|(id, [permits, ticket, age_ms], remaining_ms, owner)| PermitWaiter {
        id,
        permits,
        ticket,
        age_ms,
        remaining_ms,
        owner,
    });
    let numbers = (any::<[u64; 4]>(), any::<[u32; 2]>());
    (numbers, pool_order(), any::<bool>(), vec(holder, 0..3), vec(waiter, 0..3)).prop_map(
        |(numbers, order, is_set, holders, waiters)| {
            let ([capacity, held, fence, stamp_ms], [holder_count, waiter_count]) = numbers;
            PoolDescribed {
                capacity,
                held,
                fence,
                stamp_ms,
                order,
                is_set,
                holder_count,
                waiter_count,
                holders,
                waiters,
            }
        },
    )
}

fn bucket() -> impl Strategy<Value = Bucket<'static>> {
    (1..=u32::MAX, 1..=u32::MAX, any::<u32>(), 1..=u64::MAX, key())
        .prop_map(|(rate, burst, cost, period_ns, name)| Bucket { rate, burst, cost, period_ns, name })
}

fn register() -> impl Strategy<Value = Register<'static>> {
    let strings = (entry_key(), string(1, OWNER_LEN_MAX), string(0, VALUE_LEN_MAX), string(0, TYPE_LEN_MAX));
    (any::<i64>(), any::<[bool; 2]>(), strings, of(traceparent_bytes())).prop_map(
        |(lease_ms, [absolute, ephemeral], (key, owner, value, type_name), traceparent)| Register {
            lease_ms,
            absolute,
            ephemeral,
            key,
            owner,
            value,
            type_name,
            traceparent,
        },
    )
}

fn entry() -> impl Strategy<Value = Entry<'static>> {
    let strings = (entry_key(), owner(), string(0, VALUE_LEN_MAX), string(0, TYPE_LEN_MAX));
    (lock_id(), any::<[u64; 2]>(), any::<i64>(), strings).prop_map(
        |(id, [fence, age_ms], remaining_ms, (key, owner, value, type_name))| Entry {
            id,
            fence,
            age_ms,
            remaining_ms,
            key,
            owner,
            value,
            type_name,
        },
    )
}

fn listed_pool() -> impl Strategy<Value = ListedPool<'static>> {
    (any::<[u64; 3]>(), any::<[u32; 2]>(), pool_order(), any::<bool>(), key()).prop_map(
        |([capacity, held, fence], [holder_count, waiter_count], order, is_set, name)| ListedPool {
            capacity,
            held,
            fence,
            order,
            is_set,
            holder_count,
            waiter_count,
            name,
        },
    )
}

fn listed_namespace() -> impl Strategy<Value = ListedNamespace<'static>> {
    let kind = proptest::sample::select(&NamespaceKind::ALL[..]);
    (string(1, NAMESPACE_LEN_MAX), kind, any::<[u64; 5]>()).prop_map(
        |(name, kind, [held, waiting, timeouts, expired, revoked])| ListedNamespace {
            name,
            kind,
            held,
            waiting,
            timeouts,
            expired,
            revoked,
        },
    )
}

fn granted() -> impl Strategy<Value = Granted> {
    (lock_id(), any::<[u64; 2]>(), any::<u32>(), any::<[bool; 4]>()).prop_map(
        |(id, [fence, stamp_ms], remaining_ms, [clamped, waited, repeated, session_lease])| Granted {
            id,
            fence,
            remaining_ms,
            stamp_ms,
            clamped,
            waited,
            repeated,
            session_lease,
        },
    )
}

fn status_answer() -> impl Strategy<Value = StatusAnswer<'static>> {
    let state = prop_oneof![Just(LockState::Waiting), Just(LockState::Held)];
    (state, any::<[bool; 2]>(), any::<[u64; 4]>(), any::<[u32; 2]>(), key_or_path()).prop_map(
        |(
            state,
            [shared, session_lease],
            [fence, age_ms, stamp_ms, waited_ms],
            [remaining_ms, priority],
            key,
        )| {
            StatusAnswer {
                state,
                shared,
                session_lease,
                fence,
                remaining_ms,
                age_ms,
                stamp_ms,
                priority,
                waited_ms,
                key,
            }
        },
    )
}

fn tree_statistics_answer() -> impl Strategy<Value = TreeStatisticsAnswer> {
    (any::<[u64; 3]>(), any::<[u64; 2]>(), any::<[u64; 3]>()).prop_map(
        |(
            [sets, waiting_sets, held_sets],
            [waiting_paths, held_paths],
            [distinct_paths, segments, distinct_segments],
        )| {
            TreeStatisticsAnswer {
                sets,
                waiting_sets,
                held_sets,
                waiting_paths,
                held_paths,
                distinct_paths,
                segments,
                distinct_segments,
            }
        },
    )
}

fn inspected() -> impl Strategy<Value = Inspected<'static>> {
    let holder = (lock_id(), any::<bool>(), any::<[u64; 2]>(), any::<u32>(), owner()).prop_map(
        |(id, shared, [fence, held_ms], remaining_ms, owner)| Holder {
            id,
            shared,
            fence,
            held_ms,
            remaining_ms,
            owner,
        },
    );
    let waiter = (lock_id(), any::<bool>(), any::<[u64; 2]>(), any::<[u32; 2]>(), owner()).prop_map(
        |(id, shared, [ticket, age_ms], [remaining_ms, priority], owner)| Waiter {
            id,
            shared,
            ticket,
            age_ms,
            remaining_ms,
            priority,
            owner,
        },
    );
    (any::<[u64; 2]>(), any::<[u32; 2]>(), vec(holder, 0..4), vec(waiter, 0..4)).prop_map(
        |([fence, stamp_ms], [holder_count, waiter_count], holders, waiters)| Inspected {
            fence,
            stamp_ms,
            holder_count,
            waiter_count,
            holders,
            waiters,
        },
    )
}

fn listed_lock() -> impl Strategy<Value = ListedLock<'static>> {
    let strings = (key_or_path(), owner(), string(0, REQUEST_ID_LEN_MAX), string(0, METADATA_LEN_MAX));
    (lock_id(), any::<bool>(), any::<[u64; 2]>(), any::<[u32; 2]>(), strings).prop_map(
        |(id, shared, [fence, held_ms], [remaining_ms, priority], (key, owner, request_id, metadata))| {
            ListedLock {
                id,
                shared,
                fence,
                held_ms,
                remaining_ms,
                priority,
                key,
                owner,
                request_id,
                metadata,
            }
        },
    )
}

fn event() -> impl Strategy<Value = Event<'static>> {
    prop_oneof![
        (lock_id(), any::<u32>(), any::<u64>()).prop_map(|(id, position, ticket)| Event::Queued {
            id,
            position,
            ticket
        }),
        lock_id().prop_map(|id| Event::Expired { id }),
        (lock_id(), any::<u8>(), string(0, REASON_LEN_MAX)).prop_map(|(id, reason, message)| {
            Event::Revoked { id, reason: RevokeReason::from_number(reason), message }
        }),
        Just(Event::SessionExpired),
        (lock_id(), any::<u32>(), any::<u64>()).prop_map(|(id, remaining_ms, stamp_ms)| Event::LeaseMoved {
            id,
            remaining_ms,
            stamp_ms
        }),
        (any::<u64>(), any::<bool>(), owner()).prop_map(|(fence, shared, owner)| Event::KeyHeld {
            fence,
            shared,
            owner
        }),
        any::<u64>().prop_map(|fence| Event::KeyFreed { fence }),
        Just(Event::Overrun),
        lock_id().prop_map(|id| Event::TakenUp { id }),
        Just(Event::Ping),
    ]
}

fn error() -> impl Strategy<Value = ErrorAnswer<'static>> {
    let contention = (any::<[bool; 2]>(), any::<u64>(), any::<[u32; 2]>(), owner()).prop_map(
        |([held, shared], age_ms, [remaining_ms, waiter_count], owner)| {
            ErrorDetail::Contention(Contention { held, shared, age_ms, remaining_ms, waiter_count, owner })
        },
    );
    let text = (any::<u64>(), string(0, 1024), string(0, 1024))
        .prop_map(|(value, field, message)| ErrorDetail::Text { value, field, message });
    let contended = prop_oneof![Just(ErrorCode::Busy), Just(ErrorCode::Timeout), Just(ErrorCode::NotOwner)];
    let code = prop_oneof![0_u16..32, any::<u16>()]
        .prop_map(ErrorCode::from_number)
        .prop_filter("these have another detail", |code| {
            !matches!(code, ErrorCode::Busy | ErrorCode::Timeout | ErrorCode::NotOwner)
        });
    prop_oneof![
        (contended, contention).prop_map(|(code, detail)| ErrorAnswer { code, detail }),
        (code, text).prop_map(|(code, detail)| ErrorAnswer { code, detail }),
    ]
}
