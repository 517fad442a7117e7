//! The HELLO of a new connection, also to servers of version 1.

use super::*;

/// Returns the refusal of a server of version 1, which has no capabilities.
fn refused_flags() -> Error {
    Error::refused(ErrorCode::BadInput, "flags", 0, "flags: unknown bits 0x0004")
}

#[test]
fn an_older_server_gets_the_same_session_request_in_a_version_1_hello() {
    let mut rig = Rig::new();
    rig.lose_connection();
    let resume = rig.lane.request();
    assert!(matches!(resume, Some(SessionRequest::Resume { lane: 3, .. })));
    assert_eq!((rig.lane.offer(0).version_max, rig.lane.offer(0).capabilities.is_some()), (2, true));
    assert!(rig.lane.handle_hello_refused(0, &refused_flags()));
    assert_eq!(rig.lane.request(), resume);
    assert_eq!(rig.lane.offer(0), Offer { version_max: 1, capabilities: None });
    assert!(!rig.lane.handle_hello_refused(0, &refused_flags()), "there is no third HELLO");
    // The lane remembers the refusal until the end of the outage, even if an attempt fails for another reason.
    rig.lane.handle_attempt_failed(Error::refused(ErrorCode::Shutdown, "", 0, ""));
    assert_eq!(rig.lane.offer(0).version_max, 1);
    assert!(rig.lane.request().is_some());
    rig.come_back(true);
    rig.lose_connection();
    assert_eq!(rig.lane.offer(0).version_max, 2);
}

#[test]
fn another_connection_may_open_the_session_after_a_refused_hello() {
    let mut rig = Rig::new();
    let id = rig.session.state().id.expect("it is open");
    rig.session.gone(id);
    rig.lose_connection();
    rig.lane.handle_command(Command::SessionGone { id }, rig.now());
    assert!(matches!(rig.lane.request(), Some(SessionRequest::New { .. })));
    assert_eq!(rig.session.request(None, 0), None, "this connection opens it");
    assert!(rig.lane.handle_hello_refused(0, &refused_flags()));
    assert!(matches!(rig.session.request(None, 0), Some(SessionRequest::New { .. })));
}

#[test]
fn other_hello_refusals_do_not_cause_a_version_1_hello() {
    let mut rig = Rig::new();
    rig.lose_connection();
    assert!(rig.lane.request().is_some());
    let refusals = [
        Error::refused(ErrorCode::BadInput, "version", 3, "the client speaks versions 1 to 2"),
        Error::refused(ErrorCode::Unauthorized, "flags", 0, ""),
        Error::refused(ErrorCode::SessionGone, "session_id", 0, ""),
        Error::disconnected("flags"),
    ];
    for refusal in refusals {
        assert!(!rig.lane.handle_hello_refused(0, &refusal), "{refusal}");
    }
    assert_eq!(rig.lane.offer(0).version_max, 2);
}
