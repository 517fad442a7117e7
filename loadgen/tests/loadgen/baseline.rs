//! `compare --baseline-bin`: two builds of Waymaker side by side. No verdict of these tests depends on the speed
//! of the builds.

use std::path::Path;

use serde_json::Value;

use crate::executable;
use crate::liar;
use crate::program::{Ended, QUICK, compare_quickly, read_json, run};
use crate::skip::skip;
use crate::waymaker::server_program;

/// Compares the server under test with itself.
fn compare_with_itself(json: &Path, more: &[&str]) -> Ended {
    let program = server_program().to_str().expect("text");
    let same = ["compare", "--baseline-bin", program, "--server-bin", program];
    let output = ["--json", json.to_str().expect("text")];
    run(&[&same[..], &output, more].concat())
}

/// Whether the machine has one core for the servers and another for the load. Otherwise reports the test as
/// skipped.
fn has_two_cores(test: &str) -> bool {
    let has = std::thread::available_parallelism().is_ok_and(|count| count.get() >= 2);
    if !has {
        skip(test, "it needs two cores");
    }
    has
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("no list {name}: {value}"))
}

/// Returns the builds of all slices of a load, round by round.
fn builds_of(load: &Value) -> Vec<Vec<&str>> {
    let builds =
        |round| list(round, "slices").iter().map(|slice| slice["build"].as_str().expect("a build")).collect();
    list(&load["rounds"], "rounds").iter().map(builds).collect()
}

#[test]
fn a_quick_comparison_measures_every_load_without_a_verdict() {
    if !has_two_cores(
        "baseline::a_quick_comparison_of_a_server_with_itself_measures_every_load_and_judges_none",
    ) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let disk = folder.path().to_str().expect("text");
    for (more, system, titles) in [
        (
            &["--rows", "2x1,2x4,1x1"][..],
            "waymaker",
            &[
                "2x1: requests",
                "2x4 burst: requests",
                "2x4 sliding: requests",
                "1x1: requests",
                "1x1 busy polling: p50",
                "50x16 at 100.0 k/s: server CPU per request",
                "hot key, 64 connections: hand-over p50",
            ][..],
        ),
        (&["--rows", "2x1", "--scope", "local", "--dir", disk], "waymaker", &["2x1: requests"]),
        (&["--rows", "2x1", "--front", "grpc"], "grpc", &["2x1: requests", "2x1: server CPU per request"]),
    ] {
        let ended = compare_with_itself(&path, &[&QUICK[..], more].concat());
        ended.assert_success();
        let json = read_json(&path);
        assert_eq!(json["outcome"], "not-judged", "{json}");
        let rows: Vec<&Value> = list(&json, "loads").iter().flat_map(|load| list(load, "rows")).collect();
        let found: Vec<&str> = rows.iter().map(|row| row["title"].as_str().expect("a title")).collect();
        assert_eq!(found, titles);
        for row in rows {
            let line = format!("| {} |", row["title"].as_str().expect("a title"));
            assert!(ended.stdout.contains(&line), "no {line:?} in {ended:#?}");
            assert_eq!(row["verdict"], "not-judged", "{row}");
        }
        for load in list(&json, "loads") {
            assert_eq!(load["system"], system);
            assert_eq!(builds_of(load)[0], ["baseline", "current"], "{load}");
        }
        for words in ["no verdict", "Both builds are the same file", "| old | ", "| new | "] {
            assert!(ended.stdout.contains(words), "no {words:?} in {ended:#?}");
        }
    }
}

#[test]
fn names_both_binaries_in_the_report() {
    if !has_two_cores("baseline::the_report_names_both_binaries") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let copy = folder.path().join("older-server");
    // An appended byte makes a different file of the same program.
    let mut bytes = std::fs::read(server_program()).expect("readable");
    bytes.push(0);
    executable::write(&copy, bytes);
    let [older, newer] = [&copy, server_program()].map(|path| path.to_str().expect("text"));
    let ended = compare_quickly(&[
        "--baseline-bin",
        older,
        "--server-bin",
        newer,
        "--scope",
        "local",
        "--dir",
        folder.path().to_str().expect("text"),
        "--rows",
        "1x1",
        "--json",
        path.to_str().expect("text"),
    ]);
    ended.assert_success();
    assert!(!ended.stdout.contains("Both builds are the same file"), "{ended:#?}");
    let binaries = &read_json(&path)["binaries"];
    for (build, path) in [("baseline", older), ("current", newer)] {
        let binary = &binaries[build];
        assert_eq!(binary["path"], path);
        let [sha256, version] = ["sha256", "version"].map(|name| binary[name].as_str().expect("text"));
        assert_eq!(sha256.len(), 64);
        assert!(version.starts_with("waymaker-server "), "{version}");
        for words in [path, sha256, version] {
            assert!(ended.stdout.contains(words), "no {words:?} in {ended:#?}");
        }
    }
    assert_ne!(binaries["baseline"]["sha256"], binaries["current"]["sha256"]);
}

/// A whole comparison in very short slices. Its verdict says nothing about the server, but must follow from its
/// ratios.
#[test]
fn exit_code_follows_from_the_verdicts() {
    if !has_two_cores("baseline::the_exit_code_follows_from_the_verdicts") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let disk = folder.path().to_str().expect("text");
    let brief = ["--rows", "2x1", "--slice", "10ms", "--keys", "1k", "--scope", "local", "--dir", disk];
    let ended = compare_with_itself(&path, &brief);
    let json = read_json(&path);
    let load = &list(&json, "loads")[0];
    let row = &load["rows"][0];
    let valid_count = list(row, "ratios").len();
    let high = row["interval"]["high"].as_f64();
    let (verdict, outcome, code) = match high {
        Some(high) if valid_count == 15 && high < 0.97 => ("fail", "failed", 1),
        Some(_) if valid_count == 15 => ("pass", "passed", 0),
        _ => ("inconclusive", "inconclusive", 2),
    };
    assert_eq!((&row["verdict"], &json["outcome"]), (&verdict.into(), &outcome.into()), "{row}");
    assert_eq!(ended.code, Some(code), "{ended:#?}");
    assert_eq!(ended.stderr.contains(&outcome.to_uppercase()), code != 0, "{ended:#?}");
    let builds = builds_of(load);
    assert_eq!(row["tried_round_count"], builds.len());
    assert!((15..=45).contains(&builds.len()), "{} rounds", builds.len());
    for (attempt, builds) in builds.iter().enumerate() {
        let order = if attempt % 2 == 0 { ["baseline", "current"] } else { ["current", "baseline"] };
        assert_eq!(*builds, order, "attempt {attempt}");
    }
}

/// Writes a script and returns its path.
fn program(folder: &Path, name: &str, script: &str) -> String {
    let path = folder.join(name);
    executable::write(&path, format!("#!/bin/sh\n{script}\n"));
    path.to_str().expect("text").to_owned()
}

#[test]
fn a_wrong_response_of_either_build_fails_even_a_quick_comparison() {
    if !has_two_cores("baseline::a_wrong_answer_of_either_build_fails_even_a_quick_comparison") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let disk = folder.path().to_str().expect("text");
    let lying = format!(
        "[ \"$1\" = --version ] && echo liar 1.0 && exit; echo ready binary={}; exec sleep 600",
        liar::always_busy()
    );
    let lying = program(folder.path(), "lying", &lying);
    let server = server_program().to_str().expect("text");
    for (older, newer, wrong) in
        [(&*lying, server, "responses of waymaker (baseline)"), (server, &*lying, "responses of waymaker\n")]
    {
        let ended = run(&[
            "compare",
            "--quick",
            "--rows",
            "1x1",
            "--scope",
            "local",
            "--dir",
            disk,
            "--baseline-bin",
            older,
            "--server-bin",
            newer,
            "--json",
            path.to_str().expect("text"),
        ]);
        ended.assert_wrong("responses were wrong").assert_wrong("FAILED");
        assert!(ended.stderr.contains(wrong), "{ended:#?}");
        assert_eq!(read_json(&path)["outcome"], "failed");
    }
}

#[test]
fn an_aborted_comparison_is_incomplete() {
    if !has_two_cores("baseline::a_comparison_that_breaks_off_is_incomplete") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    // Prints that it is ready, but does not listen.
    let absent =
        "[ \"$1\" = --version ] && echo absent 1.0 && exit; echo ready binary=127.0.0.1:1; exec sleep 600";
    let absent = program(folder.path(), "absent", absent);
    let server = server_program().to_str().expect("text");
    let ended = run(&[
        "compare",
        "--quick",
        "--rows",
        "1x1",
        "--baseline-bin",
        server,
        "--server-bin",
        &absent,
        "--json",
        path.to_str().expect("text"),
    ]);
    ended.assert_refused("INCOMPLETE");
    assert_eq!(read_json(&path)["outcome"], "incomplete");
}

#[test]
fn a_server_with_rights_is_compared_with_itself_without() {
    if !has_two_cores("baseline::a_server_with_rights_is_compared_with_itself_without") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let [result, starts] = ["result.json", "starts"].map(|name| folder.path().join(name));
    let server = server_program().display();
    let recorder = format!("echo \"$@\" >> {}; exec {server} \"$@\"", starts.display());
    let recorder = program(folder.path(), "recorder", &recorder);
    let disk = folder.path().to_str().expect("text");
    for more in [
        &["--rows", "2x4"][..],
        &["--rows", "2x1", "--scope", "local", "--dir", disk],
        &["--rows", "2x1", "--front", "grpc"],
        &["--rows", "2x1", "--front", "grpc-stream"],
        &["--rows", "2x1", "--front", "locktopus"],
    ] {
        std::fs::write(&starts, "").expect("written");
        let output =
            ["compare", "--rights", "--server-bin", &recorder, "--json", result.to_str().expect("text")];
        let ended = run(&[&output[..], &QUICK[..], more].concat());
        // A restricted server refuses requests without the token, and requests beyond the rights of the load.
        ended.assert_success();
        assert!(ended.stdout.contains("| row | open | restricted |"), "{ended:#?}");
        let json = read_json(&result);
        assert_eq!((&json["outcome"], &json["has_rights"]), (&"not-judged".into(), &true.into()), "{json}");
        let starts = std::fs::read_to_string(&starts).expect("readable");
        let started: Vec<bool> = starts
            .lines()
            .filter(|line| line.contains("--listen"))
            .map(|line| line.contains("--access"))
            .collect();
        assert_eq!(started, [false, true], "{starts}");
    }
}

#[test]
fn an_invalid_server_program_is_reported_with_its_option() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = server_program().to_str().expect("text");
    let silent = program(folder.path(), "silent", "exit 3");
    let broken = program(
        folder.path(),
        "broken",
        "[ \"$1\" = --version ] && echo broken 1.0 && exit; echo no such luck >&2; exit 3",
    );
    let endless = program(folder.path(), "endless", "sleep 86400");
    run(&["compare", "--quick", "--baseline-bin", server, "--server-bin", &endless])
        .assert_refused("--server-bin: ")
        .assert_refused("did not end within 10 s");
    run(&["compare", "--quick", "--baseline-bin", &silent, "--server-bin", server])
        .assert_refused("--baseline-bin: ")
        .assert_refused("does not print a version");
    run(&["compare", "--quick", "--baseline-bin", &broken, "--server-bin", server])
        .assert_refused("--baseline-bin: the server does not start")
        .assert_refused("no such luck");
    run(&["compare", "--quick", "--baseline-bin", server, "--server-bin", &broken])
        .assert_refused("--server-bin: the server does not start");
}
