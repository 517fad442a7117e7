//! Logs of released versions of the server, read by this version of waymaker-ctl.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::fixture::Fixture;
use crate::program::{ctl, output, stderr, stdout};

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
