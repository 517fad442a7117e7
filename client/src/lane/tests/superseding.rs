//! Two guards of one hold in the same client.

use waymaker_protocol::Released;

use super::*;

#[test]
fn an_abandoned_grant_is_not_released_if_a_new_acquire_found_it() {
    let mut rig = Rig::new();
    drop(rig.acquire_with(OWN, Wait::Forever, named));
    rig.sent();
    rig.lane.handle_command(Command::Abandon { token: 0 }, rig.now());
    let mut answer = rig.acquire_with(OWN, Wait::Forever, named);
    rig.sends(&[(2, "cancel 1"), (3, "acquire k wait 4294967295")]);
    // The first acquire was granted before its cancellation arrived. The second acquire found the hold before the lane
    // could release the hold of the first.
    let (granted, again) = (rig.granted(9, 3_000, false), rig.granted_again(9, 3_000));
    rig.receive(1, &granted);
    rig.receive(3, &again);
    rig.sends(&[(4, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(4, &extended);
    let lock = only(&mut answer);
    rig.sends(&[]);
    assert!(lock.is_held());
    drop(lock);
    rig.sends(&[(5, "release 9")]);
}

#[test]
fn an_earlier_release_makes_the_next_attempt_acquire_again() {
    let mut rig = Rig::new();
    let lock = rig.named_lock(1, 9);
    let mut answer = rig.acquire_with(OWN, Wait::Forever, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    drop(lock);
    rig.sends(&[(3, "release 9")]);
    rig.receive(2, &again);
    rig.sends(&[(4, "extend 9 by 3000")]);
    rig.receive(3, &Response::Released(Released::default()));
    rig.receive(4, &not_found());
    rig.sends(&[(5, "acquire k wait 4294967295")]);
    let granted = rig.granted(10, 3_000, true);
    rig.receive(5, &granted);
    assert_eq!(only(&mut answer).id(), id(10));
}

#[test]
fn a_repeated_grant_supersedes_the_older_guard_before_its_confirmation() {
    let mut rig = Rig::new();
    let older = rig.named_lock(1, 9);
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(2, &again);
    assert_eq!(older.loss_reason(), Some(LossReason::Superseded));
    rig.sends(&[(3, "extend 9 by 3000")]);
    // No request of the older guard is sent, even while the newer grant is being confirmed.
    let (reply, mut extended) = Reply::channel();
    let extend = Command::Extend { hold: Arc::clone(&older.hold), lease_ms: 20, reply };
    rig.lane.handle_command(extend, rig.now());
    assert!(matches!(extended.try_recv(), Ok(Err(Error::Lost(LossReason::Superseded)))));
    drop(older);
    rig.sends(&[]);
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    let newer = only(&mut answer);
    assert!(newer.is_held());
    drop(newer);
    rig.sends(&[(4, "release 9")]);
}

/// The older guard may have been lost at its local deadline, while the server still kept the hold.
#[test]
fn a_guard_lost_at_its_deadline_does_not_release_a_newer_guards_hold() {
    let mut rig = Rig::new();
    let older = rig.lock_with(OWN, 1, 9, 3_000, |job| {
        named(job);
        job.renew = false;
    });
    rig.advance_to(12_990);
    assert_eq!(older.loss_reason(), Some(LossReason::LocalDeadline));
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 10);
    rig.receive(2, &again);
    drop(older);
    rig.sends(&[(3, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    assert!(only(&mut answer).is_held());
}

#[test]
fn dropping_a_superseded_guard_does_not_release_the_newer_guards_hold() {
    let mut rig = Rig::new();
    let older = rig.named_lock(1, 9);
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(2, &again);
    rig.sends(&[(3, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    let newer = only(&mut answer);
    drop(older);
    rig.sends(&[]);
    assert!(newer.is_held());
    drop(newer);
    rig.sends(&[(4, "release 9")]);
}

#[test]
fn a_second_grant_of_a_hold_supersedes_the_first_even_if_unmarked() {
    let mut rig = Rig::new();
    let older = rig.lock(1, 9, 3_000);
    let newer = rig.lock(2, 9, 3_000);
    assert_eq!(older.loss_reason(), Some(LossReason::Superseded));
    drop(older);
    rig.sends(&[]);
    assert!(newer.is_held());
}

#[test]
fn only_the_newest_guard_releases_an_overdue_hold() {
    let mut rig = Rig::new();
    let older = rig.named_lock(1, 9);
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(2, &again);
    rig.sent();
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    let newer = only(&mut answer);
    rig.lose_connection();
    rig.advance_to(13_000);
    assert_eq!(newer.loss_reason(), Some(LossReason::LocalDeadline));
    rig.come_back(true);
    let first = rig.sent();
    drop(older);
    assert!(!rig.sent().iter().any(|(_, text)| text == "release 9"), "after {first:?}");
    drop(newer);
    assert!(rig.sent().iter().all(|(_, text)| text == "release 9"));
}
