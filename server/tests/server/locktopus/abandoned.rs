//! What becomes of a lock whose connection is lost.

use super::client::{Locker, PING_INTERVAL, each_size, server};
use crate::harness::assert_not_early;
use std::time::{Duration, Instant};
use tokio_tungstenite::tungstenite::protocol::Message;

/// Longer than any test may take.
const LONG: &str = "namespace=test&abandon-timeout-ms=600000";

#[test]
fn a_lock_is_kept_for_the_abandon_timeout_of_its_connection() {
    for server in each_size() {
        let mut locker = Locker::connect_with(&server, "namespace=test&abandon-timeout-ms=300");
        locker.take("W a");
        let mut waiter = Locker::connect(&server, "test");
        waiter.queue("W a");
        let begin = Instant::now();
        locker.close(Some((1000, "")));
        waiter.acquire();
        assert_not_early(begin, Duration::from_millis(300));
    }
}

#[test]
fn a_lost_connection_is_treated_like_a_closed_connection() {
    let server = server(&[]);
    let mut locker = Locker::connect_with(&server, "namespace=test&abandon-timeout-ms=300");
    locker.take("W a");
    let mut waiter = Locker::connect(&server, "test");
    waiter.queue("W a");
    let begin = Instant::now();
    drop(locker);
    waiter.acquire();
    assert_not_early(begin, Duration::from_millis(300));
}

#[test]
fn a_client_that_answers_no_pings_is_disconnected() {
    let server = server(&[]);
    let begin = Instant::now();
    // After two pings without an answer the server gives up when the third is due.
    let limit = 3 * PING_INTERVAL;
    // It reads nothing from here on, so it answers nothing.
    let mut silent = Locker::connect_with(&server, "namespace=test&abandon-timeout-ms=0");
    silent.take("W a");
    let mut waiter = Locker::connect(&server, "test");
    waiter.queue("W a");
    let mut witness = server.witness(2 * limit);
    loop {
        match waiter.read_before(&mut witness, "the end of a client that answers no pings") {
            Message::Ping(_) => {}
            message => {
                assert!(message.into_text().is_ok_and(|text| text.contains("acquired")));
                break;
            }
        }
    }
    assert_not_early(begin, limit);
}

#[test]
fn a_zero_abandon_timeout_releases_at_once() {
    let server = server(&["--locktopus-abandon-timeout", "10m"]);
    let mut locker = Locker::connect_with(&server, "namespace=test&abandon-timeout-ms=0");
    locker.take("W a");
    let mut waiter = Locker::connect(&server, "test");
    waiter.queue("W a");
    locker.close(None);
    waiter.acquire();
}

#[test]
fn the_abandon_timeout_of_the_server_applies_if_the_connection_has_none() {
    let server = server(&["--locktopus-abandon-timeout", "300ms"]);
    let mut locker = Locker::connect(&server, "test");
    locker.take("W a");
    let mut waiter = Locker::connect(&server, "test");
    waiter.queue("W a");
    let begin = Instant::now();
    locker.close(None);
    waiter.acquire();
    assert_not_early(begin, Duration::from_millis(300));
}

#[test]
fn a_released_lock_is_not_kept_after_the_connection_closes() {
    for server in each_size() {
        let mut locker = Locker::connect_with(&server, LONG);
        locker.take("W a");
        locker.release();
        locker.close(Some((1000, "close")));
        Locker::connect(&server, "test").take("W a");
    }
}

#[test]
fn a_queue_position_is_lost_at_once_with_its_connection() {
    for server in each_size() {
        let [mut reader, mut other] = ["test"; 2].map(|namespace| Locker::connect(&server, namespace));
        let mut writer = Locker::connect_with(&server, LONG);
        reader.take("R a");
        writer.queue("W a");
        other.queue("R a");
        writer.close(Some((1000, "")));
        other.acquire();
    }
}

#[test]
fn a_reconnect_does_not_restore_the_lock() {
    let server = server(&[]);
    let mut locker = Locker::connect_with(&server, LONG);
    locker.take("W a");
    locker.close(None);
    let mut again = Locker::connect_with(&server, LONG);
    assert!(!again.is_free("W a"));
    assert!(again.is_free("W b"));
}

#[test]
fn unknown_parameters_are_ignored() {
    let server = server(&[]);
    // As a client of the original sends them that took the one for the other.
    let mut locker = Locker::connect_with(&server, "abandon-timeout-ms=1000&v1_namespace=1&namespace=test");
    locker.take("W a");
}
