//! What the older of two acquires with one request id is told.

use crate::harness::{Client, Server, default_hello, each_size};
use std::net::TcpStream;
use waymaker_protocol::{
    Acquire, AcquireOptions, CancelReason, ErrorCode, Event, ForceRelease, Hello, LockId, Release, Request,
    Response, SessionRequest,
};

/// An acquire with a request id.
fn acquire(wait_ms: u32) -> Acquire<'static> {
    let options = AcquireOptions { request_id: Some(b"attempt 7"), ..AcquireOptions::default() };
    Acquire { key: b"key", wait_ms, options, ..Acquire::default() }
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
fn whoever_held_it_is_told_under_the_number_of_its_acquire() {
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

#[test]
fn a_repetition_on_the_same_connection_is_told_to_the_number_before() {
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
fn whoever_did_not_ask_for_it_is_not_told() {
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
fn what_the_connection_that_resumes_says_counts() {
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
fn an_acquire_that_is_cancelled_is_told_by_a_number_why() {
    for server in each_size() {
        let mut holder = server.client("holder");
        let granted = holder.acquire(b"key", 0);
        let [mut first, mut second] = [(); 2].map(|()| server.client("app"));
        let queue = |client: &mut Client<TcpStream>| {
            let acquire = Acquire { notify_queued: true, ..acquire(60_000) };
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
        holder.ask(Request::Release(Release { id: granted.id, key: None }));
    }
}
