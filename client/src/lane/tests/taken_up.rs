//! Holds that another client takes up by their request id.

use waymaker_protocol::Event;

use super::*;

impl Rig {
    /// Tells the acquire of this number that another one has its hold.
    fn taken_up(&mut self, number: u32, place: u64) {
        self.receive(number, &Response::Event(Event::TakenUp { id: id(place) }));
    }
}

#[test]
fn a_guard_learns_that_another_client_took_up_its_hold_and_gives_nothing_back() {
    let mut rig = Rig::new();
    let lock = rig.named_lock(1, 9);
    rig.taken_up(7, 9);
    assert!(lock.is_held(), "that was another acquire");
    rig.taken_up(1, 9);
    assert_eq!(lock.loss_reason(), Some(LossReason::Superseded));
    drop(lock);
    rig.sends(&[]);
}

/// What a session sends to a server with these capabilities when a guard extends, renews and releases.
fn sent_for_a_guard(offered: Option<Capabilities>, change: impl FnOnce(&mut AcquireJob)) -> Vec<String> {
    let mut rig = Rig::offering(offered);
    let mut answer = rig.acquire_with(OWN, Wait::Try, change);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    rig.advance_to(11_000);
    let mut sent = rig.sent();
    let (reply, _answer) = Reply::channel();
    rig.lane
        .handle_command(Command::Extend { hold: Arc::clone(&lock.hold), lease_ms: 5_000, reply }, rig.now());
    drop(lock);
    sent.extend(rig.sent());
    sent.into_iter().map(|(_, text)| text).collect()
}

/// Another client may take the hold up before the server has read such a request.
#[test]
fn requests_about_a_hold_that_may_be_taken_up_are_for_its_own_lane_alone() {
    let plain = ["extend 9 by 3000", "extend 9 by 5000", "release 9"];
    let own = plain.map(|text| format!("{text}, if it is its own"));
    assert_eq!(sent_for_a_guard(Some(Capabilities::OWN_CLAIM), named), own);
    // The hold stays after its session, and then the lane is another one.
    assert_eq!(sent_for_a_guard(Some(Capabilities::OWN_CLAIM), |_| ()), plain);
    // An older server refuses the flag.
    assert_eq!(sent_for_a_guard(Some(Capabilities::NONE), named), plain);
    assert_eq!(sent_for_a_guard(None, named), plain);
}

/// No guard of this client has it, and one of another client may have taken it up.
#[test]
fn what_no_guard_has_is_released_only_if_it_is_its_own() {
    let mut rig = Rig::offering(Some(Capabilities::OWN_CLAIM));
    let mut abandoned = 0;
    let _answer = rig.acquire_with(OWN, Wait::Try, |job| {
        named(job);
        abandoned = job.token;
    });
    rig.sent();
    rig.lane.handle_command(Command::Abandon { token: abandoned }, rig.now());
    rig.sends(&[(2, "cancel 1")]);
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    rig.sends(&[(3, "release 9, if it is its own")]);
    let _guard = rig.named_lock(4, 8);
    rig.lane.handle_command(Command::Close { reply: Reply::Nobody }, rig.now());
    rig.sends(&[(5, "release 8, if it is its own")]);
}

#[test]
fn requests_of_a_session_after_an_outage_are_for_its_own_lane_alone() {
    let mut rig = Rig::offering(Some(Capabilities::OWN_CLAIM));
    let _guard = rig.named_lock(1, 9);
    rig.lose_connection();
    let (now, again) = (rig.now(), welcome(rig.stamp_ms(), true));
    rig.lane.handle_welcome(Welcome { capabilities: Some(Capabilities::OWN_CLAIM), ..again }, now, now);
    rig.sends(&[(2, "holds"), (3, "extend 9 by 3000, if it is its own")]);
    rig.receive(2, &listed(&[(9, "k"), (7, "stranger")], 0));
    rig.sends(&[(4, "release 7, if it is its own")]);
}

/// Its lane has ended with the session, so no later lane may release it.
#[test]
fn a_release_that_was_not_answered_ends_with_its_session_if_another_client_may_have_the_hold() {
    for is_sent in [false, true] {
        let mut rig = Rig::new();
        let lock = rig.named_lock(1, 9);
        if !is_sent {
            rig.lose_connection();
        }
        drop(lock);
        rig.take_commands();
        if is_sent {
            rig.sends(&[(2, "release 9")]);
            rig.lose_connection();
        }
        rig.come_back(false);
        rig.sends(&[]);
    }
}

#[test]
fn a_renewal_that_is_refused_because_another_client_took_up_the_hold_supersedes_the_guard() {
    let mut rig = Rig::offering(Some(Capabilities::OWN_CLAIM));
    let lock = rig.named_lock(1, 9);
    rig.advance_to(11_000);
    rig.sends(&[(2, "extend 9 by 3000, if it is its own")]);
    rig.receive(2, &refusal(ErrorCode::Cancelled));
    assert_eq!(lock.loss_reason(), Some(LossReason::Superseded));
    drop(lock);
    rig.sends(&[]);
}

/// The event about it may come later, once the log has it.
#[test]
fn a_confirmation_that_is_refused_because_another_client_took_up_the_hold_takes_nothing_back() {
    let mut rig = Rig::offering(Some(Capabilities::OWN_CLAIM));
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(1, &again);
    rig.sends(&[(2, "extend 9 by 3000, if it is its own")]);
    rig.receive(2, &refusal(ErrorCode::Cancelled));
    assert!(matches!(answer.try_recv(), Ok(Err(Error::Lost(LossReason::Superseded)))));
    rig.sends(&[]);
}

#[test]
fn a_release_that_was_not_sent_is_dropped_if_another_client_took_up_the_hold() {
    let mut rig = Rig::new();
    let lock = rig.named_lock(1, 9);
    let (reply, mut answer) = Reply::channel();
    rig.lane.handle_command(Command::Release { hold: Arc::clone(&lock.hold), reply }, rig.now());
    rig.taken_up(1, 9);
    rig.sends(&[]);
    assert!(matches!(answer.try_recv(), Ok(Err(Error::Lost(LossReason::Superseded)))));
}

#[test]
fn a_grant_that_another_client_took_up_while_it_was_confirmed_is_delivered_to_nobody() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(1, &again);
    rig.sends(&[(2, "extend 9 by 3000")]);
    rig.taken_up(1, 9);
    assert!(matches!(answer.try_recv(), Ok(Err(Error::Lost(LossReason::Superseded)))));
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    rig.sends(&[]);
}

/// The event was lost with the connection. The hold lives, but not in this lane.
#[test]
fn a_hold_that_was_taken_up_during_an_outage_is_superseded_once_the_lane_was_listed() {
    for (listed_holds, reason) in [(&[][..], Some(LossReason::Superseded)), (&[(9, "k")][..], None)] {
        let mut rig = Rig::new();
        let lock = rig.named_lock(1, 9);
        rig.lose_connection();
        rig.advance_to(10_500);
        rig.come_back(true);
        rig.sends(&[(2, "holds"), (3, "extend 9 by 3000")]);
        let extended = rig.extended(3_000);
        rig.receive(3, &extended);
        assert!(lock.remaining() < Duration::from_millis(2_500), "the renewal says nothing about who has it");
        rig.receive(2, &listed(listed_holds, 0));
        if reason.is_some() {
            rig.sends(&[(4, "status 9")]);
            let status = rig.status(3_000);
            rig.receive(4, &status);
        }
        assert_eq!(lock.loss_reason(), reason);
        assert!(reason.is_some() || lock.remaining() > Duration::from_millis(2_500));
    }
}

#[test]
fn what_another_client_may_have_taken_up_is_lost_with_the_session_and_not_released() {
    let mut rig = Rig::new();
    let (lock, released) = (rig.named_lock(1, 9), rig.named_lock(2, 10));
    rig.lose_connection();
    drop(released);
    rig.come_back(false);
    assert_eq!(lock.loss_reason(), Some(LossReason::SessionExpired));
    drop(lock);
    rig.sends(&[]);
}

#[test]
fn a_grant_of_before_an_outage_that_another_client_may_have_taken_up_is_asked_for_again() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(1, "acquire k wait 0"), (2, "holds")]);
    rig.receive(1, &granted);
    rig.receive(2, &listed(&[(9, "k")], 0));
    rig.sends(&[(3, "acquire k wait 0")]);
    let again = rig.granted_again(9, 3_000);
    rig.receive(3, &again);
    rig.sends(&[(4, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(4, &extended);
    assert!(only(&mut answer).is_held());
}

/// The grant came after the list of holds, so the list cannot show that the hold has no guard.
#[test]
fn a_grant_of_a_repeated_acquire_whose_caller_gave_up_is_released() {
    for gives_up_before_the_grant in [true, false] {
        let mut rig = Rig::new();
        let _answer = rig.acquire_with(Lease::Session, Wait::Forever, named);
        rig.sent();
        rig.lose_connection();
        rig.come_back(true);
        rig.sends(&[(1, "acquire k wait 4294967295"), (2, "holds")]);
        rig.receive(2, &listed(&[], 0));
        rig.advance_to(10_100);
        let granted = rig.granted(9, 10_000, true);
        let give_up = |rig: &mut Rig| rig.lane.handle_command(Command::Abandon { token: 0 }, rig.now());
        if gives_up_before_the_grant {
            give_up(&mut rig);
            rig.sends(&[(3, "cancel 1")]);
            rig.receive(1, &granted);
            rig.sends(&[(4, "release 9")]);
        } else {
            rig.receive(1, &granted);
            give_up(&mut rig);
            rig.sends(&[(3, "release 9")]);
        }
    }
}

/// The server of this connection does not know requests about own claims, so a release would end the hold of another client.
#[test]
fn a_grant_of_before_an_outage_whose_caller_gave_up_is_released_only_if_the_lane_still_has_it() {
    let mut rig = Rig::new();
    let _answer = rig.acquire_with(Lease::Session, Wait::Forever, named);
    rig.sent();
    let granted = rig.granted(9, 10_000, false);
    rig.lose_connection();
    rig.advance_to(10_100);
    rig.lane.handle_command(Command::Abandon { token: 0 }, rig.now());
    rig.come_back(true);
    rig.sends(&[(1, "acquire k wait 4294967295"), (2, "cancel 1"), (3, "holds")]);
    rig.receive(3, &listed(&[], 0));
    rig.receive(1, &granted);
    rig.sends(&[]);
}

/// The server may still keep the hold, and another client may have it by now.
#[test]
fn what_was_lost_at_its_local_deadline_before_its_session_ended_is_not_released() {
    let mut rig = Rig::new();
    let lock = rig.lock_with(OWN, 1, 9, 3_000, |job| {
        named(job);
        job.renew = false;
    });
    rig.advance_to(12_990);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
    rig.lose_connection();
    rig.come_back(false);
    drop(lock);
    rig.sends(&[]);
}
