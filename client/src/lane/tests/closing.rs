//! Closing a client, and the goodbye of its session.

use waymaker_protocol::Released;

use super::*;

#[test]
fn closing_without_a_connection_and_without_holds_finishes_at_once() {
    let mut rig = Rig::new();
    rig.lose_connection();
    rig.lane.handle_command(Command::Close { reply: Reply::Nobody }, at(10_000));
    assert!(rig.lane.is_finished());
}

#[test]
fn closing_cancels_waits_and_releases_holds_before_goodbye() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    let mut waiting = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    let (reply, mut closed) = Reply::channel();
    rig.lane.handle_command(Command::Close { reply }, at(10_000));
    rig.sends(&[(3, "cancel 2"), (4, "release 9")]);
    assert_eq!(lock.loss_reason(), Some(LossReason::ClientClosed));
    assert!(matches!(waiting.try_recv().unwrap(), Err(Error::Closed)));
    // The lane releases the hold of a grant that arrives during the close, before it sends the goodbye.
    let granted = rig.granted(10, 3_000, true);
    rig.receive(2, &granted);
    rig.receive(3, &Response::Cancelled(waymaker_protocol::Cancelled::default()));
    rig.receive(4, &Response::Released(Released::default()));
    rig.sends(&[(5, "release 10")]);
    rig.receive(5, &Response::Released(Released::default()));
    rig.sends(&[(6, "goodbye")]);
    rig.receive(6, &Response::Farewell(waymaker_protocol::Farewell));
    assert!(rig.lane.is_finished());
    closed.try_recv().unwrap().unwrap();
}

#[test]
fn a_client_without_handles_sends_goodbye() {
    let mut rig = Rig::new();
    rig.lane.handle_deserted();
    rig.sends(&[(1, "goodbye")]);
}

#[test]
fn only_the_last_connection_of_a_client_sends_goodbye() {
    let mut rig = Rig::new();
    rig.session.enter(rig.handle.member()).unwrap();
    rig.lane.handle_command(Command::Close { reply: Reply::Nobody }, at(10_000));
    rig.sends(&[]);
    assert!(rig.lane.is_finished());
    assert!(rig.session.leave(), "this was the last one");
}

/// After the local deadline, the server may still keep the hold. So the lane must release it.
#[test]
fn closing_releases_locks_that_were_lost_at_their_local_deadline() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(OWN, 1, 9, 3_000, |job| job.renew = false);
    rig.advance_to(12_990);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
    rig.lane.handle_command(Command::Close { reply: Reply::Nobody }, at(12_990));
    rig.sends(&[(2, "release 9")]);
}
