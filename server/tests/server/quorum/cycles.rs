//! Clients that never rest while members of the cluster, the server and its directory come and go.
//!
//! Of each key no fence may be given twice, and whoever asks once a grant was answered gets a larger one, whatever was lost
//! in between. `WAYMAKER_QUORUM_CYCLES` says how often something happens.

use super::fences::{copy, flags, quorum};
use super::has_etcd;
use super::members::Members;
use crate::harness::Server;
use crate::rigs::history::{Call, Entry, now};
use crate::rigs::link::{Link, Lost};
use crate::rigs::load::{Load, Target};
use crate::rigs::site;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use waymaker_protocol::{Acquire, ErrorCode, Release, Request, Response, SessionRequest};

/// Few enough that clients meet.
const KEY_COUNT: u32 = 3;
/// How long a client rests after a refusal.
const REST: Duration = Duration::from_millis(10);

/// One client: takes a key, writes its fence down, gives it back.
fn rest_never(number: u64, target: &Target) -> Vec<Entry> {
    let mut random = SmallRng::seed_from_u64(number);
    let mut history = Vec::new();
    let mut serial = 0;
    while let Some((next, address)) = target.next(serial) {
        serial = next;
        // What was asked of a server that is gone has no answer.
        let _ = serve(number, &address, target, &mut random, &mut history);
    }
    history
}

fn serve(
    number: u64,
    address: &str,
    target: &Target,
    random: &mut SmallRng,
    history: &mut Vec<Entry>,
) -> Result<(), Lost> {
    let Ok(mut link) = Link::open(address, &format!("client-{number}"), SessionRequest::None)? else {
        return Err(Lost);
    };
    let mut next_number = 2;
    while !target.is_over() {
        let key = random.random_range(0..KEY_COUNT);
        let name = format!("key-{key}");
        let shared = random.random_bool(0.3);
        let wait_ms = if random.random_bool(0.5) { 1_000 } else { 0 };
        // A hold that a restart forgets, or brings back, is not in the way for long.
        let acquire = Acquire { shared, wait_ms, lease_ms: 1_000, ..quorum(name.as_bytes()) };
        let invoked = now();
        let answer = link.ask(next_number, Request::Acquire(acquire))?;
        let call = Call { invoked, returned: now() };
        next_number += 2;
        match answer.response() {
            Response::Granted(granted) => {
                let (id, fence) = (granted.id, granted.fence);
                history.push(Entry::Granted { call, id, key, shared, fence, until: call.returned });
                target.grants.fetch_add(1, Ordering::Relaxed);
                link.ask(next_number - 1, Request::Release(Release { id, key: None }))?;
            }
            Response::Error(error) => match error.code {
                ErrorCode::Busy | ErrorCode::Timeout => std::thread::sleep(REST),
                ErrorCode::QuorumUnavailable => {
                    target.quorum_refusals[number as usize].fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(REST);
                }
                ErrorCode::Shutdown | ErrorCode::Cancelled => return Err(Lost),
                _ => history.push(Entry::Wrong { call, what: format!("{error:?}") }),
            },
            other => history.push(Entry::Wrong { call, what: format!("{other:?}") }),
        }
    }
    Ok(())
}

/// What happens in one cycle.
#[derive(Clone, Copy, Debug)]
enum Disaster {
    LeaderKilled,
    LeaderPaused,
    MemberKilled,
    MemberPaused,
    AllKilled,
    ServerKilled,
    DirectoryLost,
    DirectoryOld,
}

const DISASTERS: [Disaster; 8] = [
    Disaster::LeaderKilled,
    Disaster::ServerKilled,
    Disaster::MemberPaused,
    Disaster::DirectoryOld,
    Disaster::LeaderPaused,
    Disaster::DirectoryLost,
    Disaster::AllKilled,
    Disaster::MemberKilled,
];

/// The cluster, the server of the moment, and its directory.
struct Stage {
    members: Members,
    load: Load,
    directory: tempfile::TempDir,
    server: Option<Server>,
    shape: usize,
}

impl Stage {
    fn new() -> Self {
        let members = Members::start(3);
        let directory = tempfile::tempdir().expect("a directory");
        let mut stage = Self { members, load: Load::new(rest_never), directory, server: None, shape: 0 };
        stage.start();
        stage
    }

    fn data(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    fn old(&self) -> std::path::PathBuf {
        self.directory.path().join("old")
    }

    fn start(&mut self) {
        let flags = flags(&self.members);
        self.shape += 1;
        let workers = ["1", "2", "3"][self.shape % 3];
        let server = site::start(
            &self.data(),
            &[&flags.each_ref().map(String::as_str)[..], &["--workers", workers]].concat(),
        );
        self.load.turn_to(&server);
        self.server = Some(server);
    }

    fn kill_server(&mut self) {
        let mut server = self.server.take().expect("it runs");
        server.signal("KILL");
        server.wait();
    }

    fn wait_for_grants(&mut self, more: u64) {
        let server = self.server.as_mut().expect("it runs");
        assert!(self.load.wait_for_grants(more, server), "the server ended");
    }

    fn go_through(&mut self, disaster: Disaster) {
        match disaster {
            Disaster::LeaderKilled | Disaster::MemberKilled => {
                let index = self.one(matches!(disaster, Disaster::LeaderKilled));
                self.members.kill(index);
                self.wait_for_grants(30);
                self.members.restart(index);
            }
            Disaster::LeaderPaused | Disaster::MemberPaused => {
                let index = self.one(matches!(disaster, Disaster::LeaderPaused));
                self.members.pause(index);
                self.wait_for_grants(30);
                self.members.resume(index);
            }
            Disaster::AllKilled => {
                (0..3).for_each(|index| self.members.kill(index));
                // After its first refusal a client has no grant on the way any more.
                self.load.wait_for_quorum_refusals();
                let grants = || self.load.target.grants.load(Ordering::Relaxed);
                let before = grants();
                (0..3).for_each(|_| self.load.wait_for_quorum_refusals());
                assert_eq!(grants(), before, "granted by nobody");
                self.members.restart_all(&[0, 1, 2]);
            }
            Disaster::ServerKilled => {
                self.kill_server();
                self.start();
            }
            Disaster::DirectoryLost => {
                self.kill_server();
                std::fs::remove_dir_all(self.data()).expect("it is ours");
                self.start();
            }
            Disaster::DirectoryOld => {
                self.kill_server();
                let (data, old) = (self.data(), self.old());
                if old.exists() {
                    std::fs::remove_dir_all(&data).expect("it is ours");
                    copy(&old, &data);
                } else {
                    copy(&data, &old);
                }
                self.start();
            }
        }
        self.wait_for_grants(30);
    }

    fn one(&self, leads: bool) -> usize {
        let leader = self.members.leader();
        if leads { leader } else { (leader + 1) % 3 }
    }
}

/// Everything in this history that breaks the promise.
fn violations(history: &[Entry]) -> Vec<String> {
    let mut found = Vec::new();
    let mut grants: BTreeMap<u32, Vec<(u64, Call)>> = BTreeMap::new();
    for entry in history {
        match entry {
            Entry::Granted { call, key, fence, .. } => grants.entry(*key).or_default().push((*fence, *call)),
            Entry::Wrong { .. } => found.push(format!("{entry:?}")),
            _ => {}
        }
    }
    for (key, mut grants) in grants {
        grants.sort_by_key(|(fence, _)| *fence);
        for pair in grants.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            found.push(format!("key {key}: given twice: {pair:?}"));
        }
        let mut earliest_answer = u64::MAX;
        for (fence, call) in grants.iter().rev() {
            if earliest_answer < call.invoked {
                found.push(format!(
                    "key {key}: {fence} was asked for after a larger one was answered: {call:?}"
                ));
            }
            earliest_answer = earliest_answer.min(call.returned);
        }
    }
    found
}

#[test]
fn fences_rise_through_every_disaster() {
    if !has_etcd("fences through disasters") {
        return;
    }
    let cycles = site::count("WAYMAKER_QUORUM_CYCLES", DISASTERS.len() as u64);
    let mut stage = Stage::new();
    stage.wait_for_grants(30);
    for (cycle, disaster) in (0..cycles).zip(DISASTERS.iter().cycle()) {
        let begin = Instant::now();
        stage.go_through(*disaster);
        println!("cycle {cycle}: {disaster:?}, over after {:?}", begin.elapsed());
    }
    let Stage { load, server, members, directory, .. } = stage;
    let history = load.stop();
    drop((server, members, directory));
    let wrong = violations(&history);
    println!("{} answers", history.len());
    assert!(history.len() as u64 > 30 * cycles, "too little happened");
    assert!(wrong.is_empty(), "{} violations:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}

#[test]
fn the_checker_finds_what_is_wrong() {
    let granted = |fence, invoked, returned| {
        let id = waymaker_protocol::LockId { place: 0, secret: fence };
        Entry::Granted { call: Call { invoked, returned }, id, key: 1, shared: false, fence, until: 0 }
    };
    assert!(violations(&[granted(1, 0, 10), granted(2, 5, 15), granted(3, 20, 30)]).is_empty());
    assert!(violations(&[granted(2, 0, 10), granted(1, 5, 15)]).is_empty(), "they overlapped");
    assert_eq!(violations(&[granted(2, 0, 10), granted(1, 11, 15)]).len(), 1);
    assert_eq!(violations(&[granted(2, 0, 10), granted(2, 5, 15)]).len(), 1);
}
