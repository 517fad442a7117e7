//! The programs in `examples/`, as somebody who comes from another lock system runs them first.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::real::server;

/// The example as `cargo test` built it, or built now where only this test was asked for.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // target/<profile>/deps/<test>
    let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
    if !program.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let target = test.ancestors().nth(3).unwrap();
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--example", name, "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.unwrap().success());
    }
    program
}

fn run(name: &str, address: &str) -> Output {
    Command::new(example(name)).arg(address).output().unwrap()
}

#[test]
fn every_example_does_what_it_shows_and_says_so() {
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
