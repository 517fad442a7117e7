//! The end of a session, and what happens to its locks and waiters.

use waymaker_protocol::Event;

use super::*;

#[test]
fn a_lost_session_ends_its_locks_and_others_are_renewed_by_id() {
    let mut rig = Rig::new();
    let own = rig.lock(1, 9, 30_000);
    let on_session = rig.lock_with(Lease::Session, 2, 8, 10_000, |_| {});
    let _waiting = rig.acquire(OWN, Wait::Forever);
    rig.sends(&[(3, "acquire k wait 4294967295")]);
    rig.lose_connection();
    assert!(matches!(rig.lane.request(), Some(SessionRequest::Resume { lane: 3, .. })));
    rig.lane.handle_attempt_failed(Error::refused(ErrorCode::SessionGone, "", 0, ""));
    assert!(matches!(rig.lane.request(), Some(SessionRequest::New { .. })));
    rig.come_back(false);
    assert_eq!(on_session.loss_reason(), Some(LossReason::SessionExpired));
    assert!(own.is_held());
    rig.sends(&[(1, "extend 9 by 30000"), (2, "acquire k wait 4294967295")]);
}

#[test]
fn session_expiry_ends_its_locks_and_the_connection() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(Lease::Session, 1, 8, 10_000, |_| {});
    assert!(rig.try_receive(0, &Response::Event(Event::SessionExpired)).is_err());
    assert_eq!(lock.loss_reason(), Some(LossReason::SessionExpired));
    assert!(matches!(rig.lane.request(), Some(SessionRequest::New { .. })));
}

/// Without a connection to release it, the hold would stay as long as the session, although its guard was dropped.
#[test]
fn the_client_reconnects_to_release_while_another_connection_keeps_the_session() {
    for kept_by_another in [false, true] {
        let mut rig = Rig::new();
        let lock = rig.lock_with(Lease::Session, 1, 8, 10_000, |_| {});
        rig.lose_connection();
        drop(lock);
        rig.take_commands();
        if kept_by_another {
            rig.session.kept(SessionId { place: 1, secret: 2 }, at(30_000));
        }
        rig.advance_to(15_000);
        assert_eq!(rig.lane.wants_connection(rig.now()), kept_by_another);
        assert!(!rig.lane.wants_connection(at(30_000)), "the session has ended");
        rig.come_back(true);
        assert!(rig.sent().iter().any(|(_, text)| text == "release 8"));
        rig.receive(2, &Response::Released(waymaker_protocol::Released::default()));
        rig.lose_connection();
        rig.advance_to(20_000);
        assert!(!rig.lane.wants_connection(rig.now()), "nothing is left to release");
    }
}

/// A second connection of the same client learned of the session's end first.
#[test]
fn a_session_that_ends_on_one_connection_ends_on_all() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(Lease::Session, 1, 8, 10_000, |_| {});
    rig.session.gone(SessionId { place: 1, secret: 2 });
    rig.sent();
    assert_eq!(lock.loss_reason(), Some(LossReason::SessionExpired));
    assert_eq!(rig.lane.doubt(), Some("the session expired"));
    rig.lose_connection();
    let other = SessionId { place: 4, secret: 4 };
    rig.session.opened(other, Duration::from_secs(10));
    assert_eq!(rig.lane.request(), Some(SessionRequest::Join { id: other }));
}
