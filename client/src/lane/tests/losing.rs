//! Reasons why a lock is lost, and how its guard learns them.

use waymaker_protocol::{Event, Released, RevokeReason};

use super::*;
use crate::hold::Key;
use crate::loss::LossCallback;

#[test]
fn a_lock_that_cannot_be_renewed_is_lost_at_its_local_deadline_without_any_network() {
    let mut rig = Rig::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut answer = rig.acquire_with(OWN, Wait::Try, |job| {
        let told = Arc::clone(&told);
        job.on_loss = Some(LossCallback::new(move |reason| told.lock().unwrap().push(reason)));
    });
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    rig.lose_connection();
    rig.advance_to(10_000 + 3_000 - 81);
    assert!(lock.is_held());
    rig.advance_to(10_000 + 3_000 - 80);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
    assert_eq!(*told.lock().unwrap(), [LossReason::LocalDeadline]);
}

#[test]
fn the_guard_says_lost_by_the_clock_alone_even_if_no_timer_has_fired() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    *rig.clock.0.lock().unwrap() = at(60_000);
    assert!(!lock.is_held());
    assert_eq!(lock.remaining(), Duration::ZERO);
}

#[test]
fn a_lock_that_ends_with_its_connection_is_lost_with_the_session() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, |job| job.claim.release_after_ms = Some(2_000));
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    rig.lose_connection();
    rig.come_back(false);
    assert_eq!(lock.loss_reason(), Some(LossReason::Revoked(RevokeReason::ConnectionLost)));
    rig.sends(&[]);
}

#[test]
fn events_of_the_server_end_the_lock_with_their_reason() {
    for (event, reason) in [
        (Event::Expired { id: id(9) }, LossReason::Expired),
        (
            Event::Revoked { id: id(9), reason: RevokeReason::ReleasedElsewhere, message: b"" },
            LossReason::Revoked(RevokeReason::ReleasedElsewhere),
        ),
    ] {
        let mut rig = Rig::new();
        let lock = rig.lock(1, 9, 3_000);
        rig.receive(0, &Response::Event(event));
        assert_eq!(lock.loss_reason(), Some(reason));
    }
}

#[test]
fn releasing_by_id_what_this_client_guards_ends_the_guard() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    rig.submit(Job::Release {
        id: id(9),
        key: Some(Key::from(&b"k"[..])),
        by_guard: false,
        take_up_number: None,
        is_own: false,
        reply: Reply::Nobody,
    });
    rig.sent();
    rig.receive(2, &Response::Released(Released::default()));
    assert_eq!(lock.loss_reason(), Some(LossReason::Revoked(RevokeReason::ReleasedElsewhere)));
}

#[test]
fn guards_learn_that_nobody_renews_any_more_when_the_task_goes() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    drop(rig.lane);
    assert_eq!(lock.loss_reason(), Some(LossReason::ClientClosed));
}

#[test]
fn what_an_operator_wrote_reaches_the_guard() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    let reason = RevokeReason::Forced;
    rig.receive(0, &Response::Event(Event::Revoked { id: id(9), reason, message: b"it hung" }));
    assert_eq!(lock.loss_reason(), Some(LossReason::Revoked(reason)));
    assert_eq!(lock.loss_message(), "it hung");
}

#[test]
fn a_lock_that_was_lost_at_its_local_deadline_is_released_when_its_guard_goes() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(OWN, 1, 9, 3_000, |job| job.renew = false);
    rig.advance_to(12_990);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
    drop(lock);
    rig.sends(&[(2, "release 9")]);
}

#[test]
fn whoever_waits_for_the_loss_of_a_released_lock_learns_that_it_was_released() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    let mut lost = pin!(lock.lost());
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(lost.as_mut().poll(&mut context), Poll::Pending);
    drop(lock);
    rig.sends(&[(2, "release 9")]);
    assert_eq!(lost.as_mut().poll(&mut context), Poll::Ready(LossReason::Released));
}
