//! What the older of two acquires with one request id is told.

use crate::harness::{Client, Server, default_hello, each_size};
use std::net::TcpStream;
use waymaker_protocol::{
    Acquire, AcquireOptions, AcquireTerms, CancelReason, ErrorCode, Event, Extend, ForceRelease, Hello,
    KeepAlive, LockId, Release, Request, Response, SessionRequest, Status,
};

/// An acquire with a request id.
fn acquire(wait_ms: u32) -> Acquire<'static> {
    let options = AcquireOptions { request_id: Some(b"attempt 7"), ..AcquireOptions::default() };
    Acquire {
        key: b"key",
        terms: AcquireTerms { wait_ms, options, ..AcquireTerms::default() },
        ..Acquire::default()
    }
}

/// A connection that is told what is taken up.
fn told(server: &Server) -> Client<TcpStream> {
    let mut client = server.stranger();
    client.open(Hello { owner: b"app", notify_taken_up: true, ..default_hello() });
    client
}

fn assert_taken_up(client: &mut Client<TcpStream>, number: u32, id: LockId) {
    let event = client.receive();
    assert_eq!((event.number(), event.event()), (number, Event::TakenUp { id }));
}

#[test]
fn the_earlier_holder_is_notified_with_the_number_of_its_acquire() {
    for server in each_size() {
        let [mut first, mut second] = [(); 2].map(|()| told(&server));
        let number = first.send(Request::Acquire(acquire(0)));
        let granted = first.receive().granted();
        let again = second.send(Request::Acquire(acquire(0)));
        assert_eq!(second.receive().granted().id, granted.id);
        assert_taken_up(&mut first, number, granted.id);

        first.send(Request::Acquire(acquire(0)));
        assert!(first.receive().granted().repeated);
        assert_taken_up(&mut second, again, granted.id);
    }
}

/// They were on their way when the other client took up the hold.
#[test]
fn own_requests_of_the_earlier_holder_do_not_affect_the_new_holder() {
    for server in each_size() {
        let [mut first, mut second] = [(); 2].map(|()| told(&server));
        first.send(Request::Acquire(acquire(0)));
        let id = first.receive().granted().id;
        second.ask(Request::Acquire(acquire(0)));
        first.receive();
        let release = Request::Release(Release { id, key: None, own: true });
        let extend = Request::Extend(Extend { id, key: None, lease_ms: 20, own: true });
        for request in [release, extend] {
            let refused = first.ask(request);
            assert_eq!(refused.refusal(), (ErrorCode::Cancelled, "", CancelReason::Superseded.number()));
        }
        let status = second.ask(Request::Status(Status { id, key: None }));
        let Response::Status(status) = status.response() else { panic!("{:?}", status.response()) };
        assert!(status.remaining_ms > 20, "{status:?}");
        assert!(matches!(second.ask(extend).response(), Response::Extended(_)));
        assert!(matches!(second.ask(release).response(), Response::Released(_)));
        assert_eq!(second.ask(release).refusal().0, ErrorCode::NotFound);
    }
}

/// A keep-alive is about the session of its connection, and about no hold that was taken up from it.
#[test]
fn a_keep_alive_does_not_renew_a_hold_moved_to_another_session() {
    let server = Server::start(&[]);
    let open = |lease_ms| {
        let mut client = server.stranger();
        let session = SessionRequest::New { lease_ms };
        client.open(Hello { owner: b"app", notify_taken_up: true, session, ..default_hello() });
        client
    };
    let (mut first, mut second) = (open(60_000), open(200));
    let of_session = acquire(0).with_terms(|terms| terms.session_lease = true);
    let granted = first.ask(Request::Acquire(of_session)).granted();
    assert!(second.ask(Request::Acquire(of_session)).granted().repeated);
    first.receive();
    // The second session ends, although the first is kept.
    let mut watcher = server.client("watcher");
    let next = watcher.wait_for(b"key", 60_000);
    first.send(Request::KeepAlive(KeepAlive));
    let received = watcher.receive();
    assert_eq!((received.number(), received.granted().fence), (next, granted.fence + 1));
}

#[test]
fn a_repetition_on_the_same_connection_notifies_the_earlier_number() {
    let server = Server::start(&[]);
    let mut client = told(&server);
    let number = client.send(Request::Acquire(acquire(0)));
    let granted = client.receive().granted();
    let again = client.send(Request::Acquire(acquire(0)));
    assert_taken_up(&mut client, number, granted.id);
    let answer = client.receive();
    assert_eq!((answer.number(), answer.granted().id), (again, granted.id));
}

#[test]
fn a_client_without_the_option_is_not_notified_of_a_moved_hold() {
    for server in each_size() {
        let mut first = server.client("app");
        let granted = first.ask(Request::Acquire(acquire(0))).granted();
        let again = first.ask(Request::Acquire(acquire(0))).granted();
        assert_eq!((again.id, again.repeated), (granted.id, true));
        told(&server).ask(Request::Acquire(acquire(0)));
        first.acquire(b"other", 0);
    }
}

#[test]
fn the_notify_option_of_the_resuming_connection_applies() {
    let server = Server::start(&[]);
    let hello = |session| Hello { owner: b"app", session, ..default_hello() };
    let mut first = server.stranger();
    let welcome = first.open(hello(SessionRequest::New { lease_ms: 0 }));
    first.send_numbered(100, Request::Acquire(acquire(0)));
    let granted = first.receive().granted();
    let resume = hello(SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane });
    let mut resumed = server.stranger();
    resumed.open(Hello { notify_taken_up: true, ..resume });
    let mut second = server.client("app");
    second.ask(Request::Acquire(acquire(0)));
    assert_taken_up(&mut resumed, 100, granted.id);
}

#[test]
fn a_cancelled_acquire_is_answered_with_a_reason_code() {
    for server in each_size() {
        let mut holder = server.client("holder");
        let granted = holder.acquire(b"key", 0);
        let [mut first, mut second] = [(); 2].map(|()| server.client("app"));
        let queue = |client: &mut Client<TcpStream>| {
            let acquire = acquire(60_000).with_terms(|terms| terms.notify_queued = true);
            let number = client.send(Request::Acquire(acquire));
            let queued = client.receive();
            let Event::Queued { id, .. } = queued.event() else { panic!("{:?}", queued.event()) };
            assert_eq!(queued.number(), number);
            id
        };
        let assert_cancelled = |client: &mut Client<TcpStream>, reason: CancelReason| {
            assert_eq!(client.receive().refusal(), (ErrorCode::Cancelled, "", reason.number()));
        };
        queue(&mut first);
        let id = queue(&mut second);
        assert_cancelled(&mut first, CancelReason::Superseded);
        holder.release(id);
        assert_cancelled(&mut second, CancelReason::Asked);
        let id = queue(&mut first);
        let forced = holder.ask(Request::ForceRelease(ForceRelease { id, reason: b"" }));
        assert!(matches!(forced.response(), Response::ForceReleased(released) if released.was_waiting));
        assert_cancelled(&mut first, CancelReason::Forced);
        holder.ask(Request::Release(Release { id: granted.id, key: None, own: false }));
    }
}
