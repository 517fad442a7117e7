//! `server status` of servers that are not ready, or too old to report it. The exit code is for scripts and health checks.

use serde_json::{Value, json};

use crate::fake::FakeServer;
use crate::program::{ctl, output, stderr, stdout};

fn object(server: &FakeServer) -> (Option<i32>, Value) {
    let status = output(ctl(server.url(), &["server", "status", "--json"]));
    assert_eq!(stderr(&status), "");
    (status.status.code(), serde_json::from_str(&stdout(&status)).unwrap())
}

#[test]
fn a_server_that_is_not_ready_is_shown_with_its_reasons_and_exits_with_117() {
    let server = FakeServer::start();
    server.recover_for(11_734);
    let (code, status) = object(&server);
    assert_eq!(code, Some(117));
    assert_eq!((&status["status"], &status["uptime_ms"]), (&json!("not_ready"), &json!(61_000)));
    assert_eq!(
        (&status["version"], &status["listeners"]),
        (&json!("7.8.9"), &json!(["binary=here", "grpc=there"]))
    );
    let reason = json!({"code": "recovering", "message": "holds may have been lost", "remaining_ms": 11_734});
    assert_eq!(status["reasons"], json!([reason]));
    let page = output(ctl(server.url(), &["server", "status"]));
    assert_eq!(page.status.code(), Some(117));
    let page = stdout(&page);
    for line in ["STATUS    not ready", "UPTIME    1m 1s", "REASON    recovering: holds may have been lost"] {
        assert!(page.lines().any(|found| found == line), "{page}");
    }
}

#[test]
fn the_readiness_of_an_older_server_is_null_and_exits_with_0() {
    let (code, status) = object(&FakeServer::start());
    assert_eq!((code, &status["protocol_version"]), (Some(0), &json!(1)));
    for name in ["status", "reasons", "version", "uptime_ms", "listeners"] {
        assert_eq!(status[name], Value::Null, "{name}");
    }
}
