//! Messages of every kind with any content a peer may send.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use waymaker_protocol::limits::{
    CREDENTIALS_LEN_MAX, KEY_LEN_MAX, METADATA_LEN_MAX, NAMESPACE_LEN_MAX, OWNER_LEN_MAX, REQUEST_ID_LEN_MAX,
};
use waymaker_protocol::{
    Acquire, AcquireOptions, Cancel, Cancelled, Contention, ErrorAnswer, ErrorCode, ErrorDetail, Event,
    Extend, Extended, Farewell, Goodbye, Granted, Hello, Holder, Inspect, Inspected, KeepAlive, KeptAlive,
    List, Listed, ListedLock, LockId, LockState, NamespaceKind, Release, Released, Request, Response,
    RevokeReason, SessionId, SessionRequest, Status, StatusAnswer, Welcome,
};

use crate::direction::Message;

const CASES: u32 = 4096;

/// Enough cases to meet every kind of message many times, few enough to run at every change.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig::with_cases(CASES)
}

/// Any message of either direction.
pub(crate) fn message() -> impl Strategy<Value = Message<'static>> {
    prop_oneof![request().prop_map(Message::Request), response().prop_map(Message::Response)]
}

/// Any request.
pub(crate) fn request() -> impl Strategy<Value = Request<'static>> {
    prop_oneof![
        hello().prop_map(Request::Hello),
        Just(Request::KeepAlive(KeepAlive)),
        Just(Request::Goodbye(Goodbye)),
        acquire().prop_map(Request::Acquire),
        (lock_id(), of(key())).prop_map(|(id, key)| Request::Release(Release { id, key })),
        (lock_id(), any::<u32>(), of(key())).prop_map(|(id, lease_ms, key)| Request::Extend(Extend {
            id,
            lease_ms,
            key
        })),
        (any::<u32>(), key())
            .prop_map(|(acquire_number, key)| Request::Cancel(Cancel { acquire_number, key })),
        (lock_id(), of(key())).prop_map(|(id, key)| Request::Status(Status { id, key })),
        key().prop_map(|key| Request::Inspect(Inspect { key })),
        (any::<u64>(), any::<u16>(), string(0, KEY_LEN_MAX))
            .prop_map(|(cursor, count_max, prefix)| Request::List(List { cursor, count_max, prefix })),
    ]
}

/// Any response.
pub(crate) fn response() -> impl Strategy<Value = Response<'static>> {
    prop_oneof![
        welcome().prop_map(Response::Welcome),
        (any::<u32>(), any::<u64>())
            .prop_map(|(remaining_ms, stamp_ms)| Response::KeptAlive(KeptAlive { remaining_ms, stamp_ms })),
        Just(Response::Farewell(Farewell)),
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
        event().prop_map(Response::Event),
        error().prop_map(Response::Error),
    ]
}

/// Mostly short, sometimes of just the longest length. Messages borrow their strings, and a test may leak them.
fn string(len_min: usize, len_max: usize) -> impl Strategy<Value = &'static [u8]> {
    let short = vec(any::<u8>(), len_min..24);
    let longest = any::<u8>().prop_map(move |byte| std::vec![byte; len_max]);
    prop_oneof![15 => short, 1 => longest].prop_map(|bytes| &*bytes.leak())
}

fn key() -> impl Strategy<Value = &'static [u8]> {
    string(1, KEY_LEN_MAX)
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
    let numbers = (any::<u16>(), any::<u16>(), any::<u16>());
    let strings = (string(1, NAMESPACE_LEN_MAX), owner(), string(0, CREDENTIALS_LEN_MAX));
    (kind, session, numbers, strings).prop_map(|(kind, session, numbers, strings)| {
        let (version_min, version_max, worker) = numbers;
        let (namespace, owner, credentials) = strings;
        Hello { version_min, version_max, kind, session, worker, namespace, owner, credentials }
    })
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let of_session = (session_id(), any::<u16>(), any::<u32>(), any::<bool>());
    (any::<[u16; 4]>(), any::<[u32; 6]>(), any::<[u64; 2]>(), of_session).prop_map(
        |(shorts, words, longs, (session_id, lane, session_lease_ms, resumed))| {
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
            }
        },
    )
}

fn acquire() -> impl Strategy<Value = Acquire<'static>> {
    let options = prop_oneof![Just(AcquireOptions::default()), acquire_options()];
    (any::<[u32; 2]>(), key(), any::<[bool; 3]>(), options).prop_map(|(periods, key, bits, options)| {
        let [lease_ms, wait_ms] = periods;
        let [shared, session_lease, notify_queued] = bits;
        Acquire { lease_ms, wait_ms, key, shared, session_lease, notify_queued, options }
    })
}

fn acquire_options() -> impl Strategy<Value = AcquireOptions<'static>> {
    let numbers = (of(any::<u32>()), of(any::<u32>()), of(any::<u8>()));
    let strings = (of(string(1, REQUEST_ID_LEN_MAX)), of(owner()), of(string(0, METADATA_LEN_MAX)));
    (numbers, strings).prop_map(|((release_after_ms, priority, scope), (request_id, owner, metadata))| {
        AcquireOptions { release_after_ms, priority, scope, request_id, owner, metadata }
    })
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
    (state, any::<[bool; 2]>(), any::<[u64; 3]>(), any::<[u32; 2]>(), string(0, KEY_LEN_MAX)).prop_map(
        |(state, [shared, session_lease], [fence, age_ms, stamp_ms], [remaining_ms, priority], key)| {
            StatusAnswer {
                state,
                shared,
                session_lease,
                fence,
                remaining_ms,
                age_ms,
                stamp_ms,
                priority,
                key,
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
    (any::<[u64; 2]>(), any::<[u32; 2]>(), vec(holder, 0..4)).prop_map(
        |([fence, stamp_ms], [holder_count, waiter_count], holders)| Inspected {
            fence,
            stamp_ms,
            holder_count,
            waiter_count,
            holders,
        },
    )
}

fn listed_lock() -> impl Strategy<Value = ListedLock<'static>> {
    let strings =
        (string(0, KEY_LEN_MAX), owner(), string(0, REQUEST_ID_LEN_MAX), string(0, METADATA_LEN_MAX));
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

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (lock_id(), any::<u32>(), any::<u64>()).prop_map(|(id, position, ticket)| Event::Queued {
            id,
            position,
            ticket
        }),
        lock_id().prop_map(|id| Event::Expired { id }),
        (lock_id(), any::<u8>())
            .prop_map(|(id, reason)| Event::Revoked { id, reason: RevokeReason::from_number(reason) }),
        Just(Event::SessionExpired),
        (lock_id(), any::<u32>(), any::<u64>()).prop_map(|(id, remaining_ms, stamp_ms)| Event::LeaseMoved {
            id,
            remaining_ms,
            stamp_ms
        }),
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
    let contended = prop_oneof![Just(ErrorCode::Busy), Just(ErrorCode::Timeout)];
    let code = prop_oneof![0_u16..32, any::<u16>()]
        .prop_map(ErrorCode::from_number)
        .prop_filter("busy and timeout have another detail", |code| {
            !matches!(code, ErrorCode::Busy | ErrorCode::Timeout)
        });
    prop_oneof![
        (contended, contention).prop_map(|(code, detail)| ErrorAnswer { code, detail }),
        (code, text).prop_map(|(code, detail)| ErrorAnswer { code, detail }),
    ]
}
