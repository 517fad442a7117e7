//! Sessions without a connection. A session that also has no claim in any shard is vacant, and ends before its lease.

use super::*;
use crate::limits::{
    SERVED_COST_MAX, SESSION_COUNT_MAX, SESSION_LEASE_MAX_MS, SESSION_VACANT_MS, VACANT_LANES_PER_TICK,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use waymaker_protocol::AcquireTerms;
use waymaker_protocol::{Bucket, Inspect, KeepAlive, Register, Release, Throttle};

const LONG: SessionRequest = SessionRequest::New { lease_ms: SESSION_LEASE_MAX_MS };
/// Time for the steps before the end of a session: all new connections are accepted, and all sockets are read.
const STEPS_MS: u64 = 20;

impl Rig {
    /// Lets `millis` pass. Then lets `STEPS_MS` pass, in each millisecond of which all workers run and read their
    /// sockets.
    pub(super) fn run_ms(&mut self, millis: u64) {
        self.now = self.now.after_ms(millis);
        for _ in 0..STEPS_MS {
            self.settle();
            self.now = self.now.after_ms(1);
        }
    }

    /// Runs all work that is due at this instant.
    fn settle(&mut self) {
        for _ in 0..10 {
            for worker in &mut self.workers {
                worker.handle_mail(self.now);
                while worker.next_deadline() <= self.now {
                    worker.tick(self.now);
                    if worker.wants_drain() {
                        break;
                    }
                }
                worker.handle_drained(self.now, self.now);
            }
        }
    }

    fn lose(&mut self, key: ConnectionKey) {
        self.workers[0].handle_lost(key, self.now);
    }

    /// Resumes the first lane of a session. Returns `None` if the session has ended.
    fn resume(&mut self, kind: NamespaceKind, welcome: &Welcome) -> Option<ConnectionKey> {
        let session = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
        let key = self.workers[0].handle_open(b"peer", self.now);
        let (version_min, version_max, worker) = (VERSION, VERSION, ANY_WORKER);
        let namespace = kind.name().as_bytes();
        let hello = Hello { version_min, version_max, kind, session, worker, namespace, ..Hello::default() };
        let next = self.say(key, &frame(1, &Request::Hello(hello)));
        let key = if let Next::Rebound(key) = next { key } else { key };
        let output = self.take_output(key).expect("the worker answers");
        match heard(&output)[..] {
            [(1, Heard::Welcome(_))] => Some(key),
            [(1, Heard::Refused(ErrorCode::SessionGone))] => None,
            ref other => panic!("{other:?}"),
        }
    }
}

/// Returns an acquire on the session lease.
pub(super) fn held(key: &[u8]) -> Request<'_> {
    Request::Acquire(Acquire {
        key,
        terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
        ..Acquire::default()
    })
}

/// Returns each request with its namespace kind, and whether it leaves a claim that lasts to the end of the test.
fn each_request() -> Vec<(NamespaceKind, Request<'static>, bool)> {
    let lease = |lease_ms| {
        Request::Acquire(Acquire {
            key: b"key",
            terms: AcquireTerms { lease_ms, ..AcquireTerms::default() },
            ..Acquire::default()
        })
    };
    let register = Register { lease_ms: 3_600_000, key: b"key", owner: b"o", ..Register::default() };
    let bucket = Bucket { rate: 1, period_ns: 1_000_000, burst: 9, cost: 9, name: b"b" };
    vec![
        (NamespaceKind::Flat, Request::KeepAlive(KeepAlive), false),
        (NamespaceKind::Flat, Request::Inspect(Inspect { key: b"key" }), false),
        (NamespaceKind::Flat, lease(10), false),
        (NamespaceKind::Flat, lease(3_600_000), true),
        (NamespaceKind::Flat, held(b"key"), true),
        (NamespaceKind::Registry, Request::Register(register), true),
        (NamespaceKind::Limit, Request::Throttle(Throttle { bucket, refund: false }), false),
    ]
}

#[test]
fn an_unconnected_session_lasts_its_lease_only_with_a_claim() {
    for worker_count in [1, 3] {
        for (kind, request, has_claim) in each_request() {
            let mut rig = Rig::new(worker_count);
            let (key, welcome) = rig.connect_to(kind, LONG);
            rig.ask(key, 2, &request);
            rig.settle();
            rig.lose(key);
            rig.run_ms(SESSION_VACANT_MS - 2 * STEPS_MS);
            let key =
                rig.resume(kind, &welcome).unwrap_or_else(|| panic!("{request:?}: not before its time"));
            rig.lose(key);
            rig.run_ms(SESSION_VACANT_MS - 2 * STEPS_MS);
            let key =
                rig.resume(kind, &welcome).unwrap_or_else(|| panic!("{request:?}: its time began anew"));
            rig.run_ms(2 * SESSION_VACANT_MS);
            rig.take_output(key).unwrap_or_else(|| panic!("{request:?}: it has a connection"));
            rig.lose(key);
            rig.run_ms(SESSION_VACANT_MS);
            rig.run_ms(SESSION_VACANT_MS);
            assert_eq!(rig.resume(kind, &welcome).is_some(), has_claim, "{request:?}");
        }
    }
}

#[test]
fn an_acquire_repeated_after_hours_gets_its_first_answer_while_held() {
    let mut rig = Rig::new(1);
    let (key, welcome) = rig.connect(LONG);
    let request = Request::Acquire(Acquire {
        key: b"key",
        terms: AcquireTerms { lease_ms: 7_200_000, ..AcquireTerms::default() },
        ..Acquire::default()
    });
    let granted = rig.ask(key, 2, &request);
    rig.lose(key);
    for _ in 0..60 {
        rig.run_ms(SESSION_VACANT_MS);
    }
    let key = rig.resume(NamespaceKind::Flat, &welcome).expect("it has a hold");
    assert_eq!(rig.ask(key, 2, &request), granted);
    rig.lose(key);
    for _ in 0..62 {
        rig.run_ms(SESSION_VACANT_MS);
    }
    assert_eq!(rig.resume(NamespaceKind::Flat, &welcome), None, "the hold has expired");
}

#[test]
fn a_session_that_still_has_another_connection_is_not_vacant() {
    let mut rig = Rig::new(1);
    let (first, welcome) = rig.connect(LONG);
    let (second, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
    rig.lose(first);
    rig.run_ms(2 * SESSION_VACANT_MS);
    let first = rig.resume(NamespaceKind::Flat, &welcome).expect("the session has a connection");
    rig.lose(second);
    rig.lose(first);
    rig.run_ms(SESSION_VACANT_MS);
    assert_eq!(rig.resume(NamespaceKind::Flat, &welcome), None);
}

/// The shard answers correctly that the session has no claim. But the answer arrives after another connection of the
/// session has acquired a hold.
#[test]
fn a_session_reconnected_during_its_claim_lookup_does_not_end() {
    let mut rig = Rig::new(2);
    let (key, welcome) = rig.connect(LONG);
    rig.ask(key, 2, &Request::Inspect(Inspect { key: b"key" }));
    rig.settle();
    rig.lose(key);
    rig.settle();
    let turn = rig.hold_turn(b"key");
    rig.now = rig.now.after_ms(SESSION_VACANT_MS);
    rig.workers[0].tick(rig.now);
    let key = rig.resume(NamespaceKind::Flat, &welcome).expect("the shard has not answered");
    assert_eq!(rig.ask(key, 3, &held(b"key")), []);
    rig.give_back(turn);
    let heard = rig.hear(key);
    assert!(matches!(heard[..], [(3, Heard::Granted(_))]), "{heard:?}");
    rig.lose(key);
    rig.run_ms(3 * SESSION_VACANT_MS);
    assert!(rig.resume(NamespaceKind::Flat, &welcome).is_some(), "it has a hold");
}

#[test]
fn idle_sessions_block_new_sessions_only_for_the_vacancy_limit() {
    let mut rig = Rig::new(1);
    for number in 0..SESSION_COUNT_MAX {
        let (key, _) = rig.connect(LONG);
        if number % 2 == 0 {
            rig.ask(key, 2, &Request::Inspect(Inspect { key: b"key" }));
        }
        rig.lose(key);
    }
    let hello = |rig: &mut Rig| {
        let key = rig.workers[0].handle_open(b"peer", rig.now);
        let hello = Hello { version_min: VERSION, version_max: VERSION, session: LONG, ..Hello::default() };
        rig.say(key, &frame(1, &Request::Hello(Hello { worker: ANY_WORKER, namespace: b"flat", ..hello })));
        heard(&rig.take_output(key).expect("an answer"))[0].1.clone()
    };
    assert_eq!(hello(&mut rig), Heard::Refused(ErrorCode::Overloaded));
    rig.run_ms(SESSION_VACANT_MS);
    assert!(matches!(hello(&mut rig), Heard::Welcome(_)));
}

/// Returns a name for each shard.
pub(super) fn names_of_shards(node: &Node) -> Vec<[u8; 4]> {
    let is_of = |name: &[u8], shard| usize::from(node.shard_of_key(name)) == shard;
    let name_of = |shard| (0..).map(|n: u32| n.to_le_bytes()).find(|name| is_of(name, shard));
    (0..node.shards.len()).filter_map(name_of).collect()
}

#[test]
fn a_single_hold_of_any_lane_in_any_shard_keeps_its_session() {
    for holder in [0, 1] {
        for held_shard in 0..names_of_shards(&Rig::new(2).node).len() {
            let mut rig = Rig::new(2);
            let (first, welcome) = rig.connect(LONG);
            let (second, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
            for (lane, key) in [first, second].into_iter().enumerate() {
                for (shard, name) in names_of_shards(&rig.node).iter().enumerate() {
                    let is_held = (lane, shard) == (holder, held_shard);
                    let request = if is_held { held(name) } else { Request::Inspect(Inspect { key: name }) };
                    rig.ask(key, 2 + shard as u32, &request);
                }
            }
            rig.lose(first);
            rig.lose(second);
            rig.run_ms(SESSION_VACANT_MS);
            let is_kept = rig.resume(NamespaceKind::Flat, &welcome).is_some();
            assert!(is_kept, "connection {holder} has a hold in shard {held_shard}");
        }
    }
}

#[test]
fn a_connection_that_joins_an_unconnected_session_keeps_it() {
    let mut rig = Rig::new(1);
    let (first, welcome) = rig.connect(LONG);
    rig.lose(first);
    rig.run_ms(SESSION_VACANT_MS / 2);
    let (second, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
    rig.run_ms(2 * SESSION_VACANT_MS);
    assert_eq!(rig.hear(second), [], "its session has not ended");
    assert!(rig.resume(NamespaceKind::Flat, &welcome).is_some());
}

/// Each shard looks up each lane, so a few hundred lost connections of one client can be work for milliseconds.
#[test]
fn claims_of_idle_sessions_with_many_connections_are_looked_up_over_several_turns() {
    const SESSION_COUNT: usize = 4;
    let mut rig = Rig::new(2);
    let shard_count = rig.node.shards.len();
    let names = names_of_shards(&rig.node);
    for _ in 0..SESSION_COUNT {
        for lane in rig.crowd(LONG) {
            for (number, name) in (2..).zip(&names) {
                rig.ask(lane, number, &Request::Inspect(Inspect { key: name }));
            }
            rig.lose(lane);
        }
    }
    rig.settle();
    rig.now = rig.now.after_ms(SESSION_VACANT_MS);
    let mut turn_count = 0;
    while rig.workers[0].next_deadline() <= rig.now {
        rig.workers[0].tick(rig.now);
        turn_count += 1;
    }
    let lookup_count = SESSION_COUNT * LANES_PER_SESSION_MAX * shard_count;
    assert!(
        turn_count >= lookup_count / VACANT_LANES_PER_TICK,
        "{turn_count} turns for {lookup_count} lookups"
    );
}

/// One worker asks a shard about many lanes of sessions, and another worker serves these questions. Without a limit for
/// one turn, they would delay the connections of that worker.
#[test]
fn a_worker_passes_the_turn_on_after_looking_up_many_lanes() {
    let mut rig = Rig::new(2);
    let name = b"key";
    for _ in 0..2 * SERVED_COST_MAX / LANES_PER_SESSION_MAX {
        for lane in rig.crowd(LONG) {
            rig.ask(lane, 2, &Request::Inspect(Inspect { key: name }));
            rig.lose(lane);
        }
    }
    rig.settle();
    let turn = rig.hold_turn(name);
    rig.now = rig.now.after_ms(SESSION_VACANT_MS);
    while rig.workers[0].next_deadline() <= rig.now {
        rig.workers[0].tick(rig.now);
    }
    rig.node.mailboxes[1].post(turn);
    rig.workers[1].handle_mail(rig.now);
    let mails = rig.node.mailboxes[0].take();
    let is_passed = mails.iter().any(|mail| matches!(mail, Mail::Turn { .. }));
    assert!(is_passed, "it was left too much, and passes the turn on");
}

/// This server has no other work: no requests, and no leases that end.
#[test]
fn an_idle_worker_wakes_up_to_end_an_unconnected_session() {
    let mut rig = Rig::new(1);
    let (key, welcome) = rig.connect(LONG);
    rig.lose(key);
    let end = rig.now.after_ms(SESSION_VACANT_MS + STEPS_MS);
    let worker = &mut rig.workers[0];
    while worker.next_deadline() <= end {
        rig.now = rig.now.max(worker.next_deadline());
        worker.tick(rig.now);
        if worker.wants_drain() {
            worker.handle_drained(rig.now, rig.now);
        }
    }
    assert_eq!(rig.resume(NamespaceKind::Flat, &welcome), None, "the session has ended");
}

/// State of a session, as the test knows it.
struct Known {
    welcome: Welcome,
    key: Option<ConnectionKey>,
    held: Option<waymaker_protocol::LockId>,
    last_number: u32,
    left_at: Time,
}

/// Random connections, losses, holds and pauses. A session with a connection or a hold never ends, and any other
/// session ends in time.
#[test]
fn random_sequences_end_exactly_the_unused_sessions() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut rig = Rig::new(*[1, 3].choose(&mut random).expect("two"));
        let mut sessions: Vec<Known> = (0..5)
            .map(|_| {
                let (key, welcome) = rig.connect(LONG);
                Known { welcome, key: Some(key), held: None, last_number: 1, left_at: rig.now }
            })
            .collect();
        for step in 0..300 {
            let number = random.random_range(0..sessions.len());
            let name = [b'a' + number as u8];
            let known = &mut sessions[number];
            known.last_number += 1;
            match (random.next_u32() % 4, known.key) {
                (0, Some(key)) => {
                    rig.lose(key);
                    (known.key, known.left_at) = (None, rig.now);
                }
                (1, Some(key)) if known.held.is_none() => {
                    rig.say(key, &frame(known.last_number, &held(&name)));
                    rig.settle();
                    let heard = rig.hear(key);
                    let [(_, Heard::Granted(granted))] = heard[..] else { panic!("{heard:?}") };
                    known.held = Some(granted.id);
                }
                (2, Some(key)) => {
                    if let Some(id) = known.held.take() {
                        rig.say(
                            key,
                            &frame(
                                known.last_number,
                                &Request::Release(Release { id, key: None, own: false }),
                            ),
                        );
                        rig.settle();
                        rig.hear(key);
                    }
                }
                (3, _) => rig.run_ms(random.random_range(0..SESSION_VACANT_MS)),
                (_, None) => {
                    let resumed = rig.resume(NamespaceKind::Flat, &known.welcome);
                    let vacant_ms = rig.now.ms_since(known.left_at);
                    let is_kept = known.held.is_some() || vacant_ms < SESSION_VACANT_MS;
                    let is_gone = known.held.is_none() && vacant_ms > 2 * SESSION_VACANT_MS + 2 * STEPS_MS;
                    let context = format!("seed {seed}, step {step}, {vacant_ms} ms");
                    assert!(resumed.is_some() || !is_kept, "{context}: the session has ended too early");
                    assert!(resumed.is_none() || !is_gone, "{context}: the session is kept");
                    known.key = resumed;
                    if resumed.is_none() {
                        let (key, welcome) = rig.connect(LONG);
                        (known.welcome, known.key, known.last_number) = (welcome, Some(key), 1);
                    }
                }
                _ => {}
            }
        }
    }
}
