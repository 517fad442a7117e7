//! Requests, grants and deadlines across an outage of the connection.

use waymaker_protocol::{ErrorCode, Released};

use super::*;
use crate::lane::holds::LeaseEnd;

#[test]
fn unanswered_requests_are_repeated_with_their_numbers_and_remaining_wait() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    let mut waiting = rig.acquire(OWN, Wait::Until(at(14_000)));
    rig.sends(&[(2, "acquire k wait 4000")]);
    drop(lock);
    rig.sends(&[(3, "release 9")]);
    rig.advance_to(11_000);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(2, "acquire k wait 3000"), (3, "release 9"), (4, "holds")]);
    rig.receive(3, &Response::Released(Released::default()));
    rig.advance_to(11_500);
    let granted = rig.granted(10, 3_000, true);
    rig.receive(2, &granted);
    assert_eq!(only(&mut waiting).id(), id(10));
}

#[test]
fn a_grant_from_before_an_outage_is_confirmed_before_delivery() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Try);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.lose_connection();
    rig.advance_to(10_500);
    rig.come_back(true);
    rig.sends(&[(1, "acquire k wait 0"), (2, "holds")]);
    rig.receive(1, &granted);
    assert!(answer.try_recv().is_err());
    rig.sends(&[(3, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    let lock = only(&mut answer);
    assert_eq!(lock.remaining(), Duration::from_millis(3_000 - 80));
}

#[test]
fn an_acquire_is_sent_again_if_its_grant_ended_in_the_outage() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Try);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.lose_connection();
    rig.advance_to(10_500);
    rig.come_back(true);
    rig.sent();
    rig.receive(1, &granted);
    rig.sent();
    rig.receive(3, &not_found());
    rig.sends(&[(4, "acquire k wait 0")]);
    let granted = rig.granted(10, 3_000, false);
    rig.receive(4, &granted);
    assert_eq!(only(&mut answer).id(), id(10));
}

/// The response to a repeated request may be as old as its first transmission. With the send time of the repetition,
/// every later deadline would be too late.
#[test]
fn the_answer_to_a_repeated_request_is_dated_by_its_first_send() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    rig.advance_to(20_000);
    rig.sent();
    let extended = rig.extended(30_000);
    rig.lose_connection();
    rig.advance_to(23_000);
    rig.come_back(true);
    let stamp = rig.lane.anchor;
    let (number, _) = rig.sent().into_iter().find(|(_, text)| text == "extend 9 by 30000").unwrap();
    rig.receive(number, &extended);
    assert_eq!(rig.lane.anchor, stamp);
    // The new lease lasts 30 s from 20 s on. Its local deadline is 350 ms earlier: 50 ms and one hundredth of the
    // lease. Until the hold is checked, the deadline from before the outage still applies.
    let own = rig.lane.holds.owned(lock.hold.guard).unwrap().lease_end;
    assert_eq!(own, LeaseEnd::Own(at(20_000 + 30_000 - 350)));
    assert_eq!(lock.hold.deadline(), at(10_000 + 30_000 - 350));
}

#[test]
fn a_lock_keeps_its_deadline_after_an_outage_until_the_server_confirms_it() {
    let mut rig = Rig::new();
    let own = rig.lock(1, 9, 3_000);
    let on_session = rig.lock_with(Lease::Session, 2, 8, 10_000, |_| {});
    let (own_before, session_before) = (own.hold.deadline(), on_session.hold.deadline());
    rig.lose_connection();
    rig.advance_to(12_000);
    rig.come_back(true);
    rig.sends(&[(3, "holds"), (4, "extend 9 by 3000")]);
    assert_eq!(own.hold.deadline(), own_before);
    assert_eq!(on_session.hold.deadline(), session_before);
    let extended = rig.extended(3_000);
    rig.receive(3, &listed(&[(8, "k"), (9, "k")], 0));
    rig.receive(4, &extended);
    assert_eq!(own.hold.deadline(), own_before.after(Duration::from_secs(2)));
    assert_eq!(on_session.hold.deadline(), session_before.after(Duration::from_secs(2)));
}

#[test]
fn a_connection_bound_lock_is_held_only_while_its_connection_is_confirmed() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(Lease::Own { ms: 60_000 }, Wait::Try, |job| {
        job.claim.release_after_ms = Some(3_000);
    });
    rig.sent();
    let granted = rig.granted(9, 60_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    assert_eq!(lock.remaining(), Duration::from_millis(3_000 - 80));
    rig.advance_to(11_000);
    rig.sends(&[(2, "keep alive")]);
    let kept_alive = rig.kept_alive();
    rig.receive(2, &kept_alive);
    assert_eq!(lock.remaining(), Duration::from_millis(3_000 - 80));
    // The client notices the break only now, at 13 s. The server may have noticed it right after the keep-alive of 11
    // s.
    rig.advance_to(13_000);
    rig.lose_connection();
    rig.advance_to(13_900);
    rig.come_back(true);
    assert_eq!(lock.remaining(), Duration::from_millis(100 - 80));
    rig.sends(&[(3, "holds"), (4, "extend 9 by 60000")]);
    let extended = rig.extended(60_000);
    rig.receive(4, &extended);
    assert_eq!(lock.remaining(), Duration::from_millis(3_000 - 80));
}

#[test]
fn a_lock_released_during_the_outage_is_reported_lost() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(2, "holds"), (3, "extend 9 by 3000")]);
    rig.receive(3, &not_found());
    assert_eq!(lock.loss_reason(), Some(LossReason::Expired));
}

/// Breaks the connection, and reconnects to a restarted server or in a new session. Sends the unanswered requests
/// again, and returns the number of the first repeated request.
fn forgotten_by(rig: &mut Rig, is_restarted: bool) -> u32 {
    rig.lose_connection();
    if is_restarted {
        rig.come_back_after_restart();
    } else {
        rig.come_back(false);
    }
    rig.sent();
    if is_restarted { 2 } else { 1 }
}

/// A server process keeps its response to a release for the session, and sends the same response if the release is
/// repeated. So this `not_found` was already the response to the first transmission: the hold had ended before the
/// release.
#[test]
fn a_repeated_release_that_its_server_refuses_finds_a_lost_hold() {
    let mut rig = Rig::new();
    let mut lock = rig.lock(1, 9, 3_000);
    let mut release = rig.release(&mut lock);
    rig.sent();
    rig.lose_connection();
    rig.come_back(true);
    rig.receive(2, &not_found());
    assert_eq!(release.try_recv().unwrap().unwrap_err().code(), Some(ErrorCode::NotFound));
}

/// A restarted server, or a new session, has no responses to earlier requests. So the hold may have ended with the
/// first transmission of its release.
#[test]
fn a_release_that_may_have_been_served_is_uncertain_if_its_hold_is_not_found() {
    for is_restarted in [true, false] {
        let mut rig = Rig::new();
        let mut lock = rig.lock(1, 9, 3_000);
        let mut release = rig.release(&mut lock);
        rig.sent();
        let number = forgotten_by(&mut rig, is_restarted);
        rig.receive(number, &not_found());
        let release = uncertain(&mut release);
        assert_eq!(outcome(&release), Some(Outcome::Unknown), "restarted: {is_restarted}");
    }
}

/// The caller has got its uncertain error before the repeated release is refused. It then queries the outcome.
#[test]
fn the_outcome_of_a_release_that_may_have_been_served_stays_unknown() {
    for is_restarted in [true, false] {
        let mut rig = Rig::impatient();
        let mut lock = rig.lock(1, 9, 30_000);
        let mut release = rig.release(&mut lock);
        rig.sent();
        rig.advance_to(12_000);
        let release = uncertain(&mut release);
        let number = forgotten_by(&mut rig, is_restarted);
        rig.receive(number, &not_found());
        assert_eq!(outcome(&release), Some(Outcome::Unknown), "restarted: {is_restarted}");
    }
}

/// An unavailable server has not served the repetition. That says nothing about the first transmission.
#[test]
fn a_change_that_may_have_been_served_is_uncertain_if_its_repetition_is_not_served() {
    for is_restarted in [true, false] {
        let mut rig = Rig::new();
        let mut change = rig.ask_or_change(true);
        rig.sent();
        let number = forgotten_by(&mut rig, is_restarted) - 1;
        rig.receive(number.max(1), &refusal(ErrorCode::Overloaded));
        assert_eq!(outcome(&uncertain(&mut change)), Some(Outcome::Unknown), "restarted: {is_restarted}");

        let mut rig = Rig::new();
        let mut question = rig.ask_or_change(false);
        rig.sent();
        let number = forgotten_by(&mut rig, is_restarted) - 1;
        rig.receive(number.max(1), &refusal(ErrorCode::Overloaded));
        assert!(matches!(question.try_recv().unwrap(), Err(Error::Unavailable(_))));
    }
}

#[test]
fn an_extend_that_may_have_been_served_is_uncertain_if_its_repetition_is_not_served() {
    for is_restarted in [true, false] {
        let mut rig = Rig::new();
        let _lock = rig.lock(1, 9, 30_000);
        let mut extend = rig.extend(9);
        rig.sent();
        let number = forgotten_by(&mut rig, is_restarted);
        rig.receive(number, &refusal(ErrorCode::Overloaded));
        assert_eq!(outcome(&uncertain(&mut extend)), Some(Outcome::Unknown), "restarted: {is_restarted}");
    }
}

#[test]
fn the_client_reconnects_until_the_local_deadline_of_its_lock() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 60_000);
    rig.lose_connection();
    rig.advance_to(60_000);
    assert!(rig.lane.wants_connection(rig.now()));
    rig.advance_to(70_000);
    assert!(!rig.lane.wants_connection(rig.now()));
    drop(lock);
}

/// Until the server has answered for the hold, the guard keeps the deadline from before the outage.
#[test]
fn a_refused_status_request_about_a_hold_is_sent_again() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(Lease::Own { ms: 30_000 }, 1, 9, 30_000, |job| job.renew = false);
    rig.lose_connection();
    rig.advance_to(12_000);
    rig.come_back(true);
    rig.sends(&[(2, "holds"), (3, "status 9")]);
    rig.receive(2, &listed(&[(9, "k")], 0));
    rig.receive(3, &refusal(ErrorCode::Overloaded));
    rig.advance_to(12_900);
    rig.sends(&[]);
    rig.advance_to(13_000);
    rig.sends(&[(4, "status 9")]);
    let status = rig.status(28_000);
    rig.receive(4, &status);
    rig.advance_to(16_000);
    assert!(rig.sent().iter().all(|(_, text)| text != "status 9"));
    assert!(lock.is_held());
}

/// The list of holds has no stamp, so it does not show how long the connection has been alive. Only the HELLO does.
#[test]
fn the_deadline_of_a_listed_connection_bound_lock_counts_from_the_hello() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(Lease::Session, 1, 9, 10_000, |job| job.claim.release_after_ms = Some(3_000));
    rig.advance_to(10_500);
    rig.lose_connection();
    rig.advance_to(12_000);
    rig.lane.handle_welcome(welcome(rig.stamp_ms(), true), at(11_000), at(12_000));
    rig.sends(&[(2, "holds")]);
    rig.receive(2, &listed(&[(9, "k")], 0));
    assert_eq!(lock.remaining(), Duration::from_millis(2_000 - 80));
}

/// Only `not_found` leaves open whether the first transmission of the release ended the hold.
#[test]
fn a_repeated_release_that_is_refused_for_another_reason_has_failed() {
    let mut rig = Rig::new();
    let mut lock = rig.lock(1, 9, 30_000);
    let mut release = rig.release(&mut lock);
    rig.sent();
    rig.lose_connection();
    rig.come_back(true);
    rig.sent();
    rig.receive(2, &refusal(ErrorCode::Unauthorized));
    let error = release.try_recv().unwrap().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Unauthorized));
}

/// The old session ends, and the lane sends the release again in the new one. Then the release's time limit passes, and
/// the caller gets [`Error::Uncertain`]. Only after that does the server refuse the repeated release with `not_found`.
#[test]
fn the_outcome_of_a_release_from_an_ended_session_is_unknown_if_its_repetition_finds_no_hold() {
    let mut rig = Rig::impatient();
    let mut lock = rig.lock(1, 9, 30_000);
    let mut release = rig.release(&mut lock);
    rig.sent();
    rig.lose_connection();
    rig.come_back(false);
    rig.sends(&[(1, "release 9")]);
    rig.advance_to(12_000);
    let release = uncertain(&mut release);
    rig.receive(1, &not_found());
    assert_eq!(outcome(&release), Some(Outcome::Unknown));
}

/// The server may have served the first transmission and shortened the lease, before it forgot the session.
#[test]
fn a_refused_extend_from_an_ended_session_restores_no_deadline() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(Lease::Own { ms: 60_000 }, 1, 9, 60_000, |job| job.renew = false);
    let (reply, _answer) = Reply::channel();
    rig.submit(Job::Extend { id: id(9), lease_ms: 3_000, is_own: false, reply });
    rig.sends(&[(2, "extend 9 by 3000")]);
    rig.lose_connection();
    rig.come_back(false);
    let sent = rig.sent();
    let number = sent.iter().find(|(_, text)| text == "extend 9 by 3000").expect("the extend is repeated").0;
    rig.receive(number, &refusal(ErrorCode::Overloaded));
    assert!(lock.hold.deadline() <= at(13_000), "{:?}", lock.hold.deadline());
}

/// A lease of 30 s ends 350 ms earlier for its guard, also if only a second of it is left.
#[test]
fn the_margin_of_a_checked_hold_is_that_of_its_whole_lease() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(Lease::Own { ms: 30_000 }, 1, 9, 30_000, |job| job.renew = false);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(2, "holds"), (3, "status 9")]);
    let status = rig.status(1_000);
    rig.receive(3, &status);
    rig.receive(2, &listed(&[(9, "k")], 0));
    assert_eq!(lock.remaining(), Duration::from_millis(1_000 - 350));
}

/// No keep-alive could be frequent enough for a `release_after_ms` below 1 s.
#[test]
fn a_very_short_release_after_a_lost_connection_does_not_limit_the_deadline() {
    for (release_after_ms, remaining_ms) in [(999, 60_000 - 650), (1_000, 1_000 - 60)] {
        let mut rig = Rig::new();
        let lock = rig.lock_with(Lease::Own { ms: 60_000 }, 1, 9, 60_000, |job| {
            job.claim.release_after_ms = Some(release_after_ms);
        });
        assert_eq!(lock.remaining(), Duration::from_millis(remaining_ms), "{release_after_ms} ms");
    }
}
