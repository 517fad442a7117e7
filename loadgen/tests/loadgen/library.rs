//! The Rust client library as a load.

use crate::program::{Server, compare_quickly, read_json, run};
use crate::waymaker::server;

fn target(server: &Server) -> String {
    format!("waymaker://{}", server.address)
}

#[test]
fn pairs_of_guards_are_counted_and_checked() {
    let server = server(&[]);
    let ended = run(&[
        "--target",
        &target(&server),
        "--workload",
        "guard",
        "--connections",
        "3",
        "--depth",
        "2",
        "--threads",
        "2",
        "--duration",
        "200ms",
        "--warmup",
        "20ms",
        // Keys repeat, so fences are compared.
        "--keys",
        "60",
    ]);
    ended.assert_success();
    assert!(ended.stdout.contains("latency     p50"), "{ended:#?}");
}

#[test]
fn per_worker_connections_carry_the_load() {
    let server = server(&["--workers", "2"]);
    let target = target(&server);
    let guard = ["--target", &target, "--workload", "guard", "--connections", "2", "--depth", "4"];
    let brief = ["--per-worker", "--duration", "500ms", "--warmup", "20ms"];
    run(&[&guard[..], &brief].concat()).assert_success();
}

#[test]
fn held_guards_outlast_their_leases_and_use_cpu_on_both_sides() {
    let server = server(&[]);
    for more in [&["--lease", "600ms"][..], &["--sessions"]] {
        let folder = tempfile::tempdir().expect("a folder");
        let json_path = folder.path().join("result.json");
        let (target, json) = (target(&server), json_path.to_str().expect("text"));
        let held = [
            "--target",
            &target,
            "--workload",
            "held-guards",
            "--connections",
            "2",
            "--keys",
            "1k",
            "--warmup",
            "200ms",
            "--duration",
            "1s",
            "--json",
            json,
        ];
        run(&[&held[..], more].concat()).assert_success();
        let result = &read_json(&json_path)["result"];
        assert_eq!(result["guard_count"], 1_000);
        assert!(result["cpu"]["server"].as_f64().is_some_and(|share| share < 1.0), "{result}");
    }
}

#[test]
fn compares_the_library_with_the_raw_connection() {
    let server = server(&[]);
    let ended = compare_quickly(&["--library", "--targets", &target(&server)]);
    ended.assert_success();
    for words in ["| raw connection |", "| client library |", "1 of 1 rounds count", "| goal |"] {
        assert!(ended.stdout.contains(words), "no {words:?} in {ended:#?}");
    }
}

#[test]
fn rejects_options_that_the_library_does_not_support() {
    let guard = ["--workload", "guard"];
    run(&[&guard[..], &["--target", "redis://127.0.0.1:1"]].concat())
        .assert_refused("use --target waymaker://HOST:PORT");
    run(&[&guard[..], &["--rate", "1k"]].concat()).assert_refused("leave out --rate and --spin");
    run(&[&guard[..], &["--scope", "local"]].concat()).assert_refused("leave out --scope");
}
