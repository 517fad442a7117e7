//! The page shows all results, and external input stays text.

use super::render;
use crate::contest::result::{
    Contest, ContestShape, Contestant, Distribution, Measured, Measurement, Memory, Outcome,
};
use crate::latencies::Percentiles;
use crate::machine::Machine;

#[test]
fn shows_every_contestant_with_its_outcomes() {
    let mut contest = contest_of(&["waymaker", "redis", "etcd", "consul"]);
    contest.contestants[3].absent = Some("no server listens there".into());
    contest.measurements[1].outcome = Outcome::NotOffered("no such command".into());
    contest.measurements[2].outcome = Outcome::Failed("the line went dead".into());
    let page = render(&contest);
    for words in [
        "waymaker",
        "redis",
        "etcd",
        "consul",
        "absent: no server listens there",
        "not offered: no such command",
        "failed: the line went dead",
        "waymaker-loadgen contest --again",
        "<dd>77</dd>",
        "1m 1s",
        "a note to be read",
    ] {
        assert!(page.contains(words), "no {words:?}");
    }
    assert!(!page.contains("Interrupted.") && !page.contains("Wrong responses"));
}

#[test]
fn external_input_stays_text() {
    let evil = "<img src=x onerror=\"alert(1)\">'&";
    let mut contest = contest_of(&["waymaker", evil]);
    contest.machine.cpu_model = evil.into();
    contest.machine.kernel = evil.into();
    contest.machine.date = evil.into();
    contest.command = evil.into();
    contest.notes = vec![evil.into()];
    for contestant in &mut contest.contestants {
        contestant.version = evil.into();
        contestant.lock = evil.into();
        contestant.outlives = evil.into();
    }
    if let Outcome::Measured(measured) = &mut contest.measurements[1].outcome {
        measured.faults = vec![evil.into()];
    }
    contest.measurements.push(Measurement {
        shape: ContestShape::Renewals,
        outcome: Outcome::Failed(evil.into()),
        ..contest.measurements[1].clone()
    });
    let page = render(&contest);
    assert!(!page.contains("<img") && !page.contains("onerror=\""));
    assert!(page.contains("&lt;img src=x onerror=&quot;alert(1)&quot;&gt;'&amp;"));
}

#[test]
fn compares_the_others_with_the_first() {
    let mut contest = contest_of(&["waymaker", "redis"]);
    if let Outcome::Measured(measured) = &mut contest.measurements[1].outcome {
        measured.requests_per_s = 31_000.0;
    }
    let page = render(&contest);
    assert!(page.contains("31.0 k/s</span> <span class=\"ratio\">0.31 x"), "{page}");
}

#[test]
fn a_single_contestant_has_no_comparison() {
    let page = render(&contest_of(&["waymaker"]));
    assert!(page.contains("99 of 100 within") && !page.contains("The other"));
}

#[test]
fn reports_missing_measurements() {
    let mut contest = contest_of(&["waymaker", "redis"]);
    contest.measurements.clear();
    contest.memory.clear();
    contest.is_partial = true;
    let page = render(&contest);
    for words in ["were not measured", "Nothing was measured", "Interrupted.", "redis"] {
        assert!(page.contains(words), "no {words:?}");
    }
    contest.contestants.clear();
    assert!(render(&contest).contains("Nothing was measured"));
}

#[test]
fn shows_wrong_responses_first_and_in_plots() {
    let mut contest = contest_of(&["waymaker", "redis"]);
    if let Outcome::Measured(measured) = &mut contest.measurements[1].outcome {
        measured.faults = vec!["two held the same key".into()];
    }
    let page = render(&contest);
    let (warning, summary) =
        (page.find("Wrong responses").expect("said"), page.find("id=\"glance\"").expect("there"));
    assert!(warning < summary && page.contains("wrong responses: two held the same key"));
    assert!(page.contains(">redis (!)</text>"));
}

#[test]
fn invalid_numbers_do_not_panic() {
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE] {
        for ns in [0, 1, u64::MAX] {
            let mut contest = contest_of(&["waymaker", "redis"]);
            contest.took_s = value;
            contest.slice_ms = ns;
            contest.memory[0].bytes_per_lock = value;
            let odd = Distribution {
                percentiles: Percentiles {
                    p50_ns: ns,
                    p99_ns: ns / 2,
                    p999_ns: 1,
                    count: 1,
                    ..Percentiles::default()
                },
                curve: vec![(value, ns), (50.0, ns), (50.0, 7), (99.9, ns), (100.0, ns), (101.0, ns)],
            };
            let measured = Measured {
                requests_per_s: value,
                rounds: vec![value],
                latency: odd.clone(),
                hand_over: Some(odd.clone()),
                renewal: Some(odd),
                server_cpu_us_per_request: Some(value),
                faults: Vec::new(),
            };
            contest.measurements[0].outcome = Outcome::Measured(Box::new(measured));
            for shape in super::SHAPES {
                contest.measurements.push(Measurement { shape, depth: 2, ..contest.measurements[0].clone() });
            }
            let page = render(&contest);
            assert!(
                !page.contains("=\"NaN") && !page.contains("(NaN") && !page.contains(",NaN"),
                "{value} {ns}"
            );
        }
    }
}

#[test]
fn loads_nothing_and_runs_nothing() {
    let page = render(&contest_of(&["waymaker", "redis"]));
    for words in ["http:", "https:", "url(", "<script", "@import", "src="] {
        assert!(!page.contains(words), "{words:?}");
    }
}

/// A contest in which everything was measured, with pairs of 50 connections.
fn contest_of(names: &[&str]) -> Contest {
    let percentiles = Percentiles {
        p50_ns: 250_000,
        p90_ns: 300_000,
        p99_ns: 600_000,
        p999_ns: 900_000,
        max_ns: 2_000_000,
        count: 1_000_000,
    };
    let latency =
        Distribution { percentiles, curve: vec![(50.0, 250_000), (99.0, 600_000), (99.9, 900_000)] };
    let measured = Measured {
        requests_per_s: 100_000.0,
        rounds: vec![99_000.0, 100_000.0, 101_000.0],
        latency,
        hand_over: None,
        renewal: None,
        server_cpu_us_per_request: Some(5.0),
        faults: Vec::new(),
    };
    let each = names.iter().map(|name| (*name).to_owned());
    Contest {
        machine: Machine {
            cpu_model: "a processor".into(),
            core_count: 2,
            kernel: "6.1".into(),
            date: "2026-11-22T00:00:00Z".into(),
            loadgen_version: "0.1.0".into(),
        },
        command: "waymaker-loadgen contest --again".into(),
        seed: 77,
        rounds: 3,
        slice_ms: 1_000,
        took_s: 61.2,
        is_partial: false,
        contestants: each
            .clone()
            .map(|name| Contestant {
                name,
                version: "1.2.3".into(),
                lock: "with one command".into(),
                outlives: "its connection".into(),
                absent: None,
            })
            .collect(),
        measurements: each
            .clone()
            .map(|contestant| Measurement {
                shape: ContestShape::Pair,
                contestant,
                connections: 50,
                depth: 1,
                rate: None,
                outcome: Outcome::Measured(Box::new(measured.clone())),
            })
            .collect(),
        memory: each
            .map(|contestant| Memory { contestant, lock_count: 100_000, bytes_per_lock: 200.0 })
            .collect(),
        notes: vec!["a note to be read".into()],
    }
}
