//! Over WebSockets: Waymaker, and the bare server that Locktopus is compared with.

use std::process::Command;

use crate::program::{Server, compare_quickly, loadgen, read_json, run};
use crate::waymaker::server_program;

/// Starts a Waymaker server with Locktopus.
fn server() -> Server {
    let mut command = Command::new(server_program());
    command
        .args(["--listen", "127.0.0.1:0", "--grpc-listen", "none", "--http-listen", "127.0.0.1:0"])
        .args(["--workers", "1", "--data-dir", "none"]);
    Server::start(command, "http")
}

/// Starts the bare server.
fn echo() -> Server {
    let mut command = loadgen();
    command.arg("websocket-echo-server");
    Server::start(command, "websocket-echo")
}

/// Returns both servers as targets.
fn targets() -> [(Server, String); 2] {
    [("locktopus", server()), ("websocket-echo", echo())].map(|(scheme, server)| {
        let target = format!("{scheme}://{}", server.address);
        (server, target)
    })
}

const BRIEF: [&str; 4] = ["--duration", "500ms", "--warmup", "20ms"];

#[test]
fn pairs_of_lock_and_release() {
    for (_server, target) in targets() {
        for shape in [
            &["--connections", "1"][..],
            &["--connections", "7", "--threads", "2", "--key-size", "200"],
            &["--connections", "3", "--rate", "1k"],
        ] {
            let ended = run(&[&BRIEF[..], &["--target", &target], shape].concat());
            ended.assert_success();
            assert!(ended.stdout.contains("all checked, none wrong"), "{ended:#?}");
            assert!(!ended.stdout.contains(" 0 /s requests"), "{ended:#?}");
        }
    }
}

#[test]
fn waiters_get_grants_in_turn() {
    let server = server();
    let target = format!("locktopus://{}", server.address);
    for shape in [&["--workload", "hot"][..], &["--workload", "rw", "--keys", "3"]] {
        let ended = run(&[&BRIEF[..], &["--target", &target, "--connections", "8"], shape].concat());
        ended.assert_success();
        assert!(ended.stdout.contains("all checked, none wrong"), "{ended:#?}");
    }
}

#[test]
fn measures_the_memory_of_idle_connections() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    for (_server, target) in targets() {
        let shape = ["--workload", "idle", "--connections", "200", "--json", path.to_str().expect("text")];
        let ended = run(&[&["--target", &target], &shape[..]].concat());
        ended.assert_success();
        assert!(ended.stdout.contains("bytes of the server for each of 200"), "{ended:#?}");
        let result = &read_json(&path)["result"];
        assert!(result["after_bytes"].as_u64() > Some(0), "{result}");
    }
}

#[test]
fn recognises_another_protocol() {
    let server = Server::echo(&[]);
    let target = format!("locktopus://{}", server.address);
    // An echo server returns the request, which is not a valid response.
    run(&["--target", &target]).assert_refused("refused the WebSocket: GET /v1");
}

#[test]
fn a_quick_comparison() {
    let program = server_program().to_str().expect("text");
    let ended = compare_quickly(&["--front", "locktopus", "--spawn", "--server-bin", program]);
    ended.assert_success();
    for words in [
        "| 50x1 | locktopus |",
        "server CPU per request",
        "| websocket-echo | idle connection | 100 |",
        "at least 0.8 x websocket-echo",
    ] {
        assert!(ended.stdout.contains(words), "no {words:?} in {ended:#?}");
    }
    assert!(!ended.stdout.contains("not measured"), "{ended:#?}");
}
