//! One message of every kind and of every variant worth seeing. The golden files hold their bytes.

use waymaker_protocol::{
    Acquire, AcquireOptions, Cancel, Cancelled, Contention, ErrorAnswer, ErrorCode, ErrorDetail, Event,
    Extend, Extended, Farewell, Goodbye, Granted, Hello, Holder, Inspect, Inspected, KeepAlive, KeptAlive,
    List, Listed, ListedLock, LockId, LockState, NamespaceKind, Release, Released, Request, Response,
    RevokeReason, SessionId, SessionRequest, Status, StatusAnswer, Welcome,
};

use crate::direction::Message;

/// A message with the name of its golden file.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) number: u32,
    pub(crate) message: Message<'static>,
}

/// No two bytes of these ids are alike, so a golden file shows their order.
pub(crate) const LOCK_ID: LockId = LockId { place: 0x0706_0504_0302_0100, secret: 0x0f0e_0d0c_0b0a_0908 };
const SESSION_ID: SessionId = SessionId { place: 0x1716_1514_1312_1110, secret: 0x1f1e_1d1c_1b1a_1918 };
const STAMP_MS: u64 = 123_456_789;

/// All samples: requests first, each followed by its answers, then events and errors.
pub(crate) fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    samples.extend(opening());
    samples.extend(claiming());
    samples.extend(asking());
    samples.extend(events());
    samples.extend(errors());
    samples
}

/// The sample with this name.
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
        ..hello
    };
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
        response("welcome", "WELCOME without a session", 1, Response::Welcome(welcome)),
        response("welcome_session", "WELCOME to a new session", 1, Response::Welcome(in_session)),
        response(
            "welcome_resumed",
            "WELCOME back to a session, on lane 3",
            1,
            Response::Welcome(Welcome { lane: 3, resumed: true, ..in_session }),
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
    ]
}

fn claiming() -> Vec<Sample> {
    let acquire =
        Acquire { lease_ms: 30_000, wait_ms: 5_000, key: b"order:0000000042", ..Acquire::default() };
    let options = AcquireOptions {
        release_after_ms: Some(2_000),
        priority: Some(3),
        scope: Some(1),
        request_id: Some(b"pay-42-1"),
        owner: Some(b"billing-3/pay"),
        metadata: Some(b"refund"),
    };
    let everything = Acquire {
        lease_ms: 0,
        wait_ms: u32::MAX,
        shared: true,
        session_lease: true,
        notify_queued: true,
        options,
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
        response("granted", "GRANTED at once", 2, Response::Granted(granted)),
        response("granted_flags", "GRANTED with every flag", 2, Response::Granted(granted_flagged)),
        request("release", "RELEASE by id alone", 3, Request::Release(Release { id: LOCK_ID, key: None })),
        request(
            "release_key",
            "RELEASE of a claim that must be one of this key",
            3,
            Request::Release(Release { id: LOCK_ID, key: Some(b"order:0000000042") }),
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
            Request::Extend(Extend { id: LOCK_ID, lease_ms: 30_000, key: None }),
        ),
        request(
            "extend_key",
            "EXTEND of a claim that must be one of this key",
            4,
            Request::Extend(Extend { id: LOCK_ID, lease_ms: 30_000, key: Some(b"k") }),
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
        key: b"order:0000000042",
    };
    let waiting = StatusAnswer {
        state: LockState::Waiting,
        shared: true,
        session_lease: true,
        fence: 0,
        priority: 3,
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
        response("inspected", "INSPECTED, two readers", 7, Response::Inspected(inspected)),
        request("list", "LIST, first page of everything", 10, Request::List(List::default())),
        request(
            "list_prefix",
            "LIST, a later page",
            10,
            Request::List(List { cursor: 0x3736_3534_3332_3130, count_max: 100, prefix: b"order:" }),
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
            Event::Revoked { id: LOCK_ID, reason: RevokeReason::ReleasedElsewhere },
        ),
        event(
            "revoked_connection_lost",
            "REVOKED, the connection was lost",
            0,
            Event::Revoked { id: LOCK_ID, reason: RevokeReason::ConnectionLost },
        ),
        event("session_expired", "SESSION_EXPIRED", 0, Event::SessionExpired),
        event(
            "lease_moved",
            "LEASE_MOVED",
            0,
            Event::LeaseMoved { id: LOCK_ID, remaining_ms: 30_000, stamp_ms: 123_456 },
        ),
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
            "error_bad_input",
            "ERROR bad_input, naming field and limit",
            2,
            ErrorCode::BadInput,
            text(1024, "key", "key: 1025 bytes, the limit is 1024"),
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
