//! Grants until they reach their callers, and abandoned acquires.

use super::*;
use crate::lane::grants::GRANTS_LATE_MAX;
use waymaker_protocol::{Event, RevokeReason};

#[test]
fn a_grant_after_a_wait_is_dated_by_the_last_keep_alive() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Forever);
    rig.sends(&[(1, "acquire k wait 4294967295")]);
    rig.advance_to(13_400);
    rig.sends(&[(2, "keep alive")]);
    rig.advance_to(14_000);
    // The server decided the response to the keep-alive at 13.6 s; the keep-alive was sent at 13.4 s. From this pair of
    // times, the lane computes when the server decided the grant.
    rig.receive(2, &Response::KeptAlive(KeptAlive { remaining_ms: 10_000, stamp_ms: 13_600 - SKEW_MS }));
    rig.advance_to(15_000);
    let granted = rig.granted(9, 3_000, true);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    // The keep-alive was sent at 13.4 s, and the server decided its response at 13.6 s. The lane does not know how long
    // the keep-alive was on its way, so it assumes a decision at 13.4 s. All decisions then seem 200 ms earlier than
    // they were, and so the deadline of the grant is 200 ms earlier too; 80 ms are the margin.
    assert_eq!(lock.hold.deadline(), at(15_000 - 200 + 3_000 - 80));
}

#[test]
fn an_abandoned_acquire_is_cancelled_and_a_crossing_grant_is_released() {
    let mut rig = Rig::new();
    let answer = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    drop(answer);
    rig.lane.handle_command(Command::Abandon { token: 0 }, at(10_000));
    rig.sends(&[(2, "cancel 1")]);
    let granted = rig.granted(9, 3_000, true);
    rig.receive(1, &granted);
    rig.sends(&[(3, "release 9")]);
}

#[test]
fn a_grant_to_a_dropped_future_is_released_by_its_guard() {
    let mut rig = Rig::new();
    drop(rig.acquire(OWN, Wait::Forever));
    rig.sent();
    let granted = rig.granted(9, 3_000, true);
    rig.receive(1, &granted);
    rig.sends(&[(2, "release 9")]);
    assert!(!rig.lane.holds.any_alive(rig.now()), "the released hold is still renewed");
}

#[test]
fn an_acquire_abandoned_before_sending_is_never_sent() {
    let mut rig = Rig::new();
    let _answer = rig.acquire(OWN, Wait::Forever);
    rig.lane.handle_command(Command::Abandon { token: 0 }, at(10_000));
    rig.sends(&[]);
}

/// The lease of a claim found by its request id may have nearly expired, and the events of the claim may have gone to
/// another lane.
#[test]
fn a_grant_found_by_its_request_id_is_renewed_before_delivery() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Try);
    rig.sent();
    let Response::Granted(granted) = rig.granted(9, 200, false) else { unreachable!() };
    rig.receive(1, &Response::Granted(Granted { repeated: true, ..granted }));
    assert!(answer.try_recv().is_err());
    rig.sends(&[(2, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    assert_eq!(only(&mut answer).remaining(), Duration::from_millis(3_000 - 80));
}

#[test]
fn a_grant_whose_confirmation_also_arrives_late_is_released() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Try);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    *rig.clock.0.lock().unwrap() = at(13_000);
    rig.receive(1, &granted);
    rig.sends(&[(2, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    *rig.clock.0.lock().unwrap() = at(16_000);
    rig.receive(2, &extended);
    assert!(matches!(answer.try_recv().unwrap(), Err(Error::Lost(LossReason::LocalDeadline))));
    rig.sends(&[(3, "release 9")]);
}

/// A single pause of the client does not fail the acquire, but a round trip longer than the lease does.
#[test]
fn an_acquire_fails_if_its_grants_repeatedly_arrive_expired() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Forever);
    let mut now_ms = 10_000;
    for attempt in 0..GRANTS_LATE_MAX {
        let (number, place) = (2 * attempt + 1, u64::from(attempt) + 9);
        rig.sends(&[(number, "acquire k wait 4294967295")]);
        let granted = rig.granted(place, 3_000, false);
        now_ms += 3_000;
        *rig.clock.0.lock().unwrap() = at(now_ms);
        rig.receive(number, &granted);
        rig.sends(&[(number + 1, &format!("extend {place} by 3000"))]);
        rig.receive(number + 1, &not_found());
        assert!(answer.try_recv().is_err());
    }
    let number = 2 * GRANTS_LATE_MAX + 1;
    rig.sends(&[(number, "acquire k wait 4294967295")]);
    let granted = rig.granted(8, 3_000, false);
    *rig.clock.0.lock().unwrap() = at(now_ms + 3_000);
    rig.receive(number, &granted);
    assert!(matches!(answer.try_recv().unwrap(), Err(Error::Lost(LossReason::LocalDeadline))));
    rig.sends(&[(number + 1, "release 8")]);
}

/// If the lane sent the acquire again, its claim would wait in its queue without a caller.
#[test]
fn an_acquire_abandoned_during_confirmation_is_not_sent_again() {
    for is_over_before in [false, true] {
        let (mut rig, answer) = confirming();
        drop(answer);
        rig.lane.handle_command(Command::Abandon { token: 0 }, rig.now());
        if is_over_before {
            rig.receive(0, &Response::Event(Event::Expired { id: id(9) }));
            let extended = rig.extended(3_000);
            rig.receive(2, &extended);
        } else {
            rig.receive(2, &not_found());
        }
        rig.sends(&[]);
    }
}

/// Returns a lane that confirms a repeated grant.
fn confirming() -> (Rig, Answer) {
    let mut rig = Rig::new();
    let answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(1, &again);
    rig.sends(&[(2, "extend 9 by 3000")]);
    (rig, answer)
}

/// Another caller moves the end of the lease by the id of the hold. The server may have confirmed the grant before it
/// served this extend, so the confirmed lease may be outdated.
#[test]
fn a_grant_is_confirmed_again_if_its_lease_is_extended_meanwhile() {
    let (mut rig, mut answer) = confirming();
    let _extended = rig.extend(9);
    rig.sends(&[(3, "extend 9 by 60000")]);
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    assert!(answer.try_recv().is_err(), "the lease may be another one by now");
    rig.sends(&[(4, "extend 9 by 3000")]);
    let extended = rig.extended(60_000);
    rig.receive(3, &extended);
    let extended = rig.extended(3_000);
    rig.receive(4, &extended);
    assert!(only(&mut answer).is_held());
}

/// The server held back its response to the confirmation until the log was durable. In that time, an operator ended the
/// hold.
#[test]
fn an_acquire_is_sent_again_if_its_grant_ends_during_confirmation() {
    let (mut rig, mut answer) = confirming();
    rig.receive(
        0,
        &Response::Event(Event::Revoked { id: id(9), reason: RevokeReason::Forced, message: b"" }),
    );
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    assert!(answer.try_recv().is_err(), "the server has reported the end of the hold");
    rig.sends(&[(3, "acquire k wait 0")]);
}

#[test]
fn a_grant_is_confirmed_again_if_another_client_changes_its_lease() {
    let (mut rig, mut answer) = confirming();
    let stamp_ms = rig.stamp_ms();
    rig.receive(0, &Response::Event(Event::LeaseMoved { id: id(9), remaining_ms: 1_000, stamp_ms }));
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    assert!(answer.try_recv().is_err(), "the lease may be another one by now");
    rig.sends(&[(3, "extend 9 by 3000")]);
}

#[test]
fn a_grant_after_the_last_handle_is_dropped_is_released() {
    let mut rig = Rig::new();
    let _answer = rig.acquire(OWN, Wait::Try);
    rig.sends(&[(1, "acquire k wait 0")]);
    // Drop the only handle of the lane, so no guard can be made of the grant.
    (rig.handle, _) = Handle::new(Arc::clone(&rig.clock) as Arc<dyn Clock>);
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    rig.sends(&[(2, "release 9")]);
}

/// The stamp of a grant is the server's clock when it decided. The server decided this grant long before the acquire
/// was sent. If the lane took the stamp as the server's clock at that later time, it would compute too late a deadline
/// for the other lock.
#[test]
fn a_repeated_grant_with_an_old_stamp_moves_no_deadline() {
    let mut rig = Rig::new();
    let other = rig.lock(1, 5, 30_000);
    let old = rig.granted_again(9, 3_000);
    rig.advance_to(12_000);
    let _answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sends(&[(2, "acquire k wait 0")]);
    rig.receive(2, &old);
    let stamp_ms = rig.stamp_ms();
    rig.advance_to(14_000);
    let moved = waymaker_protocol::Event::LeaseMoved { id: id(5), remaining_ms: 3_000, stamp_ms };
    rig.receive(0, &Response::Event(moved));
    rig.advance_to(14_500);
    assert!(other.is_held());
    rig.advance_to(15_000);
    assert!(!other.is_held());
}

/// Another client may have taken up the hold during the outage, and a confirmation by a status request would not show
/// it.
#[test]
fn an_acquire_is_sent_again_if_an_outage_interrupts_its_confirmation() {
    let (mut rig, _answer) = confirming();
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(3, "holds"), (4, "acquire k wait 0")]);
}

/// The request id finds a claim with a longer lease than requested. The margin (the time by which the local deadline
/// lies before the end of the lease) is computed from this longer lease.
#[test]
fn the_margin_of_a_longer_lease_than_requested_is_that_of_the_longer_lease() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, |job| {
        named(job);
        job.renew = false;
    });
    rig.sent();
    let again = rig.granted_again(9, 60_000);
    rig.receive(1, &again);
    rig.sends(&[(2, "status 9")]);
    let status = rig.status(60_000);
    rig.receive(2, &status);
    assert_eq!(only(&mut answer).remaining(), Duration::from_millis(60_000 - 650));
}

/// An acquire of this client is granted the forgotten hold again, so the hold no longer counts as forgotten.
#[test]
fn a_forgotten_hold_that_was_granted_again_is_released_without_a_caller() {
    let mut rig = Rig::new();
    rig.named_lock(1, 9).forget();
    let answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sends(&[(2, "acquire k wait 0")]);
    let again = rig.granted_again(9, 3_000);
    rig.receive(2, &again);
    rig.sends(&[(3, "extend 9 by 3000")]);
    drop(answer);
    rig.lane.handle_command(Command::Abandon { token: 1 }, rig.now());
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(4, "holds")]);
    rig.receive(4, &listed(&[(9, "k")], 0));
    rig.sends(&[(5, "release 9")]);
}
