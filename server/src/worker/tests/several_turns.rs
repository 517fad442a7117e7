//! Work that takes several turns, of one shard or of several.

use super::namespaces::listed;
use super::*;
use crate::limits::{BATCH_COST_MAX, SERVED_COST_MAX};
use waymaker_protocol::AcquireTerms;
use waymaker_protocol::message::acquire_keys::GRANTED_KEYS;
use waymaker_protocol::{Inspect, Namespaces, Watch};

/// A worker that needs several turns and finds one held knocks: it asks the holder of the turn for mail when the turn
/// is free. The holder must send this mail only after it has given the turn back. If the holder sent it when it serves
/// the knock, the worker would find the turn still held and knock again. On a node with many workers, the holder would
/// have to serve so many knocks that it could not give the turn back.
#[test]
fn a_worker_waiting_for_several_turns_is_notified_when_one_is_free() {
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect(SessionRequest::None);
    let turn = rig.hold_turn(b"a");
    let mut buffer = Vec::new();
    assert_eq!(rig.ask(key, 2, &Request::AcquireKeys(both_keys(&mut buffer))), []);
    let count = SERVED_COST_MAX as u32 / 16;
    for number in 0..count {
        assert_eq!(rig.ask(key, 3 + number, &Request::Inspect(Inspect { key: b"a" })), []);
    }
    rig.node.mailboxes[1].post(turn);
    rig.workers[1].handle_mail(rig.now);
    let mails = rig.node.mailboxes[0].take();
    assert!(
        mails.iter().any(|mail| matches!(mail, Mail::Turn { .. })),
        "it was left too much, and passes the turn on"
    );
    assert!(!mails.iter().any(|mail| matches!(mail, Mail::Knocked { .. })), "nobody gave the turn back");
    let is_answer = |mail: &Mail| if let Mail::Letters(letters) = mail { letters.len() } else { 0 };
    let answered = mails.iter().map(is_answer).sum::<usize>();
    assert!(
        answered < count as usize / 2 + 2,
        "{answered} of {count} were answered before others had their turns"
    );
    for mail in mails {
        rig.node.mailboxes[0].post(mail);
    }
    while rig.workers[0].handle_mail(rig.now) | rig.workers[1].handle_mail(rig.now) {}
    let heard = rig.hear(key);
    assert!(heard.contains(&(2, Heard::Other(GRANTED_KEYS))), "now it has both");
    assert_eq!(heard.len(), count as usize + 1, "no batch was forgotten");
}

/// One step tries only some of the requests that wait for several turns, so that connections have their turns between
/// the steps.
#[test]
fn very_many_requests_that_need_several_turns_retry_over_turns() {
    const REQUEST_COUNT: u32 = 500;
    let mut rig = Rig::new(2);
    let (key, _) = rig.connect(SessionRequest::None);
    let turn = rig.hold_turn(b"a");
    let mut buffer = Vec::new();
    let request = Request::AcquireKeys(both_keys(&mut buffer));
    for number in 2..2 + REQUEST_COUNT {
        assert_eq!(rig.ask(key, number, &request), []);
    }
    rig.node.mailboxes[1].post(turn);
    rig.workers[1].handle_mail(rig.now);
    let mut answered = Vec::new();
    while rig.workers[0].handle_mail(rig.now) {
        let numbers: Vec<_> = rig.hear(key).iter().map(|(number, _)| *number).collect();
        assert!(numbers.len() <= BATCH_COST_MAX / 2, "{} tries at once", numbers.len());
        answered.extend(numbers);
        while rig.workers[1].handle_mail(rig.now) {}
    }
    answered.sort_unstable();
    assert_eq!(answered, (2..2 + REQUEST_COUNT).collect::<Vec<_>>());
}

#[test]
fn requests_for_a_key_with_many_watches_are_served_in_order_over_turns() {
    const WATCH_COUNT: u32 = 1024;
    const ACQUIRE_COUNT: u32 = 200;
    for worker_count in [1, 2] {
        let mut rig = Rig::new(worker_count);
        let (watcher, asker) =
            (rig.open(b"many", NamespaceKind::Flat), rig.open(b"many", NamespaceKind::Flat));
        for number in 2..2 + WATCH_COUNT {
            rig.ask(watcher, number, &Request::Watch(Watch { key: b"watched" }));
        }
        let shared = Acquire { key: b"watched", shared: true, ..Acquire::default() };
        let acquires = (2..2 + ACQUIRE_COUNT).flat_map(|number| frame(number, &Request::Acquire(shared)));
        rig.say(asker, &acquires.collect::<Vec<_>>());
        let (mut told, mut answered) = (0, Vec::new());
        loop {
            let events = rig.hear(watcher).len();
            assert!(events <= 8 * 1024, "{events} events in one step");
            told += events as u32;
            answered.extend(rig.hear(asker).iter().map(|(number, _)| *number));
            let is_mail_left = rig.workers.iter_mut().any(|worker| worker.handle_mail(rig.now));
            if !is_mail_left && events == 0 {
                break;
            }
        }
        assert_eq!(told, WATCH_COUNT * ACQUIRE_COUNT);
        assert_eq!(answered, (2..2 + ACQUIRE_COUNT).collect::<Vec<_>>());
    }
}

/// Returns the number of holds and waiters in all shards. Each key of a claim counts.
pub(super) fn claim_count(node: &Node) -> u32 {
    let turns = node.shards.iter().map(|shard| shard.enter().expect("nobody has it"));
    turns
        .map(|turn| {
            let count = turn.shard.claim_count();
            assert!(turn.leave().is_none(), "nobody left a batch");
            count
        })
        .sum()
}

#[test]
fn multi_key_claims_of_a_lost_connection_leave_their_queues_over_turns() {
    const CLAIM_COUNT: u32 = 40;
    const KEY_COUNT: u32 = 64;
    let mut rig = Rig::new(1);
    let names: Vec<_> = (0..KEY_COUNT).map(u32::to_le_bytes).collect();
    let mut buffer = Vec::new();
    let items = names.iter().map(|key| KeyItem { key, shared: false });
    let items = Items::new(items, &mut buffer).expect("they fit");
    let request =
        AcquireKeys { items, terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() } };
    let (holder, _) = rig.connect(SessionRequest::None);
    rig.ask(holder, 2, &Request::AcquireKeys(request));
    let (key, _) = rig.connect(SessionRequest::None);
    for number in 0..CLAIM_COUNT {
        assert_eq!(rig.ask(key, 2 + number, &Request::AcquireKeys(request)), []);
    }
    let mut left = claim_count(&rig.node);
    assert_eq!(left, (CLAIM_COUNT + 1) * KEY_COUNT);
    rig.workers[0].handle_lost(key, rig.now);
    loop {
        let before = std::mem::replace(&mut left, claim_count(&rig.node));
        let gone = before - left;
        assert!(gone <= 2 * BATCH_COST_MAX as u32, "{gone} waiters left in one step");
        if !rig.workers[0].handle_mail(rig.now) {
            break;
        }
    }
    assert_eq!(left, KEY_COUNT, "all of them have left");
}

#[test]
fn claims_of_very_many_connections_are_counted_over_turns() {
    const CONNECTION_COUNT: u32 = 10_000;
    for worker_count in [1, 2] {
        let mut rig = Rig::new(worker_count);
        for number in 0..CONNECTION_COUNT {
            let key = rig.open(if number == 0 { b"other" } else { b"many" }, NamespaceKind::Flat);
            let name = number.to_le_bytes();
            rig.ask(key, 2, &Request::Acquire(Acquire { key: &name, ..Acquire::default() }));
        }
        let key = rig.open(b"many", NamespaceKind::Flat);
        rig.say(key, &frame(2, &Request::Namespaces(Namespaces::default())));
        let at_once = rig.take_output(key).expect("the connection is open");
        // To answer the request NAMESPACES, each shard counts the claims of its lanes, a limited number of lanes in one
        // turn. One worker has a single shard, which needs several turns for all lanes. With two workers there are
        // eight shards, each with so few lanes that one turn may suffice.
        assert!(worker_count > 1 || listed(&at_once).is_none(), "one turn counts a part of them");
        while rig.workers.iter_mut().any(|worker| worker.handle_mail(rig.now)) {}
        let later = rig.take_output(key).expect("the connection is open");
        let output = [at_once, later].concat();
        let counted = vec![(b"other".to_vec(), 1), (b"many".to_vec(), u64::from(CONNECTION_COUNT) - 1)];
        assert_eq!(listed(&output), Some(counted));
    }
}
