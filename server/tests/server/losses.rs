//! Damage to the log that an operator accepted: fences never go back and no lost hold is given away early, whenever the
//! server is stopped and started again.

use crate::durable::{Place, local};
use crate::harness::{Server, refused, wait_for, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;
use waymaker_log::{Losses, Superblock};
use waymaker_protocol::{Acquire, ErrorCode, Extend, LockId, Request, Response, SessionRequest, Welcome};

/// The longest lease that the server ever granted.
const LEASE_MS: u32 = 3_000;
/// The same as the superblock rounds it up.
const WAIT_MS: u64 = 4_096;
const BLOCK_LEN: u64 = 4_096;
const FENCES: u64 = 12;

fn log_options<'a>() -> [&'a str; 4] {
    ["--workers", "1", "--http-listen", "127.0.0.1:0"]
}

/// The number of the request that got the hold in `leave_damage`.
const HELD_NUMBER: u32 = 77;

fn acquire_held() -> Request<'static> {
    Request::Acquire(local(b"held").with_terms(|terms| terms.lease_ms = LEASE_MS))
}

/// Leaves a log in which a hold is whole and the newest counters of another key are damaged. Returns the hold and its session.
pub(crate) fn leave_damage(place: &Place) -> (LockId, Welcome) {
    let server = place.start(&log_options());
    let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: LEASE_MS });
    client.send_numbered(HELD_NUMBER, acquire_held());
    let held = client.receive().granted();
    for fence in 1..=FENCES {
        let granted = client
            .ask(Request::Acquire(local(b"key").with_terms(|terms| terms.lease_ms = LEASE_MS)))
            .granted();
        assert_eq!(granted.fence, fence);
        client.release(granted.id);
    }
    // The frame of the next grant says that those before it were durable.
    client.ask(Request::Acquire(local(b"last").with_terms(|terms| terms.lease_ms = LEASE_MS))).granted();
    server.signal("KILL");
    drop(server);
    let segment = Path::new(&place.path()).join("segment-0000000000000001");
    let file = std::fs::File::options().write(true).open(segment).expect("the first segment");
    // Each grant has a frame of one block, behind the head of the segment and the frames of the start.
    file.write_all_at(b"damage", 8 * BLOCK_LEN + 100).expect("a disk");
    (held.id, welcome)
}

/// Returns the losses in the superblock.
fn losses(place: &Place) -> Option<Losses> {
    let bytes = std::fs::read(Path::new(&place.path()).join("superblock")).expect("a superblock");
    Superblock::decode_file(&bytes).expect("a whole copy").0.losses
}

fn ready_state(server: &Server) -> String {
    let mut socket = TcpStream::connect(server.address("http")).expect("the HTTP port");
    socket
        .write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .expect("a socket");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Asserts that new grants are refused with the time that is left, while restored holds are served.
fn assert_recovering(server: &Server, held: LockId) -> u64 {
    let mut client = server.client("first");
    let acquire = |key| Request::Acquire(local(key).with_terms(|terms| terms.lease_ms = LEASE_MS));
    let refused = client.ask(acquire(b"key"));
    let (code, _, remaining_ms) = refused.refusal();
    assert_eq!(code, ErrorCode::Recovering);
    assert!((1..=WAIT_MS).contains(&remaining_ms), "{remaining_ms} ms");
    let ephemeral = Request::Acquire(Acquire { key: b"other", ..Acquire::default() });
    assert_eq!(client.ask(ephemeral).refusal().0, ErrorCode::Recovering);
    let extended =
        client.ask(Request::Extend(Extend { id: held, key: None, lease_ms: LEASE_MS, own: false }));
    assert!(matches!(extended.response(), Response::Extended(_)), "{extended:?}");
    let ready = ready_state(server);
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(ready.contains("recovering: holds may have been lost; grants resume in"), "{ready}");
    remaining_ms
}

#[test]
fn a_server_stopped_while_recovering_from_losses_recovers_again() {
    let place = Place::new();
    let (held, _) = leave_damage(&place);
    let (status, said) = refused(&["--data-dir", &place.path()]);
    assert_eq!(status.code(), Some(1), "{said}");
    for (more, signal) in [(&["--accept-damage"][..], "KILL"), (&[], "TERM"), (&[], "KILL")] {
        let mut server = place.start(&[&log_options()[..], more].concat());
        assert_recovering(&server, held);
        server.signal(signal);
        server.wait();
    }
    let server = place.start(&log_options());
    let begin = Instant::now();
    let remaining_ms = assert_recovering(&server, held);
    let mut client = server.client("first");
    client.release(held);
    let granted = wait_for("a grant", || {
        let answer =
            client.ask(Request::Acquire(local(b"key").with_terms(|terms| terms.lease_ms = LEASE_MS)));
        match answer.response() {
            Response::Granted(granted) => Some(granted),
            Response::Error(error) => {
                assert_eq!(error.code, ErrorCode::Recovering);
                None
            }
            other => panic!("{other:?}"),
        }
    });
    let took_ms = begin.elapsed().as_millis() as u64;
    assert!(took_ms + 1 >= remaining_ms, "granted after {took_ms} ms of {remaining_ms}");
    assert!(granted.fence > FENCES, "fence {}", granted.fence);
    assert!(ready_state(&server).starts_with("HTTP/1.1 200"));
    wait_until("the superblock without losses", || losses(&place).is_none());
    drop(server);
    let server = place.start(&log_options());
    assert!(ready_state(&server).starts_with("HTTP/1.1 200"));
}

/// A lost record may have ended the hold, and another may have granted its key to a client that still believes in that grant.
#[test]
fn a_request_repeated_after_losses_gets_no_restored_hold() {
    let place = Place::new();
    let (_, welcome) = leave_damage(&place);
    let server = place.start(&[&log_options()[..], &["--accept-damage"]].concat());
    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (mut client, again) = server.session_client(resume);
    assert!(again.resumed);
    client.send_numbered(HELD_NUMBER, acquire_held());
    assert_eq!(client.receive().error().code, ErrorCode::Recovering);
}
