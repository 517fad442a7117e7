//! By WebSockets: the bare server that Locktopus is compared with.

use crate::program::{Server, loadgen, read_json, run};

fn echo() -> Server {
    let mut command = loadgen();
    command.arg("websocket-echo-server");
    Server::start(command, "websocket-echo")
}

#[test]
fn a_bare_server_is_loaded() {
    let server = echo();
    let target = format!("websocket-echo://{}", server.address);
    for shape in [
        &["--connections", "1"][..],
        &["--connections", "7", "--threads", "2", "--key-size", "200"],
        &["--connections", "3", "--rate", "1k"],
    ] {
        let ended = run(&[&["--target", &target, "--duration", "100ms", "--warmup", "20ms"], shape].concat());
        ended.assert_success();
        assert!(ended.stdout.contains("all checked, none wrong"), "{ended:#?}");
        assert!(!ended.stdout.contains(" 0 /s requests"), "{ended:#?}");
    }
}

#[test]
fn idle_connections_are_opened_and_weighed() {
    let server = echo();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let target = format!("websocket-echo://{}", server.address);
    let shape = ["--workload", "idle", "--connections", "200", "--json", path.to_str().expect("text")];
    let ended = run(&[&["--target", &target], &shape[..]].concat());
    ended.assert_success();
    assert!(ended.stdout.contains("bytes of the server for each of 200"), "{ended:#?}");
    let result = &read_json(&path)["result"];
    assert!(result["after_bytes"].as_u64() > Some(0), "{result}");
}

#[test]
fn another_protocol_is_recognised() {
    let server = Server::echo(&[]);
    let target = format!("websocket-echo://{}", server.address);
    // An echo of HTTP is no answer to it.
    run(&["--target", &target]).assert_refused("no WebSocket: GET /v1");
}
