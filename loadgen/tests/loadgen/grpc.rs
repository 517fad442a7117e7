//! Over gRPC: Waymaker, and the bare server that it is compared with.

use std::process::Command;

use crate::program::{Server, assert_death_is_noticed, compare_quickly, loadgen, read_json, run};
use crate::waymaker::server_program;

/// Starts a Waymaker server with gRPC.
fn server() -> Server {
    let mut command = Command::new(server_program());
    command
        .args(["--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--http-listen", "none"])
        .args(["--workers", "1", "--data-dir", "none"]);
    Server::start(command, "grpc")
}

/// Starts the bare server.
fn echo() -> Server {
    let mut command = loadgen();
    command.arg("grpc-echo-server");
    Server::start(command, "grpc-echo")
}

/// Returns both servers as targets.
fn targets() -> [(Server, String); 2] {
    [("grpc", server()), ("grpc-echo", echo())].map(|(scheme, server)| {
        let target = format!("{scheme}://{}", server.address);
        (server, target)
    })
}

#[test]
fn loads_pairs_of_calls_and_pairs_with_a_stream() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let json = path.to_str().expect("text");
    for (_server, target) in targets() {
        let brief = ["--duration", "500ms", "--warmup", "20ms", "--target", &target, "--json", json];
        for shape in [
            &["--connections", "1"][..],
            &["--connections", "5", "--depth", "3", "--threads", "2", "--keys", "15"],
            &["--connections", "2", "--workload", "stream", "--depth", "4", "--keys", "8"],
            &["--connections", "2", "--workload", "stream", "--key-size", "33", "--keys", "distinct"],
        ] {
            let ended = run(&[&brief[..], shape].concat());
            ended.assert_success();
            assert!(ended.stdout.contains("all checked, none wrong"), "{ended:#?}");
            let result = &read_json(&path)["result"];
            // The lock and its release are one request each, with one latency each.
            assert!(result["latency"]["count"].as_u64() > Some(1), "{result}");
            assert!(result["cpu"]["server"].is_f64(), "{result}");
        }
    }
}

#[test]
fn held_streams_are_held_and_released() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let json = path.to_str().expect("text");
    for (_server, target) in targets() {
        let shape = ["--workload", "held-streams", "--connections", "3", "--streams", "100"];
        // Runs twice, because the locks of the first run must be free again.
        for _ in 0..2 {
            let ended = run(&[&shape[..], &["--target", &target, "--json", json]].concat());
            ended.assert_success();
            assert!(ended.stdout.contains("bytes of the server for each of 100"), "{ended:#?}");
            assert_eq!(read_json(&path)["result"]["count"], 100);
        }
    }
}

#[test]
fn durable_locks_need_a_data_directory() {
    let server = server();
    let target = format!("grpc://{}", server.address);
    let ended = run(&["--target", &target, "--scope", "local", "--duration", "500ms"]);
    ended.assert_wrong("invalid_scope");
}

#[test]
fn reports_a_server_that_dies() {
    let server = server();
    let target = format!("grpc://{}", server.address);
    assert_death_is_noticed(server, &target, &[]);
}

#[test]
fn recognises_another_protocol() {
    let server = Server::echo(&[]);
    let ended = run(&["--target", &format!("grpc://{}", server.address)]);
    ended.assert_refused("does not speak the protocol of grpc");
}

#[test]
fn a_quick_comparison() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let program = server_program().to_str().expect("text");
    let brief = ["--spawn", "--server-bin", program, "--json", path.to_str().expect("text")];
    for (front, rows) in [("grpc", 3), ("grpc-stream", 3)] {
        let targets = ["--front", front, "--targets", "grpc,grpc-echo"];
        let ended = compare_quickly(&[&brief[..], &targets].concat());
        ended.assert_success();
        for words in
            ["| 8x16 sliding | grpc |", "server CPU per request", "at least 4 x etcd | - | not measured"]
        {
            assert!(ended.stdout.contains(words), "no {words:?} in {ended:#?}");
        }
        let json = read_json(&path);
        assert_eq!(json["configuration"]["front"], front);
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(rows), "{front}");
        assert!(json["goals"][0]["measured"].is_f64() || front == "grpc-stream", "{json}");
    }
    let memory = &read_json(&path)["memory"];
    assert_eq!(memory[0]["what"], "held stream", "{memory}");
    assert_eq!(memory.as_array().map(Vec::len), Some(2), "Waymaker and the bare server");
}
