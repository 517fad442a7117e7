//! The comparison of guards with the holds that the server lists after an outage.

use super::*;

/// A hold that this client does not know, such as a grant whose response was lost, would block other clients as long as
/// the session lives.
#[test]
fn listed_holds_without_a_guard_are_released_after_an_outage() {
    let mut rig = Rig::new();
    let _lock = rig.lock(1, 9, 30_000);
    let forgotten = rig.lock(2, 8, 30_000).forget();
    let _waiting = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(3, "acquire k wait 4294967295"), (4, "holds"), (5, "extend 9 by 30000")]);
    // Holds 7 and 6 have another key than the acquire in flight, so it cannot be granted them: the lane releases them.
    rig.receive(4, &listed(&[(9, "k"), (forgotten.place, "forgotten"), (7, "stranger")], 77));
    rig.sends(&[(6, "holds")]);
    // Hold 5 has the key of the acquire in flight, which may be granted it: the lane does not release it yet.
    rig.receive(6, &listed(&[(6, "stranger"), (5, "k")], 0));
    rig.sends(&[(7, "release 7"), (8, "release 6")]);
}

#[test]
fn a_lock_forgotten_while_holds_are_listed_is_never_released() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(2, "holds"), (3, "extend 9 by 30000")]);
    rig.receive(2, &listed(&[(9, "k")], 77));
    let extended = rig.extended(30_000);
    rig.receive(3, &extended);
    rig.sends(&[(4, "holds")]);
    lock.forget();
    rig.sends(&[]);
    rig.receive(4, &listed(&[], 0));
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(5, "holds")]);
    rig.receive(5, &listed(&[(9, "k")], 0));
    rig.sends(&[]);
}

#[test]
fn an_unlisted_session_lock_is_looked_up_and_lost_if_not_found() {
    let mut rig = Rig::new();
    let mut locks = Vec::new();
    for number in 1..=3 {
        let mut answer = rig.acquire(Lease::Session, Wait::Try);
        rig.sent();
        let granted = rig.granted(u64::from(number), 10_000, false);
        rig.receive(number, &granted);
        locks.push(only(&mut answer));
    }
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(4, "holds")]);
    rig.receive(4, &listed(&[(2, "k")], 0));
    rig.sends(&[(5, "status 1"), (6, "status 3")]);
    let status = rig.status(10_000);
    rig.receive(5, &status);
    rig.receive(6, &not_found());
    assert_eq!(locks.iter().map(Lock::is_held).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn a_listing_interrupted_by_an_outage_restarts() {
    let mut rig = Rig::new();
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(1, "holds")]);
    rig.receive(1, &listed(&[(7, "k")], 5));
    rig.sends(&[(2, "holds")]);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(3, "holds")]);
    rig.receive(3, &listed(&[], 0));
    rig.sends(&[]);
}

/// The release ended with its session, and the server may never have served it. An acquire with the hold's request id
/// then finds the hold.
#[test]
fn a_hold_whose_release_ended_with_its_session_can_be_granted_again() {
    let mut rig = Rig::new();
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(1, "holds")]);
    rig.receive(1, &listed(&[(9, "k")], 0));
    rig.sends(&[(2, "release 9")]);
    rig.lose_connection();
    rig.come_back(false);
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sends(&[(1, "acquire k wait 0")]);
    let again = rig.granted_again(9, 3_000);
    rig.receive(1, &again);
    rig.sends(&[(2, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    assert!(only(&mut answer).is_held());
}

/// The server served the acquire before the release, so its response names a hold that has ended.
#[test]
fn an_acquire_granted_an_already_released_hold_is_sent_again() {
    let mut rig = Rig::new();
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(1, "holds")]);
    rig.receive(1, &listed(&[(9, "k")], 0));
    rig.sends(&[(2, "release 9")]);
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sends(&[(3, "acquire k wait 0")]);
    let again = rig.granted_again(9, 3_000);
    rig.receive(3, &again);
    rig.sends(&[(4, "acquire k wait 0")]);
    let granted = rig.granted(10, 3_000, false);
    rig.receive(4, &granted);
    assert!(only(&mut answer).is_held());
}

/// Another lane had taken the hold up before the release, so the hold lives. A later acquire of this client takes it
/// up again.
#[test]
fn a_hold_whose_release_was_refused_can_be_granted_again() {
    let mut rig = Rig::new();
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(1, "holds")]);
    rig.receive(1, &listed(&[(9, "k")], 0));
    rig.sends(&[(2, "release 9")]);
    rig.receive(2, &refusal(ErrorCode::Cancelled));
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sends(&[(3, "acquire k wait 0")]);
    let again = rig.granted_again(9, 3_000);
    rig.receive(3, &again);
    rig.sends(&[(4, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(4, &extended);
    assert!(only(&mut answer).is_held());
}

/// Another lane may have the hold. Only the pages of the list that are still missing would show this.
#[test]
fn an_answer_about_a_lock_not_yet_listed_extends_no_deadline() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(OWN, 1, 9, 3_000, |job| {
        named(job);
        job.renew = false;
    });
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(2, "holds"), (3, "status 9")]);
    rig.receive(2, &listed(&[(7, "another")], 77));
    let status = rig.status(60_000);
    rig.receive(3, &status);
    rig.advance_to(13_000);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
}

/// Without the list, the lane cannot conclude that another lane has the hold.
#[test]
fn a_hold_with_a_request_id_is_kept_if_listing_is_refused() {
    let mut rig = Rig::new();
    let lock = rig.named_lock(1, 9);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(2, "holds"), (3, "extend 9 by 3000")]);
    rig.receive(2, &refusal(ErrorCode::Overloaded));
    rig.sends(&[(4, "status 9")]);
    let status = rig.status(3_000);
    rig.receive(4, &status);
    assert!(lock.is_held());
}
