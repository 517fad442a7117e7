//! One sample of every kind of message and of its variants. The golden files have their bytes.

use waymaker_protocol::items::Item;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Bucket, Cancel,
    CancelReason, Cancelled, Capabilities, CapacitySet, Contention, DescribePool, EntriesListed, Entry,
    ErrorAnswer, ErrorCode, ErrorDetail, Event, Extend, Extended, Farewell, ForceRelease, ForceReleased,
    Freeze, Frozen, Goodbye, Granted, GrantedKey, GrantedKeys, Heartbeat, Hello, Holder, Holds, Inspect,
    Inspected, Items, KeepAlive, KeptAlive, KeyItem, List, ListEntries, ListPools, Listed, ListedLock,
    ListedNamespace, ListedPool, LockId, LockState, LookUp, LookedUp, NamespaceKind, NamespaceRemoved,
    Namespaces, NamespacesListed, PathItem, PathKey, PermitHolder, PermitWaiter, Pong, PoolDescribed,
    PoolOrder, PoolsListed, Readiness, Register, Registered, Release, Released, RemoveNamespace, Request,
    Response, RevokeReason, ServerReason, ServerStatus, ServerStatusAnswer, SessionId, SessionRequest,
    SetCapacity, Status, StatusAnswer, Throttle, ThrottleAll, Throttled, TraceParent, TraceParentBytes,
    TreeStatistics, TreeStatisticsAnswer, Unregister, Unregistered, Unwatch, Unwatched, Verified, Verify,
    Waiter, Watch, Watching, Welcome,
};

use crate::direction::Message;

/// A message and the name of its golden file.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) number: u32,
    pub(crate) message: Message<'static>,
}

/// An id whose bytes all differ, so that a golden file shows their order.
pub(crate) const LOCK_ID: LockId = LockId { place: 0x0706_0504_0302_0100, secret: 0x0f0e_0d0c_0b0a_0908 };
const SESSION_ID: SessionId = SessionId { place: 0x1716_1514_1312_1110, secret: 0x1f1e_1d1c_1b1a_1918 };
const STAMP_MS: u64 = 123_456_789;

/// Returns a trace context whose bytes all differ.
fn traceparent() -> Option<&'static TraceParentBytes> {
    let bytes = std::array::from_fn(|index| 0x50 + index as u8);
    TraceParent::from_bytes(&bytes).expect("no id of zeros");
    Some(Box::leak(Box::new(bytes)))
}

/// Returns all samples: requests first, each followed by its responses, then events and errors.
pub(crate) fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    samples.extend(opening());
    samples.extend(claiming());
    samples.extend(asking());
    samples.extend(operating());
    samples.extend(watching());
    samples.extend(multi_key_acquires());
    samples.extend(pooling());
    samples.extend(limiting());
    samples.extend(counting());
    samples.extend(registering());
    samples.extend(events());
    samples.extend(errors());
    samples
}

/// Returns the sample with this name.
pub(crate) fn sample(name: &str) -> Sample {
    let found = samples().into_iter().find(|sample| sample.name == name);
    found.unwrap_or_else(|| panic!("there is no sample {name}"))
}

fn request(name: &'static str, about: &'static str, number: u32, request: Request<'static>) -> Sample {
    Sample { name, about, number, message: Message::Request(request) }
}

fn response(name: &'static str, about: &'static str, number: u32, response: Response<'static>) -> Sample {
    Sample { name, about, number, message: Message::Response(response) }
}

/// Returns a list for a request.
pub(crate) fn items<T: Item<'static>>(items: impl IntoIterator<Item = T>) -> Items<'static, T> {
    Items::new(items, Box::leak(Box::default())).expect("within the limits")
}

/// Returns the path with these segments.
pub(crate) fn path(segments: &[&str]) -> PathKey<'static> {
    let mut bytes = Vec::new();
    PathKey::append(segments, &mut bytes).expect("within the limits");
    PathKey::new(bytes.leak()).expect("a path key")
}

fn opening() -> Vec<Sample> {
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        kind: NamespaceKind::Flat,
        session: SessionRequest::None,
        worker: u16::MAX,
        namespace: b"orders",
        owner: b"billing-3",
        credentials: b"",
        attempt: None,
        notify_taken_up: false,
        capabilities: None,
    };
    let with = |session| Request::Hello(Hello { session, ..hello });
    let welcome = Welcome {
        version: 1,
        worker: 2,
        worker_count: 4,
        shard_count: 16,
        slot_map_version: 1,
        stamp_ms: STAMP_MS,
        server_id: 0x2726_2524_2322_2120,
        lease_default_ms: 30_000,
        lease_min_ms: 10,
        lease_max_ms: 86_400_000,
        in_flight_max: 1024,
        frame_len_max: 1 << 20,
        ..Welcome::default()
    };
    let in_session = Welcome { session_id: SESSION_ID, session_lease_ms: 10_000, ..welcome };
    let everything = Hello {
        version_max: 3,
        kind: NamespaceKind::Pool,
        session: SessionRequest::Join { id: SESSION_ID },
        worker: 2,
        credentials: b"secret",
        notify_taken_up: true,
        ..hello
    };
    let of_version_2 = Hello {
        version_max: 2,
        session: SessionRequest::Resume { id: SESSION_ID, lane: 3 },
        attempt: Some(7),
        notify_taken_up: true,
        capabilities: Some(Capabilities::SCOPE_LOCAL.union(Capabilities::SCOPE_QUORUM)),
        ..hello
    };
    let offered =
        Welcome { version: 2, capabilities: Some(Capabilities::SCOPE_LOCAL), resumed: true, ..in_session };
    vec![
        request("hello_session_none", "HELLO without a session", 1, with(SessionRequest::None)),
        request(
            "hello_session_new",
            "HELLO that begins a session",
            1,
            with(SessionRequest::New { lease_ms: 10_000 }),
        ),
        request(
            "hello_session_resume",
            "HELLO that takes over a lost connection of a session",
            1,
            with(SessionRequest::Resume { id: SESSION_ID, lane: 3 }),
        ),
        request(
            "hello_session_join",
            "HELLO that adds a connection to a session",
            1,
            with(SessionRequest::Join { id: SESSION_ID }),
        ),
        request("hello_everything", "HELLO with every field set", 1, Request::Hello(everything)),
        request(
            "hello_session_resume_attempt",
            "HELLO that tries to take over a lost connection for the seventh time",
            1,
            Request::Hello(Hello {
                session: SessionRequest::Resume { id: SESSION_ID, lane: 3 },
                attempt: Some(7),
                ..hello
            }),
        ),
        request(
            "hello_capabilities",
            "HELLO of version 2 with everything that flags bring",
            1,
            Request::Hello(of_version_2),
        ),
        response("welcome", "WELCOME without a session", 1, Response::Welcome(welcome)),
        response("welcome_session", "WELCOME to a new session", 1, Response::Welcome(in_session)),
        response(
            "welcome_resumed",
            "WELCOME back to a session, on lane 3",
            1,
            Response::Welcome(Welcome { lane: 3, resumed: true, ..in_session }),
        ),
        response(
            "welcome_capabilities",
            "WELCOME of version 2 by a server with a data directory",
            1,
            Response::Welcome(Welcome { lane: 3, ..offered }),
        ),
        response(
            "welcome_capabilities_newer",
            "WELCOME by a newer server, which offers what version 2 does not name",
            1,
            Response::Welcome(Welcome {
                capabilities: Some(Capabilities::from_bits(0x8786_8584_8382_8100)),
                resumed: false,
                ..offered
            }),
        ),
        request("keep_alive", "KEEP_ALIVE", 8, Request::KeepAlive(KeepAlive)),
        response(
            "kept_alive",
            "KEPT_ALIVE",
            8,
            Response::KeptAlive(KeptAlive { remaining_ms: 10_000, stamp_ms: STAMP_MS }),
        ),
        request("goodbye", "GOODBYE", 9, Request::Goodbye(Goodbye)),
        response("farewell", "FAREWELL", 9, Response::Farewell(Farewell)),
        request("pong", "PONG", 0, Request::Pong(Pong)),
    ]
}

fn claiming() -> Vec<Sample> {
    let acquire = Acquire {
        key: b"order:0000000042",
        terms: AcquireTerms { lease_ms: 30_000, wait_ms: 5_000, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    let options = AcquireOptions {
        release_after_ms: Some(2_000),
        priority: Some(3),
        scope: Some(1),
        request_id: Some(b"pay-42-1"),
        owner: Some(b"billing-3/pay"),
        metadata: Some(b"refund"),
        traceparent: None,
    };
    let everything = Acquire {
        shared: true,
        terms: AcquireTerms {
            lease_ms: 0,
            wait_ms: u32::MAX,
            session_lease: true,
            notify_queued: true,
            options,
        },
        ..acquire
    };
    let granted =
        Granted { id: LOCK_ID, fence: 7, remaining_ms: 30_000, stamp_ms: STAMP_MS, ..Granted::default() };
    let granted_flagged =
        Granted { clamped: true, waited: true, repeated: true, session_lease: true, ..granted };
    let extended = Extended { remaining_ms: 30_000, stamp_ms: STAMP_MS, clamped: false };
    vec![
        request("acquire", "ACQUIRE, exclusive, nothing optional", 2, Request::Acquire(acquire)),
        request("acquire_everything", "ACQUIRE with every flag and field", 2, Request::Acquire(everything)),
        request(
            "acquire_traceparent",
            "ACQUIRE with every field, also a trace context",
            2,
            Request::Acquire(Acquire {
                terms: AcquireTerms {
                    options: AcquireOptions { traceparent: traceparent(), ..options },
                    ..everything.terms
                },
                ..everything
            }),
        ),
        response("granted", "GRANTED at once", 2, Response::Granted(granted)),
        response("granted_flags", "GRANTED with every flag", 2, Response::Granted(granted_flagged)),
        request(
            "release",
            "RELEASE by id alone",
            3,
            Request::Release(Release { id: LOCK_ID, key: None, own: false }),
        ),
        request(
            "release_key",
            "RELEASE of a claim that must be one of this key",
            3,
            Request::Release(Release { id: LOCK_ID, key: Some(b"order:0000000042"), own: false }),
        ),
        request(
            "release_own",
            "RELEASE of a claim that must be this lane's",
            3,
            Request::Release(Release { id: LOCK_ID, key: None, own: true }),
        ),
        response("released", "RELEASED", 3, Response::Released(Released { was_waiting: false })),
        response(
            "released_waiting",
            "RELEASED, and the claim was still waiting",
            3,
            Response::Released(Released { was_waiting: true }),
        ),
        request(
            "extend",
            "EXTEND by id alone",
            4,
            Request::Extend(Extend { id: LOCK_ID, lease_ms: 30_000, key: None, own: false }),
        ),
        request(
            "extend_key",
            "EXTEND of a claim that must be one of this key",
            4,
            Request::Extend(Extend { id: LOCK_ID, lease_ms: 30_000, key: Some(b"k"), own: false }),
        ),
        request(
            "extend_own",
            "EXTEND of a claim that must be this lane's, and one of this key",
            4,
            Request::Extend(Extend { id: LOCK_ID, lease_ms: 30_000, key: Some(b"k"), own: true }),
        ),
        response("extended", "EXTENDED", 4, Response::Extended(extended)),
        response(
            "extended_clamped",
            "EXTENDED, to the longest lease there is",
            4,
            Response::Extended(Extended { remaining_ms: 86_400_000, clamped: true, ..extended }),
        ),
        request(
            "cancel",
            "CANCEL of the acquire with number 2",
            5,
            Request::Cancel(Cancel { acquire_number: 2, key: b"order:0000000042" }),
        ),
        response("cancelled", "CANCELLED without effect", 5, Response::Cancelled(Cancelled::default())),
        response(
            "cancelled_waiting",
            "CANCELLED, and the acquire was waiting",
            5,
            Response::Cancelled(Cancelled { was_waiting: true }),
        ),
    ]
}

fn asking() -> Vec<Sample> {
    let held = StatusAnswer {
        state: LockState::Held,
        shared: false,
        session_lease: false,
        fence: 7,
        remaining_ms: 29_000,
        age_ms: 1_000,
        stamp_ms: STAMP_MS,
        priority: 0,
        waited_ms: 250,
        key: b"order:0000000042",
    };
    let waiting = StatusAnswer {
        state: LockState::Waiting,
        shared: true,
        session_lease: true,
        fence: 0,
        priority: 3,
        waited_ms: 0,
        ..held
    };
    let holder = Holder {
        id: LOCK_ID,
        shared: true,
        fence: 7,
        held_ms: 1_000,
        remaining_ms: 29_000,
        owner: b"billing-3",
    };
    let inspected = Inspected {
        fence: 8,
        stamp_ms: STAMP_MS,
        holder_count: 2,
        waiter_count: 5,
        holders: vec![holder, Holder { fence: 8, owner: b"", ..holder }],
        waiters: vec![Waiter {
            id: LOCK_ID,
            shared: false,
            ticket: 12,
            age_ms: 300,
            remaining_ms: 4_700,
            priority: 1,
            owner: b"billing-4",
        }],
    };
    let lock = ListedLock {
        id: LOCK_ID,
        shared: false,
        fence: 7,
        held_ms: 1_000,
        remaining_ms: 29_000,
        priority: 3,
        key: b"order:0000000042",
        owner: b"billing-3",
        request_id: b"pay-42-1",
        metadata: b"refund",
    };
    let bare =
        ListedLock { shared: true, key: b"order:1", owner: b"", request_id: b"", metadata: b"", ..lock };
    vec![
        request("status", "STATUS by id alone", 6, Request::Status(Status { id: LOCK_ID, key: None })),
        request(
            "status_key",
            "STATUS of a claim that must be one of this key",
            6,
            Request::Status(Status { id: LOCK_ID, key: Some(b"k") }),
        ),
        response("status_answer_held", "STATUS_ANSWER of a hold", 6, Response::Status(held)),
        response(
            "status_answer_waiting",
            "STATUS_ANSWER of a claim that waits",
            6,
            Response::Status(waiting),
        ),
        request("inspect", "INSPECT", 7, Request::Inspect(Inspect { key: b"order:0000000042" })),
        response(
            "inspected_free",
            "INSPECTED, nobody ever took it",
            7,
            Response::Inspected(Inspected::default()),
        ),
        response(
            "inspected",
            "INSPECTED, two readers and the first who waits",
            7,
            Response::Inspected(inspected),
        ),
        request("list", "LIST, first page of everything", 10, Request::List(List::default())),
        request(
            "list_waiting",
            "LIST of claims that wait",
            10,
            Request::List(List { prefix: b"order:", waiting: true, ..List::default() }),
        ),
        request(
            "list_prefix",
            "LIST, a later page",
            10,
            Request::List(List {
                cursor: 0x3736_3534_3332_3130,
                count_max: 100,
                prefix: b"order:",
                ..List::default()
            }),
        ),
        response("listed_empty", "LISTED, the last page and empty", 10, Response::Listed(Listed::default())),
        response(
            "listed",
            "LISTED, two locks and more to come",
            10,
            Response::Listed(Listed { next: 0x4746_4544_4342_4140, locks: vec![lock, bare] }),
        ),
    ]
}

fn operating() -> Vec<Sample> {
    let orders = ListedNamespace {
        name: b"orders",
        kind: NamespaceKind::Flat,
        held: 120,
        waiting: 7,
        timeouts: 3,
        expired: 2,
        revoked: 1,
    };
    let workers = ListedNamespace { name: b"workers", kind: NamespaceKind::Pool, held: 4, ..orders };
    vec![
        request(
            "holds",
            "HOLDS, a later page",
            11,
            Request::Holds(Holds { cursor: 0x3736_3534_3332_3130, count_max: 100 }),
        ),
        request(
            "force_release",
            "FORCE_RELEASE",
            12,
            Request::ForceRelease(ForceRelease { id: LOCK_ID, reason: b"host is gone" }),
        ),
        response(
            "force_released",
            "FORCE_RELEASED, a hold",
            12,
            Response::ForceReleased(ForceReleased {
                fence: 7,
                key: b"order:0000000042",
                owner: b"billing-3",
                was_waiting: false,
            }),
        ),
        response(
            "force_released_waiting",
            "FORCE_RELEASED, a claim that waited",
            12,
            Response::ForceReleased(ForceReleased {
                fence: 0,
                key: b"order:0000000042",
                owner: b"",
                was_waiting: true,
            }),
        ),
        request(
            "freeze",
            "FREEZE",
            13,
            Request::Freeze(Freeze { prefix: b"order:", thaw: false, ..Freeze::default() }),
        ),
        request(
            "freeze_thaw",
            "FREEZE, taken back",
            13,
            Request::Freeze(Freeze { prefix: b"order:", thaw: true, ..Freeze::default() }),
        ),
        request(
            "freeze_reason",
            "FREEZE with a reason",
            13,
            Request::Freeze(Freeze { prefix: b"order:", thaw: false, reason: b"incident 7" }),
        ),
        response(
            "frozen",
            "FROZEN, and it was already",
            13,
            Response::Frozen(Frozen { changed: false, frozen_count: 2 }),
        ),
        response(
            "frozen_changed",
            "FROZEN, and it was not before",
            13,
            Response::Frozen(Frozen { changed: true, frozen_count: 2 }),
        ),
        request("namespaces", "NAMESPACES, the first page", 14, Request::Namespaces(Namespaces::default())),
        response(
            "namespaces_listed",
            "NAMESPACES_LISTED, two and more to come",
            14,
            Response::NamespacesListed(NamespacesListed { next: 2, namespaces: vec![orders, workers] }),
        ),
        request(
            "remove_namespace",
            "REMOVE_NAMESPACE",
            24,
            Request::RemoveNamespace(RemoveNamespace { name: b"orders" }),
        ),
        response("namespace_removed", "NAMESPACE_REMOVED", 24, Response::NamespaceRemoved(NamespaceRemoved)),
        request("server_status", "SERVER_STATUS", 25, Request::ServerStatus(ServerStatus)),
        response(
            "server_status_answer",
            "SERVER_STATUS_ANSWER of a server that recovers on a full disk",
            25,
            Response::ServerStatus(ServerStatusAnswer {
                uptime_ms: 61_000,
                readiness: Readiness::NotReady,
                version: b"0.1.0",
                addresses: b"binary=127.0.0.1:7420",
                reasons: vec![
                    ServerReason {
                        code: b"recovering",
                        message: b"grants resume in 12 s",
                        remaining_ms: 11_734,
                    },
                    ServerReason { code: b"disk_full", message: b"the disk is full", remaining_ms: 0 },
                ],
            }),
        ),
    ]
}

fn watching() -> Vec<Sample> {
    let verified = Verified { newest: false, held: false, newest_fence: 9, stamp_ms: STAMP_MS };
    vec![
        request("watch", "WATCH", 15, Request::Watch(Watch { key: b"order:0000000042" })),
        request(
            "watch_path",
            "WATCH of the path a/bc",
            15,
            Request::Watch(Watch { key: path(&["a", "bc"]).as_bytes() }),
        ),
        response(
            "watching",
            "WATCHING",
            15,
            Response::Watching(Watching { fence: 7, stamp_ms: STAMP_MS, holder_count: 1, waiter_count: 5 }),
        ),
        request(
            "unwatch",
            "UNWATCH of the watch with number 15",
            16,
            Request::Unwatch(Unwatch { watch_number: 15, key: b"order:0000000042" }),
        ),
        response("unwatched", "UNWATCHED without effect", 16, Response::Unwatched(Unwatched::default())),
        response(
            "unwatched_watching",
            "UNWATCHED, and there was such a watch",
            16,
            Response::Unwatched(Unwatched { was_watching: true }),
        ),
        request("verify", "VERIFY", 17, Request::Verify(Verify { fence: 7, key: b"order:0000000042" })),
        response("verified", "VERIFIED, there was a later grant", 17, Response::Verified(verified)),
        response(
            "verified_held",
            "VERIFIED, the newest and still held",
            17,
            Response::Verified(Verified { newest: true, held: true, newest_fence: 7, ..verified }),
        ),
    ]
}

fn multi_key_acquires() -> Vec<Sample> {
    let options = AcquireOptions {
        release_after_ms: Some(2_000),
        priority: None,
        scope: Some(1),
        request_id: Some(b"pay-42-1"),
        owner: Some(b"billing-3/pay"),
        metadata: Some(b"refund"),
        traceparent: None,
    };
    let set = AcquireSet {
        items: items([
            PathItem { write: true, path: path(&["users", "42"]) },
            PathItem { write: false, path: path(&["users", ""]) },
        ]),
        terms: AcquireTerms { lease_ms: 30_000, wait_ms: 5_000, ..AcquireTerms::default() },
    };
    let everything = AcquireSet {
        terms: AcquireTerms {
            lease_ms: 0,
            wait_ms: u32::MAX,
            session_lease: true,
            notify_queued: true,
            options,
        },
        ..set
    };
    let whole = AcquireSet { items: items([PathItem { write: true, path: path(&[]) }]), ..set };
    let keys = AcquireKeys {
        items: items([KeyItem { shared: false, key: b"b" }, KeyItem { shared: true, key: b"a" }]),
        terms: AcquireTerms { lease_ms: 30_000, wait_ms: 5_000, ..AcquireTerms::default() },
    };
    let keys_everything = AcquireKeys {
        terms: AcquireTerms {
            lease_ms: 0,
            wait_ms: u32::MAX,
            session_lease: true,
            notify_queued: true,
            options: AcquireOptions { priority: Some(3), ..options },
        },
        ..keys
    };
    let granted_key = GrantedKey { id: LOCK_ID, fence: 7, remaining_ms: 30_000, shared: true, key: b"a" };
    let granted = GrantedKeys {
        stamp_ms: STAMP_MS,
        keys: vec![granted_key, GrantedKey { fence: 3, shared: false, key: b"b", ..granted_key }],
        ..GrantedKeys::default()
    };
    let flagged =
        GrantedKeys { clamped: true, waited: true, repeated: true, session_lease: true, ..granted.clone() };
    vec![
        request(
            "acquire_set",
            "ACQUIRE_SET, users/42 to write and users/(empty) to read",
            18,
            Request::AcquireSet(set),
        ),
        request("acquire_set_whole", "ACQUIRE_SET of the whole namespace", 18, Request::AcquireSet(whole)),
        request(
            "acquire_set_everything",
            "ACQUIRE_SET with every flag and field",
            18,
            Request::AcquireSet(everything),
        ),
        request(
            "acquire_set_traceparent",
            "ACQUIRE_SET with every field, also a trace context",
            18,
            Request::AcquireSet(AcquireSet {
                terms: AcquireTerms {
                    options: AcquireOptions { traceparent: traceparent(), ..everything.terms.options },
                    ..everything.terms
                },
                ..everything
            }),
        ),
        request("acquire_keys", "ACQUIRE_KEYS, nothing optional", 19, Request::AcquireKeys(keys)),
        request(
            "acquire_keys_everything",
            "ACQUIRE_KEYS with every flag and field",
            19,
            Request::AcquireKeys(keys_everything),
        ),
        request(
            "acquire_keys_traceparent",
            "ACQUIRE_KEYS with every field, also a trace context",
            19,
            Request::AcquireKeys(AcquireKeys {
                terms: AcquireTerms {
                    options: AcquireOptions { traceparent: traceparent(), ..keys_everything.terms.options },
                    ..keys_everything.terms
                },
                ..keys_everything
            }),
        ),
        response("granted_keys", "GRANTED_KEYS at once", 19, Response::GrantedKeys(granted)),
        response("granted_keys_flags", "GRANTED_KEYS with every flag", 19, Response::GrantedKeys(flagged)),
    ]
}

fn pooling() -> Vec<Sample> {
    let acquire = AcquirePermits {
        capacity: 10,
        permits: 2,
        name: b"workers",
        terms: AcquireTerms { lease_ms: 30_000, wait_ms: 5_000, ..AcquireTerms::default() },
        ..AcquirePermits::default()
    };
    let everything = AcquirePermits {
        capacity: 0,
        order: PoolOrder::Timestamp,
        timestamp_us: 1_700_000_000_000_000,
        any_capacity: true,
        terms: AcquireTerms {
            lease_ms: 0,
            wait_ms: u32::MAX,
            session_lease: true,
            notify_queued: true,
            options: AcquireOptions {
                release_after_ms: Some(2_000),
                priority: None,
                scope: Some(1),
                request_id: Some(b"pay-42-1"),
                owner: Some(b"billing-3/pay"),
                metadata: Some(b"refund"),
                traceparent: None,
            },
        },
        ..acquire
    };
    let holder = PermitHolder {
        id: LOCK_ID,
        permits: 2,
        fence: 7,
        age_ms: 1_000,
        remaining_ms: 29_000,
        owner: b"billing-3",
    };
    let waiter = PermitWaiter {
        id: LOCK_ID,
        permits: 9,
        ticket: 99,
        age_ms: 500,
        remaining_ms: u32::MAX,
        owner: b"billing-4",
    };
    let described = PoolDescribed {
        capacity: 10,
        held: 3,
        fence: 8,
        stamp_ms: STAMP_MS,
        order: PoolOrder::Timestamp,
        is_set: true,
        holder_count: 2,
        waiter_count: 1,
        holders: vec![holder, PermitHolder { permits: 1, fence: 8, owner: b"", ..holder }],
        waiters: vec![waiter],
    };
    let set =
        SetCapacity { capacity: 20, order: PoolOrder::Timestamp, name: b"workers", ..SetCapacity::default() };
    let set_pool = ListedPool {
        capacity: 10,
        held: 3,
        fence: 8,
        order: PoolOrder::Timestamp,
        is_set: true,
        holder_count: 2,
        waiter_count: 1,
        name: b"converters",
    };
    let used_pool =
        ListedPool { capacity: 1, held: 1, holder_count: 1, name: b"convoy", ..ListedPool::default() };
    vec![
        request("acquire_permits", "ACQUIRE_PERMITS, nothing optional", 20, Request::AcquirePermits(acquire)),
        request(
            "acquire_permits_everything",
            "ACQUIRE_PERMITS with every flag and field",
            20,
            Request::AcquirePermits(everything),
        ),
        request(
            "acquire_permits_traceparent",
            "ACQUIRE_PERMITS with every field, also a trace context",
            20,
            Request::AcquirePermits(AcquirePermits {
                terms: AcquireTerms {
                    options: AcquireOptions { traceparent: traceparent(), ..everything.terms.options },
                    ..everything.terms
                },
                ..everything
            }),
        ),
        request(
            "describe_pool",
            "DESCRIBE_POOL",
            21,
            Request::DescribePool(DescribePool { name: b"workers" }),
        ),
        response(
            "pool_described_none",
            "POOL_DESCRIBED, there is no such pool",
            21,
            Response::PoolDescribed(PoolDescribed::default()),
        ),
        response(
            "pool_described",
            "POOL_DESCRIBED, two holders and one who waits",
            21,
            Response::PoolDescribed(described),
        ),
        request("set_capacity", "SET_CAPACITY", 22, Request::SetCapacity(set)),
        request(
            "set_capacity_reason",
            "SET_CAPACITY with a reason",
            22,
            Request::SetCapacity(SetCapacity { reason: b"two more disks", ..set }),
        ),
        response("capacity_set", "CAPACITY_SET", 22, Response::CapacitySet(CapacitySet { previous: 10 })),
        request("list_pools", "LIST_POOLS, the first page", 23, Request::ListPools(ListPools::default())),
        request(
            "list_pools_prefix",
            "LIST_POOLS with a prefix, a later page",
            23,
            Request::ListPools(ListPools { cursor: 0x3736_3534_3332_3130, count_max: 100, prefix: b"conv" }),
        ),
        response(
            "pools_listed",
            "POOLS_LISTED, two pools and more to come",
            23,
            Response::PoolsListed(PoolsListed {
                next: 0x4746_4544_4342_4140,
                pools: vec![set_pool, used_pool],
            }),
        ),
        response(
            "pools_listed_empty",
            "POOLS_LISTED, the last page, without pools",
            23,
            Response::PoolsListed(PoolsListed::default()),
        ),
    ]
}

fn limiting() -> Vec<Sample> {
    let bucket = Bucket { rate: 100, burst: 20, cost: 1, period_ns: 1_000_000_000, name: b"login:alice" };
    let hourly = Bucket { rate: 1_000, burst: 50, period_ns: 3_600_000_000_000, name: b"login", ..bucket };
    let allowed = Throttled { allowed: true, remaining: 19, retry_after_ns: 0, reset_after_ns: 10_000_000 };
    vec![
        request("throttle", "THROTTLE", 23, Request::Throttle(Throttle { bucket, refund: false })),
        request(
            "throttle_refund",
            "THROTTLE, tokens given back",
            23,
            Request::Throttle(Throttle { bucket, refund: true }),
        ),
        response("throttled_allowed", "THROTTLED, allowed", 23, Response::Throttled(allowed)),
        response(
            "throttled",
            "THROTTLED, come again in 5 ms",
            23,
            Response::Throttled(Throttled {
                allowed: false,
                remaining: 0,
                retry_after_ns: 5_000_000,
                reset_after_ns: 195_000_000,
            }),
        ),
        request(
            "throttle_all",
            "THROTTLE_ALL, two buckets",
            24,
            Request::ThrottleAll(ThrottleAll { buckets: items([bucket, hourly]), refund: false }),
        ),
    ]
}

fn counting() -> Vec<Sample> {
    let statistics = TreeStatisticsAnswer {
        sets: 1_000,
        waiting_sets: 2,
        held_sets: 5,
        waiting_paths: 3,
        held_paths: 7,
        distinct_paths: 9,
        segments: 31,
        distinct_segments: 12,
    };
    vec![
        request("tree_statistics", "TREE_STATISTICS", 29, Request::TreeStatistics(TreeStatistics)),
        response(
            "tree_statistics_answer",
            "TREE_STATISTICS_ANSWER",
            29,
            Response::TreeStatistics(statistics),
        ),
    ]
}

fn registering() -> Vec<Sample> {
    let register = Register {
        lease_ms: 30_000,
        absolute: false,
        ephemeral: false,
        key: b"leader",
        owner: b"billing-3",
        value: b"10.0.0.3:8080",
        type_name: b"service",
        traceparent: None,
    };
    let until =
        Register { lease_ms: 1_700_000_030_000, absolute: true, value: b"", type_name: b"", ..register };
    let registered =
        Registered { id: LOCK_ID, fence: 7, remaining_ms: 30_000, stamp_ms: STAMP_MS, renewed: false };
    let entry = Entry {
        id: LOCK_ID,
        fence: 7,
        age_ms: 1_000,
        remaining_ms: 29_000,
        key: b"leader",
        owner: b"billing-3",
        value: b"10.0.0.3:8080",
        type_name: b"service",
    };
    let over = Entry { remaining_ms: -500, key: b"", value: b"", type_name: b"", ..entry };
    vec![
        request("register", "REGISTER for 30 s", 25, Request::Register(register)),
        request(
            "register_ephemeral",
            "REGISTER of what need not outlive the server",
            25,
            Request::Register(Register { ephemeral: true, ..register }),
        ),
        request(
            "register_traceparent",
            "REGISTER with a trace context",
            25,
            Request::Register(Register { traceparent: traceparent(), ..register }),
        ),
        request("register_absolute", "REGISTER until an instant", 25, Request::Register(until)),
        response("registered", "REGISTERED, newly", 25, Response::Registered(registered)),
        response(
            "registered_renewed",
            "REGISTERED again by its owner, with a lease that is over already",
            25,
            Response::Registered(Registered { remaining_ms: -500, renewed: true, ..registered }),
        ),
        request("heartbeat", "HEARTBEAT for 30 s more", 26, Request::Heartbeat(Heartbeat(register))),
        request(
            "unregister",
            "UNREGISTER",
            27,
            Request::Unregister(Unregister { key: b"leader", owner: b"billing-3" }),
        ),
        response("unregistered", "UNREGISTERED", 27, Response::Unregistered(Unregistered::default())),
        response(
            "unregistered_expired",
            "UNREGISTERED, what somebody else had left behind",
            27,
            Response::Unregistered(Unregistered { was_expired: true }),
        ),
        request("look_up", "LOOK_UP", 28, Request::LookUp(LookUp { key: b"leader" })),
        response(
            "looked_up",
            "LOOKED_UP, there is an entry",
            28,
            Response::LookedUp(LookedUp { stamp_ms: STAMP_MS, found: true, entry }),
        ),
        response(
            "looked_up_none",
            "LOOKED_UP, there is none",
            28,
            Response::LookedUp(LookedUp { stamp_ms: STAMP_MS, found: false, entry: Entry::default() }),
        ),
        request(
            "list_entries",
            "LIST_ENTRIES of one type, a later page",
            29,
            Request::ListEntries(ListEntries {
                cursor: 0x3736_3534_3332_3130,
                count_max: 100,
                any_type: false,
                type_name: b"service",
            }),
        ),
        request(
            "list_entries_all",
            "LIST_ENTRIES of every type, the first page",
            29,
            Request::ListEntries(ListEntries { any_type: true, ..ListEntries::default() }),
        ),
        response(
            "entries_listed",
            "ENTRIES_LISTED, two and more to come",
            29,
            Response::EntriesListed(EntriesListed {
                next: 0x4746_4544_4342_4140,
                entries: vec![entry, over],
            }),
        ),
    ]
}

fn events() -> Vec<Sample> {
    let event = |name, about, number, event| response(name, about, number, Response::Event(event));
    vec![
        event(
            "queued",
            "QUEUED, about the acquire with number 2",
            2,
            Event::Queued { id: LOCK_ID, position: 4, ticket: 99 },
        ),
        event("expired", "EXPIRED", 0, Event::Expired { id: LOCK_ID }),
        event(
            "revoked",
            "REVOKED, released elsewhere",
            0,
            Event::Revoked { id: LOCK_ID, reason: RevokeReason::ReleasedElsewhere, message: b"" },
        ),
        event(
            "revoked_connection_lost",
            "REVOKED, the connection was lost",
            0,
            Event::Revoked { id: LOCK_ID, reason: RevokeReason::ConnectionLost, message: b"" },
        ),
        event(
            "revoked_forced",
            "REVOKED, released by an operator",
            0,
            Event::Revoked { id: LOCK_ID, reason: RevokeReason::Forced, message: b"host is gone" },
        ),
        event("session_expired", "SESSION_EXPIRED", 0, Event::SessionExpired),
        event(
            "lease_moved",
            "LEASE_MOVED",
            0,
            Event::LeaseMoved { id: LOCK_ID, remaining_ms: 30_000, stamp_ms: 123_456 },
        ),
        event(
            "key_held",
            "KEY_HELD, about the watch with number 15",
            15,
            Event::KeyHeld { fence: 8, shared: true, owner: b"billing-3" },
        ),
        event("key_freed", "KEY_FREED, about the watch with number 15", 15, Event::KeyFreed { fence: 8 }),
        event("overrun", "OVERRUN, about the watch with number 15", 15, Event::Overrun),
        event("ping", "PING", 0, Event::Ping),
        event("taken_up", "TAKEN_UP, about the acquire with number 2", 2, Event::TakenUp { id: LOCK_ID }),
    ]
}

fn errors() -> Vec<Sample> {
    let error = |name, about, number, code, detail| {
        response(name, about, number, Response::Error(ErrorAnswer { code, detail }))
    };
    let text = |value, field: &'static str, message: &'static str| ErrorDetail::Text {
        value,
        field: field.as_bytes(),
        message: message.as_bytes(),
    };
    let contention = Contention {
        held: true,
        shared: false,
        age_ms: 1_000,
        remaining_ms: 29_000,
        waiter_count: 5,
        owner: b"billing-3",
    };
    vec![
        error(
            "error_busy",
            "ERROR busy, held by somebody",
            2,
            ErrorCode::Busy,
            ErrorDetail::Contention(contention),
        ),
        error(
            "error_timeout",
            "ERROR timeout, behind a reader that waits",
            2,
            ErrorCode::Timeout,
            ErrorDetail::Contention(Contention { held: false, shared: true, owner: b"", ..contention }),
        ),
        error(
            "error_not_owner",
            "ERROR not_owner, naming the owner",
            26,
            ErrorCode::NotOwner,
            ErrorDetail::Contention(Contention { waiter_count: 0, ..contention }),
        ),
        error(
            "error_capacity_mismatch",
            "ERROR capacity_mismatch, with the capacity of the pool",
            20,
            ErrorCode::CapacityMismatch,
            text(10, "capacity", "the pool has 10 permits"),
        ),
        error(
            "error_bad_input",
            "ERROR bad_input, naming field and limit",
            2,
            ErrorCode::BadInput,
            text(1024, "key", "key: 1025 bytes, the limit is 1024"),
        ),
        error(
            "error_cancelled",
            "ERROR cancelled, with the reason 1: superseded",
            2,
            ErrorCode::Cancelled,
            text(
                CancelReason::Superseded.number(),
                "",
                "a newer acquire with the same request id took its place",
            ),
        ),
        error(
            "error_not_found",
            "ERROR not_found, with nothing more to say",
            3,
            ErrorCode::NotFound,
            text(0, "", ""),
        ),
        error(
            "error_frame_too_long",
            "ERROR about the connection itself, before it closes",
            0,
            ErrorCode::BadInput,
            text(1 << 20, "length", "length: a frame of 2097152 bytes, the limit is 1048576"),
        ),
        error(
            "error_newer_code",
            "ERROR with a code that this version does not know",
            2,
            ErrorCode::Other(999),
            text(0, "", "from a newer server"),
        ),
    ]
}
