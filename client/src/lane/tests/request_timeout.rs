//! The time limit of requests that have no wait of their own.

use waymaker_protocol::{Contention, ErrorCode, ErrorDetail, Released};

use super::*;

impl Rig {
    fn close(&mut self) -> oneshot::Receiver<Result<()>> {
        let (reply, answer) = Reply::channel();
        self.lane.handle_command(Command::Close { reply }, self.clock.now());
        answer
    }
}

#[test]
fn a_request_to_a_silent_server_ends_after_the_request_timeout() {
    let mut rig = Rig::impatient();
    let mut lock = rig.lock(1, 9, 30_000);
    let mut extend = rig.extend(9);
    let mut release = rig.release(&mut lock);
    rig.sends(&[(2, "extend 9 by 60000"), (3, "release 9")]);
    rig.advance_to(11_000);
    let mut ask = rig.ask();
    rig.sent();
    rig.advance_to(11_999);
    assert!(extend.try_recv().is_err() && release.try_recv().is_err());
    rig.advance_to(12_000);
    uncertain(&mut extend);
    let release = uncertain(&mut release);
    assert!(ask.try_recv().is_err());
    rig.receive(3, &Response::Released(Released::default()));
    assert_eq!(outcome(&release), Some(Outcome::Done));
    rig.advance_to(12_999);
    assert!(ask.try_recv().is_err());
    rig.advance_to(13_000);
    uncertain(&mut ask);
}

/// A try is an acquire without a wait. If its request id finds a waiting claim, the server may answer it with a timeout
/// when the wait of that claim ends. The lane then sends the try again, but its time limit still counts from the call.
#[test]
fn a_try_that_is_sent_again_ends_at_the_original_request_timeout() {
    let mut rig = Rig::impatient();
    let mut answer = rig.acquire(OWN, Wait::Try);
    rig.sent();
    rig.advance_to(11_900);
    let detail = ErrorDetail::Contention(Contention::default());
    rig.receive(1, &Response::Error(ErrorAnswer { code: ErrorCode::Timeout, detail }));
    rig.sends(&[(2, "acquire k wait 0")]);
    rig.advance_to(11_999);
    assert!(answer.try_recv().is_err());
    rig.advance_to(12_000);
    uncertain(&mut answer);
}

#[test]
fn repeated_outages_do_not_extend_the_request_timeout() {
    let mut rig = Rig::impatient();
    let mut ask = rig.ask();
    rig.sent();
    for second in 11..=12 {
        assert!(ask.try_recv().is_err());
        rig.lose_connection();
        rig.advance_to(second * 1_000);
        rig.come_back(true);
        rig.sent();
    }
    uncertain(&mut ask);
}

#[test]
fn an_unsent_request_fails_as_unavailable_after_the_request_timeout() {
    let mut rig = Rig::impatient();
    let mut lock = rig.lock(1, 9, 30_000);
    rig.lose_connection();
    rig.advance_to(11_000);
    let mut ask = rig.ask();
    let mut release = rig.release(&mut lock);
    rig.advance_to(13_000);
    for error in [ask.try_recv().unwrap().unwrap_err(), release.try_recv().unwrap().unwrap_err()] {
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
    }
    rig.come_back(true);
    // The caller of the release has got an error. The lane still sends the release after it has reconnected, because
    // another client may wait for the key.
    rig.sends(&[(2, "release 9"), (3, "holds")]);
}

#[test]
fn closing_waits_at_most_the_request_timeout_for_a_silent_server() {
    let mut rig = Rig::impatient();
    let _lock = rig.lock(1, 9, 30_000);
    let mut close = rig.close();
    rig.sends(&[(2, "release 9")]);
    rig.advance_to(11_999);
    assert!(close.try_recv().is_err());
    rig.advance_to(12_000);
    assert!(close.try_recv().unwrap().is_ok());
    rig.receive(2, &Response::Released(Released::default()));
    rig.sends(&[(3, "goodbye")]);
}

#[test]
fn answered_requests_leave_at_most_one_timer() {
    let mut rig = Rig::impatient();
    for number in 1..=3 {
        let mut ask = rig.ask();
        rig.sent();
        rig.receive(number, &rig.kept_alive());
        assert!(ask.try_recv().unwrap().is_ok());
    }
    assert_eq!(rig.lane.answer_timer, at(12_000));
    rig.advance_to(12_000);
    assert_eq!(rig.lane.answer_timer, BootTime::NEVER);
}

#[test]
fn an_unsent_extend_does_not_stop_renewals() {
    for mut rig in [Rig::new(), Rig::impatient()] {
        let _lock = rig.lock(1, 9, 30_000);
        rig.lose_connection();
        let mut extend = rig.extend(9);
        rig.advance_to(15_000);
        assert!(matches!(extend.try_recv().unwrap(), Err(Error::Unavailable(_))));
        rig.come_back(true);
        rig.sends(&[(2, "holds"), (3, "extend 9 by 30000")]);
    }
}

/// While the extend waited for the window, the lane sent no renewal. Once the extend is dropped, the renewal that
/// became due must follow.
#[test]
fn an_extend_that_the_full_window_kept_back_does_not_stop_renewals() {
    let mut rig = Rig::impatient();
    let _lock = rig.lock(1, 9, 30_000);
    rig.advance_to(19_000);
    let asks: Vec<_> = (0..1024).map(|_| rig.ask()).collect();
    rig.sent();
    let mut extend = rig.extend(9);
    rig.advance_to(22_000);
    assert_eq!(extend.try_recv().unwrap().unwrap_err().code(), Some(ErrorCode::Overloaded));
    rig.receive(2, &refusal(ErrorCode::BadInput));
    rig.sends(&[(1026, "extend 9 by 30000")]);
    drop(asks);
}

/// The server may have served the requests in the old session. The lane queues them again for the new session, but
/// loses the connection before it sends them. So the outcome is unknown, although they are unsent now.
#[test]
fn a_request_of_an_earlier_session_is_reported_as_uncertain() {
    for mut rig in [Rig::new(), Rig::impatient()] {
        let (mut ask, mut acquire) = (rig.ask(), rig.acquire(OWN, Wait::Forever));
        rig.sent();
        rig.lose_connection();
        rig.come_back(false);
        rig.lose_connection();
        rig.advance_to(15_000);
        uncertain(&mut ask);
        uncertain(&mut acquire);
    }
}

#[test]
fn each_request_without_a_connection_ends_with_its_own_timeout() {
    let mut rig = Rig::impatient();
    rig.lose_connection();
    let mut first = rig.ask();
    rig.advance_to(11_000);
    let mut second = rig.ask();
    rig.advance_to(12_000);
    assert!(matches!(first.try_recv().unwrap(), Err(Error::Unavailable(_))));
    rig.advance_to(12_999);
    assert!(second.try_recv().is_err());
    rig.advance_to(13_000);
    assert!(matches!(second.try_recv().unwrap(), Err(Error::Unavailable(_))));
}
