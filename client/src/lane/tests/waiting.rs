//! The time limit of an acquire.

use waymaker_protocol::Contention;

use super::*;

#[test]
fn a_busy_answer_to_an_acquire_with_a_wait_is_a_timeout() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Until(at(10_500)));
    rig.sent();
    let busy = ErrorAnswer { code: ErrorCode::Busy, detail: ErrorDetail::Contention(Contention::default()) };
    rig.receive(1, &Response::Error(busy));
    assert!(matches!(answer.try_recv().unwrap(), Err(Error::Timeout(_))));
}

#[test]
fn an_unanswered_acquire_ends_soon_after_its_wait_and_is_cancelled() {
    for (wait, ends) in [(Wait::Until(at(10_500)), 11_000), (Wait::Try, 15_000)] {
        let mut rig = Rig::new();
        let mut answer = rig.acquire(OWN, wait);
        assert_eq!(rig.sent().len(), 1);
        rig.advance_to(ends - 1);
        assert!(answer.try_recv().is_err());
        rig.advance_to(ends);
        uncertain(&mut answer);
        assert!(rig.sent().iter().any(|(_, text)| text == "cancel 1"));
        let granted = rig.granted(9, 3_000, true);
        rig.receive(1, &granted);
        assert!(rig.sent().iter().any(|(_, text)| text == "release 9"));
    }
}

/// The request id may find a waiting claim, so that even a try waits. Until the server reports this with the event
/// `QUEUED`, the try counts as in flight. Many such tries would reach the limit of requests in flight, and the lane
/// could send no renewals.
#[test]
fn a_try_with_a_request_id_asks_for_the_queued_event() {
    for (change, asks) in [((|_| {}) as fn(&mut AcquireJob), false), (named, true)] {
        let mut rig = Rig::new();
        let _answer = rig.acquire_with(OWN, Wait::Try, change);
        rig.lane.transmit(rig.clock.now());
        let bytes = std::mem::take(rig.lane.out());
        let frame = next_frame(&bytes, FRAME_LEN_MAX).unwrap().unwrap();
        let Request::Acquire(acquire) = Request::decode(frame).unwrap() else { unreachable!() };
        assert_eq!(acquire.terms.notify_queued, asks);
    }
}

#[test]
fn an_unconfirmed_grant_ends_with_the_wait_of_its_acquire() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Until(at(10_500)), named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(1, &again);
    rig.sends(&[(2, "extend 9 by 3000")]);
    rig.advance_to(11_000);
    uncertain(&mut answer);
}

#[test]
fn an_answered_acquire_leaves_no_timer() {
    let mut rig = Rig::new();
    let next = rig.lane.next_timeout();
    for (number, wait) in [(1, Wait::Until(at(10_100))), (2, Wait::Try)] {
        let mut answer = rig.acquire(OWN, wait);
        rig.sent();
        rig.receive(number, &refusal(ErrorCode::Frozen));
        assert!(answer.try_recv().unwrap().is_err());
        assert_eq!(rig.lane.next_timeout(), next);
    }
    for (number, wait) in [(3, Wait::Until(at(10_100))), (5, Wait::Try)] {
        let mut answer = rig.acquire(OWN, wait);
        rig.sent();
        let granted = rig.granted(9, 3_000, false);
        rig.receive(number, &granted);
        drop(only(&mut answer));
        rig.sent();
        assert_eq!(rig.lane.next_timeout(), next);
    }
}

#[test]
fn sending_an_acquire_again_does_not_extend_its_wait() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Until(at(10_500)));
    rig.sent();
    rig.advance_to(10_900);
    let detail = ErrorDetail::Contention(Contention::default());
    rig.receive(1, &Response::Error(ErrorAnswer { code: ErrorCode::Timeout, detail }));
    rig.sends(&[(2, "acquire k wait 0")]);
    rig.advance_to(10_999);
    assert!(answer.try_recv().is_err());
    rig.advance_to(11_000);
    uncertain(&mut answer);
}

#[test]
fn the_answer_to_a_late_sent_acquire_may_arrive_after_its_wait() {
    let mut rig = Rig::new();
    rig.lose_connection();
    let mut answer = rig.acquire(OWN, Wait::Until(at(10_500)));
    rig.advance_to(10_100);
    rig.come_back(true);
    assert!(rig.sent().iter().any(|(_, text)| text == "acquire k wait 400"));
    rig.advance_to(10_999);
    assert!(answer.try_recv().is_err());
    rig.advance_to(11_000);
    uncertain(&mut answer);
}

/// The request id has found an older claim, whose wait ends before that of this caller. The timeout names no claim in
/// front, as a timeout at a frozen key does. The server reports a freeze only to a try, so the lane sends the acquire
/// again as a try.
#[test]
fn an_acquire_that_times_out_early_is_sent_again_as_a_try() {
    let mut rig = Rig::new();
    let _answer = rig.acquire(OWN, Wait::Until(at(12_000)));
    rig.sent();
    rig.advance_to(10_500);
    let detail = ErrorDetail::Contention(Contention::default());
    rig.receive(1, &Response::Error(ErrorAnswer { code: ErrorCode::Timeout, detail }));
    rig.sends(&[(2, "acquire k wait 0")]);
}

/// The server does not show this client the owner in front, only that the key is held. If a timeout names no claim in
/// front at all, the key may be frozen, and the lane sends the acquire again. This timeout reports a holder, so the
/// caller gets it at once.
#[test]
fn a_wait_behind_a_holder_that_just_began_ends_in_time() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Until(at(10_500)));
    rig.sent();
    rig.advance_to(10_500);
    let detail = ErrorDetail::Contention(Contention { held: true, ..Contention::default() });
    rig.receive(1, &Response::Error(ErrorAnswer { code: ErrorCode::Timeout, detail }));
    assert!(matches!(answer.try_recv().unwrap(), Err(Error::Timeout(_))));
    rig.sends(&[]);
}

/// An acquire that was never sent cannot be in flight, so its caller need not wait for a response.
#[test]
fn an_acquire_that_cannot_be_sent_ends_with_its_wait() {
    for is_connected in [false, true] {
        let mut rig = Rig::new();
        let mut others = Vec::new();
        if is_connected {
            others.extend((0..1024).map(|_| rig.acquire(OWN, Wait::Forever)));
            rig.sent();
        } else {
            rig.lose_connection();
        }
        let mut answer = rig.acquire(OWN, Wait::Until(at(10_500)));
        rig.advance_to(10_499);
        assert!(answer.try_recv().is_err());
        rig.advance_to(10_500);
        assert!(answer.try_recv().unwrap().is_err(), "connected: {is_connected}");
    }
}
