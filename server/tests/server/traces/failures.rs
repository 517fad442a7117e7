//! Collectors that are away, stalled or back again, and a server that stops.

use super::collector::{Collector, free_address, url};
use super::{acquire, attributes, client_of, expected, queue, server_of};
use crate::addresses::get;
use crate::harness::{Server, wait_for, wait_until};
use waymaker_protocol::ErrorCode;

const HTTP: [&str; 2] = ["--http-listen", "127.0.0.1:0"];
/// More than the server keeps.
const MANY: usize = 10_000;
/// Largest number of spans that the server keeps: the queue, and a batch on its way.
const KEPT: f64 = 8_192.0 + 512.0;

/// Returns the number of spans with this outcome.
fn count(server: &Server, outcome: &str) -> f64 {
    let series = format!("waymaker_trace_spans_total{{outcome=\"{outcome}\"}} ");
    let page = get(server, "/metrics");
    let value = page.lines().find_map(|line| line.strip_prefix(series.as_str()));
    value.unwrap_or_else(|| panic!("no {series}")).parse().unwrap()
}

/// Sends very many traced acquires of a held key, and waits for the answers.
fn flood(server: &Server) {
    let mut holder = client_of(server);
    holder.acquire(b"key", 600_000);
    let mut client = client_of(server);
    for _ in 0..MANY / 500 {
        for _ in 0..500 {
            client.send(acquire(b"key", 0));
        }
        for _ in 0..500 {
            assert_eq!(client.receive().error().code, ErrorCode::Busy);
        }
    }
}

#[test]
fn spans_are_dropped_while_the_collector_is_away_and_exported_once_it_is_back() {
    let address = free_address();
    let server = Server::start(&[&["--otlp-endpoint", &url(address)], &HTTP[..]].concat());
    let mut client = client_of(&server);
    client.ask(acquire(b"lost", 0)).granted();
    wait_until("a dropped span", || count(&server, "dropped") == 1.0);
    flood(&server);
    wait_until("more dropped spans", || count(&server, "dropped") > 1.0);
    assert_eq!(count(&server, "exported"), 0.0);
    let collector = Collector::start_at(address, false);
    collector.wait_for_spans(1);
    wait_until("an exported span", || count(&server, "exported") >= 1.0);
    let exported = wait_for("a span after the others", || {
        let answer = client.ask(acquire(b"lost", 0));
        assert_eq!(answer.error().code, ErrorCode::Busy);
        collector.spans().into_iter().find(|span| attributes(span)[3] == "waymaker.key=lost")
    });
    assert!(!exported.span_id.is_empty());
}

#[test]
fn a_stalled_collector_delays_no_acquire_and_the_server_keeps_a_bounded_number_of_spans() {
    let collector = Collector::start_stalled();
    let server = server_of(&collector, &HTTP);
    let mut client = client_of(&server);
    client.ask(acquire(b"first", 0)).granted();
    wait_until("a batch that is not answered", || !collector.requests().is_empty());
    flood(&server);
    assert_eq!(count(&server, "exported"), 0.0);
    assert!(count(&server, "dropped") >= MANY as f64 + 1.0 - KEPT, "{}", count(&server, "dropped"));
}

/// The span ends because the server stops. The thread looks at its queue rarely, so it is not likely to find the span before it has to
/// stop, and several servers show whether it looks again then.
#[test]
fn a_server_that_stops_exports_the_last_spans() {
    for _ in 0..5 {
        let collector = Collector::start();
        let mut server = server_of(&collector, &["--drain", "1h"]);
        let mut holder = client_of(&server);
        holder.acquire(b"key", 600_000);
        let mut waiter = client_of(&server);
        queue(&mut waiter, b"key");
        server.signal("TERM");
        assert_eq!(waiter.receive().error().code, ErrorCode::Shutdown);
        // The server waits a while for the end of connections.
        drop((waiter, holder));
        server.signal("TERM");
        assert!(server.wait().success());
        let spans = collector.spans();
        let [span] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!(attributes(span), expected("key", &["waymaker.result=refused", "error.type=shutdown"]));
    }
}

#[test]
fn a_server_stops_although_the_collector_is_stalled() {
    let collector = Collector::start_stalled();
    let mut server = server_of(&collector, &["--drain", "0s"]);
    let mut client = client_of(&server);
    client.ask(acquire(b"key", 0)).granted();
    wait_until("a batch that is not answered", || !collector.requests().is_empty());
    server.signal("TERM");
    assert!(server.wait().success());
}
