//! Against Waymaker.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::program::{Ended, Server, assert_death_is_noticed, compare_quickly, read_json, run};
use crate::skip::skip;

/// Returns the server of the same profile, beside the program under test; builds it if it is missing.
pub(crate) fn server_program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let own = PathBuf::from(env!("CARGO_BIN_EXE_waymaker-loadgen"));
        let program = own.with_file_name("waymaker-server");
        if !program.is_file() {
            let folder = own.parent().expect("a profile's folder");
            let profile = match folder.file_name().and_then(|name| name.to_str()) {
                Some("debug") | None => "dev",
                Some(profile) => profile,
            };
            let built = Command::new(env!("CARGO"))
                .args([
                    "build",
                    "--quiet",
                    "-p",
                    "waymaker-server",
                    "--bin",
                    "waymaker-server",
                    "--profile",
                    profile,
                ])
                .arg("--target-dir")
                .arg(folder.parent().expect("the target folder"))
                .status()
                .expect("cargo starts");
            assert!(built.success(), "waymaker-server does not build");
        }
        program
    })
}

pub(crate) fn server(more: &[&str]) -> Server {
    let mut command = Command::new(server_program());
    command
        .args(["--listen", "127.0.0.1:0"])
        .args(more)
        .env("WAYMAKER_DATA_DIR", "none")
        .env("WAYMAKER_GRPC_LISTEN", "none")
        .env("WAYMAKER_HTTP_LISTEN", "none");
    Server::start(command, "binary")
}

fn load(server: &Server, more: &[&str]) -> Ended {
    let target = format!("waymaker://{}", server.address);
    let brief = ["--target", &target, "--duration", "500ms", "--warmup", "20ms", "--seed", "3"];
    run(&[&brief[..], more].concat())
}

#[test]
fn all_responses_of_every_workload_are_correct() {
    for workers in ["1", "2"] {
        let server = server(&["--workers", workers]);
        for shape in [
            &["--connections", "1", "--depth", "1"][..],
            &["--connections", "10", "--depth", "64", "--threads", "2"],
            &["--connections", "10", "--depth", "64", "--window", "sliding", "--keys", "640"],
            &["--connections", "3", "--depth", "1024", "--key-size", "1024"],
            &["--connections", "4", "--depth", "4", "--rate", "5k"],
            &["--workload", "hot", "--connections", "16", "--threads", "2"],
            &["--workload", "hot", "--connections", "4", "--depth", "16"],
            &["--workload", "rw", "--connections", "8", "--depth", "16", "--threads", "2", "--keys", "50"],
        ] {
            let ended = load(&server, shape);
            ended.assert_success();
            assert!(!ended.stdout.contains(" 0 /s requests"), "{ended:#?}");
        }
    }
}

#[test]
fn a_server_without_a_data_directory_refuses_durable_locks() {
    let server = server(&["--workers", "1", "--data-dir", "none"]);
    for workload in ["pair", "hot", "rw", "multi", "tree", "semaphore"] {
        let ended = load(&server, &["--scope", "local", "--workload", workload, "--connections", "3"]);
        ended.assert_refused("start waymaker-server with --data-dir").assert_refused("scope_unavailable");
    }
}

#[test]
fn reports_a_server_that_dies() {
    let server = server(&["--workers", "1"]);
    let target = format!("waymaker://{}", server.address);
    assert_death_is_noticed(server, &target, &[]);
}

#[test]
fn compares_servers_that_it_starts() {
    let name = "waymaker::compares_servers_that_it_starts";
    let has_redis = Command::new("redis-server").arg("--version").output().is_ok();
    if !has_redis {
        skip(name, "without redis-server (Debian package redis-server) its column is not tested");
    }
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        skip(name, "it needs two cores");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let program = server_program().to_str().expect("text");
    let ended =
        compare_quickly(&["--spawn", "--server-bin", program, "--json", path.to_str().expect("text")]);
    ended.assert_success();
    let json = read_json(&path);
    let goals = json["goals"].as_array().expect("a list");
    for goal in goals.iter().filter(|_| has_redis) {
        assert!(goal["is_met"].is_boolean(), "every goal is measured: {goal}");
    }
    let notes = json["notes"].to_string();
    assert_eq!(has_redis, !notes.contains("The column redis is missing"), "{notes}");
}
