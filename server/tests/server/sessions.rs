//! Sessions: one deadline, repeated requests, more connections.

use crate::harness::{Client, Deadline, Server, default_hello, each_size, hello_of, with_short_lease};
use std::io::Read;
use std::net::TcpStream;
use std::time::Instant;
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquirePermits, AcquireSet, AcquireTerms, ErrorCode, Event, Goodbye, Hello,
    Inspect, Items, KeepAlive, KeyItem, LockId, NamespaceKind, PathItem, PathKey, Pong, Release, Request,
    Response, SessionRequest, Welcome,
};

fn on_session_lease(key: &[u8]) -> Request<'_> {
    Request::Acquire(Acquire {
        key,
        terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
        ..Acquire::default()
    })
}

fn resume(welcome: &Welcome) -> SessionRequest {
    SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane }
}

/// It is a sign of life and nothing else.
#[test]
fn a_pong_has_no_answer() {
    let server = Server::start(&[]);
    let mut client = server.client("app");
    client.send_numbered(0, Request::Pong(Pong));
    assert!(matches!(client.ask(Request::KeepAlive(KeepAlive)).response(), Response::KeptAlive(_)));
    let mut malformed = Vec::new();
    Request::Pong(Pong).encode(7, &mut malformed);
    malformed[10] = 1;
    client.write(&malformed);
    let answer = client.receive();
    assert_eq!((answer.number(), answer.refusal()), (7, (ErrorCode::BadInput, "flags", 0)));
}

#[test]
fn one_keep_alive_renews_every_hold_on_the_session_lease() {
    with_short_lease(400, |lease| {
        let server = Server::start(&["--workers", "2"]);
        lease.begins();
        let new = SessionRequest::New { lease_ms: lease.ms() };
        let (mut client, welcome) = server.session_client(new);
        assert_eq!(welcome.session_lease_ms, lease.ms());
        for number in 0..20_u8 {
            let sent = Instant::now();
            let granted = client.ask(on_session_lease(&[number])).granted();
            lease.renewed(sent);
            assert!(granted.session_lease && granted.remaining_ms <= lease.ms() && granted.remaining_ms > 0);
        }
        let mut other = server.client("other");
        keep_alive_for_three_leases(&mut client, lease, |remaining_ms| {
            assert_eq!(remaining_ms, lease.ms());
            let answer = other.ask(Request::Acquire(Acquire { key: &[7], ..Acquire::default() }));
            assert_eq!(answer.error().code, ErrorCode::Busy);
        });
    });
}

/// Keeps a session alive through this connection for three of its leases. Calls `look` with the remaining lease each time.
fn keep_alive_for_three_leases(client: &mut Client<TcpStream>, lease: &Deadline, mut look: impl FnMut(u32)) {
    let end = Instant::now() + 3 * lease.length();
    while Instant::now() < end {
        std::thread::sleep(lease.length() / 8);
        let sent = Instant::now();
        let answer = client.ask(Request::KeepAlive(KeepAlive));
        lease.renewed(sent);
        let Response::KeptAlive(kept) = answer.response() else { panic!("{:?}", answer.response()) };
        look(kept.remaining_ms);
    }
}

#[test]
fn a_session_without_keep_alives_ends_with_all_its_holds_and_waiters() {
    with_short_lease(200, |lease| {
        let server = Server::start(&["--workers", "2"]);
        let mut other = server.client("other");
        lease.begins();
        let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: lease.ms() });
        client.ask(on_session_lease(b"key")).granted();
        other.wait_for(b"key", 600_000);
        lease.is_over();
        assert_eq!(client.receive().event(), Event::SessionExpired);
        assert_eq!(other.receive().granted().fence, 2);
        let answer = client.ask(on_session_lease(b"another"));
        assert_eq!(answer.error().code, ErrorCode::SessionGone);
        let mut late = server.stranger();
        let answer = late.ask(Request::Hello(Hello { session: resume(&welcome), ..default_hello() }));
        assert_eq!(answer.error().code, ErrorCode::SessionGone);
    });
}

/// An exclusive claim for what has this name, of the kind of the connection.
fn claim(
    client: &mut Client<TcpStream>,
    kind: NamespaceKind,
    name: &[u8],
    wait_ms: u32,
    session_lease: bool,
) {
    let (mut path, mut items) = (Vec::new(), Vec::new());
    PathKey::append([name], &mut path).unwrap();
    let path = PathItem { write: true, path: PathKey::new(&path).unwrap() };
    client.send(match kind {
        NamespaceKind::Flat => Request::Acquire(Acquire {
            key: name,
            terms: AcquireTerms { wait_ms, session_lease, ..AcquireTerms::default() },
            ..Acquire::default()
        }),
        NamespaceKind::Tree => {
            let items = Items::new([path], &mut items).unwrap();
            Request::AcquireSet(AcquireSet {
                items,
                terms: AcquireTerms { wait_ms, session_lease, ..AcquireTerms::default() },
            })
        }
        NamespaceKind::Pool => Request::AcquirePermits(AcquirePermits {
            name,
            capacity: 1,
            permits: 1,
            terms: AcquireTerms { wait_ms, session_lease, ..AcquireTerms::default() },
            ..AcquirePermits::default()
        }),
        other => panic!("nobody waits in {other:?}"),
    });
}

#[test]
fn a_session_across_namespaces_of_several_kinds_ends_in_all_of_them() {
    for workers in ["1", "3"] {
        with_short_lease(300, |lease| {
            session_of_several_kinds_ends(&Server::start(&["--workers", workers]), lease);
        });
    }
}

fn session_of_several_kinds_ends(server: &Server, lease: &Deadline) {
    let kinds = [NamespaceKind::Flat, NamespaceKind::Tree, NamespaceKind::Pool];
    let mut rivals = kinds.map(|kind| server.client_of(kind, "rival"));
    let held = std::array::from_fn::<_, 3, _>(|at| {
        claim(&mut rivals[at], kinds[at], b"waited for", 0, false);
        rivals[at].receive().granted().id
    });
    lease.begins();
    let mut session = SessionRequest::New { lease_ms: lease.ms() };
    let mut lanes = kinds.map(|kind| {
        let mut lane = server.stranger();
        let welcome = lane.open(Hello { session, ..hello_of(kind, "session") });
        session = SessionRequest::Join { id: welcome.session_id };
        claim(&mut lane, kind, b"held", 0, true);
        assert_eq!(lane.receive().granted().fence, if kind == NamespaceKind::Tree { 2 } else { 1 });
        claim(&mut lane, kind, b"waited for", WAIT_FOREVER_MS, true);
        lane
    });
    for (rival, kind) in rivals.iter_mut().zip(kinds) {
        claim(rival, kind, b"held", WAIT_FOREVER_MS, false);
    }
    lease.is_over();
    for at in 0..kinds.len() {
        let kind = kinds[at];
        assert_eq!(lanes[at].receive().event(), Event::SessionExpired, "{kind:?}");
        assert_eq!(rivals[at].receive().granted().fence, if kind == NamespaceKind::Tree { 3 } else { 2 });
        rivals[at].release(held[at]);
        claim(&mut rivals[at], kind, b"waited for", 0, false);
        rivals[at].receive().granted();
        claim(&mut lanes[at], kind, b"another", 0, false);
        assert_eq!(
            lanes[at].receive().error().code,
            ErrorCode::SessionGone,
            "{kind:?}: told once, then gone"
        );
    }
}

#[test]
fn a_repeated_request_gets_the_first_answer_and_has_no_second_effect() {
    let server = Server::start(&["--workers", "3"]);
    let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 0 });
    let acquire = Request::Acquire(Acquire { key: b"key", ..Acquire::default() });
    client.send_numbered(100, acquire);
    let granted = client.receive().granted();
    client.send_numbered(101, Request::Release(Release { id: granted.id, key: None, own: false }));
    assert!(matches!(client.receive().response(), Response::Released(_)));
    drop(client);
    let (mut client, again) = server.session_client(resume(&welcome));
    assert!(again.resumed);
    assert_eq!((again.session_id, again.lane), (welcome.session_id, welcome.lane));
    client.send_numbered(100, acquire);
    assert_eq!(client.receive().granted(), granted, "the same grant");
    client.send_numbered(101, Request::Release(Release { id: granted.id, key: None, own: false }));
    assert!(matches!(client.receive().response(), Response::Released(_)), "and the same release");
    client.send_numbered(102, acquire);
    assert_eq!(client.receive().granted().fence, 2, "the key was granted once before");
}

#[test]
fn resuming_closes_the_old_connection_and_keeps_the_holds() {
    let server = Server::start(&["--workers", "2"]);
    let (mut old, welcome) = server.session_client(SessionRequest::New { lease_ms: 0 });
    let granted = old.ask(on_session_lease(b"key")).granted();
    let (mut new, _) = server.session_client(resume(&welcome));
    assert!(old.try_receive().is_none(), "the old connection is closed");
    new.send_numbered(100, Request::Release(Release { id: granted.id, key: None, own: false }));
    assert!(matches!(new.receive().response(), Response::Released(_)));
}

#[test]
fn a_waiter_lost_with_its_connection_is_a_new_attempt_when_repeated() {
    let server = Server::start(&[]);
    let mut holder = server.client("holder");
    let held = holder.acquire(b"key", 0);
    let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 0 });
    let number = client.wait_for(b"key", 600_000);
    let (mut client, _) = server.session_client(resume(&welcome));
    let acquire = Acquire {
        key: b"key",
        terms: AcquireTerms { wait_ms: 600_000, notify_queued: true, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    client.send_numbered(number, Request::Acquire(acquire));
    assert!(matches!(client.receive().event(), Event::Queued { position: 0, .. }));
    holder.release(held.id);
    assert_eq!(client.receive().granted().fence, 2);
}

#[test]
fn any_connection_of_a_session_keeps_it_alive() {
    with_short_lease(400, |lease| {
        let server = Server::start(&["--workers", "4"]);
        lease.begins();
        let (mut first, welcome) = server.session_client(SessionRequest::New { lease_ms: lease.ms() });
        let (mut second, joined) = server.session_client(SessionRequest::Join { id: welcome.session_id });
        let places = (joined.session_id, joined.lane, joined.worker);
        assert_eq!(places, (welcome.session_id, 1, welcome.worker));
        first.ask(on_session_lease(b"key")).granted();
        keep_alive_for_three_leases(&mut second, lease, |_| {});
        let answer = second.ask(on_session_lease(b"key"));
        assert_eq!(answer.error().code, ErrorCode::Busy, "the hold of the first connection lives");
    });
}

#[test]
fn goodbye_ends_the_session_at_once() {
    let server = Server::start(&[]);
    let (mut client, _) = server.session_client(SessionRequest::New { lease_ms: 0 });
    client.ask(on_session_lease(b"key")).granted();
    assert!(matches!(client.ask(Request::Goodbye(Goodbye)).response(), Response::Farewell(_)));
    assert!(client.try_receive().is_none(), "the server closes");
    assert_eq!(server.client("other").acquire(b"key", 0).fence, 2);
}

#[test]
fn a_session_lease_needs_a_session() {
    let server = Server::start(&[]);
    let mut client = server.client("a");
    let answer = client.ask(on_session_lease(b"key"));
    assert_eq!(answer.error().code, ErrorCode::BadInput);
}

/// Its client gave it up and came back on another connection, which was faster.
#[test]
fn a_late_resume_attempt_does_not_take_over_the_lane() {
    let server = Server::start(&["--workers", "3"]);
    let (client, welcome) = server.session_client(SessionRequest::New { lease_ms: 0 });
    drop(client);
    let hello = |attempt| Hello { session: resume(&welcome), attempt: Some(attempt), ..default_hello() };
    let mut second = server.stranger();
    assert!(second.open(hello(2)).resumed);
    for late in [1, 2] {
        let mut first = server.stranger();
        let answer = first.ask(Request::Hello(hello(late)));
        assert_eq!(answer.refusal(), (ErrorCode::Cancelled, "attempt", 2));
        assert!(first.try_receive().is_none(), "the connection is closed");
    }
    assert!(matches!(second.ask(Request::KeepAlive(KeepAlive)).response(), Response::KeptAlive(_)));
    assert!(server.stranger().open(hello(3)).resumed);
    assert!(second.try_receive().is_none(), "its lane was taken up");
    let says_nothing = Hello { attempt: None, ..hello(0) };
    assert!(server.stranger().open(says_nothing).resumed, "it may be another client, which counts nothing");
}

/// Their greetings waited in sockets that the server had not even accepted.
#[test]
fn a_session_resumed_in_time_during_a_server_stall_survives() {
    for workers in ["1", "3"] {
        with_short_lease(500, |lease| {
            let server = Server::start(&["--workers", workers]);
            lease.begins();
            let new = SessionRequest::New { lease_ms: lease.ms() };
            let welcomes: Vec<Welcome> = (0..8).map(|_| server.session_client(new).1).collect();
            server.pause();
            lease.is_over();
            let mut returning: Vec<_> = welcomes
                .iter()
                .map(|welcome| {
                    let mut client = server.stranger();
                    let session = resume(welcome);
                    client.send(Request::Hello(Hello { session, ..default_hello() }));
                    client
                })
                .collect();
            std::thread::sleep(lease.length() * 3 / 2);
            server.resume();
            for client in &mut returning {
                let answer = client.receive();
                let Response::Welcome(welcome) = answer.response() else { panic!("{:?}", answer.response()) };
                assert!(welcome.resumed);
            }
        });
    }
}

/// The connection is lost after every byte of a request, and after every byte of its answer. What was read of the answer is
/// how the answer begins that comes to the repetition, and nothing happens twice.
#[test]
fn a_request_cut_at_any_byte_and_repeated_has_one_effect() {
    for server in each_size() {
        let mut other = server.client("other");
        let mut case_count = 0_u32;
        for what in ["acquire", "release", "acquire keys"] {
            let mut cut = Cut { request: 0, answer: 0 };
            let mut answer_len = 0;
            while cut.answer <= answer_len {
                case_count += 1;
                let [one, two] = [0, 1].map(|last| [&case_count.to_be_bytes()[..], &[last]].concat());
                let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 0 });
                let held = (what == "release").then(|| client.ask(on_session_lease(&one)).granted());
                let mut buffer = Vec::new();
                let items = [&one, &two].map(|key| KeyItem { key, shared: false });
                let items = Items::new(items, &mut buffer).unwrap();
                let request = match &held {
                    Some(held) => Request::Release(Release { id: held.id, key: None, own: false }),
                    None if what == "acquire" => on_session_lease(&one),
                    None => Request::AcquireKeys(AcquireKeys {
                        items,
                        terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
                    }),
                };
                let mut bytes = Vec::new();
                request.encode(7, &mut bytes);

                client.write(&bytes[..cut.request]);
                let mut begun = vec![0; cut.answer];
                client.socket.read_exact(&mut begun).unwrap();
                drop(client);
                let (mut client, _) = server.session_client(resume(&welcome));
                client.send_numbered(7, request);
                let answer = client.receive();
                assert!(answer.bytes().starts_with(&begun), "{what} cut at {cut:?}: another answer");
                client.send_numbered(7, request);
                assert_eq!(client.receive().bytes(), answer.bytes(), "{what} cut at {cut:?}: another answer");
                answer_len = answer.bytes().len();

                let ids: Vec<LockId> = match answer.response() {
                    Response::Granted(granted) => vec![granted.id],
                    Response::GrantedKeys(granted) => granted.keys.iter().map(|key| key.id).collect(),
                    Response::Released(_) => vec![],
                    other => panic!("{what} cut at {cut:?}: {other:?}"),
                };
                let mut holders = Vec::new();
                for (key, fence) in [(&one, 1), (&two, u64::from(what == "acquire keys"))] {
                    let inspected = other.ask(Request::Inspect(Inspect { key }));
                    let Response::Inspected(inspected) = inspected.response() else { panic!() };
                    assert_eq!(
                        (inspected.fence, inspected.waiter_count),
                        (fence, 0),
                        "{what} cut at {cut:?}"
                    );
                    holders.extend(inspected.holders.iter().map(|holder| holder.id));
                }
                assert_eq!(holders, ids, "{what} cut at {cut:?}");
                // First through the request; once all of it is sent, through the answer.
                *(if cut.request < bytes.len() { &mut cut.request } else { &mut cut.answer }) += 1;
            }
        }
        assert!(case_count > 200);
    }
}

/// How many bytes of a request were sent, and of its answer read, before the connection was lost.
#[derive(Clone, Copy, Debug)]
struct Cut {
    request: usize,
    answer: usize,
}
