//! Reasons for the loss of a lock, and their report to its guard.

use waymaker_protocol::{Event, Released, RevokeReason};

use super::*;
use crate::key::Key;
use crate::loss::LossCallback;

#[test]
fn an_unrenewed_lock_is_lost_at_its_local_deadline_without_a_connection() {
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
fn a_guard_expires_by_the_clock_even_if_no_timer_fires() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    *rig.clock.0.lock().unwrap() = at(60_000);
    assert!(!lock.is_held());
    assert_eq!(lock.remaining(), Duration::ZERO);
}

#[test]
fn a_connection_bound_lock_is_lost_with_its_session() {
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
fn server_events_end_a_lock_with_their_reason() {
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
fn release_by_id_ends_the_guard_of_this_client() {
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
fn guards_are_lost_when_the_connection_task_ends() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    drop(rig.lane);
    assert_eq!(lock.loss_reason(), Some(LossReason::ClientClosed));
}

#[test]
fn the_operators_message_reaches_the_guard() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    let reason = RevokeReason::Forced;
    rig.receive(0, &Response::Event(Event::Revoked { id: id(9), reason, message: b"it hung" }));
    assert_eq!(lock.loss_reason(), Some(LossReason::Revoked(reason)));
    assert_eq!(lock.loss_message(), "it hung");
}

#[test]
fn a_guard_lost_at_its_local_deadline_releases_its_hold_when_dropped() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(OWN, 1, 9, 3_000, |job| job.renew = false);
    rig.advance_to(12_990);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
    drop(lock);
    rig.sends(&[(2, "release 9")]);
}

#[test]
fn waiting_for_the_loss_of_a_released_lock_returns_released() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    let mut lost = pin!(lock.lost());
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(lost.as_mut().poll(&mut context), Poll::Pending);
    drop(lock);
    rig.sends(&[(2, "release 9")]);
    assert_eq!(lost.as_mut().poll(&mut context), Poll::Ready(LossReason::Released));
}
