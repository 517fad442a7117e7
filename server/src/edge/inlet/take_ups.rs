//! Tests of front ends that stop listening to an acquire. The inlet must release the hold of this acquire. But if a
//! newer acquire of the lane with the same request id has taken the hold over, the inlet must not release it.

use super::interleavings::open;
use super::{InletState, Reply};
use crate::mail::Mail;
use crate::node::Node;
use crate::worker::Worker;
use crate::worker::test_node::test_node;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use waymaker_engine::Time;
use waymaker_protocol::limits::IN_FLIGHT_MAX;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquireTerms, ErrorCode, Inspect, Items, KeyItem, Request, Response,
};

const KEY: &[u8] = b"key";
const NOW: Time = Time::from_millis(1_000);

struct Rig {
    node: Arc<Node>,
    worker: Worker,
    inlet: InletState,
}

impl Rig {
    fn new() -> Self {
        let node = test_node(1, NOW);
        let mut worker = Worker::new(Arc::clone(&node), 0, NOW);
        let inlet = open(&mut worker, NOW);
        Self { node, worker, inlet }
    }

    fn send(&mut self, request: &Request<'_>) -> u32 {
        let number = self.inlet.begin_asked();
        let mut frame = Vec::new();
        request.encode(number, &mut frame);
        self.inlet.send(&mut self.worker, number, &frame, NOW.into());
        number
    }

    fn acquire(&mut self) -> u32 {
        let options = AcquireOptions { request_id: Some(b"id"), ..AcquireOptions::default() };
        self.send(&Request::Acquire(Acquire {
            key: KEY,
            terms: AcquireTerms { lease_ms: 60_000, options, ..AcquireTerms::default() },
            ..Acquire::default()
        }))
    }

    fn acquire_multi_key(&mut self) -> u32 {
        let items = [KEY, b"another"].map(|key| KeyItem { shared: false, key });
        let mut buffer = Vec::new();
        let items = Items::new(items, &mut buffer).expect("two keys");
        self.send(&Request::AcquireKeys(AcquireKeys {
            items,
            terms: AcquireTerms { lease_ms: 60_000, ..AcquireTerms::default() },
        }))
    }

    fn leave(&mut self, number: u32) {
        self.inlet.leave(&mut self.worker, number, Some(KEY), NOW.into());
        self.serve();
    }

    fn serve(&mut self) {
        while self.worker.handle_mail(NOW) {}
        self.inlet.take_output(&mut self.worker);
    }

    /// Takes the turn of the shard of the key. The worker gets the turn back when the returned mail is posted to it.
    fn hold_turn(&self) -> Mail {
        let shard = self.node.shard_of_key(KEY);
        let turn = self.node.shards[usize::from(shard)].enter().expect("the turn is free");
        Mail::Turn { shard, pass: turn.pass_on() }
    }

    fn answer(&mut self, number: u32) -> Reply {
        self.serve();
        match self.inlet.poll_answer(number, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn is_held(&mut self) -> bool {
        let number = self.send(&Request::Inspect(Inspect { key: KEY }));
        let reply = self.answer(number);
        let Response::Inspected(inspected) = reply.response() else { panic!("{reply:?}") };
        inspected.holder_count == 1
    }
}

#[test]
fn an_unread_request_releases_its_hold_unless_a_repeated_request_took_it() {
    for is_taken_up in [false, true] {
        let mut rig = Rig::new();
        let older = rig.acquire();
        if is_taken_up {
            let newer = rig.acquire();
            assert!(matches!(rig.answer(newer).response(), Response::Granted(granted) if granted.repeated));
        }
        rig.serve();
        assert!(rig.is_held());
        rig.leave(older);
        assert_eq!(rig.is_held(), is_taken_up);
    }
}

/// The older acquire has the hold. The newer acquire has the same request id and waits, because the test has the turn
/// of the shard. During this wait, the front end stops listening to the older acquire. So the inlet sends a RELEASE of
/// its hold, and the newer acquire must not get this hold.
#[test]
fn a_repeated_request_is_not_granted_a_hold_being_released() {
    let mut rig = Rig::new();
    let older = rig.acquire();
    rig.serve();
    let turn = rig.hold_turn();
    let newer = rig.acquire();
    rig.leave(older);
    rig.node.mailboxes[0].post(turn);
    let reply = rig.answer(newer);
    assert!(
        matches!(reply.response(), Response::Error(error) if error.code == ErrorCode::Cancelled),
        "{reply:?}"
    );
    assert!(!rig.is_held());
    let again = rig.acquire();
    assert!(matches!(rig.answer(again).response(), Response::Granted(granted) if !granted.repeated));
}

/// When the listener leaves, the lane already has the maximum number of requests in flight. So the worker refuses the
/// RELEASE, and the inlet must send it again later.
#[test]
fn an_unread_request_releases_its_hold_even_if_its_lane_is_full() {
    let mut rig = Rig::new();
    let number = rig.acquire();
    rig.serve();
    let turn = rig.hold_turn();
    let questions: Vec<_> =
        (0..IN_FLIGHT_MAX).map(|_| rig.send(&Request::Inspect(Inspect { key: b"another" }))).collect();
    rig.leave(number);
    rig.node.mailboxes[0].post(turn);
    for question in questions {
        rig.answer(question);
    }
    assert!(!rig.is_held());
}

#[test]
fn an_unread_multi_key_request_releases_its_holds() {
    for is_abandoned in [false, true] {
        let mut rig = Rig::new();
        let turn = rig.hold_turn();
        let number = rig.acquire_multi_key();
        if is_abandoned {
            rig.leave(number);
        }
        rig.node.mailboxes[0].post(turn);
        rig.serve();
        if !is_abandoned {
            assert!(rig.is_held());
            rig.leave(number);
        }
        assert!(!rig.is_held(), "abandoned: {is_abandoned}");
    }
}

#[test]
fn an_abandoned_request_releases_its_hold_unless_a_repeated_request_took_it() {
    for is_taken_up in [false, true] {
        let mut rig = Rig::new();
        let turn = rig.hold_turn();
        let older = rig.acquire();
        if is_taken_up {
            rig.acquire();
        }
        rig.leave(older);
        rig.node.mailboxes[0].post(turn);
        rig.serve();
        assert_eq!(rig.is_held(), is_taken_up);
    }
}
