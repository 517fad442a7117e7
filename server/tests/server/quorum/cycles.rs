//! Clients that never rest while members of the cluster, the server and its directory come and go.
//!
//! Of each key no fence may be given twice, and whoever asks once a grant was answered gets a larger one, whatever was lost
//! in between. `WAYMAKER_QUORUM_CYCLES` says how often something happens.

use super::fences::{copy, flags, quorum};
use super::has_etcd;
use super::members::Members;
use crate::harness::Server;
use crate::rigs::history::{Call, Entry, Micros, now};
use crate::rigs::link::{Link, Lost};
use crate::rigs::load::{Load, Target};
use crate::rigs::site;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use waymaker_protocol::{
    Acquire, AcquireOptions, AcquireTerms, ErrorCode, Release, Request, Response, SessionId, SessionRequest,
};

/// Few enough that clients meet.
const KEY_COUNT: u32 = 3;
/// How long a client rests after a refusal.
const REST: Duration = Duration::from_millis(10);

/// A session outlives the disasters around it, unless the server is down for longer.
const SESSION_LEASE_MS: u32 = 5_000;

/// A client that takes a key, notes its fence and releases it. Every acquire has a request id, and every second client has a
/// session. The client repeats an acquire without an answer, on the next server if need be.
struct Client {
    number: u64,
    random: SmallRng,
    session: Option<(SessionId, u16)>,
    next_number: u32,
    wish: Option<Wish>,
    wish_count: u64,
    history: Vec<Entry>,
}

/// An acquire that has no answer yet.
#[derive(Clone)]
struct Wish {
    number: u32,
    request_id: String,
    key: u32,
    shared: bool,
    wait_ms: u32,
    invoked: Micros,
}

fn rest_never(number: u64, target: &Target) -> Vec<Entry> {
    let random = SmallRng::seed_from_u64(number);
    let mut client = Client {
        number,
        random,
        session: None,
        next_number: 2,
        wish: None,
        wish_count: 0,
        history: Vec::new(),
    };
    let mut serial = 0;
    while let Some((next, address)) = target.next(serial) {
        serial = next;
        // The client repeats an unanswered acquire on the next server.
        let _ = client.serve(&address, target);
    }
    client.history
}

impl Client {
    fn connect(&mut self, address: &str) -> Result<Link, Lost> {
        let owner = format!("client-{}", self.number);
        if self.number.is_multiple_of(2) {
            return Link::open(address, &owner, SessionRequest::None)?.map_err(|_| Lost);
        }
        if let Some((id, lane)) = self.session.take()
            && let Ok(link) = Link::open(address, &owner, SessionRequest::Resume { id, lane })?
        {
            self.session = Some((id, lane));
            return Ok(link);
        }
        let link = Link::open(address, &owner, SessionRequest::New { lease_ms: SESSION_LEASE_MS })?;
        let link = link.map_err(|_| Lost)?;
        self.session = Some((link.welcome.session_id, link.welcome.lane));
        Ok(link)
    }

    fn serve(&mut self, address: &str, target: &Target) -> Result<(), Lost> {
        let mut link = self.connect(address)?;
        while !target.is_over() {
            let wish = match self.wish.take() {
                Some(wish) => wish,
                None => self.new_wish(),
            };
            self.wish = Some(wish.clone());
            self.ask(&mut link, &wish, target)?;
        }
        Ok(())
    }

    fn new_wish(&mut self) -> Wish {
        self.wish_count += 1;
        Wish {
            number: self.take_number(),
            request_id: format!("{}-{}", self.number, self.wish_count),
            key: self.random.random_range(0..KEY_COUNT),
            shared: self.random.random_bool(0.3),
            wait_ms: if self.random.random_bool(0.5) { 1_000 } else { 0 },
            invoked: now(),
        }
    }

    fn take_number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    /// Asks until there is an answer, which is written down.
    fn ask(&mut self, link: &mut Link, wish: &Wish, target: &Target) -> Result<(), Lost> {
        let Wish { number, key, shared, wait_ms, .. } = *wish;
        let name = format!("key-{key}");
        // A hold that a restart forgets, or brings back, is not in the way for long.
        let named = quorum(name.as_bytes());
        let options = AcquireOptions { request_id: Some(wish.request_id.as_bytes()), ..named.terms.options };
        let acquire = Acquire {
            shared,
            terms: AcquireTerms { wait_ms, lease_ms: 1_000, options, ..named.terms },
            ..named
        };
        target.asked.fetch_add(1, Ordering::Relaxed);
        let answer = link.ask(number, Request::Acquire(acquire));
        target.over.fetch_add(1, Ordering::Relaxed);
        let answer = answer?;
        self.wish = None;
        let call = Call { invoked: wish.invoked, returned: now() };
        let mut wrong = |what: String| self.history.push(Entry::Wrong { call, what });
        match answer.response() {
            Response::Granted(granted) => {
                let (id, fence) = (granted.id, granted.fence);
                self.history.push(Entry::Granted { call, id, key, shared, fence, until: call.returned });
                target.grants.fetch_add(1, Ordering::Relaxed);
                let release = self.take_number();
                link.ask(release, Request::Release(Release { id, key: None, own: false }))?;
            }
            Response::Error(error) => match error.code {
                ErrorCode::Busy | ErrorCode::Timeout => std::thread::sleep(REST),
                ErrorCode::QuorumUnavailable => {
                    target.quorum_refusals[self.number as usize].fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(REST);
                }
                ErrorCode::Shutdown | ErrorCode::Cancelled => return Err(Lost),
                _ => wrong(format!("{error:?}")),
            },
            other => wrong(format!("{other:?}")),
        }
        Ok(())
    }
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
    /// The server is killed with recorded grants that the cluster has not counted; later it loses its directory.
    KilledUncounted,
    DirectoryLost,
    DirectoryOld,
}

const DISASTERS: [Disaster; 9] = [
    Disaster::LeaderKilled,
    Disaster::ServerKilled,
    Disaster::KilledUncounted,
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
            Disaster::KilledUncounted => {
                // A paused member would count its pending requests when it resumes.
                (0..3).for_each(|index| self.members.kill(index));
                self.load.wait_until_all_ask();
                self.kill_server();
                let before = self.load.target.grants.load(Ordering::Relaxed);
                self.start();
                // The cluster is down, so no grant can have been counted.
                self.load.wait_for_quorum_refusals();
                let granted = self.load.target.grants.load(Ordering::Relaxed) - before;
                assert_eq!(granted, 0, "granted by nobody");
                self.members.restart_all(&[0, 1, 2]);
                self.wait_for_grants(1);
                self.kill_server();
                std::fs::remove_dir_all(self.data()).expect("it is ours");
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
fn fences_rise_across_every_kind_of_failure() {
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
fn the_checker_finds_fence_violations() {
    let granted = |fence, invoked, returned| {
        let id = waymaker_protocol::LockId { place: 0, secret: fence };
        Entry::Granted { call: Call { invoked, returned }, id, key: 1, shared: false, fence, until: 0 }
    };
    assert!(violations(&[granted(1, 0, 10), granted(2, 5, 15), granted(3, 20, 30)]).is_empty());
    assert!(violations(&[granted(2, 0, 10), granted(1, 5, 15)]).is_empty(), "they overlapped");
    assert_eq!(violations(&[granted(2, 0, 10), granted(1, 11, 15)]).len(), 1);
    assert_eq!(violations(&[granted(2, 0, 10), granted(2, 5, 15)]).len(), 1);
}
