//! Requests that need a capability of the server.

use waymaker_protocol::{Freeze, Frozen};

use super::*;
use crate::request::job::Ask;
use crate::request::need::Need;

const REASON: Option<Capabilities> = Some(Capabilities::REASON);

impl Rig {
    /// Freezes a prefix with a reason.
    fn freeze(&mut self) -> oneshot::Receiver<Result<()>> {
        let (reply, answer) = Reply::channel();
        let encode = |number: u32, out: &mut Vec<u8>| {
            Request::Freeze(Freeze { prefix: b"p", thaw: false, reason: b"r" }).encode(number, out);
        };
        let read = |response: Response<'_>| matches!(response, Response::Frozen(_)).then_some(());
        self.submit(Job::Ask(Box::new(Ask {
            need: Some(Need::REASON),
            is_change: true,
            encode,
            read,
            reply,
        })));
        answer
    }

    /// Returns the number of frames that the lane sends now.
    fn sent_count(&mut self) -> usize {
        self.sent().len()
    }

    /// Reconnects to a server with these capabilities.
    fn come_back_to(&mut self, capabilities: Option<Capabilities>, resumed: bool) {
        let (now, again) = (self.now(), welcome(self.stamp_ms(), resumed));
        self.lane.handle_welcome(Welcome { capabilities, ..again }, now, now);
    }
}

#[track_caller]
fn assert_refused(answer: &mut oneshot::Receiver<Result<()>>) {
    match answer.try_recv().unwrap() {
        Err(Error::Refused { code: ErrorCode::BadInput, field, .. }) => assert_eq!(field, "reason"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_refused_and_not_sent_to_a_server_without_its_capability() {
    for offered in [None, Some(Capabilities::NONE), Some(Capabilities::LIST_WAITING)] {
        let mut rig = Rig::offering(offered);
        let mut answer = rig.freeze();
        assert_eq!(rig.sent_count(), 0, "{offered:?}");
        assert_refused(&mut answer);
        assert!(rig.lane.is_idle());
    }
    let mut rig = Rig::offering(REASON);
    let mut answer = rig.freeze();
    assert_eq!(rig.sent_count(), 1);
    rig.receive(1, &Response::Frozen(Frozen::default()));
    answer.try_recv().unwrap().unwrap();
}

/// A request that the client refuses uses no request number, and the requests behind it are sent.
#[test]
fn a_refused_request_does_not_hold_up_others() {
    let mut rig = Rig::offering(None);
    let mut refused = rig.freeze();
    let _extend = rig.extend(9);
    rig.sends(&[(1, "extend 9 by 60000")]);
    assert_refused(&mut refused);
}

/// During the outage, the server may have been replaced by a newer or an older version.
#[test]
fn a_request_in_an_outage_is_judged_by_the_server_that_comes_next() {
    for (before, after) in [(None, REASON), (REASON, None)] {
        let mut rig = Rig::offering(before);
        rig.lose_connection();
        let mut answer = rig.freeze();
        rig.take_commands();
        assert!(answer.try_recv().is_err(), "it waits for a connection");
        rig.come_back_to(after, false);
        if after.is_some() {
            assert_eq!(rig.sent_count(), 1);
            rig.receive(1, &Response::Frozen(Frozen::default()));
            answer.try_recv().unwrap().unwrap();
        } else {
            assert_eq!(rig.sent_count(), 0);
            assert_refused(&mut answer);
        }
    }
}

/// The newer server may have served the request before it stopped.
#[test]
fn a_request_that_was_sent_is_uncertain_if_an_older_server_follows() {
    for resumed in [false, true] {
        let mut rig = Rig::offering(REASON);
        let mut answer = rig.freeze();
        let freeze = rig.sent();
        assert_eq!(freeze.len(), 1);
        rig.lose_connection();
        rig.come_back_to(None, resumed);
        let sent = rig.sent();
        assert!(!sent.contains(&freeze[0]), "resumed: {resumed}, {sent:?}");
        uncertain(&mut answer);
    }
}
