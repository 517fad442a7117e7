//! Members that are killed or stop answering.

use super::asking::{Asking, create, options};
use super::has_etcd;
use super::members::Members;
use crate::harness::Watchdog;
use std::time::{Duration, Instant};
use waymaker_server::quorum::cluster::ClusterError;
use waymaker_server::quorum::options::QuorumOptions;

/// How long is waited for a member that may have failed.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Asks members in an order that begins with this one.
fn from(members: &Members, first: usize) -> QuorumOptions {
    let mut options = options(members);
    options.endpoints.rotate_left(first);
    options
}

/// Asks again and again until an answer comes; checks that what is said of the others is true.
fn goes_on(asking: &Asking, name: &str) {
    let begin = Instant::now();
    let mut errors = Vec::new();
    let mut watchdog = Watchdog::start();
    loop {
        let txn = create(&format!("{name}/{}", errors.len()), "v");
        let result = asking.all([txn], TIMEOUT).remove(0);
        let Err(error) = result else { break };
        errors.push(error);
        watchdog.look_again(|| format!("{name}: {errors:?}"));
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{name}: went on after {:?}, {errors:?}", begin.elapsed());
    for (index, error) in errors.iter().enumerate() {
        let found = asking.get(&format!("{name}/{index}")).expect("it went on");
        match error {
            ClusterError::NotSent { .. } => assert_eq!(found, None, "{name}: {error}"),
            ClusterError::Unknown { .. } => {}
            ClusterError::Refused { .. } | ClusterError::Unauthenticated { .. } => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn calls_fail_over_to_another_member() {
    if !has_etcd("members that fail") {
        return;
    }
    let mut members = Members::start(3);
    for (name, leads, is_killed) in [
        ("the leader is killed", true, true),
        ("the leader is paused", true, false),
        ("a follower is killed", false, true),
        ("a follower is paused", false, false),
    ] {
        let leader = members.leader();
        let failing = if leads { leader } else { (leader + 1) % 3 };
        // One client talks to the member that fails, and one to the next.
        let clients = [failing, (failing + 1) % 3].map(|first| Asking::with(&from(&members, first)));
        for client in &clients {
            client.txn(create("before", "v")).unwrap();
        }
        if is_killed {
            members.kill(failing);
        } else {
            members.pause(failing);
        }
        std::thread::scope(|scope| {
            scope.spawn(|| goes_on(&clients[0], &format!("{name}, and asked")));
            scope.spawn(|| goes_on(&clients[1], name));
        });
        if is_killed { members.restart(failing) } else { members.resume(failing) }
    }
}

#[test]
fn calls_that_fail_together_fail_over_to_one_member() {
    if !has_etcd("calls that fail together") {
        return;
    }
    let members = Members::start(3);
    let follower = (members.leader() + 1) % 3;
    let mut options = from(&members, follower);
    // The first is about to be paused, and nobody is at the third.
    options.endpoints[2] = "127.0.0.1:1".to_owned();
    let asking = Asking::with(&options);
    asking.txn(create("before", "v")).unwrap();
    members.pause(follower);
    let failed = asking.all((0..5).map(|index| create(&index.to_string(), "v")), TIMEOUT);
    let is_unknown = |result: &Result<_, _>| matches!(result, Err(ClusterError::Unknown { .. }));
    assert!(failed.iter().all(is_unknown), "{failed:?}");
    asking.txn(create("after", "v")).unwrap();
}

#[test]
fn every_call_times_out_if_no_member_is_available() {
    if !has_etcd("no member at all") {
        return;
    }
    let mut members = Members::start(3);
    let asking = Asking::of(&members);
    asking.txn(create("before", "v")).unwrap();
    let asked = |count: u32| {
        let txns = (0..count).map(|index| create(&index.to_string(), "v"));
        let results = asking.all_in_time(txns, TIMEOUT, TIMEOUT / 2);
        results.into_iter().map(Result::unwrap_err).collect::<Vec<_>>()
    };
    let not_sent = |error: &ClusterError| matches!(error, ClusterError::NotSent { .. });

    (0..3).for_each(|index| members.pause(index));
    // They were heard by nobody, but who knows that?
    let errors = asked(8);
    assert!(errors.iter().all(|error| matches!(error, ClusterError::Unknown { .. })), "{errors:?}");
    // Two members are paused whom nobody talks to yet: connections are made, and nothing was sent.
    for _ in 0..2 {
        let errors = asked(8);
        assert!(errors.iter().all(not_sent), "{errors:?}");
    }

    (0..3).for_each(|index| members.kill(index));
    for _ in 0..6 {
        let errors = asked(8);
        assert!(errors.iter().all(not_sent), "{errors:?}");
    }
    members.restart_all(&[0, 1, 2]);
    goes_on(&asking, "all came back");
    assert_eq!(asking.get("before").unwrap().map(|found| found.version), Some(1));
}
