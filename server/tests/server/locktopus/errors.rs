//! How connections end.

use super::client::{Ended, Locker, PING_INTERVAL, broken, server, socket};
use crate::harness::assert_not_early;
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use tokio_tungstenite::tungstenite::protocol::Message;

#[test]
fn an_invalid_message_is_explained_and_closed_with_3000() {
    let server = server(&[]);
    for (text, detail) in [
        ("", "unexpected EOF"),
        (" \n", "unexpected EOF"),
        (r#"{"action":"lo"#, "unexpected EOF"),
        ("{}", "invalid action: "),
        ("null", "invalid action: "),
        (r#"{"action":"Lock"}"#, "invalid action: Lock"),
        (r#"{"action":"unlock"}"#, "invalid action: unlock"),
        (r#"{"action":"release"}"#, "invalid action [release] in state [ready]"),
        (
            r#"{"action":"lock","resources":[{"path":["a"]}]}"#,
            "cannot build resource lock: invalid lock type: ",
        ),
        (
            r#"{"action":"lock","resources":[{"type":"x","path":["a"]}]}"#,
            "cannot build resource lock: invalid lock type: x",
        ),
    ] {
        let mut locker = Locker::connect(&server, "test");
        locker.send(text);
        assert_eq!(locker.ended(), broken(detail), "{text:?}");
    }
    for text in ["x", "[]", r#"{"action":1}"#, r#"{"action":"lock","resources":5}"#] {
        let mut locker = Locker::connect(&server, "test");
        locker.send(text);
        let ended = locker.ended();
        assert!(ended.text.is_some_and(|text| text.starts_with("communication error: ")), "{text}");
        assert_eq!(ended.close, Some((3000, String::new())), "{text}");
    }
}

#[test]
fn an_error_is_sent_at_once_and_the_lock_kept_until_the_timeout() {
    let server = server(&[]);
    // The first timeout never ends during the test, so the error does not wait for it.
    for timeout_ms in [3_600_000, 300] {
        let namespace = timeout_ms.to_string();
        let parameters = format!("namespace={namespace}&abandon-timeout-ms={timeout_ms}");
        let mut locker = Locker::connect_with(&server, &parameters);
        locker.take("W a");
        let mut waiter = Locker::connect(&server, &namespace);
        waiter.queue("W a");
        let begin = Instant::now();
        locker.send("x");
        assert_eq!(locker.ended().close, Some((3000, String::new())));
        if timeout_ms > 300 {
            waiter.expect_nothing();
        } else {
            waiter.acquire();
            assert_not_early(begin, Duration::from_millis(timeout_ms));
        }
    }
}

#[test]
fn the_close_code_of_a_client_is_echoed_without_a_reason() {
    let server = server(&[]);
    for (sent, received) in [
        (Some((1000, "close")), Some((1000, String::new()))),
        (Some((3000, "I do not understand")), Some((3000, String::new()))),
        (None, None),
    ] {
        let mut locker = Locker::connect(&server, "test");
        locker.take("R a");
        assert_eq!(locker.close(sent), Ended { text: None, close: received });
    }
}

#[test]
fn the_server_closes_the_connection_without_waiting_for_the_timeout() {
    let server = server(&[]);
    let mut locker = Locker::connect_with(&server, "namespace=test&abandon-timeout-ms=3600000");
    locker.take("W a");
    locker.socket.close(None).expect("the server reads");
    while locker.read_any().is_ok() {}
    let mut rest = Vec::new();
    assert_eq!(locker.socket.get_mut().read_to_end(&mut rest).expect("the end of the connection"), 0);
}

#[test]
fn pings_are_answered_and_idle_connections_are_pinged() {
    let server = server(&[]);
    let begin = Instant::now();
    let mut locker = Locker::connect(&server, "test");
    locker.expect_nothing();
    let mut witness = server.witness(2 * PING_INTERVAL);
    let message = locker.read_before(&mut witness, "a ping");
    assert!(matches!(message, Message::Ping(_)), "nothing else is said unasked: {message:?}");
    assert_not_early(begin, PING_INTERVAL);
    locker.take("W a");
}

#[test]
fn frames_that_break_the_protocol_end_the_connection() {
    let server = server(&[]);
    // Reserved bits, an unknown opcode, a fragment of nothing, text that is no UTF-8.
    for (frame, code) in [
        (&[0xf1, 0x80, 0, 0, 0, 0][..], 1002),
        (&[0x83, 0x80, 0, 0, 0, 0], 1002),
        (&[0x80, 0x80, 0, 0, 0, 0], 1002),
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff], 1007),
    ] {
        let mut locker = Locker::connect(&server, "test");
        locker.socket.get_mut().write_all(frame).expect("the server reads");
        assert_eq!(locker.ended(), Ended { text: None, close: Some((code, String::new())) }, "{frame:x?}");
    }
}

#[test]
fn a_silent_connection_is_closed() {
    let server = server(&[]);
    for mut socket in ["http", "locktopus"].map(|port| socket(&server, port)) {
        let mut rest = Vec::new();
        // An answer that says why is as good.
        socket.read_to_end(&mut rest).expect("the server closes it");
    }
}

#[test]
fn a_stopping_server_closes_waiters_with_1001_and_lets_holders_finish() {
    let mut server = server(&["--drain", "1h"]);
    let [mut holder, mut waiter, mut idle] = ["test"; 3].map(|namespace| Locker::connect(&server, namespace));
    holder.take("W a");
    waiter.queue("W a");
    server.signal("TERM");
    let going_away = || Ended { text: None, close: Some((1001, String::new())) };
    assert_eq!(waiter.ended(), going_away());
    idle.send_lock("W b");
    assert_eq!(idle.ended(), going_away());
    holder.release();
    assert!(server.wait().success());
    assert_eq!(holder.ended(), going_away());
}
