//! Spans of traced acquires that end without a response, and acquires that have none.

use super::super::test_node::test_node_with_limits;
use super::*;
use crate::limits::SPAN_OPEN_COUNT_MAX;
use crate::traces::Traces;
use waymaker_engine::{LaneAddress, Limits, Ticket};
use waymaker_protocol::{AcquireOptions, AcquireSet, AcquireTerms, Goodbye, PathItem, PathKey};

const SESSION: SessionRequest = SessionRequest::New { lease_ms: 10_000 };
const TRACEPARENT: &[u8; 25] = &[1; 25];
/// Number of the first waiting acquire.
const FIRST: u32 = 10;

/// Returns workers of a server that exports traces.
fn traced_rig(worker_count: usize, limits: Limits) -> Rig {
    let now = Time::from_millis(1_000);
    let mut node = test_node_with_limits(worker_count, now, limits);
    Arc::get_mut(&mut node).expect("nobody shares it").traces = Traces::without_thread();
    Rig::of(node, now)
}

fn traced() -> AcquireOptions<'static> {
    AcquireOptions { traceparent: Some(TRACEPARENT), ..AcquireOptions::default() }
}

/// Sends traced acquires of the key `key`, one under each of these numbers.
fn wait_traced(rig: &mut Rig, key: ConnectionKey, numbers: std::ops::Range<u32>) {
    let acquire = Acquire {
        key: b"key",
        terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, options: traced(), ..AcquireTerms::default() },
        ..Acquire::default()
    };
    for number in numbers {
        rig.say(key, &frame(number, &Request::Acquire(acquire)));
    }
}

/// Sends a traced acquire of two keys while the second worker has the turn of the shard of one of them. Returns this
/// turn.
fn ask_for_both_keys(rig: &mut Rig, key: ConnectionKey) -> Mail {
    let turn = rig.hold_turn(b"a");
    let mut buffer = Vec::new();
    let keys = both_keys(&mut buffer).with_terms(|terms| terms.options = traced());
    assert_eq!(rig.ask(key, FIRST, &Request::AcquireKeys(keys)), []);
    turn
}

/// Lets the worker do its remaining work. Returns the number of spans that have ended since the last call.
fn ended_span_count(rig: &mut Rig) -> usize {
    for _ in 0..1_000 {
        rig.now = rig.now.after_ms(1);
        rig.workers[0].handle_mail(rig.now);
        rig.workers[0].handle_drained(rig.now, rig.now);
        rig.workers[0].tick(rig.now);
    }
    std::iter::from_fn(|| rig.workers[0].poll_span()).count()
}

fn hold_key(rig: &mut Rig) {
    let (holder, _) = rig.connect(SessionRequest::None);
    let request = Acquire {
        key: b"key",
        terms: AcquireTerms { lease_ms: 60_000, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    let heard = rig.ask(holder, 2, &Request::Acquire(request));
    assert!(matches!(heard[..], [(2, Heard::Granted(_))]), "{heard:?}");
}

/// Whether the first worker has no request with an audit event or a span. The worker then delivers answers without
/// looking for one.
fn follows_nothing(rig: &Rig) -> bool {
    rig.workers[0].state.followed.is_plain(Ticket { lane: LaneAddress::default(), number: 0 })
}

/// The shard answers only some waiters of the lost connection before their session ends; the others get no answer.
#[test]
fn spans_of_a_lost_connection_end_with_its_session() {
    const WAITER_COUNT: u32 = 200;
    let mut rig = traced_rig(1, Limits { work_per_turn: 8, ..Limits::default() });
    hold_key(&mut rig);
    let (lost, welcome) = rig.connect(SESSION);
    let (other, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
    wait_traced(&mut rig, lost, FIRST..FIRST + WAITER_COUNT);
    rig.workers[0].handle_lost(lost, rig.now);
    rig.ask(other, 3, &Request::Goodbye(Goodbye));
    assert_eq!(ended_span_count(&mut rig), WAITER_COUNT as usize);
    assert!(follows_nothing(&rig));
}

/// The client learns that its session has ended, and gets no other answer to its acquire.
#[test]
fn a_span_ends_when_its_client_hears_of_the_end_of_its_session() {
    let mut rig = traced_rig(1, Limits::default());
    hold_key(&mut rig);
    let (key, _) = rig.connect(SESSION);
    wait_traced(&mut rig, key, FIRST..FIRST + 1);
    rig.hear(key);
    rig.now = rig.now.after_ms(10_001);
    let ended = ended_span_count(&mut rig);
    let heard = rig.hear(key);
    assert!(matches!(heard[..], [(0, Heard::Other(opcode::SESSION_EXPIRED))]), "{heard:?}");
    assert_eq!(ended, 1);
}

/// The request still waits for the turns of its shards when its connection is lost.
#[test]
fn the_span_of_a_claim_that_was_not_served_ends_with_its_connection() {
    for ends_session in [false, true] {
        let mut rig = traced_rig(2, Limits::default());
        let (key, welcome) = rig.connect(SESSION);
        let (other, _) = rig.connect(SessionRequest::Join { id: welcome.session_id });
        let turn = ask_for_both_keys(&mut rig, key);
        rig.workers[0].handle_lost(key, rig.now);
        if ends_session {
            rig.say(other, &frame(3, &Request::Goodbye(Goodbye)));
        }
        rig.give_back(turn);
        assert_eq!(ended_span_count(&mut rig), 1, "{ends_session}");
        assert!(follows_nothing(&rig));
    }
}

#[test]
fn a_repeated_acquire_opens_no_further_span() {
    let mut rig = traced_rig(1, Limits::default());
    let (key, _) = rig.connect(SESSION);
    let acquire = Request::Acquire(Acquire {
        key: b"free",
        terms: AcquireTerms { options: traced(), ..AcquireTerms::default() },
        ..Acquire::default()
    });
    for _ in 0..2 {
        let heard = rig.ask(key, FIRST, &acquire);
        assert!(matches!(heard[..], [(FIRST, Heard::Granted(_))]), "{heard:?}");
    }
    assert_eq!(ended_span_count(&mut rig), 1);
    assert!(follows_nothing(&rig), "the repetition got the kept answer");
}

#[test]
fn a_refused_acquire_is_followed_no_longer() {
    let mut rig = traced_rig(1, Limits::default());
    let (key, _) = rig.connect(SessionRequest::None);
    // A namespace of kind flat does not serve sets of paths, so the request is refused before a shard sees it.
    let mut buffer = Vec::new();
    let items = Items::new([PathItem { write: true, path: PathKey::new(b"\x01\0a").unwrap() }], &mut buffer);
    let request = AcquireSet {
        items: items.unwrap(),
        terms: AcquireTerms { options: traced(), ..AcquireTerms::default() },
    };
    let heard = rig.ask(key, FIRST, &Request::AcquireSet(request));
    assert_eq!(heard, [(FIRST, Heard::Refused(ErrorCode::BadInput))]);
    assert!(follows_nothing(&rig));
    assert_eq!(ended_span_count(&mut rig), 1);
}

#[test]
fn a_worker_has_a_maximum_of_open_spans_and_counts_the_others() {
    let mut rig = traced_rig(1, Limits::default());
    hold_key(&mut rig);
    let (key, _) = rig.connect(SessionRequest::None);
    let count = SPAN_OPEN_COUNT_MAX as u32;
    wait_traced(&mut rig, key, FIRST..FIRST + count);
    assert_eq!(rig.node.traces.exported_and_dropped(), [0, 0]);
    wait_traced(&mut rig, key, FIRST + count..FIRST + count + 2);
    assert_eq!(rig.node.traces.exported_and_dropped(), [0, 2]);
    rig.workers[0].handle_lost(key, rig.now);
    assert_eq!(ended_span_count(&mut rig), SPAN_OPEN_COUNT_MAX);
}
