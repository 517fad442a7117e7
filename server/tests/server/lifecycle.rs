//! How a server ends.

use crate::harness::{Server, command};
use waymaker_protocol::{Acquire, ErrorCode, Request};

#[test]
fn a_draining_server_refuses_waiters_and_exits_when_nothing_is_held() {
    let mut server = Server::start(&["--workers", "2", "--drain", "1h"]);
    let (mut holder, mut waiter) = (server.client("a"), server.client("b"));
    let held = holder.acquire(b"key", 600_000);
    waiter.wait_for(b"key", 600_000);
    server.signal("TERM");
    assert_eq!(waiter.receive().error().code, ErrorCode::Shutdown);
    let answer = waiter.ask(Request::Acquire(Acquire { key: b"another", ..Acquire::default() }));
    assert_eq!(answer.error().code, ErrorCode::Shutdown);
    holder.release(held.id);
    assert!(server.wait().success());
}

#[test]
fn a_drain_ends_at_its_time_limit_even_if_a_lock_is_held() {
    let mut server = Server::start(&["--drain", "200ms"]);
    let mut holder = server.client("a");
    holder.acquire(b"key", 600_000);
    server.signal("TERM");
    assert!(server.wait().success());
    assert!(holder.try_receive().is_none(), "the connection is closed");
}

#[test]
fn a_second_signal_ends_the_drain() {
    let mut server = Server::start(&["--drain", "1h"]);
    let (mut holder, mut waiter) = (server.client("a"), server.client("b"));
    holder.acquire(b"key", 600_000);
    waiter.wait_for(b"key", 600_000);
    server.signal("TERM");
    assert_eq!(waiter.receive().error().code, ErrorCode::Shutdown);
    server.signal("TERM");
    assert!(server.wait().success());
}

#[test]
fn an_idle_server_stops_at_once() {
    let mut server = Server::start(&["--drain", "1h"]);
    server.signal("INT");
    assert!(server.wait().success());
}

#[test]
fn a_log_written_to_a_file_has_no_colours() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut command = command(&[]);
    command.stderr(log.reopen().expect("a file"));
    let mut server = Server::start_with(&mut command, None);
    server.signal("TERM");
    assert!(server.wait().success());
    let text = std::fs::read_to_string(log.path()).expect("text");
    assert!(text.contains("draining") && !text.contains('\x1b'), "{text:?}");
}
