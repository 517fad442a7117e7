//! Callers without a response, and how they learn the outcome later.

use waymaker_protocol::Released;

use super::*;

#[test]
fn an_uncertain_outcome_is_resolved_after_a_reconnect() {
    let mut rig = Rig::new();
    let mut granted = rig.acquire(OWN, Wait::Forever);
    let mut refused = rig.acquire(OWN, Wait::Forever);
    let (reply, mut released) = Reply::channel();
    rig.submit(Job::Release {
        id: id(9),
        key: None,
        by_guard: false,
        take_up_number: None,
        is_own: false,
        reply,
    });
    rig.sent();
    rig.lose_connection();
    rig.advance_to(15_000);
    let [granted, refused] = [&mut granted, &mut refused].map(|answer| uncertain(answer));
    let released = uncertain(&mut released);
    // A caller may still query the outcome, so the lane repeats the requests.
    assert!(rig.lane.wants_connection(rig.now()));
    rig.come_back(true);
    rig.sent();
    assert_eq!([&granted, &refused, &released].map(outcome), [None; 3]);
    rig.receive(1, &Response::Released(Released { was_waiting: false }));
    assert_eq!(outcome(&released), Some(Outcome::Done));
    let grant = rig.granted(8, 10_000, false);
    rig.receive(2, &grant);
    // The grant is confirmed first, since the hold may have ended; then the lane releases it.
    let confirm = rig.sent().last().unwrap().0;
    let stamp_ms = rig.stamp_ms();
    rig.receive(confirm, &Response::Extended(Extended { remaining_ms: 10_000, stamp_ms, clamped: false }));
    assert_eq!(rig.sent().last().unwrap().1, "release 8");
    assert_eq!(outcome(&granted), Some(Outcome::NotDone));
    rig.receive(3, &refusal(ErrorCode::Cancelled));
    assert_eq!(outcome(&refused), Some(Outcome::NotDone));
}

#[test]
fn a_request_of_a_lost_session_stays_unknown() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    rig.lose_connection();
    rig.advance_to(15_000);
    let uncertain = uncertain(&mut answer);
    rig.come_back(false);
    assert_eq!(outcome(&uncertain), Some(Outcome::Unknown));
}

#[test]
fn calls_fail_after_the_maximum_outage_or_their_wait() {
    let mut rig = Rig::new();
    let mut short = rig.acquire(OWN, Wait::Until(at(11_000)));
    let mut long = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    rig.lose_connection();
    let mut late = rig.acquire(OWN, Wait::Forever);
    rig.advance_to(11_000);
    assert!(matches!(short.try_recv().unwrap(), Err(Error::Uncertain(_))));
    rig.advance_to(14_999);
    assert!(long.try_recv().is_err() && late.try_recv().is_err());
    rig.advance_to(15_000);
    assert!(matches!(long.try_recv().unwrap(), Err(Error::Uncertain(_))));
    assert!(late.try_recv().unwrap().is_err());
    assert!(!rig.lane.wants_connection(rig.now()));
    // If the connection is restored after all, the lane repeats the acquires, so that it can release holds that were
    // granted, and cancels them.
    rig.come_back(true);
    let sent = rig.sent();
    let texts: Vec<_> = sent.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["acquire k wait 0", "acquire k wait 4294967295", "cancel 1", "cancel 2", "holds"]);
}

/// With a new number for each repetition, each connection that breaks early would add a cancellation.
#[test]
fn an_unanswered_cancel_is_repeated_with_its_number() {
    let mut rig = Rig::new();
    let answer = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    drop(answer);
    rig.lane.handle_command(Command::Abandon { token: 0 }, rig.now());
    rig.sends(&[(2, "cancel 1")]);
    for _ in 0..2 {
        rig.lose_connection();
        rig.come_back(true);
        let texts: Vec<_> = rig.sent().into_iter().filter(|(_, text)| text != "holds").collect();
        let expected = [(1, "acquire k wait 4294967295"), (2, "cancel 1")];
        assert_eq!(texts, expected.map(|(number, text)| (number, text.to_owned())));
    }
}

/// The server itself does not know the outcome, for example because its log failed.
#[test]
fn an_outcome_that_the_server_does_not_know_stays_unknown() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    rig.lose_connection();
    rig.advance_to(15_000);
    let uncertain = uncertain(&mut answer);
    rig.come_back(true);
    rig.sent();
    rig.receive(1, &refusal(ErrorCode::Unknown));
    assert_eq!(outcome(&uncertain), Some(Outcome::Unknown));
}
