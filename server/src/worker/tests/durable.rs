//! Answers that wait for the log.

use super::*;
use crate::delivery::{mails, post};
use crate::log::LogOrder;
use crate::worker::test_node::test_node_with_log;
use crate::worker::tests::vacancy::names_of_shards;
use crossbeam_channel::Receiver;
use waymaker_engine::ReservedEnd;
use waymaker_log::limits::LOG_STALLED_MS;
use waymaker_protocol::message::goodbye::FAREWELL;
use waymaker_protocol::{
    AcquireOptions, AcquireTerms, Extend, ForceRelease, Freeze, Goodbye, Inspect, Release,
};

/// Makes all records in `orders` durable, in place of the log's thread. Posts the answers that waited for these records
/// to the mailboxes of the workers.
fn make_durable(rig: &Rig, orders: &Receiver<LogOrder>) {
    make_durable_all(rig, orders.try_iter());
}

pub(super) fn make_durable_all(rig: &Rig, orders: impl IntoIterator<Item = LogOrder>) {
    for order in orders {
        let LogOrder::Batch(batch) = order else { break };
        post(&rig.node, mails(batch.waiting.into_iter(), ReservedEnd::Begins(rig.now)), |_| {});
        let status = rig.node.log.as_ref().expect("the node has a log").status();
        batch.runs.iter().for_each(|run| status.set_durable(run.shard, run.last));
    }
}

/// The message names the cause: the server has a log, but its last sync takes too long.
#[test]
fn a_grant_that_needs_a_stalled_log_is_refused_for_that_reason() {
    let now = Time::from_millis(1_000);
    let (node, _orders) = test_node_with_log(1, now);
    node.log.as_ref().expect("the node has a log").status().set_busy_since(now);
    let mut rig = Rig::of(node, now.after_ms(LOG_STALLED_MS));
    let (key, _) = rig.connect(SessionRequest::None);
    let options = AcquireOptions { scope: Some(2), ..AcquireOptions::default() };
    rig.say(
        key,
        &frame(
            2,
            &Request::Acquire(Acquire {
                key: b"key",
                terms: AcquireTerms { options, ..AcquireTerms::default() },
                ..Acquire::default()
            }),
        ),
    );
    let output = rig.take_output(key).expect("the connection is open");
    let answer = next_frame(&output, FRAME_LEN_MAX).expect("a frame").expect("an answer");
    let Ok(Response::Error(error)) = Response::decode(answer) else { panic!("{answer:?}") };
    assert_eq!(error.code, ErrorCode::ScopeUnavailable);
    assert_eq!(
        error.to_string(),
        "scope_unavailable: the durable log has not confirmed a write for 10 s; durable grants resume when it does"
    );
}

/// A second request with the same request id takes over a hold, and a third request releases it. On a node of one
/// worker, the takeover may be durable before the worker has handled the notice of the log. The worker must still
/// answer the second request before it reports the end of the hold.
#[test]
fn a_holder_gets_its_durable_grant_before_the_end_of_its_hold() {
    let now = Time::from_millis(1_000);
    let (node, orders) = test_node_with_log(1, now);
    let mut rig = Rig::of(node, now);
    let ((first, _), (second, _)) = (rig.connect(SessionRequest::None), rig.connect(SessionRequest::None));
    let options = AcquireOptions { scope: Some(2), request_id: Some(b"id"), ..AcquireOptions::default() };
    let acquire = frame(
        2,
        &Request::Acquire(Acquire {
            key: b"key",
            terms: AcquireTerms { options, ..AcquireTerms::default() },
            ..Acquire::default()
        }),
    );
    rig.say(first, &acquire);
    make_durable(&rig, &orders);
    rig.workers[0].handle_mail(rig.now);
    let Heard::Granted(held) = rig.hear(first)[0].1 else { panic!() };
    rig.say(second, &acquire);
    make_durable(&rig, &orders);
    rig.say(first, &frame(3, &Request::Release(Release { id: held.id, key: None, own: false })));
    rig.workers[0].handle_mail(rig.now);
    let numbers: Vec<u32> = rig.hear(second).into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [2, 0], "the answer, and then the event");
}

/// Returns the frame of a request for both keys.
fn frame_of_both(names: &[[u8; 4]; 2], options: AcquireOptions<'_>) -> Vec<u8> {
    let items = names.each_ref().map(|name| KeyItem { shared: false, key: name });
    let mut buffer = Vec::new();
    let items = Items::new(items, &mut buffer).expect("two keys");
    frame(
        2,
        &Request::AcquireKeys(AcquireKeys {
            items,
            terms: AcquireTerms { lease_ms: 10, options, ..AcquireTerms::default() },
        }),
    )
}

/// A second worker has the turn of the shard of the first key, which sends the response for the whole claim. Another
/// client then ends the hold of the second key. The holder must get its grant before it hears of that end.
#[test]
fn a_multi_key_holder_gets_its_grant_before_any_key_ends() {
    let now = Time::from_millis(1_000);
    let (node, orders) = test_node_with_log(2, now);
    let mut names = [names_of_shards(&node)[0], names_of_shards(&node)[1]];
    names.sort_unstable();
    let [home, far] = names;
    let mut rig = Rig::of(node, now);
    let ((first, _), (second, _)) = (rig.connect(SessionRequest::None), rig.connect(SessionRequest::None));
    rig.say(first, &frame_of_both(&names, AcquireOptions { scope: Some(2), ..AcquireOptions::default() }));
    let turn = rig.hold_turn(&home);
    make_durable(&rig, &orders);
    rig.workers[0].handle_mail(rig.now);
    rig.say(second, &frame(2, &Request::Inspect(Inspect { key: &far })));
    let output = rig.take_output(second).expect("the connection is open");
    let frame_of = next_frame(&output, FRAME_LEN_MAX).expect("a frame").expect("an answer");
    let Ok(Response::Inspected(inspected)) = Response::decode(frame_of) else { panic!("{frame_of:?}") };
    for holder in &inspected.holders {
        rig.say(second, &frame(3, &Request::ForceRelease(ForceRelease { id: holder.id, reason: b"" })));
    }
    rig.give_back(turn);
    assert_eq!(rig.hear(first)[0].0, 2, "the answer comes first");
}

/// A second request with the same request id moves the claim to another connection before the claim is durable. The
/// shards record this move, so the answer waits for the records of the move too. Until then, no key of the claim is
/// held, and no lease of it expires.
#[test]
fn a_multi_key_claim_begins_with_the_answer_to_its_repeated_request() {
    let now = Time::from_millis(1_000);
    let (node, orders) = test_node_with_log(2, now);
    let mut names = [names_of_shards(&node)[0], names_of_shards(&node)[1]];
    names.sort_unstable();
    let mut rig = Rig::of(node, now);
    let ((first, _), (second, _)) = (rig.connect(SessionRequest::None), rig.connect(SessionRequest::None));
    let options = AcquireOptions { scope: Some(2), request_id: Some(b"id"), ..AcquireOptions::default() };
    let acquire = frame_of_both(&names, options);
    rig.say(first, &acquire);
    let before: Vec<LogOrder> = orders.try_iter().collect();
    rig.say(second, &acquire);
    make_durable_all(&rig, before);
    rig.workers[0].handle_mail(rig.now);
    rig.run_ms(50);
    assert_eq!(rig.hear(second), [], "the newer request is not in the log");
    make_durable(&rig, &orders);
    rig.workers[0].handle_mail(rig.now);
    make_durable(&rig, &orders);
    rig.workers[0].handle_mail(rig.now);
    rig.run_ms(50);
    let numbers: Vec<u32> = rig.hear(second).into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [2, 0, 0], "the answer, and then the end of each lease");
}

/// An earlier answer would be wrong: a crash could lose the first freeze, and no prefix would be frozen.
#[test]
fn a_repeated_freeze_is_answered_once_the_first_freeze_is_durable() {
    let now = Time::from_millis(1_000);
    let (node, orders) = test_node_with_log(2, now);
    let mut rig = Rig::of(node, now);
    let ((first, _), (second, _)) = (rig.connect(SessionRequest::None), rig.connect(SessionRequest::None));
    let freeze = frame(2, &Request::Freeze(Freeze { prefix: b"prefix", thaw: false, ..Freeze::default() }));
    for client in [first, second] {
        rig.say(client, &freeze);
        assert_eq!(rig.take_output(client), Some(Vec::new()), "the freeze is not durable");
    }
    make_durable(&rig, &orders);
    rig.workers[0].handle_mail(rig.now);
    for client in [first, second] {
        assert_ne!(rig.take_output(client), Some(Vec::new()), "the freeze is durable");
    }
}

/// Makes the log fail. The first worker handles the notice of that.
fn fail_log(rig: &mut Rig, orders: &Receiver<LogOrder>) {
    for order in orders.try_iter() {
        let LogOrder::Batch(batch) = order else { break };
        post(&rig.node, mails(batch.waiting.into_iter(), ReservedEnd::Unknown), |_| {});
    }
    rig.workers[0].handle_mail(rig.now);
}

/// The log has failed, and the server has not ended yet.
#[test]
fn an_acquire_with_an_unknown_outcome_is_answered_once_when_repeated() {
    let now = Time::from_millis(1_000);
    let (node, orders) = test_node_with_log(1, now);
    let mut rig = Rig::of(node, now);
    let ((first, _), (second, _)) = (rig.connect(SessionRequest::None), rig.connect(SessionRequest::None));
    let options = AcquireOptions { scope: Some(2), request_id: Some(b"id"), ..AcquireOptions::default() };
    let acquire = frame(
        2,
        &Request::Acquire(Acquire {
            key: b"key",
            terms: AcquireTerms { options, ..AcquireTerms::default() },
            ..Acquire::default()
        }),
    );
    let unknown = [(2, Heard::Refused(ErrorCode::Unknown))];
    rig.say(first, &acquire);
    fail_log(&mut rig, &orders);
    assert_eq!(rig.hear(first), unknown);
    rig.say(second, &acquire);
    fail_log(&mut rig, &orders);
    assert_eq!(rig.hear(first), []);
    assert_eq!(rig.hear(second), unknown);
}

/// A second worker has advanced one of the shards to a later time than the clock of this worker. The response must
/// still state the end of the lease correctly.
#[test]
fn a_multi_key_grant_promises_no_more_than_its_lease() {
    let now = Time::from_millis(1_000);
    for place in 0..2 {
        let (node, orders) = test_node_with_log(2, now);
        let mut names = [names_of_shards(&node)[0], names_of_shards(&node)[1]];
        names.sort_unstable();
        let mut rig = Rig::of(Arc::clone(&node), now);
        let (key, _) = rig.connect(SessionRequest::None);
        rig.say(key, &frame_of_both(&names, AcquireOptions { scope: Some(2), ..AcquireOptions::default() }));
        make_durable(&rig, &orders);
        let shard = node.shard_of_key(&names[place]);
        let mut turn = node.shards[usize::from(shard)].enter().expect("nobody has it");
        turn.shard.advance(now.after_ms(5));
        assert!(turn.leave().is_none());
        rig.workers[0].handle_mail(rig.now);
        let output = rig.take_output(key).expect("the connection is open");
        let answer = next_frame(&output, FRAME_LEN_MAX).expect("a frame").expect("an answer");
        let Ok(Response::GrantedKeys(granted)) = Response::decode(answer) else { panic!("{answer:?}") };
        let end_ms = granted.stamp_ms + u64::from(granted.keys[0].remaining_ms);
        assert_eq!(end_ms, now.after_ms(10).as_millis(), "shard {place} is ahead");
    }
}

/// One of the two keys has scope Local from an earlier hold, so the log records its changes. The other key has no
/// records. When a second client repeats the request id, the claim moves to that client. The log gets a record of this
/// move for the first key only. Until the record is durable, the second client has no grant. So it must not get events
/// about the other key before, although changes of that key need no record.
#[test]
fn a_multi_key_holder_gets_no_event_before_its_grant_is_durable() {
    let now = Time::from_millis(1_000);
    for local in 0..2 {
        let (node, orders) = test_node_with_log(2, now);
        let mut names = [names_of_shards(&node)[0], names_of_shards(&node)[1]];
        names.sort_unstable();
        let mut rig = Rig::of(node, now);
        let [first, second, third] = [(); 3].map(|()| rig.connect(SessionRequest::None).0);
        let options = AcquireOptions { scope: Some(2), ..AcquireOptions::default() };
        let acquire = Acquire {
            key: &names[local],
            terms: AcquireTerms { options, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        rig.say(third, &frame(2, &Request::Acquire(acquire)));
        make_durable(&rig, &orders);
        rig.workers[0].handle_mail(rig.now);
        let Heard::Granted(held) = rig.hear(third)[0].1 else { panic!() };
        rig.say(third, &frame(3, &Request::Release(Release { id: held.id, key: None, own: false })));
        let options = AcquireOptions { request_id: Some(b"id"), ..AcquireOptions::default() };
        rig.say(first, &frame_of_both(&names, options));
        make_durable(&rig, &orders);
        rig.workers[0].handle_mail(rig.now);
        let output = rig.take_output(first).expect("the connection is open");
        let answer = next_frame(&output, FRAME_LEN_MAX).expect("a frame").expect("an answer");
        let Ok(Response::GrantedKeys(granted)) = Response::decode(answer) else { panic!("{answer:?}") };
        let id = granted.keys[1 - local].id;
        rig.say(second, &frame_of_both(&names, options));
        let extend = Extend { id, key: None, lease_ms: 20, own: false };
        rig.say(third, &frame(4, &Request::Extend(extend)));
        rig.say(first, &frame_of_both(&names, options));
        rig.say(third, &frame(5, &Request::ForceRelease(ForceRelease { id, reason: b"" })));
        assert_eq!(rig.hear(second), [], "the move is not durable");
        make_durable(&rig, &orders);
        rig.workers[0].handle_mail(rig.now);
        let heard = |rig: &mut Rig, key| -> Vec<u32> {
            rig.hear(key).into_iter().map(|(number, _)| number).collect()
        };
        assert_eq!(heard(&mut rig, second), [2, 0], "the answer, and then the lease");
        assert_eq!(heard(&mut rig, first), [2, 0], "the answer, and then the end of a key");
    }
}

#[test]
fn nothing_follows_the_answer_to_a_goodbye_that_waited_for_the_log() {
    let now = Time::from_millis(1_000);
    for session in [SessionRequest::None, SessionRequest::New { lease_ms: 60_000 }] {
        let (node, orders) = test_node_with_log(2, now);
        let mut rig = Rig::of(node, now);
        let ((key, _), (other, _)) = (rig.connect(session), rig.connect(SessionRequest::None));
        let options = AcquireOptions { scope: Some(2), ..AcquireOptions::default() };
        rig.say(
            key,
            &frame(
                2,
                &Request::Acquire(Acquire {
                    key: b"key",
                    terms: AcquireTerms { options, ..AcquireTerms::default() },
                    ..Acquire::default()
                }),
            ),
        );
        make_durable(&rig, &orders);
        rig.workers[0].handle_mail(rig.now);
        let Heard::Granted(held) = rig.hear(key)[0].1 else { panic!() };
        let extend = Extend { id: held.id, key: None, lease_ms: 60_000, own: false };
        rig.say(other, &frame(2, &Request::Extend(extend)));
        rig.say(
            key,
            &frame(3, &Request::Freeze(Freeze { prefix: b"prefix", thaw: false, ..Freeze::default() })),
        );
        rig.say(key, &frame(4, &Request::Goodbye(Goodbye)));
        while rig.workers.iter_mut().any(|worker| worker.handle_mail(rig.now)) {}
        make_durable(&rig, &orders);
        rig.workers[0].handle_mail(rig.now);
        assert_eq!(rig.hear(key), [(4, Heard::Other(FAREWELL))]);
        assert_eq!(rig.take_output(key), None, "the connection is over");
    }
}
