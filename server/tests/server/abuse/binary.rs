//! The binary protocol, with requests without end.

use super::bystander::{Delay, assert_abuse_delays, assert_idle_delays};
use super::fill::{Unsent, skip_input};
use super::server;
use crate::harness::Server;
use std::panic::{AssertUnwindSafe, catch_unwind};
use waymaker_protocol::{KeepAlive, Request};

/// Attempts to see a flood.
const ATTEMPTS_MAX: usize = 5;

#[test]
fn endless_requests_barely_delay_other_clients() {
    assert_flood_delays(&server(), Delay::of_calls(40, 60));
}

/// Shows that the measurement finds no delay without a flood.
#[test]
fn without_a_flood_nobody_is_delayed_by_a_call() {
    assert_idle_delays(&server(), Delay::of_all_kinds(1, 4));
}

/// Shows that the measurement sees a flood: a request waits for the flood in front of it. Other processes can make the
/// unit of the bound (the work of one call) so slow that an attempt sees no delay.
#[test]
fn a_flood_delays_others_by_more_than_a_call() {
    let server = server();
    let sees_the_flood = || {
        let judged = catch_unwind(AssertUnwindSafe(|| {
            assert_flood_delays(&server, Delay::of_all_kinds(1, 10_000));
        }));
        let Err(message) = judged else { return false };
        let message: &String = message.downcast_ref().expect("text");
        assert!(message.starts_with("other work before a request"), "{message}");
        true
    };
    assert!((0..ATTEMPTS_MAX).any(|_| sees_the_flood()), "the delay is above the bound");
}

fn assert_flood_delays(server: &Server, most: Delay) {
    let client = server.client("flood");
    let mut requests = Vec::new();
    for number in 1..5_000 {
        Request::KeepAlive(KeepAlive).encode(number, &mut requests);
    }
    let mut unsent = Unsent::default();
    assert_abuse_delays(server, most, || {
        skip_input(&client.socket);
        assert!(unsent.fill(&client.socket, || requests.clone()), "the flood is not cut");
    });
}
