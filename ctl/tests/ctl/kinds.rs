//! Semaphores, throttles, watches, registrations and commands of operators, with a real server.

use nix::sys::signal::Signal;

use crate::dynamodb::{PORT, Table};
use crate::fake::FakeServer;
use crate::program::{Running, ctl, eventually, output, stderr, stdout};
use crate::real::{RealServer, server};

/// Starts a command that holds a permit of a pool of two until it is dropped or gets a signal.
fn permit(server: &RealServer, options: &[&str]) -> Running {
    let words = ["semaphore", "pool", "--capacity", "2"];
    let command = ["--", "sh", "-c", "echo held $WAYMAKER_KEY $WAYMAKER_FENCE; sleep 1000"];
    let mut running = Running::start(ctl(server.url(), &[&words, options, &command].concat()));
    assert!(running.line().unwrap().starts_with("held pool "));
    running
}

fn run(server: &RealServer, words: &[&str]) -> std::process::Output {
    output(ctl(server.url(), words))
}

#[test]
fn a_pool_limits_the_number_of_running_commands() {
    let server = server!();
    let first = permit(&server, &["--owner", "first"]);
    let _second = permit(&server, &["--owner", "second"]);
    let try_it = ["semaphore", "pool", "--capacity", "2", "--wait", "0s", "--", "true"];
    let refused = run(&server, &try_it);
    assert_eq!(refused.status.code(), Some(120), "{}", stderr(&refused));
    let words = ["semaphore", "pool", "--capacity", "2", "--owner", "third", "--", "echo", "third"];
    let mut third = Running::start(ctl(server.url(), &words));
    let status = || stdout(&run(&server, &["pools", "inspect", "pool"]));
    while !status().contains("2 of 2 held, 1 waiting") {}
    let page = status();
    for owner in ["first", "second", "third"] {
        assert!(page.contains(owner), "{page}");
    }
    let json = stdout(&run(&server, &["pools", "inspect", "pool", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["capacity"], &json["waiters"][0]["owner"]), (&2.into(), &"third".into()));
    assert!(json["waiters"][0]["ticket"].is_u64() && json["holders"][0]["ticket"].is_null());
    first.signal(Signal::SIGTERM);
    assert_eq!(third.line().unwrap(), "third");
    assert_eq!(third.wait().code(), Some(0));
}

#[test]
fn another_capacity_is_refused_with_the_capacity_of_the_pool() {
    let server = server!();
    let _permit = permit(&server, &["--permits", "2"]);
    let refused = run(&server, &["semaphore", "pool", "--capacity", "3", "--", "true"]);
    assert_eq!(refused.status.code(), Some(123));
    assert!(stderr(&refused).contains("the pool has 2 permits"), "{}", stderr(&refused));
}

#[test]
fn a_larger_capacity_grants_permits_to_waiters() {
    let server = server!();
    assert_eq!(
        stdout(&run(&server, &["pools", "resize", "pool", "2"])),
        "pool: 2 permits, there was no such pool\n"
    );
    let _permits = [permit(&server, &[]), permit(&server, &[])];
    let mut third =
        Running::start(ctl(server.url(), &["semaphore", "pool", "--capacity", "2", "--", "echo", "third"]));
    while !stdout(&run(&server, &["pools", "inspect", "pool"])).contains("2 of 2 held, 1 waiting") {}
    assert_eq!(stdout(&run(&server, &["pools", "resize", "pool", "3"])), "pool: 3 permits, it had 2\n");
    assert_eq!(third.line().unwrap(), "third");
    assert_eq!(run(&server, &["pools", "resize", "pool", "-1"]).status.code(), Some(125));
    assert!(!run(&server, &["pools", "remove", "pool"]).status.success(), "the pool is in use");
    run(&server, &["pools", "resize", "other", "2"]);
    assert_eq!(stdout(&run(&server, &["pools", "remove", "other"])), "other: removed, it had 2\n");
}

#[test]
fn pools_are_listed_by_name_with_capacity_and_permits_in_use() {
    let server = server!();
    assert_eq!(
        stdout(&run(&server, &["pools", "list"])),
        "POOL  CAPACITY  HELD  WAITING  SET  ORDER  FENCE\n"
    );
    run(&server, &["pools", "resize", "queue/b", "5"]);
    run(&server, &["pools", "resize", "queue/a", "3"]);
    let _permit = permit(&server, &[]);
    let rows = |words: &[&str]| -> Vec<String> {
        let table = stdout(&run(&server, words));
        table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let all = ["pool 2 1 0 no arrival 1", "queue/a 3 0 0 yes arrival 0", "queue/b 5 0 0 yes arrival 0"];
    assert_eq!(rows(&["pools", "list"]), all);
    assert_eq!(rows(&["pools", "list", "--prefix", "queue/"]), all[1..]);
    assert_eq!(rows(&["--namespace", "other", "pools", "list"]), [""; 0]);
    let line = stdout(&run(&server, &["pools", "list", "--prefix", "queue/b", "--json"]));
    let pool: serde_json::Value = serde_json::from_str(&line).unwrap();
    let status = stdout(&run(&server, &["pools", "inspect", "queue/b", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    for (member, value) in pool.as_object().unwrap() {
        assert_eq!(value, &status[member], "{member} is as in `pools inspect`");
    }
    assert_eq!((&pool["pool"], &pool["capacity_is_set"]), (&"queue/b".into(), &true.into()));
    run(&server, &["pools", "remove", "queue/b"]);
    assert_eq!(rows(&["pools", "list", "--prefix", "queue/"]), all[1..2]);
    let long = run(&server, &["pools", "list", "--prefix", &"p".repeat(1025)]);
    assert!(!long.status.success());
    assert!(stderr(&long).contains("prefix"), "{}", stderr(&long));
}

#[test]
fn verify_compares_a_fence_with_the_newest_one() {
    let server = server!();
    let verify = |fence: &str| {
        let output = run(&server, &["locks", "verify", "k", fence]);
        (output.status.code(), stdout(&output))
    };
    let words = ["lock", "k", "--read", "--", "sh", "-c", "echo held; sleep 1000"];
    let mut holder = Running::start(ctl(server.url(), &words));
    assert_eq!(holder.line().unwrap(), "held");
    assert_eq!(verify("1"), (Some(0), "k: fence 1 is the newest, and held\n".to_owned()));
    let (code, text) = verify("2");
    assert_eq!(code, Some(121));
    assert!(
        text.starts_with("k: fence 2 is above every fence that this server knows (newest 1); "),
        "{text}"
    );
    assert!(run(&server, &["lock", "k", "--read", "--", "true"]).status.success());
    assert_eq!(verify("1"), (Some(121), "k: fence 1 is old; the newest is 2\n".to_owned()));
    assert_eq!(verify("2"), (Some(0), "k: fence 2 is the newest, and no longer held\n".to_owned()));
    assert_eq!(run(&server, &["locks", "verify", "k", "one"]).status.code(), Some(125));
}

#[test]
fn registrations_are_listed_by_key_with_type_and_value() {
    let server = server!();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = waymaker_client::Client::connect(server.url()).await.unwrap();
        for (key, type_name) in [("web/2", "presence"), ("db", "lock"), ("web/1", "presence")] {
            let registration =
                client.registry().registration(key).owner("me").value("10.0.0.7").type_name(type_name);
            registration.register(std::time::Duration::from_secs(60)).await.unwrap();
        }
        client.close().await.unwrap();
    });
    let first_cells = |words: &[&str]| -> Vec<String> {
        let table = stdout(&run(&server, words));
        table.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    assert_eq!(first_cells(&["registry", "list"]), ["KEY", "db", "web/1", "web/2"]);
    assert_eq!(first_cells(&["registry", "list", "--type", "presence"]), ["KEY", "web/1", "web/2"]);
    assert_eq!(first_cells(&["registry", "list", "--lazy"]), ["KEY"]);
    let line = stdout(&run(&server, &["registry", "list", "--type", "lock", "--json"]));
    let registration: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&registration["key"], &registration["owner"], &registration["value"]),
        (&"db".into(), &"me".into(), &"10.0.0.7".into())
    );
}

#[test]
fn a_forced_release_of_a_permit_stops_its_command_and_reports_the_reason() {
    let server = server!();
    let words = ["semaphore", "pool", "--capacity", "1", "--", "sh", "-c", "echo held; sleep 1000"];
    let mut command = ctl(server.url(), &words);
    let errors = tempfile::NamedTempFile::new().unwrap();
    command.stderr(errors.reopen().unwrap());
    let mut running = Running::start(command);
    assert_eq!(running.line().unwrap(), "held");
    let list = stdout(&run(&server, &["locks", "list", "--kind", "pool", "--json"]));
    let held: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(held["key"], "pool");
    let id = held["id"].as_str().unwrap();
    let words = ["locks", "force-release", id, "--reason", "the host is gone"];
    assert_eq!(run(&server, &words).status.code(), Some(123), "it is no plain key");
    let released = run(&server, &[&words[..], &["--kind", "pool"]].concat());
    assert!(stdout(&released).starts_with("pool: taken from "), "{}", stdout(&released));
    assert_eq!(running.line(), None);
    assert_eq!(running.wait().code(), Some(121));
    let told = std::fs::read_to_string(errors.path()).unwrap();
    assert!(told.contains("an operator released it (\"the host is gone\")"), "{told}");
    assert_eq!(run(&server, &[&words[..], &["--kind", "pool"]].concat()).status.code(), Some(123));
}

#[test]
fn a_throttled_command_does_not_run_and_reports_the_time_of_the_next_attempt() {
    let server = server!();
    let throttle = |options: &[&str]| {
        run(&server, &[&["throttle", "b", "--rate", "2/h", "--burst", "3"], options].concat())
    };
    assert_eq!(stdout(&throttle(&["--cost", "2", "--", "echo", "ran"])), "ran\n");
    let left = throttle(&["--peek"]);
    assert!(stdout(&left).starts_with("b: 1 left, full in "), "{}", stdout(&left));
    let refused = throttle(&["--cost", "2", "--", "echo", "ran"]);
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(119), String::new()));
    assert!(stderr(&refused).contains("try again in"), "{}", stderr(&refused));
    assert_eq!(throttle(&["--cost", "2", "--wait", "20ms"]).status.code(), Some(119));
    assert_eq!(throttle(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let never = throttle(&["--cost", "4", "--wait", "1h"]);
    assert_eq!(never.status.code(), Some(119), "{}", stderr(&never));
    for wrong in
        [&["throttle", "b"][..], &["throttle", "b", "--rate", "5"], &["throttle", "b", "--rate", "0/s"]]
    {
        assert_eq!(run(&server, wrong).status.code(), Some(125));
    }
    assert_eq!(throttle(&["--peek", "--wait", "1s"]).status.code(), Some(125));
}

#[test]
fn a_wait_for_tokens_ends_when_there_are_enough() {
    let server = server!();
    let words = ["throttle", "b", "--rate", "1/100ms", "--wait", "20s", "--", "echo", "ran"];
    for _ in 0..3 {
        assert_eq!(stdout(&run(&server, &words)), "ran\n");
    }
}

#[test]
fn throttle_reports_a_command_that_cannot_run_with_the_exit_codes_of_shells() {
    let server = server!();
    for (command, code) in [("./no-such-command", 127), ("/etc/passwd", 126)] {
        let output = run(&server, &["throttle", "b", "--rate", "9/s", "--", command]);
        assert_eq!(output.status.code(), Some(code));
        assert!(stderr(&output).contains(command), "{}", stderr(&output));
    }
}

#[test]
fn a_watch_prints_the_current_state_and_then_each_change() {
    let server = server!();
    let mut watch = Running::start(ctl(server.url(), &["locks", "watch", "k"]));
    assert_eq!(watch.line().unwrap(), "k: free, fence 0");
    let lock = |options: &[&str]| {
        let words = [&["lock", "k", "--owner", "me"], options, &["--", "cat"]].concat();
        assert!(run(&server, &words).status.success());
    };
    lock(&[]);
    // The watch may leave out the short hold, but not the state after it.
    while watch.line().unwrap() != "k: free, fence 1" {}
    let mut json = Running::start(ctl(server.url(), &["locks", "watch", "k", "--json"]));
    let first: serde_json::Value = serde_json::from_str(&json.line().unwrap()).unwrap();
    assert_eq!((&first["held"], &first["fence"]), (&false.into(), &1.into()));
    let words = ["lock", "k", "--owner", "me", "--read", "--", "sh", "-c", "echo held; sleep 1000"];
    let mut holder = Running::start(ctl(server.url(), &words));
    assert_eq!(holder.line().unwrap(), "held");
    assert_eq!(watch.line().unwrap(), "k: held for reading by me, fence 2");
    let held: serde_json::Value = serde_json::from_str(&json.line().unwrap()).unwrap();
    assert_eq!((&held["mode"], &held["owner"]), (&"read".into(), &"me".into()));
    // SIGINT may be ignored: a shell starts background jobs with SIGINT ignored, perhaps these tests.
    watch.signal(Signal::SIGTERM);
    assert!(!watch.wait().success());
}

#[test]
fn frozen_keys_are_not_granted_until_they_are_thawed() {
    let server = server!();
    assert_eq!(stdout(&run(&server, &["prefixes", "freeze", "eu/"])), "eu/: frozen; frozen prefixes: 1\n");
    assert_eq!(
        stdout(&run(&server, &["prefixes", "freeze", "eu/"])),
        "eu/: already frozen; frozen prefixes: 1\n"
    );
    let try_it = ["lock", "eu/k", "--wait", "0s", "--", "true"];
    let refused = run(&server, &try_it);
    assert_eq!(refused.status.code(), Some(123));
    assert!(stderr(&refused).contains("frozen"), "{}", stderr(&refused));
    assert_eq!(stdout(&run(&server, &["prefixes", "thaw", "eu/"])), "eu/: thawed; frozen prefixes: 0\n");
    assert_eq!(stdout(&run(&server, &["prefixes", "thaw", "eu/"])), "eu/: not frozen; frozen prefixes: 0\n");
    assert_eq!(run(&server, &try_it).status.code(), Some(0));
    assert_eq!(
        stdout(&run(&server, &["prefixes", "freeze", "--kind", "tree", ""])),
        "the whole namespace: frozen; frozen prefixes: 1\n"
    );
}

#[test]
fn claims_that_wait_are_listed_by_kind_and_key() {
    let server = server!();
    let start = |words: &[&str]| {
        let mut running = Running::start(ctl(server.url(), words));
        assert_eq!(running.line().unwrap(), "held");
        running
    };
    let command = ["--", "sh", "-c", "echo held; exec sleep 1000"];
    let _lock = start(&[&["lock", "eu/k"], &command[..]].concat());
    let _permit = start(&[&["semaphore", "pool", "--capacity", "1"], &command[..]].concat());
    let wait = |words: &[&str]| {
        let options = ["--owner", "waiter", "--", "true"];
        Running::start(ctl(server.url(), &[words, &options].concat()))
    };
    let waits = [
        wait(&["semaphore", "pool", "--capacity", "1"]),
        wait(&["lock", "eu/k", "--read", "--wait", "1h", "--priority", "7"]),
    ];
    let list = |options: &[&str]| -> Vec<Vec<String>> {
        let table = run(&server, &[&["locks", "list", "--waiting"], options].concat());
        assert_eq!(table.status.code(), Some(0), "{}", stderr(&table));
        let cells = |line: &str| {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
        };
        stdout(&table).lines().map(cells).collect()
    };
    eventually(|| list(&[]).len() == 3);
    let rows = list(&[]);
    assert_eq!(rows[0], ["KEY", "KIND", "MODE", "OWNER", "WAITING", "LEFT", "PRIORITY", "ID"]);
    assert_eq!(rows[1][..4], ["eu/k", "flat", "read", "waiter"]);
    assert!(
        ["59m 59s", "1h 0m"].contains(&rows[1][5].as_str()) || rows[1][5].starts_with("59m "),
        "{rows:?}"
    );
    assert_eq!((rows[1][6].as_str(), rows[1][7].len()), ("7", 32));
    assert_eq!(rows[2][..4], ["pool", "pool", "write", "waiter"]);
    assert_eq!((rows[2][5].as_str(), rows[2][6].as_str()), ("-", "0"));
    // The age of a wait rises between two lists.
    let without_age = |row: &Vec<String>| [&row[..4], &row[5..]].concat();
    let pools: Vec<_> = list(&["--kind", "pool"]).iter().map(without_age).collect();
    assert_eq!(pools, [&rows[0], &rows[2]].map(without_age));
    assert_eq!(list(&["--prefix", "us/"]).len(), 1);
    let json = stdout(&run(&server, &["locks", "list", "--waiting", "--prefix", "eu/", "--json"]));
    let claim: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&claim["key"], &claim["mode"], &claim["id"]),
        (&"eu/k".into(), &"read".into(), &rows[1][7].clone().into())
    );
    assert!(claim["age_ms"].is_u64() && claim["remaining_ms"].as_u64().unwrap() <= 3_600_000, "{claim}");
    let words = ["locks", "force-release", &rows[1][7], "--reason", "not now"];
    let released = stdout(&run(&server, &words));
    assert_eq!(released, "eu/k: cancelled the wait of waiter\n");
    for mut running in waits {
        running.signal(Signal::SIGTERM);
        running.wait();
    }
    eventually(|| list(&[]).len() == 1);
}

#[test]
fn reasons_of_changes_are_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let server = server!(None, &["--audit", path.to_str().unwrap()]);
    let acts: [(&[&str], [&str; 3]); 6] = [
        (&["prefixes", "freeze", "eu/", "--reason", "it moves"], ["freeze", "eu/", "it moves"]),
        (&["prefixes", "thaw", "eu/", "--reason", "it has moved"], ["thaw", "eu/", "it has moved"]),
        (&["prefixes", "freeze", "us/"], ["freeze", "us/", "none"]),
        (&["pools", "resize", "p", "3", "--reason", "a machine"], ["set-capacity", "p", "a machine"]),
        (&["pools", "remove", "p", "--reason", "it is gone"], ["set-capacity", "p", "it is gone"]),
        (&["pools", "resize", "p", "2"], ["set-capacity", "p", "none"]),
    ];
    for (words, _) in acts {
        let done = run(&server, words);
        assert_eq!(done.status.code(), Some(0), "{words:?}: {}", stderr(&done));
    }
    let audited = || -> Vec<[String; 3]> {
        let text = std::fs::read_to_string(&path).unwrap();
        // The last line may be written at this moment.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let acts = lines.filter(|line| line["act"] != "start");
        let told = |line: &serde_json::Value, name| line[name].as_str().unwrap_or("none").to_owned();
        acts.map(|line| ["act", "key", "reason"].map(|name| told(&line, name))).collect()
    };
    eventually(|| audited().len() >= acts.len());
    assert_eq!(audited(), acts.map(|(_, line)| line));
    let long = run(&server, &["prefixes", "freeze", "asia/", "--reason", &"r".repeat(257)]);
    assert_eq!(long.status.code(), Some(123));
    assert!(stderr(&long).contains("reason: 257 bytes; the maximum is 256"), "{}", stderr(&long));
    let empty = run(&server, &["pools", "resize", "p", "3", "--reason", " "]);
    assert_eq!(empty.status.code(), Some(125), "{}", stderr(&empty));
    assert_eq!(audited().len(), acts.len(), "nothing else was done");
}

/// The fake server speaks version 1.
#[test]
fn an_older_server_lists_no_waiters_and_gets_no_act_without_its_reason() {
    let server = FakeServer::start();
    for words in [
        &["locks", "list", "--waiting", "--kind", "flat"][..],
        &["prefixes", "freeze", "eu/", "--reason", "it moves"],
        &["prefixes", "thaw", "eu/", "--reason", "it has moved"],
    ] {
        let refused = output(ctl(server.url(), words));
        assert_eq!(refused.status.code(), Some(123), "{words:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains("upgrade the server"), "{}", stderr(&refused));
    }
}

#[test]
fn namespaces_are_listed_with_the_number_of_holds() {
    let server = server!();
    let _permits = [permit(&server, &["--namespace", "blue"]), permit(&server, &["--namespace", "blue"])];
    let table = stdout(&run(&server, &["namespaces", "list"]));
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let line = table.lines().find(|line| line.starts_with("sem/blue ")).unwrap();
    assert_eq!(cells(line), ["sem/blue", "pool", "2", "0", "0", "0", "0"]);
    let lines = stdout(&run(&server, &["namespaces", "list", "--json"]));
    let namespaces: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let pool = namespaces.iter().find(|namespace| namespace["namespace"] == "sem/blue").unwrap();
    assert_eq!((&pool["kind"], &pool["held"]), (&"pool".into(), &2.into()));
}

#[test]
fn only_an_empty_namespace_is_removed() {
    let server = server!();
    let mut holder = permit(&server, &["--namespace", "blue"]);
    let refused = run(&server, &["namespaces", "remove", "sem/blue"]);
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("use the namespace"), "{}", stderr(&refused));
    let built_in = run(&server, &["namespaces", "remove", "waymaker"]);
    assert!(stderr(&built_in).contains("is built in and cannot be removed"), "{}", stderr(&built_in));
    let unknown = run(&server, &["namespaces", "remove", "none"]);
    assert!(stderr(&unknown).contains("there is no namespace of this name"), "{}", stderr(&unknown));
    // The session of a killed holder would stay for the length of its lease.
    holder.signal(Signal::SIGTERM);
    holder.wait();
    eventually(|| stdout(&run(&server, &["namespaces", "remove", "sem/blue"])) == "sem/blue: removed\n");
    assert!(!stdout(&run(&server, &["namespaces", "list"])).contains("sem/blue"));
}

#[test]
fn a_registration_is_set_once_and_read_back() {
    let server = server!();
    let set = |options: &[&str]| run(&server, &[&["registry", "set", "k", "--value", "v"], options].concat());
    assert_eq!(run(&server, &["registry", "get", "k"]).status.code(), Some(118));
    let first = set(&["--type", "t", "--ttl", "1h"]);
    assert!(stdout(&first).starts_with("k: registered, fence 1, "), "{}", stdout(&first));
    let second = set(&[]);
    assert!(
        stdout(&second).starts_with("k: renewed, fence 1, "),
        "the owner is not the process: {}",
        stdout(&second)
    );
    let registration = stdout(&run(&server, &["registry", "get", "k", "--json"]));
    let registration: serde_json::Value = serde_json::from_str(&registration).unwrap();
    assert_eq!((&registration["value"], &registration["type"]), (&"v".into(), &"".into()));
    assert!(registration["remaining_ms"].as_u64().unwrap() <= 300_000);
    let third: serde_json::Value = serde_json::from_str(&stdout(&set(&["--ttl", "1h", "--json"]))).unwrap();
    let left = third["remaining_ms"].as_u64().unwrap();
    assert!((3_000_000..=3_600_000).contains(&left), "{left}");
    assert_eq!((&third["renewed"], &third["id"]), (&true.into(), &registration["id"]));
    assert_eq!(set(&["--owner", "another"]).status.code(), Some(120));
    assert_eq!(run(&server, &["registry", "get", "k", "--lazy"]).status.code(), Some(118));
    assert_eq!(set(&["--lazy", "--owner", "another"]).status.code(), Some(0));
    assert_eq!(run(&server, &["registry", "get", "k", "--lazy"]).status.code(), Some(0));
}

#[test]
fn only_its_owner_removes_a_registration() {
    let server = server!();
    let remove = |options: &[&str]| run(&server, &[&["registry", "remove", "k"], options].concat());
    assert_eq!(remove(&[]).status.code(), Some(118));
    for lazy in [&[][..], &["--lazy"]] {
        let set = [&["registry", "set", "k", "--value", "v", "--owner", "me"], lazy].concat();
        assert_eq!(run(&server, &set).status.code(), Some(0));
        assert_eq!(remove(&[&["--owner", "another"], lazy].concat()).status.code(), Some(123));
        assert_eq!(stdout(&remove(&[&["--owner", "me"], lazy].concat())), "k: removed\n");
        assert_eq!(run(&server, &[&["registry", "get", "k"], lazy].concat()).status.code(), Some(118));
    }
}

#[test]
fn the_status_of_a_server_has_its_version_capabilities_and_counts() {
    let server = server!();
    let _permit = permit(&server, &[]);
    let status = run(&server, &["server", "status"]);
    assert_eq!(status.status.code(), Some(0), "{}", stderr(&status));
    let page = stdout(&status);
    assert!(page.starts_with(&format!("{} responded in ", server.url())), "{page}");
    let begin = std::time::Instant::now();
    let status = stdout(&run(&server, &["server", "status", "--json"]));
    let elapsed_ms = begin.elapsed().as_secs_f64() * 1_000.0;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let response_ms = status["response_ms"].as_f64().unwrap();
    assert!(response_ms <= elapsed_ms, "{response_ms} ms are a part of the run of {elapsed_ms} ms");
    assert_eq!(status["protocol_version"], 2);
    assert_eq!((&status["status"], &status["reasons"]), (&"ready".into(), &serde_json::json!([])));
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    let address = server.url().strip_prefix("waymaker://").expect("its scheme");
    assert!(
        status["listeners"].as_array().unwrap().contains(&format!("binary={address}").into()),
        "{status}"
    );
    assert!(page.contains("\nSTATUS    ready\n"), "{page}");
    let capabilities = status["capabilities"].as_array().unwrap();
    assert!(capabilities.contains(&"ping".into()) && !capabilities.contains(&"scope_local".into()));
    let pools = status["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "pool").unwrap();
    assert_eq!(pools["held"], 1);
}

#[test]
fn locks_of_dynamodb_clients_are_listed_and_taken_like_others() {
    let server = server!(None, &PORT);
    let table = Table::create(server.listener("dynamodb"), "jobs");
    let registry = |words: &[&str]| {
        let all = [&["--namespace", "clever/jobs", "registry"], words, &["--lazy"]].concat();
        run(&server, &all)
    };
    assert!(table.acquire("k", "go"));
    assert!(stdout(&registry(&["list"])).contains("go"), "{}", stdout(&registry(&["list"])));
    let registration: serde_json::Value =
        serde_json::from_str(&stdout(&registry(&["get", "k", "--json"]))).unwrap();
    assert_eq!((&registration["owner"], &registration["type"]), (&"go".into(), &"dynamodb-row".into()));
    let set = ["set", "k", "--value", "v", "--owner", "ctl"];
    assert_eq!(registry(&set).status.code(), Some(120));
    assert_eq!(registry(&["remove", "k", "--owner", "go"]).status.code(), Some(0));
    assert_eq!(registry(&set).status.code(), Some(0));
    assert!(!table.acquire("k", "go"));
    assert!(table.current("k").contains(r#""owner":{"S":"ctl"}"#), "{}", table.current("k"));
    assert!(!table.release("k", "go"));
    assert!(table.release("k", "ctl"));
}
