//! The page of a contest in a real browser: it loads nothing, nothing overflows or overlaps, and all text is
//! legible.

use std::fs;
use std::process::{Command, Stdio};

use waymaker_loadgen::contest::page::render;
use waymaker_loadgen::contest::result::{
    Contest, ContestShape, Contestant, Distribution, Measured, Measurement, Memory, Outcome,
};
use waymaker_loadgen::latencies::Percentiles;
use waymaker_loadgen::machine::Machine;

use crate::skip::skip;

#[test]
fn a_contest_of_six_is_legible_in_a_browser() {
    assert_shown_well("six", &contest_of_six());
}

#[test]
fn a_failed_contest_is_legible_in_a_browser() {
    assert_shown_well("trouble", &contest_in_trouble());
}

#[test]
fn a_contest_of_one_is_legible_in_a_browser() {
    let mut contest = contest_of_six();
    contest.contestants.truncate(1);
    contest.measurements.retain(|measurement| measurement.contestant == "waymaker");
    contest.memory.truncate(1);
    assert_shown_well("one", &contest);
}

/// Checks the page at desktop and phone width, with the light and the dark theme.
fn assert_shown_well(name: &str, contest: &Contest) {
    let page = render(contest);
    let folder = tempfile::tempdir().expect("a folder");
    // Kept, so that people can open the page.
    fs::write(format!("{}/contest-{name}.html", env!("CARGO_TARGET_TMPDIR")), &page).expect("written");
    if Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    {
        return skip(name, "chromium is not installed");
    }
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let frames: String = [1280, 390]
        .map(|width| {
            format!(r#"<iframe srcdoc="{page}" style="width:{width}px;height:900px;border:0"></iframe>"#)
        })
        .concat();
    let script = include_str!("page.js");
    let wrapper = folder.path().join("wrapper.html");
    let wrapped = format!(
        r#"<!doctype html><meta charset="utf-8"><style>:root {{ color-scheme: light dark }}</style>{frames}<script>{script}</script>"#
    );
    fs::write(&wrapper, wrapped).expect("written");
    for (scheme, is_dark) in [("preferredColorScheme=0", true), ("preferredColorScheme=1", false)] {
        let output = Command::new("timeout")
            .args([
                "120",
                "chromium",
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .args(["--no-first-run", "--enable-logging=stderr", "--window-size=1400,1000", "--dump-dom"])
            .arg(format!("--user-data-dir={}", folder.path().join(scheme).display()))
            .arg(format!("--blink-settings={scheme}"))
            .arg(format!("file://{}", wrapper.display()))
            .stdin(Stdio::null())
            .output()
            .expect("it starts");
        let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let said: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(said.is_empty(), "{name}: {said:#?}");
        let findings =
            dom.split_once("<pre id=\"findings\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        let (findings, _) = findings.unwrap_or_else(|| panic!("{name}: {log}"));
        let (seen, complaints) = findings.split_once('\n').expect("what was seen comes first");
        let seen_frame = format!("dark {is_dark}, plots");
        assert_eq!(seen.matches(&seen_frame).count(), 2, "{name}: {seen}");
        assert!(complaints.is_empty(), "{name}, dark {is_dark}:\n{complaints}");
    }
}

/// Results of one system in this invented contest.
struct Made {
    name: &'static str,
    version: &'static str,
    lock: &'static str,
    outlives: &'static str,
    /// Requests per second with 50 connections.
    rate: f64,
    /// Load at which the system is half saturated.
    half_full_at: f64,
    /// Factor between the latencies of one nine and the next.
    tail: f64,
    bytes_per_lock: f64,
    cpu_us: f64,
}

const SIX: [Made; 6] = [
    Made {
        name: "waymaker",
        version: "0.1.0",
        lock: "ACQUIRE and RELEASE of the binary protocol, with fence and lease",
        outlives: "its session; nothing else (scope ephemeral)",
        rate: 180e3,
        half_full_at: 6.0,
        tail: 0.25,
        bytes_per_lock: 178.0,
        cpu_us: 4.9,
    },
    Made {
        name: "redis",
        version: "7.0.15",
        lock: "SET key token NX PX, and a script that deletes it if the token is still there",
        outlives: "its time to live; not the server's end",
        rate: 160e3,
        half_full_at: 7.0,
        tail: 0.3,
        bytes_per_lock: 236.0,
        cpu_us: 6.1,
    },
    Made {
        name: "etcd",
        version: "3.5.16",
        lock: "Txn that creates the key under a lease, and Delete",
        outlives: "the server's end: written and synced by a quorum",
        rate: 6e3,
        half_full_at: 60.0,
        tail: 0.55,
        bytes_per_lock: 1_450.0,
        cpu_us: 140.0,
    },
    Made {
        name: "consul",
        version: "1.20.1",
        lock: "PUT /v1/kv?acquire=session, and ?release=session",
        outlives: "the server's end: written and synced by a quorum",
        rate: 2e3,
        half_full_at: 80.0,
        tail: 0.8,
        bytes_per_lock: 3_900.0,
        cpu_us: 410.0,
    },
    Made {
        name: "postgres",
        version: "15.9",
        lock: "pg_try_advisory_lock and pg_advisory_unlock of a session",
        outlives: "nothing: ends with its connection",
        rate: 70e3,
        half_full_at: 12.0,
        tail: 0.35,
        bytes_per_lock: 290.0,
        cpu_us: 24.0,
    },
    Made {
        name: "slock",
        version: "3.3.5",
        lock: "LOCK and UNLOCK of its binary protocol",
        outlives: "its time to live; its log is off here",
        rate: 150e3,
        half_full_at: 7.0,
        tail: 0.4,
        bytes_per_lock: 512.0,
        cpu_us: 9.8,
    },
];

const CURVE: [f64; 14] =
    [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999, 100.0];

impl Made {
    fn distribution(&self, p50_ns: f64) -> Distribution {
        let at = |percentile: f64| {
            let nines = -(1.0 - percentile.min(99.9995) / 100.0).log10();
            let knee = if nines > 2.4 { (nines - 2.4) * self.tail * 1.6 } else { 0.0 };
            (p50_ns * ((nines - 0.301) * self.tail * 1.3 + knee).exp()) as u64
        };
        let percentiles = Percentiles {
            p50_ns: at(50.0),
            p90_ns: at(90.0),
            p99_ns: at(99.0),
            p999_ns: at(99.9),
            max_ns: at(100.0),
            count: 1_234_567,
        };
        Distribution { percentiles, curve: CURVE.map(|percentile| (percentile, at(percentile))).to_vec() }
    }

    fn outcome(&self, shape: ContestShape, connections: u32, depth: u32) -> Outcome {
        let crowd = f64::from(connections * depth);
        let full = self.rate * (50.0 + self.half_full_at) / 50.0;
        let (rate, hand_over_ns) = match (shape, self.name) {
            (_, "consul" | "postgres") if depth > 1 => {
                return Outcome::NotOffered("one request at a time on a connection".into());
            }
            (ContestShape::ReadMostly, "redis" | "consul" | "slock") => {
                return Outcome::NotOffered("its locks are all exclusive".into());
            }
            (ContestShape::ManyWaiters, "redis") => {
                return Outcome::NotOffered("nobody is told when a key is free".into());
            }
            (ContestShape::ManyWaiters, "slock") => {
                return Outcome::Failed("cannot connect: Connection refused (os error 111)".into());
            }
            (ContestShape::HandOver, "redis") => (3_100.0, Some(1_600_000.0)),
            (ContestShape::HandOver | ContestShape::ManyWaiters, _) => {
                (self.rate / 3.0, Some(3.4e9 / self.rate * 4.0))
            }
            _ => (full * crowd / (crowd + self.half_full_at), None),
        };
        let p50_ns = crowd / rate * 1e9 * if self.name == "etcd" { 0.5 } else { 0.97 };
        Outcome::Measured(Box::new(Measured {
            requests_per_s: rate,
            rounds: vec![rate * 0.97, rate, rate * 1.02],
            latency: self.distribution(p50_ns),
            hand_over: hand_over_ns.map(|ns| self.distribution(ns)),
            renewal: (shape == ContestShape::Renewals).then(|| self.distribution(p50_ns * 1.5)),
            server_cpu_us_per_request: Some(self.cpu_us),
            faults: Vec::new(),
        }))
    }
}

fn contest_of_six() -> Contest {
    let loads = [
        (ContestShape::Pair, 1, 1, None),
        (ContestShape::Pair, 10, 1, None),
        (ContestShape::Pair, 50, 1, None),
        (ContestShape::Pair, 200, 1, None),
        (ContestShape::Pair, 50, 16, None),
        (ContestShape::HandOver, 10, 1, None),
        (ContestShape::HandOver, 50, 1, None),
        (ContestShape::ManyWaiters, 1_000, 1, None),
        (ContestShape::ReadMostly, 50, 1, None),
        (ContestShape::Renewals, 50, 1, Some(10_000)),
    ];
    let measurements = loads.iter().flat_map(|&(shape, connections, depth, rate)| {
        SIX.iter().map(move |made| Measurement {
            shape,
            contestant: made.name.to_owned(),
            connections,
            depth,
            rate,
            outcome: made.outcome(shape, connections, depth),
        })
    });
    Contest {
        machine: Machine {
            cpu_model: "AMD EPYC 9654 96-Core Processor".into(),
            core_count: 16,
            kernel: "6.1.0-28-amd64".into(),
            date: "2026-11-22T04:00:00Z".into(),
            loadgen_version: "0.1.0".into(),
        },
        command: "waymaker-loadgen contest --spawn --contestants waymaker,redis,etcd,consul,postgres,slock --rounds 3 --slice 5s --seed 7 --page contest.html".into(),
        seed: 7,
        rounds: 3,
        slice_ms: 5_000,
        took_s: 1_843.2,
        is_partial: false,
        contestants: SIX
            .iter()
            .map(|made| Contestant {
                name: made.name.into(),
                version: made.version.into(),
                lock: made.lock.into(),
                outlives: made.outlives.into(),
                absent: None,
            })
            .collect(),
        measurements: measurements.collect(),
        memory: SIX
            .iter()
            .map(|made| Memory {
                contestant: made.name.into(),
                lock_count: 100_000,
                bytes_per_lock: made.bytes_per_lock,
            })
            .collect(),
        notes: vec![
            "etcd and consul write every lock to disk before they answer; the others here do not.".into(),
            "Servers and load share the machine's cores: servers on 0-7, load on 8-15.".into(),
        ],
    }
}

/// Long and special names, wrong responses, a missing system, and an interrupted contest.
fn contest_in_trouble() -> Contest {
    let mut contest = contest_of_six();
    contest.is_partial = true;
    contest.machine.cpu_model = "<script>alert('processor')</script> & \"sons\"".into();
    let long_name = "a-system-with-a-very-long-name-and-no-space-in-it";
    for measurement in &mut contest.measurements {
        if measurement.contestant == "slock" {
            measurement.contestant = long_name.into();
        }
        if let Outcome::Measured(measured) = &mut measurement.outcome
            && ["postgres", long_name].contains(&measurement.contestant.as_str())
        {
            measured.faults =
                vec!["12 keys were held twice".into(), format!("fence {} went back", "9".repeat(90))];
        }
    }
    contest.contestants[5].name = long_name.into();
    contest.contestants[5].version = format!("v{}", "0123456789".repeat(12));
    contest.contestants[3].absent = Some(
        "no program \"consul\" in <PATH> & no server listens at 127.0.0.1:8500: Connection refused".into(),
    );
    contest.measurements.retain(|measurement| measurement.contestant != "consul");
    contest.measurements.truncate(29);
    contest
}
