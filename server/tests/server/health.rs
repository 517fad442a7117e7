//! `/healthz`, `/readyz` and the gRPC health of a server that is ready, degraded, recovering or stopping.

use crate::durable::Place;
use crate::harness::{Server, WATCHDOG, wait_for, wait_until};
use crate::locktopus::{http, parts};
use crate::losses::leave_damage;
use serde_json::{Value, json};
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const HTTP: [&str; 2] = ["--http-listen", "127.0.0.1:0"];

/// Returns the status and the JSON of a path.
fn asked(server: &Server, path: &str) -> (u16, Value) {
    let answer = http(server, "http", &format!("GET {path}\nAccept: application/json"));
    let (status, head, body) = parts(&answer);
    assert!(head.contains("content-type: application/json\r\n"), "{answer}");
    (status, serde_json::from_str(body).expect("JSON"))
}

#[test]
fn a_ready_server_has_no_reasons_as_text_and_as_json() {
    let server = Server::start(&HTTP);
    assert_eq!(asked(&server, "/healthz"), (200, json!({"status": "ok"})));
    assert_eq!(asked(&server, "/readyz"), (200, json!({"status": "ready", "reasons": []})));
    for path in ["/healthz", "/readyz"] {
        assert_eq!(parts(&http(&server, "http", &format!("GET {path}"))).2, "ok");
        assert!(parts(&http(&server, "http", &format!("GET {path}?format=json"))).2.starts_with('{'));
    }
}

/// A load balancer that removed this server would cut off the holders.
#[test]
fn a_server_at_its_memory_limit_is_degraded_but_ready() {
    let server = Server::start(&[&HTTP[..], &["--memory-limit", "1MiB", "--workers", "1"]].concat());
    let (status, readiness) = wait_for("the memory limit", || {
        let (status, readiness) = asked(&server, "/readyz");
        (readiness["status"] != "ready").then_some((status, readiness))
    });
    assert_eq!((status, &readiness["status"]), (200, &json!("degraded")));
    assert_eq!(readiness["reasons"][0]["code"], "memory_full");
    assert_eq!(readiness["reasons"][0]["remaining_ms"], Value::Null);
    let text = http(&server, "http", "GET /readyz");
    assert!(parts(&text).2.starts_with("degraded\nmemory_full: "), "{text}");
}

#[test]
fn every_protocol_reports_a_recovering_server_and_its_recovery() {
    let place = Place::new();
    leave_damage(&place);
    let options = ["--workers", "1", "--grpc-listen", "127.0.0.1:0", "--accept-damage"];
    let server = place.start(&[&options[..], &HTTP].concat());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut watch = runtime.block_on(async {
        let url = format!("http://{}", server.address("grpc"));
        let channel = Endpoint::from_shared(url).expect("a URL").connect().await.expect("the server accepts");
        let mut health = HealthClient::new(channel);
        health.watch(HealthCheckRequest::default()).await.expect("a watch").into_inner()
    });
    let mut next = || {
        let message = runtime.block_on(async { tokio::time::timeout(WATCHDOG, watch.message()).await });
        message.expect("a status in time").expect("a stream").expect("a status").status()
    };
    assert_eq!(next(), ServingStatus::NotServing);
    let (status, readiness) = asked(&server, "/readyz");
    assert_eq!((status, &readiness["status"]), (503, &json!("not_ready")));
    let reason = &readiness["reasons"][0];
    assert_eq!(reason["code"], "recovering");
    let remaining_ms = reason["remaining_ms"].as_u64().expect("a time");
    assert!(remaining_ms > 0, "{reason}");
    let answer = http(&server, "http", "GET /readyz");
    assert!(parts(&answer).1.contains("retry-after: "), "{answer}");
    assert_eq!(asked(&server, "/healthz").0, 200);
    assert_eq!(next(), ServingStatus::Serving);
    wait_until("a ready server", || {
        asked(&server, "/readyz") == (200, json!({"status": "ready", "reasons": []}))
    });
}
