//! A server that refuses the credentials of the client after an outage.

use super::*;

fn refused() -> Error {
    Error::refused(ErrorCode::Unauthorized, "credentials", 0, "the token is unknown")
}

fn is_refusal(error: &Error) -> bool {
    error.code() == Some(ErrorCode::Unauthorized)
}

#[test]
fn callers_learn_at_once_that_the_credentials_are_refused() {
    let mut rig = Rig::new();
    let mut sent = rig.acquire(OWN, Wait::Try);
    rig.sent();
    rig.lose_connection();
    let mut unsent = rig.acquire(OWN, Wait::Until(at(99_000)));
    assert!(rig.lane.request().is_some());
    assert!(!rig.lane.handle_attempt_failed(refused()));
    assert!(matches!(sent.try_recv(), Ok(Err(Error::Uncertain(_)))));
    assert!(matches!(unsent.try_recv(), Ok(Err(error)) if is_refusal(&error)));
    assert!(!rig.lane.wants_connection(rig.now()), "the attempts end");
}

#[test]
fn a_later_caller_causes_another_attempt() {
    let mut rig = Rig::new();
    rig.lose_connection();
    rig.lane.request();
    rig.lane.handle_attempt_failed(refused());
    assert!(!rig.lane.wants_connection(rig.now()));
    let mut late = rig.acquire(OWN, Wait::Try);
    let now = rig.now();
    rig.lane.begin_outage(now);
    assert!(rig.lane.wants_connection(now));
    rig.lane.request();
    rig.lane.handle_attempt_failed(refused());
    assert!(matches!(late.try_recv(), Ok(Err(error)) if is_refusal(&error)));
    assert!(!rig.lane.wants_connection(now));
}

#[test]
fn a_hold_is_believed_in_until_its_local_deadline_and_no_longer() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    rig.lose_connection();
    rig.lane.request();
    rig.lane.handle_attempt_failed(refused());
    assert!(lock.is_held());
    assert!(rig.lane.wants_connection(rig.now()), "the operator may correct the tokens in time");
    rig.advance_to(39_000);
    assert!(lock.is_held());
    rig.advance_to(41_000);
    assert!(!lock.is_held());
    assert!(!rig.lane.wants_connection(rig.now()));
}

#[test]
fn a_watch_ends() {
    let mut rig = Rig::new();
    let (states, _answer) = rig.watch();
    rig.sent();
    let watching = rig.watching(3, 0);
    rig.receive(1, &watching);
    rig.lose_connection();
    rig.lane.request();
    rig.lane.handle_attempt_failed(refused());
    assert!(states.has_changed().is_err());
    assert!(!rig.lane.wants_connection(rig.now()));
}

#[test]
fn a_watch_that_waits_for_the_connection_is_refused() {
    let mut rig = Rig::new();
    rig.lose_connection();
    let (_states, mut answer) = rig.watch();
    rig.lane.request();
    rig.lane.handle_attempt_failed(refused());
    assert!(matches!(answer.try_recv(), Ok(Err(error)) if is_refusal(&error)));
}

/// Other clients at this address may have failed to log in, so the credentials may be valid after the pause.
#[test]
fn a_pause_of_logins_is_waited_for() {
    let mut rig = Rig::new();
    rig.lose_connection();
    let mut waiting = rig.acquire(OWN, Wait::Until(at(99_000)));
    for _ in 0..3 {
        assert!(rig.lane.request().is_some());
        let paused = Error::refused(ErrorCode::Overloaded, "credentials", 900, "too many logins failed");
        assert!(!rig.lane.handle_attempt_failed(paused), "the next attempt comes after a pause");
        assert!(waiting.try_recv().is_err());
        assert!(rig.lane.wants_connection(rig.now()));
    }
}
