//! `compare --scope local`: durable locks side by side.

use std::process::Command;

use crate::program::{Server, compare_quickly, loadgen, read_json};
use crate::skip::skip;

/// Returns the installed programs, and reports the missing ones as skipped.
fn installed(test: &str, programs: [(&'static str, &str); 2]) -> Vec<&'static str> {
    let is_installed = |&(program, package): &(&'static str, &str)| {
        let is_there = Command::new(program).arg("--version").output().is_ok();
        if !is_there {
            skip(test, &format!("without {program} (Debian package {package}) its column is not tested"));
        }
        is_there
    };
    programs.iter().filter(|program| is_installed(program)).map(|(program, _)| *program).collect()
}

#[test]
fn compares_servers_that_sync() {
    let name = "durable::compares_servers_that_sync";
    let installed = installed(name, [("redis-server", "redis-server"), ("etcd", "etcd-server")]);
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        skip(name, "it needs two cores");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("made");
    let ended = compare_quickly(&[
        "--scope",
        "local",
        "--spawn",
        "--targets",
        "redis,etcd,echo",
        "--dir",
        disk.to_str().expect("text"),
        "--json",
        path.to_str().expect("text"),
    ]);
    ended.assert_success();
    let json = read_json(&path);
    let systems_of = |row: &serde_json::Value| -> Vec<String> {
        let slices = row["rounds"]["rounds"][0]["slices"].as_array().expect("slices");
        slices.iter().map(|slice| slice["system"].as_str().expect("a name").to_owned()).collect()
    };
    let rows = json["rows"].as_array().expect("rows");
    for row in rows {
        let is_deep = row["row"]["shape"]["depth"] != 1;
        let expected: Vec<&str> = [("redis", "redis-server"), ("etcd", "etcd"), ("echo", "echo")]
            .into_iter()
            .filter(|(_, program)| *program == "echo" || installed.contains(program))
            .map(|(system, _)| system)
            .filter(|system| !(is_deep && *system == "etcd"))
            .collect();
        assert_eq!(systems_of(row), expected, "{row}");
    }
    let titles: Vec<bool> = rows.iter().map(|row| row["row"]["busy_poll"] == false).collect();
    assert_eq!(titles, [true; 4], "50x1, 50x16 in bursts and sliding, 1x1");
    assert_eq!(json["configuration"]["scope"], "local");
    for words in ["x etcd", "50x1: at least 10 x etcd | - | not measured", "a syncing echo server + 30 us"] {
        assert!(ended.stdout.contains(words), "no {words:?} in {ended:#?}");
    }
    let notes = json["notes"].to_string();
    for (system, program) in [("redis", "redis-server"), ("etcd", "etcd")] {
        let is_missing = notes.contains(&format!("The column {system} is missing"));
        assert_eq!(is_missing, !installed.contains(&program), "{notes}");
    }
    let left = std::fs::read_dir(&disk).expect("readable").count();
    assert_eq!(left, 0, "servers remove their files");
}

#[test]
fn measures_the_cost_of_durable_locks_for_locks_in_memory() {
    let ours = format!("waymaker://{}", crate::liar::honest());
    let echo = Server::echo(&[]);
    let targets = format!("{ours},echo://{}", echo.address);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let json = path.to_str().expect("text");
    let ended =
        compare_quickly(&["--scope", "local", "--targets", &targets, "--rows", "1x1", "--json", json]);
    ended.assert_success();
    let json = read_json(&path);
    let beside = &json["beside"];
    let slices = beside["rounds"]["rounds"][0]["slices"].as_array().expect("slices");
    assert_eq!(slices.len(), 2, "alone, and beside");
    for slice in slices {
        assert!(slice["numbers"]["latency"]["p99_ns"].as_u64() > Some(0), "{slice}");
    }
    assert!(beside["local"][0]["requests_per_second"].as_f64() > Some(0.0), "{beside}");
    let is_measured = |words: &str| {
        let goals = json["goals"].as_array().expect("goals");
        goals.iter().any(|goal| {
            goal["what"].as_str().is_some_and(|what| what.contains(words)) && goal["is_met"].is_boolean()
        })
    };
    assert!(is_measured("beside a saturated local load"), "{json}");
    assert!(is_measured("a syncing echo server + 30 us"), "{json}");
    assert!(ended.stdout.contains("| beside local |"), "{ended:#?}");
}

#[test]
fn names_the_packages_of_missing_systems() {
    let empty = tempfile::tempdir().expect("a folder");
    let output = loadgen()
        .args(["compare", "--scope", "local", "--spawn", "--quick", "--slice", "500ms", "--rows", "1x1"])
        .args(["--targets", "redis,etcd,echo"])
        .env("PATH", empty.path())
        .env_remove("WAYMAKER_LOADGEN_NO_INSTALL")
        .current_dir(empty.path())
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).expect("text");
    for words in
        ["The column redis is missing", "The column etcd is missing", "package etcd-server", "| 1x1 | echo |"]
    {
        assert!(printed.contains(words), "no {words:?} in {printed}");
    }
}

#[test]
fn warns_about_tmpfs() {
    let memory = std::path::Path::new("/dev/shm");
    let folder = tempfile::Builder::new().tempdir_in(memory);
    let (Ok(folder), true) = (folder, is_tmpfs(memory)) else {
        skip("durable::warns_about_tmpfs", "there is no tmpfs at /dev/shm");
        return;
    };
    let dir = folder.path().to_str().expect("text");
    let ended =
        compare_quickly(&["--scope", "local", "--spawn", "--targets", "echo", "--rows", "1x1", "--dir", dir]);
    ended.assert_success();
    assert!(ended.stdout.contains("which is memory (tmpfs)"), "{ended:#?}");
    assert!(ended.stderr.contains("a sync costs nothing"), "{ended:#?}");
}

fn is_tmpfs(path: &std::path::Path) -> bool {
    use nix::sys::statfs::{TMPFS_MAGIC, statfs};
    statfs(path).is_ok_and(|system| system.filesystem_type() == TMPFS_MAGIC)
}
