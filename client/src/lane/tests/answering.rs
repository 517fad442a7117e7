//! Repeated responses, responses without a request, and pings.

use waymaker_protocol::Event;

use super::*;

/// After the first answer to request 1, the lane waits for no other. So it ignores the second one, which may be the
/// refusal of a late copy of the request.
#[test]
fn a_second_answer_keeps_the_connection_but_an_unnumbered_error_ends_it() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Try);
    rig.sent();
    rig.receive(1, &refusal(ErrorCode::Frozen));
    assert_eq!(answer.try_recv().unwrap().unwrap_err().code(), Some(ErrorCode::Frozen));
    rig.receive(1, &refusal(ErrorCode::Frozen));
    assert!(rig.try_receive(0, &refusal(ErrorCode::Overloaded)).is_err());
}

#[test]
fn an_error_without_a_request_ends_the_connection() {
    let mut rig = Rig::new();
    let error = rig.try_receive(0, &refusal(ErrorCode::Overloaded)).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Overloaded));
}

#[test]
fn a_ping_is_answered_at_once() {
    let mut rig = Rig::new();
    rig.sent();
    rig.receive(0, &Response::Event(Event::Ping));
    rig.sends(&[(0, "pong")]);
    assert!(rig.lane.doubt().is_none());
}
