//! Tests with a server that has a log.

use super::Auditor;
use super::restarts::Ending;
use super::scene::{ACQUIRE, asks, auditor, granted, id_of, rule, says, says_granted, status};
use crate::durability::Durability;
use crate::key::TREE;
use crate::operation::{Acquire, Operation};
use waymaker_engine::Scope;
use waymaker_protocol::{
    ErrorAnswer, ErrorCode, ErrorDetail, Event, Extended, Frozen, Granted, NamespaceKind, Response,
    StatusAnswer,
};

const LOCAL: Acquire = Acquire { scope: Scope::Local, request_id: None, release_after_ms: None, ..ACQUIRE };

/// Returns the auditor of a server with a log.
pub(super) fn logged() -> Auditor {
    let mut auditor = auditor();
    let mut durabilities = (0..).filter_map(|seed| Durability::new(seed, None));
    auditor.settings.durability = durabilities.find(|durability| durability.has_log);
    auditor
}

/// A durable acquire, sent at 1,000 ms, is answered. Records handed to the log after `found_ms` are not
/// durable.
fn granted_behind(found_ms: u64) -> Auditor {
    let mut auditor = logged();
    auditor.note_nothing_durable_since(found_ms);
    asks(&mut auditor, 0, LOCAL, 1_000);
    says_granted(&mut auditor, 0, granted(1, 1_010));
    auditor
}

#[test]
fn a_durable_grant_is_answered_after_the_sync_of_its_record() {
    assert_eq!(granted_behind(1_000).violation(), None);
    assert_eq!(rule(&granted_behind(999)), Some("durable"));
}

/// An extend arrives at 1,100 ms, and then a status shows `remaining_ms`. Records handed to the log after
/// `found_ms` are not durable.
fn status_behind(found_ms: u64, remaining_ms: u32) -> Option<&'static str> {
    let mut auditor = granted_behind(1_000);
    auditor.note_nothing_durable_since(found_ms);
    auditor.asks(0, 2, Operation::Extend { id: id_of(1), lease_ms: 2_000, own: false }, 10, 1_095);
    auditor.asks(0, 3, Operation::Status { id: id_of(1) }, 20, 1_095);
    auditor.arrived(0, 20, 1_100);
    let status = StatusAnswer { age_ms: 91, ..status(remaining_ms, 1_101) };
    says(&mut auditor, 0, 3, &Response::Status(status), 1_102);
    auditor.violation.filter(|violation| violation.rule == "durable").map(|violation| violation.rule)
}

#[test]
fn a_status_shows_a_longer_lease_after_the_sync_of_its_record() {
    assert_eq!(status_behind(1_099, 2_000), Some("durable"));
    assert_eq!(status_behind(1_100, 2_000), None);
    assert_eq!(status_behind(1_099, 609), None, "the extend is not applied yet");
    assert_eq!(status_behind(1_099, 0), None, "nothing is left of the lease");
}

/// Returns whether an ephemeral hold has ended after a crash. An interrupted stop carried the hold over to the
/// server that crashed.
fn is_over_after_crash(is_synced: bool) -> bool {
    let mut auditor = logged();
    asks(&mut auditor, 0, Acquire { scope: Scope::Ephemeral, ..LOCAL }, 1_000);
    says_granted(&mut auditor, 0, granted(1, 1_010));
    auditor.note_end(1_100, Ending::Interrupted);
    auditor.note_start(1_200, 0, false);
    if is_synced {
        auditor.note_durable(1_210, 1_220_000);
    }
    auditor.note_end(1_300, Ending::Crash);
    auditor.holds[&id_of(1)].over_ms.is_some()
}

#[test]
fn a_crash_before_the_first_sync_of_a_server_ends_no_restored_hold() {
    assert!(!is_over_after_crash(false));
    assert!(is_over_after_crash(true));
}

/// A lease ends before its client gets the grant. The server crashes, and all records from before
/// `durable_ms` are durable. The next server repeats the grant.
fn returned_after_crash(durable_ms: u64) -> Option<&'static str> {
    let mut auditor = logged();
    asks(&mut auditor, 0, Acquire { request_id: Some(1), ..LOCAL }, 1_000);
    says(&mut auditor, 0, 0, &Response::Event(Event::Expired { id: id_of(1) }), 1_800);
    auditor.note_durable(durable_ms, durable_ms * 1_000);
    auditor.note_end(1_900, Ending::Crash);
    auditor.note_start(2_000, 0, true);
    asks(&mut auditor, 0, Acquire { request_id: Some(1), ..LOCAL }, 2_005);
    says_granted(&mut auditor, 0, Granted { repeated: true, ..granted(1, 2_010) });
    auditor.asks(0, 2, Operation::Status { id: id_of(1) }, 0, 2_015);
    says(&mut auditor, 0, 2, &Response::Status(StatusAnswer { age_ms: 10, ..status(690, 2_020) }), 2_020);
    rule(&auditor)
}

#[test]
fn a_crash_restores_a_hold_with_an_unread_grant_if_its_end_was_not_durable() {
    assert_eq!(returned_after_crash(1_700), None);
    assert_eq!(returned_after_crash(1_850), Some("old-id"));
}

/// A client extends a lease and the server crashes. On the next server the client shortens the lease, perhaps
/// after it repeats the first request. The server shows the longer lease.
fn extended_after_crash(is_asked_again: bool) -> Option<&'static str> {
    let mut auditor = logged();
    auditor.settings.start_ms = 0;
    let extend = |lease_ms| Operation::Extend { id: id_of(1), lease_ms, own: false };
    let extended =
        |remaining_ms, stamp_ms| Response::Extended(Extended { remaining_ms, stamp_ms, clamped: false });
    asks(&mut auditor, 0, LOCAL, 1_000);
    says_granted(&mut auditor, 0, granted(1, 1_010));
    auditor.asks(0, 2, extend(900), 0, 1_020);
    says(&mut auditor, 0, 2, &extended(900, 1_030), 1_030);
    auditor.note_durable(1_050, 1_050_000);
    auditor.note_end(1_100, Ending::Crash);
    auditor.note_start(1_200, 0, false);
    auditor.asks(0, 3, extend(20), 0, 1_220);
    if is_asked_again {
        auditor.asks(0, 2, extend(900), 0, 1_220);
    }
    says(&mut auditor, 0, 3, &extended(20, 1_230), 1_230);
    auditor.asks(0, 4, Operation::Status { id: id_of(1) }, 0, 1_590);
    says(&mut auditor, 0, 4, &Response::Status(StatusAnswer { age_ms: 590, ..status(530, 1_600) }), 1_600);
    rule(&auditor)
}

#[test]
fn a_repeated_request_moves_a_lease_again_on_the_next_server() {
    assert_eq!(extended_after_crash(true), None);
    assert_eq!(extended_after_crash(false), Some("overdue"));
}

/// A request on another lane takes over a hold. The server ends, and the next one reports that the hold
/// belongs to another lane.
fn superseded_after(ending: Ending) -> Option<&'static str> {
    let mut auditor = logged();
    let acquire = Acquire { request_id: Some(1), ..LOCAL };
    for (connection, repeated, now_ms) in [(0, false, 1_000), (1, true, 1_010)] {
        asks(&mut auditor, connection, acquire, now_ms);
        let remaining_ms = (1_700 - now_ms) as u32;
        says_granted(&mut auditor, connection, Granted { repeated, remaining_ms, ..granted(1, now_ms) });
    }
    auditor.note_durable(1_050, 1_050_000);
    auditor.note_end(1_100, ending);
    auditor.note_start(1_200, 0, false);
    auditor.asks(1, 2, Operation::Extend { id: id_of(1), lease_ms: 900, own: true }, 0, 1_210);
    let detail = ErrorDetail::Text { value: 0, field: b"", message: b"" };
    let refused = ErrorAnswer { code: ErrorCode::Cancelled, detail };
    says(&mut auditor, 1, 2, &Response::Error(refused), 1_220);
    rule(&auditor)
}

#[test]
fn only_log_damage_returns_a_hold_to_its_earlier_lane() {
    assert_eq!(superseded_after(Ending::Damage), None);
    assert_eq!(superseded_after(Ending::Crash), Some("cancelled"));
}

#[test]
fn a_repeated_request_may_already_have_moved_a_lease() {
    let mut auditor = logged();
    auditor.settings.start_ms = 0;
    asks(&mut auditor, 0, LOCAL, 1_000);
    says_granted(&mut auditor, 0, granted(1, 1_010));
    let extend = Operation::Extend { id: id_of(1), lease_ms: 20, own: false };
    auditor.asks(0, 2, extend, 0, 1_020);
    auditor.note_end(1_100, Ending::Crash);
    auditor.note_start(1_200, 0, false);
    auditor.asks(0, 2, extend, 0, 1_220);
    assert_eq!(auditor.lease_floor_ms(id_of(1)), 1_040);
    says(
        &mut auditor,
        0,
        2,
        &Response::Extended(Extended { remaining_ms: 20, stamp_ms: 1_230, clamped: false }),
        1_230,
    );
    assert_eq!(auditor.lease_floor_ms(id_of(1)), 1_250);
}

/// A client sends two equal freezes, and the second gets its response. Records handed to the log after 1,000
/// ms are not durable.
fn frozen_twice(first_ms: u64, second_ms: u64) -> Auditor {
    let mut auditor = logged();
    auditor.note_nothing_durable_since(1_000);
    let freeze = Operation::Freeze { kind: NamespaceKind::Flat, prefix: None, thaw: false };
    auditor.asks(2, 2, freeze, 0, first_ms);
    auditor.asks(2, 3, freeze, 0, second_ms);
    says(&mut auditor, 2, 3, &Response::Frozen(Frozen { changed: false, frozen_count: 1 }), second_ms + 1);
    auditor
}

#[test]
fn a_repeated_freeze_is_answered_once_the_first_one_is_durable() {
    assert_eq!(frozen_twice(1_000, 1_100).violation(), None);
    assert_eq!(rule(&frozen_twice(1_001, 1_002)), Some("durable"));
}

/// A durable hold has fence 1 and a lease of 700 ms. After a crash the bounds on the disk are checked.
fn crashed_with_bounds(floor: u64, longest_lease_ms: u64) -> Auditor {
    let mut auditor = granted_behind(1_000);
    auditor.judge_bounds(floor, longest_lease_ms);
    auditor
}

#[test]
fn no_fence_and_no_lease_is_above_the_bounds_on_the_disk() {
    assert_eq!(crashed_with_bounds(1, 700).violation(), None);
    assert_eq!(rule(&crashed_with_bounds(0, 700)), Some("losses"));
    assert_eq!(rule(&crashed_with_bounds(1, 699)), Some("losses"));
}

/// A request of a connection is refused with this code. Then an acquire of this connection is granted.
fn granted_after(code: ErrorCode) -> Option<&'static str> {
    let mut auditor = auditor();
    auditor.settings.durability = None;
    asks(&mut auditor, 0, Acquire { wait_ms: 500, ..LOCAL }, 1_000);
    auditor.asks(0, 2, Operation::Status { id: id_of(9) }, 0, 1_000);
    let detail = ErrorDetail::Text { value: 0, field: b"", message: b"" };
    says(&mut auditor, 0, 2, &Response::Error(ErrorAnswer { code, detail }), 1_001);
    says_granted(&mut auditor, 0, granted(1, 1_002));
    rule(&auditor)
}

#[test]
fn a_connection_gets_no_grant_after_session_gone() {
    assert_eq!(granted_after(ErrorCode::NotFound), None);
    assert_eq!(granted_after(ErrorCode::SessionGone), Some("session-gone"));
}

/// A set of paths is requested without a lease and granted with this remaining lease.
fn granted_without_a_lease(remaining_ms: u32) -> Option<&'static str> {
    let mut auditor = auditor();
    auditor.settings.durability = None;
    let paths = auditor.settings.mix.choose_paths(&mut crate::random::Random::new(1));
    let form = crate::form::Form::Paths(paths);
    let acquire = Acquire { key: TREE, form, lease_ms: u32::MAX, shared: paths.is_shared(), ..LOCAL };
    asks(&mut auditor, 0, Acquire { scope: Scope::Ephemeral, ..acquire }, 1_000);
    says_granted(&mut auditor, 0, Granted { remaining_ms, ..granted(1, 1_002) });
    rule(&auditor)
}

#[test]
fn a_hold_without_a_lease_has_no_remaining_lease() {
    assert_eq!(granted_without_a_lease(u32::MAX), None);
    assert_eq!(granted_without_a_lease(u32::MAX - 40), Some("answers"));
}
