//! Against an echo server: shapes, open loop, report.

use crate::program::{Server, read_json, run};

fn target(server: &Server) -> String {
    format!("echo://{}", server.address)
}

#[test]
fn loads_and_reports_in_every_shape() {
    let server = Server::echo(&[]);
    for shape in [
        &["--connections", "1", "--depth", "1"][..],
        &["--connections", "3", "--depth", "7", "--threads", "2"],
        &["--connections", "4", "--depth", "128", "--window", "sliding"],
        &["--connections", "2", "--depth", "3", "--spin"],
        &["--connections", "2", "--depth", "1024", "--key-size", "100", "--keys", "3k"],
    ] {
        let mut arguments = vec!["--duration", "500ms", "--warmup", "20ms", "--seed", "7", "--target"];
        let target = target(&server);
        arguments.push(&target);
        arguments.extend(shape);
        let ended = run(&arguments);
        ended.assert_success();
        for words in ["throughput", "p99.9", "seed 7", "all checked, none wrong"] {
            assert!(ended.stdout.contains(words), "no {words:?} in {ended:#?}");
        }
        assert!(!ended.stdout.contains(" 0 /s requests"), "{ended:#?}");
    }
}

#[test]
fn an_open_loop_keeps_its_rate_and_writes_json() {
    let server = Server::echo(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let target = target(&server);
    let shape = ["--rate", "2k", "--warmup", "50ms", "--connections", "5", "--depth", "4"];
    let json_path = path.to_str().expect("text");
    let run_for = |duration: &str| {
        let files = ["--target", &target, "--json", json_path, "--duration", duration];
        run(&[&files[..], &shape].concat()).assert_success();
        let json = read_json(&path);
        let rate = json["result"]["requests_per_second"].as_f64().expect("a number");
        assert!(rate < 2_500.0, "{rate}");
        (json, rate)
    };
    // On a busy machine the load may stall, which weighs less in a longer run.
    let (json, _) = ["500ms", "2s", "8s", "32s"]
        .into_iter()
        .map(run_for)
        .find(|(_, rate)| *rate >= 1_000.0)
        .expect("one of the runs keeps its rate");
    assert_eq!(json["plan"]["rate"], 2000);
    assert_eq!(json["plan"]["window"], "sliding");
    assert!(json["plan"]["seed"].is_u64());
    assert!(json["machine"]["kernel"].as_str().is_some_and(|kernel| !kernel.is_empty()));
    assert!(json["result"]["latency"]["p50_ns"].as_u64().is_some_and(|ns| ns > 0));
    assert!(json["result"]["cpu"]["server"].is_f64(), "the process of the echo is found by its port");
}

#[test]
fn an_interrupted_run_still_reports() {
    use nix::sys::signal::{Signal, kill};
    let server = Server::echo(&[]);
    let child = crate::program::loadgen()
        .args(["--target", &target(&server), "--duration", "1h", "--warmup", "10ms"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    server.wait_until_loaded();
    kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert!(String::from_utf8_lossy(&output.stdout).contains("throughput"), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
}

#[test]
fn a_syncing_echo_server_serves_and_removes_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("blocks");
    let file = path.to_str().expect("text");
    let server = Server::echo(&["--sync", file]);
    assert_eq!(std::fs::metadata(&path).expect("made before it is ready").len(), 64 << 20);
    let untouched = std::fs::read(&path).expect("readable");
    let brief = ["--duration", "500ms", "--warmup", "0s", "--connections", "2", "--depth", "4"];
    run(&[&brief[..], &["--target", &target(&server)]].concat()).assert_success();
    assert_ne!(std::fs::read(&path).expect("readable"), untouched, "what it answered was written");
    run(&["echo-server", "--sync", file]).assert_refused("must not exist");
    server.terminate();
    assert!(!path.exists());
}
