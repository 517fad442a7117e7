//! Regression tests: runs that the auditor once reported wrongly. Each has a similar run that really breaks a
//! rule.

use super::refusals::LEFT_COUNT_MIN;
use super::scene::{ACQUIRE, asks, auditor, granted, id_of, rule, says, says_busy, says_granted, welcome};
use super::{Auditor, Ending};
use crate::form::{Form, Permits};
use crate::key::{Key, kind_of};
use crate::operation::{Acquire, Listing, Operation, Withdrawal};
use waymaker_engine::Scope;
use waymaker_protocol::{
    CapacitySet, ErrorAnswer, ErrorCode, ErrorDetail, Event, Extended, Frozen, Granted, Listed, ListedPool,
    NamespaceKind, PoolsListed, Released, Response, SessionId, SessionRequest, Throttled, Verified,
};
use waymaker_server::limits::{EVERYWHERE_IN_FLIGHT_MAX, LANES_PER_SESSION_MAX};

const LOCAL: Acquire =
    Acquire { scope: Scope::Local, request_id: None, release_after_ms: None, lease_ms: 100, ..ACQUIRE };

fn error(code: ErrorCode) -> Response<'static> {
    Response::Error(ErrorAnswer { code, detail: ErrorDetail::Text { value: 0, field: b"", message: b"" } })
}

/// The machine stops cleanly and boots again a millisecond later. All records are durable.
fn reboots(auditor: &mut Auditor, now_ms: u64) {
    auditor.note_durable(now_ms, 0);
    auditor.note_end(now_ms, Ending::Clean);
    auditor.note_start(now_ms + 1, 0, true);
}

/// The lease begins when the log has synced, 60 ms after the turn whose stamp is in the response. By that
/// stamp, more than the full lease remains. Then the machine reboots, and the lease begins again.
fn next_grant_after_a_reboot(next_ms: u64) -> Auditor {
    let mut auditor = auditor();
    asks(&mut auditor, 0, LOCAL, 1_000);
    auditor.note_synced(1_070);
    says(&mut auditor, 0, 1, &Response::Granted(Granted { remaining_ms: 160, ..granted(1, 1_010) }), 1_075);
    reboots(&mut auditor, 1_080);
    asks(&mut auditor, 2, LOCAL, 1_082);
    says_granted(&mut auditor, 2, Granted { remaining_ms: 100, ..granted(2, next_ms) });
    auditor
}

#[test]
fn a_restarted_lease_has_its_requested_length_not_the_rest_in_a_late_response() {
    assert_eq!(next_grant_after_a_reboot(1_181).violation(), None);
    assert_eq!(rule(&next_grant_after_a_reboot(1_180)), Some("early-grant"));
}

/// A session has a hold on its lease and a hold with its own lease. After a restart the client resumes the
/// session, and the first hold is gone.
fn resumed_without_its_hold(ended_ms: u64) -> Auditor {
    let mut auditor = auditor();
    let hello = Operation::Hello {
        session: SessionRequest::New { lease_ms: 50 },
        worker: 0,
        kind: NamespaceKind::Flat,
    };
    auditor.asks(0, 9, hello, 0, 1_000);
    let greeted = welcome(&auditor, 50, 1_000);
    says(&mut auditor, 0, 9, &Response::Welcome(greeted), 1_000);
    let held = Acquire { session_lease: true, lease_ms: 0, ..LOCAL };
    asks(&mut auditor, 0, held, 1_001);
    let grant = Granted { remaining_ms: 50, session_lease: true, ..granted(1, 1_002) };
    says_granted(&mut auditor, 0, grant);
    reboots(&mut auditor, ended_ms);
    auditor.lost(0, ended_ms);
    let lane = auditor.connections[0].lane;
    auditor.open(lane, false);
    let connection = auditor.connections.len() - 1;
    let back_ms = ended_ms + 10;
    auditor.asks(connection, 10, hello, 0, back_ms);
    let greeted = welcome(&auditor, 50, back_ms);
    says(&mut auditor, connection, 10, &Response::Welcome(greeted), back_ms);
    auditor.asks(connection, 11, Operation::Release { id: id_of(1), forged: false, own: false }, 1, back_ms);
    auditor.arrived(connection, 1, back_ms);
    says(&mut auditor, connection, 11, &error(ErrorCode::NotFound), back_ms + 1);
    auditor
}

#[test]
fn a_session_that_may_have_ended_is_restored_without_holds_on_its_lease() {
    assert_eq!(resumed_without_its_hold(1_060).violation(), None);
    assert_eq!(rule(&resumed_without_its_hold(1_020)), Some("lost-lease"));
}

/// A shared claim is reserved with fence 1, and another shared claim is granted with fence 2. Only then a
/// third request arrives, which is granted with fence 1.
fn a_grant_below_a_fence_that_was_said(third: Acquire, waited: bool) -> Auditor {
    let shared = Acquire { shared: true, wait_ms: 500, request_id: Some(1), ..LOCAL };
    let mut auditor = auditor();
    asks(&mut auditor, 0, shared, 1_000);
    asks(&mut auditor, 2, Acquire { request_id: None, ..shared }, 1_001);
    says_granted(&mut auditor, 2, Granted { remaining_ms: 100, ..granted(2, 1_002) });
    asks(&mut auditor, 1, third, 1_003);
    says_granted(&mut auditor, 1, Granted { remaining_ms: 100, waited, ..granted(1, 1_004) });
    auditor
}

#[test]
fn a_claim_that_is_taken_over_keeps_its_fence() {
    let shared = Acquire { shared: true, wait_ms: 500, request_id: Some(1), ..LOCAL };
    assert_eq!(a_grant_below_a_fence_that_was_said(shared, true).violation(), None);
    let other = Acquire { request_id: Some(2), ..shared };
    assert_eq!(rule(&a_grant_below_a_fence_that_was_said(other, true)), Some("fence-order"));
}

/// A hold with its own lease outlasts the session of its lane. After a restart the client repeats the
/// acquire.
fn an_acquire_repeated_after_its_session(code: ErrorCode) -> Auditor {
    let mut auditor = auditor();
    let session = SessionRequest::New { lease_ms: 50 };
    auditor.asks(0, 9, Operation::Hello { session, worker: 0, kind: NamespaceKind::Flat }, 0, 1_000);
    let greeted = welcome(&auditor, 50, 1_000);
    says(&mut auditor, 0, 9, &Response::Welcome(greeted), 1_000);
    let long = Acquire { lease_ms: 5_000, ..LOCAL };
    asks(&mut auditor, 0, long, 1_001);
    says_granted(&mut auditor, 0, Granted { remaining_ms: 5_000, ..granted(1, 1_002) });
    auditor.lost(0, 1_003);
    reboots(&mut auditor, 1_004);
    let lane = auditor.connections[0].lane;
    auditor.open(lane, false);
    let connection = auditor.connections.len() - 1;
    asks(&mut auditor, connection, long, 1_200);
    says(&mut auditor, connection, 1, &error(code), 1_201);
    auditor
}

#[test]
fn an_acquire_of_an_ended_session_has_no_first_response() {
    assert_eq!(an_acquire_repeated_after_its_session(ErrorCode::SessionGone).violation(), None);
    assert_eq!(rule(&an_acquire_repeated_after_its_session(ErrorCode::Cancelled)), Some("repeat"));
}

/// A client sends a request for tokens while no server runs and repeats it after the start. Then another client takes tokens.
fn tokens_across_a_restart(second_sent_ms: u64) -> Auditor {
    let mut auditor = auditor();
    let bucket = (0..Key::MAX).find(|key| crate::key::kind_of(*key) == NamespaceKind::Limit);
    let bucket = bucket.expect("some keys are buckets");
    let burst = auditor.settings.rule_of(bucket).burst;
    let take = |cost| Operation::Take(Withdrawal { first: (bucket, cost), second: None, refund: false });
    let rule = auditor.settings.rule_of(bucket);
    let reset_after_ns = rule.period_ns.div_ceil(u64::from(rule.rate)) * u64::from(burst);
    let allowed = Response::Throttled(Throttled { allowed: true, reset_after_ns, ..Throttled::default() });
    auditor.note_durable(1_000, 0);
    auditor.note_end(1_000, Ending::Crash);
    auditor.asks(0, 1, take(burst), 0, 1_000);
    auditor.note_start(1_000, 0, false);
    auditor.asks(0, 1, take(burst), 0, 1_000);
    says(&mut auditor, 0, 1, &allowed, 1_000);
    auditor.asks(2, 1, take(burst), 0, second_sent_ms);
    says(&mut auditor, 2, 1, &allowed, second_sent_ms);
    auditor
}

#[test]
fn tokens_requested_while_no_server_ran_are_taken_once() {
    assert_eq!(tokens_across_a_restart(1_000_000_000).violation(), None);
    assert_eq!(rule(&tokens_across_a_restart(1_000)), Some("rate"));
}

/// A wait ends while the log writes the grant, and the process is killed. Then the server refuses another
/// client because of the hold.
fn busy_after_a_crash(durable_after_ms: u64) -> Auditor {
    let mut auditor = auditor();
    let start_ms = auditor.settings.start_ms;
    asks(&mut auditor, 0, Acquire { wait_ms: 30, ..LOCAL }, start_ms);
    says(&mut auditor, 0, 1, &error(ErrorCode::Timeout), start_ms + 30);
    auditor.note_durable(start_ms + durable_after_ms, 0);
    auditor.note_end(start_ms + 5_000, Ending::Crash);
    auditor.note_start(start_ms + 5_001, 0, false);
    asks(&mut auditor, 2, LOCAL, start_ms + 5_010);
    says_busy(&mut auditor, 2, start_ms + 5_011);
    auditor
}

#[test]
fn a_claim_whose_end_was_not_durable_may_be_held_after_a_crash() {
    assert_eq!(busy_after_a_crash(10).violation(), None);
    assert_eq!(rule(&busy_after_a_crash(40)), Some("busy"));
}

/// The cluster counts a key, and the server ends with `ending`. Afterwards the server grants the key without
/// counting, perhaps after another grant under scope quorum.
fn uncounted_grant_after(ending: Ending, is_counted_again: bool) -> Auditor {
    let acquire = Acquire { release_after_ms: Some(0), request_id: None, ..LOCAL };
    let counted = Acquire { scope: Scope::Quorum, ..acquire };
    let mut auditor = auditor();
    let count = |auditor: &mut Auditor, fence| {
        let name = auditor.settings.name_of(acquire.key).into();
        auditor.note_counted(Box::from(kind_of(acquire.key).name().as_bytes()), name, fence);
    };
    let grant = |auditor: &mut Auditor, connection, acquire, fence, now_ms| {
        asks(auditor, connection, acquire, now_ms);
        says_granted(auditor, connection, Granted { remaining_ms: 100, ..granted(fence, now_ms) });
    };
    count(&mut auditor, 1);
    grant(&mut auditor, 0, counted, 1, 1_000);
    auditor.note_durable(2_000, 0);
    auditor.note_end(2_000, ending);
    auditor.note_start(2_001, 0, false);
    let floor = 1 << 20;
    if is_counted_again {
        count(&mut auditor, floor + 1);
        grant(&mut auditor, 1, counted, floor + 1, 3_000);
    }
    grant(&mut auditor, 2, acquire, floor + 2, 4_000);
    auditor
}

#[test]
fn a_server_that_lost_records_counts_a_key_after_its_next_quorum_grant() {
    assert_eq!(uncounted_grant_after(Ending::Damage, false).violation(), None);
    assert_eq!(rule(&uncounted_grant_after(Ending::Damage, true)), Some("fence-counted"));
    assert_eq!(rule(&uncounted_grant_after(Ending::Crash, false)), Some("fence-counted"));
}

fn any_pool() -> Key {
    (0..Key::MAX).find(|key| kind_of(*key) == NamespaceKind::Pool).expect("some keys are pools")
}

/// A client requests two permits, an operator reduces the capacity of the pool to one, and another request is
/// granted two permits.
fn permits_above_the_capacity(request_id: u8) -> Auditor {
    let pool = any_pool();
    let form = Form::Permits(Permits { permits: 2, capacity: None, timestamp_us: None });
    let permits = Acquire { key: pool, form, wait_ms: 500, request_id: Some(1), ..LOCAL };
    let mut auditor = auditor();
    let set = |capacity| Operation::SetCapacity { pool, capacity };
    auditor.asks(2, 1, set(2), 0, 1_000);
    says(&mut auditor, 2, 1, &Response::CapacitySet(CapacitySet { previous: 0 }), 1_001);
    asks(&mut auditor, 0, permits, 1_010);
    auditor.asks(2, 2, set(1), 0, 1_020);
    says(&mut auditor, 2, 2, &Response::CapacitySet(CapacitySet { previous: 2 }), 1_021);
    asks(&mut auditor, 1, Acquire { request_id: Some(request_id), ..permits }, 1_030);
    says_granted(&mut auditor, 1, Granted { remaining_ms: 100, waited: true, ..granted(1, 1_031) });
    auditor
}

#[test]
fn permits_that_are_taken_over_may_exceed_a_later_capacity() {
    assert_eq!(permits_above_the_capacity(1).violation(), None);
    assert_eq!(rule(&permits_above_the_capacity(2)), Some("capacity"));
}

/// `count` connections ask to join a session after its first one, and the server refuses the last.
fn one_more_than(count: usize) -> Auditor {
    let id = SessionId { place: 1, secret: 1 };
    let mut auditor = auditor();
    let hello = |session| Operation::Hello { session, worker: 0, kind: NamespaceKind::Flat };
    for number in 0..count {
        let lane = auditor.new_lane(1);
        auditor.open(lane, false);
        let connection = auditor.connections.len() - 1;
        auditor.asks(connection, 9, hello(SessionRequest::Join { id }), 0, 1_000);
        let greeted = welcome(&auditor, 50, 1_000);
        let is_last = number + 1 == count;
        let response = if is_last { error(ErrorCode::Overloaded) } else { Response::Welcome(greeted) };
        says(&mut auditor, connection, 9, &response, 1_000);
    }
    auditor
}

#[test]
fn a_session_is_full_at_its_maximum_of_connections() {
    assert_eq!(one_more_than(LANES_PER_SESSION_MAX).violation(), None);
    assert_eq!(rule(&one_more_than(LANES_PER_SESSION_MAX - 1)), Some("answers"));
}

/// A client releases a hold. Then the server reports that the fence of this hold is held, by a hold that no
/// client knows.
fn fence_held_by_an_unheard_grant(crashes: bool) -> Auditor {
    let mut auditor = auditor();
    asks(&mut auditor, 0, ACQUIRE, 1_000);
    says_granted(&mut auditor, 0, granted(1, 1_001));
    auditor.asks(0, 2, Operation::Release { id: id_of(1), forged: false, own: false }, 0, 1_002);
    says(&mut auditor, 0, 2, &Response::Released(Released { was_waiting: false }), 1_003);
    if crashes {
        auditor.note_end(1_004, Ending::Crash);
        auditor.note_start(1_005, 0, false);
    }
    auditor.asks(2, 1, Operation::Verify { key: ACQUIRE.key, fence: 1 }, 0, 1_006);
    let verified = Verified { newest: true, held: true, newest_fence: 1, stamp_ms: 1_007 };
    says(&mut auditor, 2, 1, &Response::Verified(verified), 1_007);
    auditor
}

#[test]
fn a_fence_of_a_restarted_counter_may_be_held_again() {
    assert_eq!(fence_held_by_an_unheard_grant(true).violation(), None);
    assert_eq!(rule(&fence_held_by_an_unheard_grant(false)), Some("view"));
}

/// Two pages of one walk show the same pool. An operator set its capacity before, or it exists because a
/// client uses it.
fn pool_on_two_pages(is_set: bool) -> Auditor {
    let pool = any_pool();
    let mut auditor = auditor();
    if is_set {
        auditor.asks(2, 1, Operation::SetCapacity { pool, capacity: 2 }, 0, 1_000);
        says(&mut auditor, 2, 1, &Response::CapacitySet(CapacitySet { previous: 0 }), 1_001);
    } else {
        let form = Form::Permits(Permits { permits: 1, capacity: Some(2), timestamp_us: None });
        asks(&mut auditor, 0, Acquire { key: pool, form, ..LOCAL }, 1_000);
    }
    let name = auditor.settings.name_of(pool);
    let order = auditor.settings.pool_order(pool);
    for (number, cursor, next) in [(2, 0, 1), (3, 1, 0)] {
        let listing = Listing { walk: 1, kind: NamespaceKind::Pool, cursor, count_max: 1, prefix: None };
        auditor.asks(2, number, Operation::ListPools(listing), 0, 1_010);
        let pool = ListedPool { capacity: 2, held: 0, order, name: &name, ..ListedPool::default() };
        says(&mut auditor, 2, number, &Response::PoolsListed(PoolsListed { next, pools: vec![pool] }), 1_011);
    }
    auditor
}

#[test]
fn a_pool_that_may_be_recreated_may_be_on_two_pages() {
    assert_eq!(pool_on_two_pages(false).violation(), None);
    assert_eq!(rule(&pool_on_two_pages(true)), Some("page"));
}

/// The server crashes before a client gets its grant. Another client saw the hold, and perhaps extended it.
/// After the restart the first client repeats its request.
fn grant_heard_after_an_extend(is_extended: bool) -> Auditor {
    let mut auditor = auditor();
    asks(&mut auditor, 0, LOCAL, 1_000);
    if is_extended {
        auditor.asks(2, 1, Operation::Extend { id: id_of(1), lease_ms: 300, own: false }, 0, 1_010);
        let extended = Extended { remaining_ms: 300, stamp_ms: 1_011, clamped: false };
        says(&mut auditor, 2, 1, &Response::Extended(extended), 1_011);
    }
    auditor.note_durable(1_012, 0);
    auditor.note_end(1_012, Ending::Crash);
    auditor.note_start(1_013, 0, false);
    asks(&mut auditor, 0, LOCAL, 1_020);
    says_granted(&mut auditor, 0, Granted { remaining_ms: 290, ..granted(1, 1_021) });
    auditor
}

#[test]
fn a_hold_may_be_extended_before_its_owner_gets_the_grant() {
    assert_eq!(grant_heard_after_an_extend(true).violation(), None);
    assert_eq!(rule(&grant_heard_after_an_extend(false)), Some("answers"));
}

/// `count` requests of a lane are unanswered, and the server refuses a listing.
fn listing_refused_after(count: usize) -> Auditor {
    let mut auditor = auditor();
    let listing = Listing { walk: 1, kind: NamespaceKind::Flat, cursor: 0, count_max: 1, prefix: None };
    for number in 0..=u32::try_from(count).unwrap() {
        auditor.asks(0, 1 + number, Operation::List(Listing { walk: number, ..listing }), 0, 1_000);
    }
    let last = u32::try_from(count).unwrap() + 1;
    says(&mut auditor, 0, last, &error(ErrorCode::Overloaded), 1_001);
    auditor
}

#[test]
fn a_long_request_is_refused_after_many_unanswered_ones() {
    assert_eq!(listing_refused_after(LEFT_COUNT_MIN).violation(), None);
    assert_eq!(rule(&listing_refused_after(LEFT_COUNT_MIN - 1)), Some("answers"));
}

/// `count` streams of a front end wait for listings. A later listing is refused, and its stream reports this
/// after the response to the first.
fn stream_refused_after(count: usize, answered_ms: u64) -> Auditor {
    let mut auditor = auditor();
    let lane = auditor.new_lane(2);
    auditor.open(lane, true);
    let listing = Listing { walk: 1, kind: NamespaceKind::Flat, cursor: 0, count_max: 1, prefix: None };
    for number in 1..=u32::try_from(count).unwrap() {
        auditor.asks(3, number, Operation::List(Listing { walk: number, ..listing }), 0, 1_000);
    }
    says(&mut auditor, 3, 1, &Response::Listed(Listed { next: 0, locks: Vec::new() }), answered_ms);
    auditor.asks(3, 1_000, Operation::List(Listing { walk: 1_000, ..listing }), 0, 1_002);
    says(&mut auditor, 3, 1_000, &error(ErrorCode::Overloaded), 1_004);
    auditor
}

#[test]
fn streams_answered_after_a_long_request_was_sent_count_as_waiting() {
    assert_eq!(stream_refused_after(LEFT_COUNT_MIN, 1_003).violation(), None);
    assert_eq!(rule(&stream_refused_after(LEFT_COUNT_MIN, 1_001)), Some("answers"));
}

fn freeze(thaw: bool) -> Operation {
    Operation::Freeze { kind: NamespaceKind::Flat, prefix: None, thaw }
}

fn frozen(frozen_count: u16) -> Response<'static> {
    Response::Frozen(Frozen { changed: true, frozen_count })
}

/// A client asks to freeze its keys, and its connection is lost. Another client thaws them. Then the first
/// client resumes its lane, and the server refuses an acquire as frozen.
fn frozen_after_a_thaw(asks_again: bool) -> Auditor {
    let mut auditor = auditor();
    let start_ms = auditor.settings.start_ms;
    auditor.asks(0, 2, freeze(false), 0, start_ms + 1);
    auditor.lost(0, start_ms + 2);
    auditor.done(0, 2_000);
    auditor.asks(2, 2, freeze(true), 0, start_ms + 100);
    says(&mut auditor, 2, 2, &frozen(0), start_ms + 101);
    let lane = auditor.connections[0].lane;
    auditor.open(lane, false);
    let connection = auditor.connections.len() - 1;
    if asks_again {
        auditor.asks(connection, 2, freeze(false), 0, start_ms + 200);
    }
    asks(&mut auditor, 2, ACQUIRE, start_ms + 300);
    says(&mut auditor, 2, 1, &error(ErrorCode::Frozen), start_ms + 301);
    auditor
}

#[test]
fn a_repeated_freeze_may_take_effect_after_a_thaw() {
    assert_eq!(frozen_after_a_thaw(true).violation(), None);
    assert_eq!(rule(&frozen_after_a_thaw(false)), Some("answers"));
}

/// A client freezes its keys and thaws them, and the server ends. After the next start the server refuses an
/// acquire as frozen.
fn frozen_after_a_restart(ending: Ending) -> Auditor {
    let mut auditor = auditor();
    let start_ms = auditor.settings.start_ms;
    auditor.asks(0, 2, freeze(false), 0, start_ms + 1);
    says(&mut auditor, 0, 2, &frozen(1), start_ms + 2);
    auditor.asks(0, 3, freeze(true), 0, start_ms + 10);
    says(&mut auditor, 0, 3, &frozen(0), start_ms + 11);
    auditor.note_end(start_ms + 200, ending);
    auditor.note_start(start_ms + 201, 0, false);
    asks(&mut auditor, 2, ACQUIRE, start_ms + 300);
    says(&mut auditor, 2, 1, &error(ErrorCode::Frozen), start_ms + 301);
    auditor
}

#[test]
fn log_damage_may_undo_a_thaw() {
    assert_eq!(frozen_after_a_restart(Ending::Damage).violation(), None);
    assert_eq!(rule(&frozen_after_a_restart(Ending::Crash)), Some("answers"));
}

/// A waiting acquire is released by its id. The server acknowledges this, but sends no response to the
/// acquire. Another connection may have resumed the lane before.
fn given_up_without_an_answer(is_resumed: bool) -> Auditor {
    let mut auditor = auditor();
    auditor.settings.durability = None;
    let start_ms = auditor.settings.start_ms;
    asks(&mut auditor, 0, Acquire { wait_ms: u32::MAX, notify_queued: true, ..ACQUIRE }, start_ms + 1);
    auditor.arrived(0, 0, start_ms + 1);
    let queued = Response::Event(Event::Queued { id: id_of(1), position: 0, ticket: 0 });
    says(&mut auditor, 0, 1, &queued, start_ms + 2);
    let mut connection = 0;
    if is_resumed {
        auditor.lost(0, start_ms + 3);
        let lane = auditor.connections[0].lane;
        auditor.open(lane, false);
        connection = auditor.connections.len() - 1;
    }
    auditor.connections[connection].welcome_ms = Some(start_ms + 4);
    auditor.asks(
        connection,
        2,
        Operation::Release { id: id_of(1), forged: false, own: false },
        0,
        start_ms + 5,
    );
    says(&mut auditor, connection, 2, &Response::Released(Released { was_waiting: true }), start_ms + 6);
    auditor.look_at_duties(100_000);
    auditor
}

#[test]
fn an_acquire_is_answered_only_on_the_connection_that_sent_it() {
    assert_eq!(given_up_without_an_answer(true).violation(), None);
    assert_eq!(rule(&given_up_without_an_answer(false)), Some("late-answer"));
}

/// A client sends `count` requests to freeze its keys. The server refuses the last one and has answered none
/// of the others.
fn freeze_refused_after(count: u32) -> Auditor {
    let mut auditor = auditor();
    for number in 1..=count {
        auditor.asks(0, number, freeze(false), 0, 1_000);
    }
    says(&mut auditor, 0, count, &error(ErrorCode::Overloaded), 1_001);
    auditor
}

#[test]
fn a_freeze_is_refused_at_the_maximum_of_broadcasts_in_flight() {
    assert_eq!(freeze_refused_after(EVERYWHERE_IN_FLIGHT_MAX + 1).violation(), None);
    assert_eq!(rule(&freeze_refused_after(EVERYWHERE_IN_FLIGHT_MAX)), Some("answers"));
}

/// A freeze is answered, the server ends and starts again, and a key under the frozen prefix is granted.
fn granted_after_a_freeze(ending: Ending) -> Auditor {
    let mut auditor = auditor();
    auditor.asks(2, 2, freeze(false), 0, 1_000);
    says(&mut auditor, 2, 2, &frozen(1), 1_010);
    auditor.note_end(1_020, ending);
    auditor.note_start(1_021, 0, false);
    asks(&mut auditor, 0, Acquire { scope: Scope::Ephemeral, ..LOCAL }, 1_030);
    says_granted(&mut auditor, 0, Granted { remaining_ms: 100, ..granted(1, 1_031) });
    auditor
}

#[test]
fn a_freeze_lasts_until_a_thaw_or_the_loss_of_the_log() {
    for ending in [Ending::Clean, Ending::Crash, Ending::Interrupted] {
        assert_eq!(rule(&granted_after_a_freeze(ending)), Some("frozen"), "{ending:?}");
    }
    assert_eq!(granted_after_a_freeze(Ending::Loss).violation(), None);
}

/// A claim waits in a pool that serves by timestamp. A newer request with an earlier timestamp is granted
/// first.
fn granted_before_a_waiter_of_a_later_time(wait_ms: u32) -> Auditor {
    let pool = any_pool();
    let wanted = |timestamp_us| {
        let form = Form::Permits(Permits { permits: 1, capacity: Some(2), timestamp_us: Some(timestamp_us) });
        Acquire { key: pool, form, wait_ms: 500, notify_queued: true, ..LOCAL }
    };
    let start_us = crate::clock::unix_us(1_000);
    let mut auditor = auditor();
    asks(&mut auditor, 0, wanted(start_us), 1_000);
    let queued = Event::Queued { id: id_of(2), position: 0, ticket: 1 };
    says(&mut auditor, 0, 1, &Response::Event(queued), 1_001);
    asks(&mut auditor, 2, Acquire { wait_ms, ..wanted(start_us - 1) }, 1_010);
    says_granted(&mut auditor, 2, Granted { remaining_ms: 100, ..granted(1, 1_011) });
    says_granted(&mut auditor, 0, Granted { remaining_ms: 100, waited: true, ..granted(2, 1_020) });
    auditor
}

#[test]
fn an_acquire_without_a_wait_and_with_an_early_timestamp_overtakes_no_waiter() {
    assert_eq!(granted_before_a_waiter_of_a_later_time(500).violation(), None);
    assert_eq!(rule(&granted_before_a_waiter_of_a_later_time(0)), Some("overtaking"));
}
