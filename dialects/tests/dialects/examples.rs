//! The programs in `examples/`, as a user of another lock system runs them first.

use std::process::{Command, Output};

use crate::real::server;
use crate::real::server_program::example;

/// Maximum number of runs of an example.
const RUN_COUNT: usize = 20;

/// Runs an example to its end. Runs it again if a call was not answered in time: a runner of Locket then gives up its lock,
/// which only shows that a process was not scheduled.
fn run(name: &str, address: &str) -> Output {
    let run = || Command::new(example(name)).arg(address).output().unwrap();
    let is_over = |output: &Output| !String::from_utf8_lossy(&output.stderr).contains("request timed out");
    std::iter::repeat_with(run).take(RUN_COUNT).find(is_over).expect("one of the runs is scheduled in time")
}

#[test]
fn every_example_succeeds_and_prints_its_steps() {
    let server = server!(None, &["--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
    let grpc = format!("http://{}", server.listener("grpc"));
    let websocket = format!("ws://{}", server.listener("http"));
    for (name, address) in [
        ("coming_from_clever", server.url()),
        ("coming_from_databend", server.url()),
        ("coming_from_locket", &grpc),
        ("coming_from_locktopus", &websocket),
        ("coming_from_waymaker", &grpc),
    ] {
        let Output { status, stdout, stderr } = run(name, address);
        let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(status.success(), "{name}: {stdout}{stderr}");
        assert!(stdout.lines().count() >= 2, "{name} says what it does: {stdout}");
    }
}
