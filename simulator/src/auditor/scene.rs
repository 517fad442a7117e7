//! Helpers for short test runs of the auditor, written as single requests and responses.

use super::Auditor;
use super::guards::GuardView;
use crate::form::Form;
use crate::operation::{Acquire, Operation};
use crate::random::Random;
use crate::workload::Settings;
use waymaker_engine::Scope;
use waymaker_protocol::limits::{FRAME_LEN_MAX, IN_FLIGHT_MAX};
use waymaker_protocol::{
    Contention, ErrorAnswer, ErrorCode, ErrorDetail, Granted, LockId, LockState, Response, SessionId,
    StatusAnswer, VERSION_MIN, Welcome,
};
use waymaker_server::node::shard_count;

pub(super) const ACQUIRE: Acquire = Acquire {
    key: 0,
    shared: false,
    wait_ms: 0,
    lease_ms: 700,
    session_lease: false,
    notify_queued: false,
    release_after_ms: Some(0),
    priority: None,
    request_id: Some(1),
    label: None,
    form: Form::One,
    scope: Scope::Ephemeral,
};

/// Returns the auditor of a run with two clients; the first has two connections, each with a lane of its own.
pub(super) fn auditor() -> Auditor {
    let mut auditor = Auditor::new(&Settings::new(0, None, &mut Random::new(0)));
    for client in [0, 0, 1] {
        let lane = auditor.new_lane(client);
        auditor.open(lane, false);
    }
    auditor
}

/// Returns the first broken rule.
pub(super) fn rule(auditor: &Auditor) -> Option<&'static str> {
    auditor.violation().map(|violation| violation.rule)
}

pub(super) fn asks(auditor: &mut Auditor, connection: usize, acquire: Acquire, now_ms: u64) {
    auditor.asks(connection, 1, Operation::Acquire(acquire), 0, now_ms);
}

/// Returns a grant with the full lease of 700 ms.
pub(super) fn granted(fence: u64, now_ms: u64) -> Granted {
    Granted { id: id_of(fence), fence, remaining_ms: 700, stamp_ms: now_ms, ..Granted::default() }
}

pub(super) fn id_of(fence: u64) -> LockId {
    LockId { place: fence, secret: fence }
}

pub(super) fn says(
    auditor: &mut Auditor,
    connection: usize,
    number: u32,
    response: &Response<'_>,
    now_ms: u64,
) {
    let mut frame = Vec::new();
    response.encode(number, &mut frame);
    auditor.said(connection, &frame, now_ms);
}

pub(super) fn says_granted(auditor: &mut Auditor, connection: usize, granted: Granted) {
    says(auditor, connection, 1, &Response::Granted(granted), granted.stamp_ms);
}

/// Returns the WELCOME of the server of this auditor, for a connection with a session.
pub(super) fn welcome(auditor: &Auditor, session_lease_ms: u32, stamp_ms: u64) -> Welcome {
    let Settings { worker_count, limits, .. } = auditor.settings;
    Welcome {
        version: VERSION_MIN,
        worker_count: worker_count as u16,
        shard_count: shard_count(worker_count) as u16,
        session_id: SessionId { place: 1, secret: 1 },
        session_lease_ms,
        stamp_ms,
        lease_default_ms: limits.lease_default_ms,
        lease_min_ms: limits.lease_min_ms,
        lease_max_ms: limits.lease_max_ms,
        in_flight_max: IN_FLIGHT_MAX,
        frame_len_max: FRAME_LEN_MAX as u32,
        ..Welcome::default()
    }
}

pub(super) fn says_busy(auditor: &mut Auditor, connection: usize, now_ms: u64) {
    let contention = Contention { held: true, ..Contention::default() };
    let busy = ErrorAnswer { code: ErrorCode::Busy, detail: ErrorDetail::Contention(contention) };
    says(auditor, connection, 1, &Response::Error(busy), now_ms);
}

/// Returns the STATUS_ANSWER of a hold with its own lease.
pub(super) fn status(remaining_ms: u32, stamp_ms: u64) -> StatusAnswer<'static> {
    StatusAnswer {
        state: LockState::Held,
        shared: false,
        session_lease: false,
        fence: 1,
        remaining_ms,
        age_ms: 0,
        stamp_ms,
        priority: 0,
        waited_ms: 0,
        key: b"",
    }
}

/// Process with a real client, and its connection.
pub(super) const PROCESS: usize = 7;
pub(super) const CONNECTION: usize = 3;
/// More bytes than the server ever sends.
pub(super) const ALL: usize = 1 << 40;

/// Returns an auditor with a real client. The server has sent it a grant of 700 ms, at 100 ms.
pub(super) fn granted_to_process() -> Auditor {
    let mut auditor = auditor();
    auditor.settings.start_ms = 0;
    let lane = auditor.new_lane_of_process(3, PROCESS);
    auditor.open(lane, false);
    asks(&mut auditor, CONNECTION, Acquire { request_id: None, release_after_ms: None, ..ACQUIRE }, 100);
    says_granted(&mut auditor, CONNECTION, granted(1, 100));
    auditor
}

/// Returns the state of a guard with this local deadline.
pub(super) fn guard_view(until_ms: u64) -> GuardView {
    GuardView {
        id: id_of(1),
        until_us: until_ms * 1000,
        lane: 3,
        fence: 1,
        lease_ms: Some(700),
        ..GuardView::default()
    }
}
