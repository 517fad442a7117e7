//! Holds that another acquire may take up by their request id.

use waymaker_protocol::Event;

use super::*;

impl Rig {
    /// Delivers the event that another acquire has taken up the hold of the acquire with this number.
    fn taken_up(&mut self, number: u32, place: u64) {
        self.receive(number, &Response::Event(Event::TakenUp { id: id(place) }));
    }
}

#[test]
fn a_guard_is_superseded_by_a_takeover_and_releases_nothing() {
    let mut rig = Rig::new();
    let lock = rig.named_lock(1, 9);
    rig.taken_up(7, 9);
    assert!(lock.is_held(), "that was another acquire");
    rig.taken_up(1, 9);
    assert_eq!(lock.loss_reason(), Some(LossReason::Superseded));
    drop(lock);
    rig.sends(&[]);
}

/// Returns the requests that the lane sends to a server with these capabilities when a guard is renewed, extended and
/// dropped.
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

/// Another client may take up the hold before the server reads a request of its guard. With the flag OWN, the server
/// refuses the request in that case.
#[test]
fn requests_about_a_hold_with_a_request_id_carry_the_own_flag() {
    let plain = ["extend 9 by 3000", "extend 9 by 5000", "release 9"];
    let own = plain.map(|text| format!("{text}, if it is its own"));
    assert_eq!(sent_for_a_guard(Some(Capabilities::OWN_CLAIM), named), own);
    // No other acquire can take up a hold without a request id. This hold has a lease of its own and survives its
    // session, so a later session may send its release. With the flag OWN, the server would refuse that release,
    // because the hold belongs to a lane of the old session.
    assert_eq!(sent_for_a_guard(Some(Capabilities::OWN_CLAIM), |_| ()), plain);
    // A server without the capability rejects the flag.
    assert_eq!(sent_for_a_guard(Some(Capabilities::NONE), named), plain);
    assert_eq!(sent_for_a_guard(None, named), plain);
}

/// The lane releases the holds because a caller gave up, or because the client closes. Another client may have taken
/// them up. With the flag `OWN`, the server refuses the release in that case, so the other client keeps the hold.
#[test]
fn a_release_of_a_hold_without_a_guard_carries_the_own_flag() {
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
fn requests_after_an_outage_carry_the_own_flag() {
    let mut rig = Rig::offering(Some(Capabilities::OWN_CLAIM));
    let _guard = rig.named_lock(1, 9);
    rig.lose_connection();
    let (now, again) = (rig.now(), welcome(rig.stamp_ms(), true));
    rig.lane.handle_welcome(Welcome { capabilities: Some(Capabilities::OWN_CLAIM), ..again }, now, now);
    rig.sends(&[(2, "holds"), (3, "extend 9 by 3000, if it is its own")]);
    rig.receive(2, &listed(&[(9, "k"), (7, "stranger")], 0));
    rig.sends(&[(4, "release 7, if it is its own")]);
}

/// The hold's lane has ended with the session, so no later lane may release it.
#[test]
fn an_unanswered_release_with_a_request_id_ends_with_its_session() {
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
fn a_renewal_refused_after_a_takeover_supersedes_the_guard() {
    let mut rig = Rig::offering(Some(Capabilities::OWN_CLAIM));
    let lock = rig.named_lock(1, 9);
    rig.advance_to(11_000);
    rig.sends(&[(2, "extend 9 by 3000, if it is its own")]);
    rig.receive(2, &refusal(ErrorCode::Cancelled));
    assert_eq!(lock.loss_reason(), Some(LossReason::Superseded));
    drop(lock);
    rig.sends(&[]);
}

/// The server refuses the confirmation because another acquire has taken up the hold. The event of the takeover may
/// arrive later, once its log record is durable.
#[test]
fn a_confirmation_refused_after_a_takeover_releases_nothing() {
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
fn an_unsent_release_is_dropped_after_a_takeover() {
    let mut rig = Rig::new();
    let lock = rig.named_lock(1, 9);
    let (reply, mut answer) = Reply::channel();
    rig.lane.handle_command(Command::Release { hold: Arc::clone(&lock.hold), reply }, rig.now());
    rig.taken_up(1, 9);
    rig.sends(&[]);
    assert!(matches!(answer.try_recv(), Ok(Err(Error::Lost(LossReason::Superseded)))));
}

#[test]
fn a_grant_taken_over_during_its_confirmation_is_not_delivered() {
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

/// The takeover event was lost with the connection. If the list of this lane's holds lacks the hold, but its status
/// shows that it exists, another lane has it. A listed hold stays held.
#[test]
fn a_hold_taken_over_during_an_outage_is_superseded_after_listing() {
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
fn a_hold_with_a_request_id_is_lost_with_its_session_and_not_released() {
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
fn an_acquire_with_a_request_id_granted_before_an_outage_is_sent_again() {
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

/// The grant arrived after the list of holds, so the list cannot show that the hold has no guard.
#[test]
fn the_grant_of_an_abandoned_repeated_acquire_is_released() {
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

/// Another client may take up the hold by its request id during the outage. This server lacks the capability
/// `OWN_CLAIM`: it cannot limit a release to holds of this lane. So a release would end the hold of the other client.
#[test]
fn an_abandoned_grant_from_before_an_outage_is_released_only_if_listed() {
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

/// The server may still keep the hold, and another client may have taken it up by its request id.
#[test]
fn a_lock_lost_at_its_local_deadline_is_not_released_in_a_new_session() {
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
