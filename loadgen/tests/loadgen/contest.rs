//! A contest of lock servers: everything is measured, and failures are reported.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use waymaker_loadgen::contest::result::{Contest, ContestShape, Measurement, Outcome};

use crate::executable;
use crate::program::{QUICK, loadgen, run};
use crate::waymaker::server_program;

const SHAPES: [ContestShape; 5] = [
    ContestShape::Pair,
    ContestShape::HandOver,
    ContestShape::ReadMostly,
    ContestShape::ManyWaiters,
    ContestShape::Renewals,
];

/// Output files of a contest, and its arguments.
struct Files {
    folder: TempDir,
    arguments: Vec<String>,
}

impl Files {
    fn new(targets: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let [json, html] =
            ["found.json", "found.html"].map(|name| folder.path().join(name).display().to_string());
        let server = server_program().display().to_string();
        let words = ["compare", "--spawn", "--server-bin", &server, "--targets", targets, "--json", &json];
        let files = ["--html", &html, "--dir", folder.path().to_str().expect("text")];
        let arguments = [&words[..], &files, more].concat().into_iter().map(str::to_owned).collect();
        Self { folder, arguments }
    }

    fn arguments(&self) -> Vec<&str> {
        self.arguments.iter().map(String::as_str).collect()
    }

    fn found(&self) -> Contest {
        let page = std::fs::read_to_string(self.folder.path().join("found.html")).expect("it was written");
        assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
        let text = std::fs::read_to_string(self.folder.path().join("found.json")).expect("it was written");
        serde_json::from_str(&text).expect("it is a contest")
    }
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

fn of<'a>(
    contest: &'a Contest,
    name: &str,
    shape: ContestShape,
) -> impl Iterator<Item = &'a Measurement> + use<'a> {
    let name = name.to_owned();
    contest.measurements.iter().filter(move |one| one.contestant == name && one.shape == shape)
}

fn is_measured(one: &Measurement) -> bool {
    matches!(&one.outcome, Outcome::Measured(measured) if measured.requests_per_s > 0.0)
}

#[test]
fn measures_every_contestant_in_every_shape() {
    let mut targets = vec!["waymaker"];
    targets.extend(
        [("redis", "redis-server"), ("etcd", "etcd"), ("postgres", "postgres")]
            .into_iter()
            .filter(|(_, program)| is_there(program))
            .map(|(name, _)| name),
    );
    // A server that waits for its core needs more time until its first response.
    let (files, ended) = ["500ms", "2s", "8s"]
        .into_iter()
        .map(|slice| {
            let files = Files::new(&targets.join(","), &["--quick", "--slice", slice, "--seed", "5"]);
            let ended = run(&files.arguments());
            (files, ended)
        })
        .find(|(_, ended)| !ended.stderr.contains("no response arrived within"))
        .expect("one of the slices is long enough");
    ended.assert_success();
    for words in ["hand-over", "p99.9", "x waymaker", "not offered: no shared locks", "bytes of 500 locks"] {
        assert!(ended.stdout.contains(words) || targets.len() == 1, "no {words:?} in {ended:#?}");
    }
    // The command line may be longer, so that it can be copied.
    let mut lines = ended.stdout.lines().filter(|line| !line.starts_with("waymaker-loadgen"));
    assert!(lines.all(|line| line.chars().count() <= 120), "{}", ended.stdout);
    let contest = files.found();
    assert!(!contest.is_partial && contest.seed == 5 && contest.command.contains("--seed 5"), "{contest:#?}");
    assert_eq!(contest.contestants.len(), targets.len() + 1, "ours is there with two scopes");
    for contestant in &contest.contestants {
        assert_eq!(contestant.absent, None);
        for shape in SHAPES {
            let mut measurements = of(&contest, &contestant.name, shape).peekable();
            assert!(measurements.peek().is_some(), "{}: no {shape:?}", contestant.name);
            for one in measurements {
                assert!(is_measured(one) || matches!(one.outcome, Outcome::NotOffered(_)), "{one:#?}");
            }
        }
        assert!(of(&contest, &contestant.name, ContestShape::Pair).any(is_measured));
        for one in of(&contest, &contestant.name, ContestShape::HandOver) {
            assert!(
                matches!(&one.outcome, Outcome::Measured(measured) if measured.hand_over.is_some()),
                "{one:#?}"
            );
        }
    }
    let ours: Vec<&Measurement> = of(&contest, "waymaker", ContestShape::Renewals).collect();
    assert!(
        matches!(&ours[..], [Measurement { outcome: Outcome::Measured(measured), .. }]
            if measured.renewal.as_ref().is_some_and(|known| known.percentiles.count > 0)),
        "{ours:#?}"
    );
    assert!(contest.memory.iter().any(|memory| memory.contestant == "waymaker"));
}

/// State that one load leaves behind must not change the result of the next.
#[test]
fn every_load_gets_a_new_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let [wrapper, starts] = ["waymaker-server", "starts"].map(|name| folder.path().join(name));
    let (real, log) = (server_program().display(), starts.display());
    executable::write(
        &wrapper,
        format!("#!/bin/sh\ncase \"$*\" in *--listen*) echo start >>'{log}';; esac\nexec '{real}' \"$@\"\n"),
    );
    let brief = ["--rounds", "1", "--slice", "100ms", "--keys", "1k"];
    let mut files = Files::new("waymaker", &brief);
    let place = files.arguments.iter().position(|word| word == "--server-bin").expect("it is there");
    files.arguments[place + 1] = wrapper.display().to_string();
    let mut child = started(&files);
    wait_for(&mut child, "pairs, 200 x 1");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("it runs");
    child.wait_with_output().expect("it ends");
    let contest = files.found();
    assert!(contest.measurements.len() >= 6, "three loads of two scopes: {contest:#?}");
    let starts = std::fs::read_to_string(&starts).expect("it was started").lines().count();
    assert!(starts >= contest.measurements.len(), "{starts} starts for {contest:#?}");
}

#[test]
fn reports_missing_systems_and_continues() {
    let files = Files::new("waymaker,redis", &QUICK);
    let nowhere = tempfile::tempdir().expect("a folder");
    let output = loadgen()
        .args(files.arguments())
        .env("PATH", nowhere.path())
        .env("WAYMAKER_LOADGEN_NO_INSTALL", "1")
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:#?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let absent = "absent: redis is not installed; install it with: waymaker-loadgen obtain redis";
    assert!(printed.contains(absent), "{printed}");
    let contest = files.found();
    let redis = contest.contestants.iter().find(|one| one.name == "redis").expect("it is named");
    assert!(redis.absent.as_ref().is_some_and(|why| why.contains("obtain redis")), "{redis:?}");
    assert!(of(&contest, "waymaker", ContestShape::Renewals).all(is_measured));
    assert_eq!(of(&contest, "redis", ContestShape::Pair).count(), 0);
}

#[test]
fn a_dying_server_does_not_stop_the_others() {
    let Some(redis) = crate::redis::redis("contest::a_dying_server_does_not_stop_the_others") else {
        return;
    };
    let files = Files::new(&format!("waymaker,redis://{}", redis.address), &QUICK);
    let mut child = started(&files);
    wait_for(&mut child, "hand-over");
    drop(redis);
    let status = child.wait_with_output().expect("it ends").status;
    assert_eq!(status.code(), Some(1));
    let contest = files.found();
    assert!(!contest.is_partial, "all of it was tried");
    for one in of(&contest, "redis", ContestShape::Pair) {
        assert!(!matches!(one.outcome, Outcome::Failed(_)), "{one:#?}");
    }
    for one in of(&contest, "redis", ContestShape::Renewals) {
        assert!(
            matches!(&one.outcome, Outcome::Failed(why) if why.contains("no server listens")),
            "{one:#?}"
        );
    }
    for one in SHAPES.into_iter().flat_map(|shape| of(&contest, "waymaker", shape)) {
        assert!(!matches!(one.outcome, Outcome::Failed(_)), "{one:#?}");
    }
    assert!(of(&contest, "waymaker", ContestShape::Renewals).any(is_measured));
}

#[test]
fn invalid_responses_are_a_failure_without_numbers() {
    let target = format!("waymaker://{}", crate::liar::garbage());
    let files = Files::new(&target, &QUICK);
    let ended = run(&files.arguments());
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.stderr.contains("FAILED: waymaker, pairs, 50 x 16"), "{ended:#?}");
    let contest = files.found();
    let mut pairs = of(&contest, "waymaker", ContestShape::Pair).filter(|one| one.depth == 16);
    let is_failure = |one: &Measurement| matches!(&one.outcome, Outcome::Failed(why) if why.contains("length: a frame of"));
    assert!(pairs.all(is_failure), "{contest:#?}");
}

#[test]
fn keeps_results_after_an_interruption() {
    let files = Files::new("waymaker", &["--rounds", "1", "--slice", "500ms"]);
    let mut child = started(&files);
    wait_for(&mut child, "pairs, 50 x 1");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let contest = files.found();
    assert!(contest.is_partial);
    assert!(of(&contest, "waymaker", ContestShape::Pair).any(is_measured));
    assert_eq!(of(&contest, "waymaker", ContestShape::Renewals).count(), 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains("PARTIAL"));
    assert_eq!(leftovers(files.folder.path()), Vec::<String>::new());
}

fn started(files: &Files) -> Child {
    let mut command = loadgen();
    command.args(files.arguments()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

/// Reads the progress output until it contains these words.
fn wait_for(child: &mut Child, words: &str) {
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(words)), "it never came to {words:?}");
    // Reads the rest too, so that the program never blocks on a full pipe.
    std::thread::spawn(move || lines.count());
}

/// Returns files that are neither of the two results.
fn leftovers(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).expect("it is there");
    let names = names.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with("found.")).collect()
}
