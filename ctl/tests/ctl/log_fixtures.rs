//! Logs of released versions of the server, read by this version of waymaker-ctl.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::backup::Place;
use crate::fixture::Fixture;
use crate::output::objects;
use crate::program::{ctl, output, stderr, stdout};
use crate::real::server;

#[test]
fn the_log_of_every_older_version_is_complete_and_has_its_promised_contents() {
    for fixture in Fixture::all() {
        let name = &fixture.name;
        let place = tempfile::tempdir().unwrap();
        fixture.write_to(place.path());
        let log = |words: &[&str]| {
            let words = [words, &[place.path().to_str().unwrap()]].concat();
            let done = output(ctl("waymaker://127.0.0.1:1", &words));
            assert_eq!(done.status.code(), Some(0), "{name}: {}", stderr(&done));
            stdout(&done)
        };
        let (hold_count, counter_count) = (fixture.about("hold").count(), fixture.about("counter").count());
        let verified = log(&["log", "verify"]);
        assert!(
            verified.ends_with(&format!("; {hold_count} holds, {counter_count} counters\n")),
            "{name}: {verified}"
        );
        let end = fixture.about("log").next().unwrap().text("end");
        for (other, words) in
            [("stopped", "the server stopped cleanly"), ("torn", "an incomplete, unacknowledged end")]
        {
            assert_eq!(verified.contains(words), end == other, "{name}: {verified}");
        }

        let objects = log(&["log", "inspect", "--json"]);
        let objects: Vec<Value> = objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let shown: BTreeMap<_, _> = objects
            .iter()
            .filter(|object| object["about"] == "hold")
            .map(|hold| {
                let field = |name: &str| hold[name].as_str().unwrap().to_owned();
                (
                    field("id"),
                    (field("namespace"), hold["fence"].as_u64().unwrap(), field("owner"), field("scope")),
                )
            })
            .collect();
        let promised = fixture.about("hold").map(|hold| {
            let field = |name: &str| hold.text(name).to_owned();
            (field("id"), (field("namespace"), hold.u64("fence"), field("owner"), field("scope")))
        });
        assert_eq!(shown, promised.collect(), "{name}");
    }
}

/// The newest version of waymaker-ctl backs up and restores the directories of every older server.
#[test]
fn the_log_of_every_older_version_is_backed_up_and_restored_with_its_promised_holds() {
    for fixture in Fixture::all() {
        let name = &fixture.name;
        let place = Place::new();
        fixture.write_to(&place.path("data"));
        let backup = place.back_up("backup");
        let (hold_count, counter_count) = (fixture.about("hold").count(), fixture.about("counter").count());
        assert_eq!(backup["hold_count"], hold_count, "{name}");
        assert_eq!(backup["counter_count"], counter_count, "{name}");
        let restored = place.object(&["restore", "backup", "new"]);
        let promised = fixture.about("hold").map(|hold| (hold.text("id").to_owned(), hold.u64("fence")));
        assert_eq!(place.holds("new"), promised.collect(), "{name}");
        let highest = fixture.about("counter").map(|counter| counter.u64("fence")).max().unwrap();
        assert!(restored["fence_floor"].as_u64().unwrap() > highest, "{name}");
    }
}

/// Version 1 is the format of release 0.1.0.
#[test]
fn a_server_on_a_restored_log_of_version_1_has_all_holds_and_refuses_grants() {
    for name in ["stopped", "killed-compacted"] {
        let fixture = Fixture::read(1, name);
        let place = Place::new();
        fixture.write_to(&place.path("data"));
        place.back_up("backup");
        place.object(&["restore", "backup", "new"]);
        let server = server!(Some(&place.path("new")));
        let listed = stdout(&output(ctl(server.url(), &["namespaces", "list", "--json"])));
        let held: u64 = objects(&listed).iter().map(|namespace| namespace["held"].as_u64().unwrap()).sum();
        assert_eq!(held, fixture.about("hold").count() as u64, "{name}: {listed}");
        let refused = output(ctl(server.url(), &["lock", "new", "--wait", "0s", "--", "true"]));
        assert!(stderr(&refused).contains("recovering"), "{name}: {}", stderr(&refused));
    }
}
