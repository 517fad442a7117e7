//! `compare`: its output and files, and the end of its servers.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::executable;
use crate::program::{Server, compare_quickly, loadgen, read_json, run, wait_until, wait_until_used};

#[test]
fn compares_running_servers() {
    let server = Server::echo(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let json_path = folder.path().join("result.json");
    let table_path = folder.path().join("table.md");
    let target = format!("echo://{}", server.address);
    let ended = compare_quickly(&[
        "--targets",
        &target,
        "--rows",
        "2x1,2x4",
        "--seed",
        "5",
        "--json",
        json_path.to_str().expect("text"),
        "--markdown",
        table_path.to_str().expect("text"),
    ]);
    ended.assert_success();
    for words in ["| 2x4 sliding | echo |", "seed 5", "| goal |", "not measured"] {
        assert!(ended.stdout.contains(words), "no {words:?} in {ended:#?}");
    }
    assert_eq!(std::fs::read_to_string(table_path).expect("it was written"), ended.stdout);
    let json = read_json(&json_path);
    let slice = &json["rows"][0]["rounds"]["rounds"][0]["slices"][0];
    assert_eq!(slice["system"], "echo");
    assert!(slice["numbers"]["requests_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{slice}");
}

#[test]
fn quotes_the_output_of_a_server_that_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("broken-server");
    executable::write(&program, "#!/bin/sh\necho my cat ate the configuration >&2\nexit 3\n");
    let ended = run(&["compare", "--spawn", "--quick", "--server-bin", program.to_str().expect("text")]);
    ended.assert_refused("my cat ate the configuration").assert_refused("exit status: 3");
}

fn children_of(parent: u32) -> Vec<u32> {
    let parent_of = |id: u32| {
        let status = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The program name in parentheses may contain any character; the state and the parent follow it.
        let (_, rest) = status.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        (fields.next()? != "Z").then(|| fields.next()?.parse::<u32>().ok()).flatten()
    };
    std::fs::read_dir("/proc")
        .expect("proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|id| parent_of(*id) == Some(parent))
        .collect()
}

#[test]
fn started_servers_end_with_the_program() {
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let mut child = loadgen()
            .args(["compare", "--spawn", "--targets", "echo", "--rounds", "1000"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        wait_until("it starts an echo", || !children_of(child.id()).is_empty());
        let servers = children_of(child.id());
        // A new echo server may not have set its parent-death signal yet.
        servers.iter().for_each(|&server| wait_until_used(server, Duration::from_millis(100)));
        kill(Pid::from_raw(child.id().cast_signed()), signal).expect("it runs");
        let status = child.wait().expect("it ends");
        assert!(!status.success());
        for server in servers {
            let is_gone = || {
                std::fs::read_to_string(format!("/proc/{server}/stat"))
                    .map_or(true, |stat| stat.contains(") Z "))
            };
            wait_until("the echo ends", is_gone);
        }
    }
}
