//! The binary protocol, with requests without end.

use super::bystander::{Delay, assert_abuse_delays};
use super::fill::{Unsent, skip_input};
use super::server;
use waymaker_protocol::{KeepAlive, Request};

#[test]
fn requests_without_end_are_not_noticed() {
    let server = server();
    let client = server.client("flood");
    let mut requests = Vec::new();
    for number in 1..5_000 {
        Request::KeepAlive(KeepAlive).encode(number, &mut requests);
    }
    let mut unsent = Unsent::default();
    assert_abuse_delays(&server, Delay::of_calls(450, 700), || {
        skip_input(&client.socket);
        assert!(unsent.fill(&client.socket, || requests.clone()), "the flood is not cut");
    });
}
