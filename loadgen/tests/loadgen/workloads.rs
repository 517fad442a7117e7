//! Workloads that only Waymaker supports: they run, all responses are correct, and their counts are plausible.

use crate::program::{Ended, Server, read_json, run};
use crate::waymaker::server;

/// Runs the workload for a short time; returns the result and its JSON.
fn play(server: &Server, more: &[&str]) -> (Ended, serde_json::Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let target = format!("waymaker://{}", server.address);
    let json = path.to_str().expect("text");
    let brief =
        ["--target", &target, "--duration", "500ms", "--warmup", "20ms", "--seed", "3", "--json", json];
    let ended = run(&[&brief[..], more].concat());
    ended.assert_success();
    (ended, read_json(&path))
}

#[test]
fn all_responses_for_sets_keys_and_permits_are_correct() {
    for workers in ["1", "2"] {
        let server = server(&["--workers", workers]);
        for shape in [
            &["--workload", "tree"][..],
            &[
                "--workload",
                "tree",
                "--tree-depth",
                "2",
                "--fan-out",
                "4",
                "--items",
                "3",
                "--read-share",
                "50",
            ],
            &[
                "--workload",
                "tree",
                "--tree-depth",
                "1",
                "--fan-out",
                "30",
                "--depth",
                "16",
                "--threads",
                "2",
            ],
            &["--workload", "multi"],
            &["--workload", "multi", "--keys", "20", "--items", "8", "--depth", "4", "--threads", "2"],
            &["--workload", "multi", "--keys", "9", "--items", "9", "--depth", "3", "--read-share", "50"],
            &["--workload", "semaphore", "--depth", "16", "--threads", "2"],
            &["--workload", "semaphore", "--keys", "2", "--capacity", "5", "--permits", "3"],
            &["--workload", "rw", "--keys", "10", "--read-share", "50"],
        ] {
            let (ended, json) = play(&server, &[&["--connections", "8"], shape].concat());
            assert!(json["result"]["requests_per_second"].as_f64() > Some(0.0), "{ended:#?}");
            assert!(ended.stdout.contains("acquire     p50"), "{ended:#?}");
        }
    }
}

#[test]
fn no_bucket_exceeds_its_rate_and_burst() {
    let server = server(&["--workers", "2"]);
    let shape = ["--workload", "throttle", "--connections", "4", "--depth", "16", "--threads", "2"];
    let tight = ["--keys", "3", "--bucket-rate", "100", "--burst", "7"];
    let (ended, json) = play(&server, &[&shape[..], &tight].concat());
    let count = |name: &str| json["result"]["allowed"][name].as_u64().expect("a number");
    let (asked, allowed, most) = (count("asked_count"), count("allowed_count"), count("allowed_count_max"));
    assert!(asked > 1000, "{ended:#?}");
    // The buckets were full at the start and regained tokens.
    assert!((3 * 7 + 3..=most).contains(&allowed), "{ended:#?}");
    // A stalling machine makes the run longer, which does not weaken the check.
    assert!(most >= 3 * (7 + 22 + 1), "{ended:#?}");
    // Large buckets allow every request.
    let (ended, json) = play(&server, &[&shape[..], &["--burst", "4000000000"]].concat());
    assert_eq!(
        json["result"]["allowed"]["asked_count"], json["result"]["allowed"]["allowed_count"],
        "{ended:#?}"
    );
}

#[test]
fn distinct_keys_are_used_once() {
    let server = server(&["--workers", "1"]);
    let (_, json) = play(&server, &["--keys", "distinct", "--connections", "3", "--depth", "8"]);
    assert_eq!(json["plan"]["has_distinct_keys"], true);
    assert!(json["result"]["requests_per_second"].as_f64() > Some(0.0));
}

#[test]
fn closed_connections_leave_no_holds() {
    let server = server(&["--workers", "2"]);
    for shape in [&[][..], &["--sessions"], &["--keys", "distinct"], &["--keys", "3"]] {
        let (ended, json) = play(&server, &[&["--workload", "churn", "--connections", "3"], shape].concat());
        assert!(json["result"]["visits_per_second"].as_f64() > Some(0.0), "{ended:#?}");
        let (visit, opening) = (&json["result"]["visit"], &json["result"]["opening"]);
        assert_eq!(visit["count"], opening["count"]);
        assert!(visit["max_ns"].as_u64() >= opening["max_ns"].as_u64(), "{ended:#?}");
    }
}

#[test]
fn all_leases_of_a_storm_expire_and_all_waiters_get_grants() {
    let server = server(&["--workers", "2"]);
    let shape = ["--workload", "expiry-storm", "--keys", "40k", "--waiters", "11k", "--lease", "4s"];
    let more = ["--connections", "8", "--rate", "200"];
    // Runs twice, so that leftovers of the first run would break the second.
    for _ in 0..2 {
        let (ended, json) = play(&server, &[&shape[..], &more].concat());
        let result = &json["result"];
        assert_eq!((&result["lease_count"], &result["connection_count"]), (&40_000.into(), &2.into()));
        for phase in ["before", "during", "after"] {
            assert!(result["unrelated"][phase]["count"].as_u64() > Some(0), "{phase} in {ended:#?}");
        }
        assert!(result["freed_after_ns"].as_u64() > Some(0), "{ended:#?}");
        assert!(result["granted_after_ns"].as_u64() > Some(0), "{ended:#?}");
    }
}

#[test]
fn all_readers_of_a_storm_get_grants() {
    let server = server(&["--workers", "2"]);
    let shape = ["--workload", "readers-storm", "--readers", "12k", "--connections", "8", "--rate", "200"];
    for _ in 0..2 {
        let (ended, json) = play(&server, &shape);
        let result = &json["result"];
        assert_eq!((&result["reader_count"], &result["connection_count"]), (&12_000.into(), &2.into()));
        assert!(
            result["granted_after_ns"].as_u64() >= result["first_granted_after_ns"].as_u64(),
            "{ended:#?}"
        );
        assert!(result["unrelated"]["before"]["count"].as_u64() > Some(0), "{ended:#?}");
        assert!(result["unrelated"]["after"]["count"].as_u64() > Some(0), "{ended:#?}");
    }
}

#[test]
fn rejects_a_lease_too_short_to_take_all_keys() {
    let server = server(&["--workers", "1"]);
    let target = format!("waymaker://{}", server.address);
    let ended = run(&["--target", &target, "--workload", "expiry-storm", "--keys", "50k", "--lease", "20ms"]);
    ended.assert_refused("--lease");
}
