//! Sets of keys, and sets of paths, whose unkeyed hashes are equal. Anyone can compute such sets in seconds, so a request id
//! that is used for both must not take one for the other.

use crate::node::Node;
use crate::recorder::{Effect, Recorder};
use std::sync::Arc;
use waymaker_engine::multi_key::{self, AcquireMultiKey, RequestedKey};
use waymaker_engine::{
    Acquire, AcquireOptions, AcquireSet, AcquireTerms, Answer, Caller, ClaimId, LaneAddress, LaneSlot,
    Limits, PageBounds, Refusal, Ticket, Time, TreeItem,
};

/// Beside the key `a` these two give equal FNV-1a hashes (of each key behind its length, and a zero).
pub(crate) const KEYS: [&[u8]; 2] = [
    b"\xca\xb5\x3d\xa7\xe7\x85\x67\x05\xef\x1d\x2b\x11\x4b\x71\xea\x9e",
    b"\xf7\x3e\xb6\x42\x3f\x0d\xed\xb7\x06\x32\xb7\xf5\xb3\x29\x15\xaf",
];

/// So do these as paths of one segment.
const PATHS: [&[u8]; 2] = [
    b"\x10\x00\x54\x71\xe5\x1f\x2b\x11\xf7\xb5\x04\xcc\x8c\xe4\xb8\xa8\x29\xab",
    b"\x10\x00\x67\xe8\x6c\x84\xd3\x89\x71\x03\xed\xb7\x00\x00\x50\xf0\xfe\x9a",
];

const VICTIM: LaneAddress = LaneAddress { worker: 0, slot: LaneSlot(1), generation: 0 };
const ATTACKER: LaneAddress = LaneAddress { worker: 0, slot: LaneSlot(2), generation: 0 };
const VICTIMS_NAMESPACE: u16 = 7;

struct Attack {
    node: Node,
    effects: Recorder,
    number: u32,
}

impl Attack {
    fn new() -> Self {
        let node = Node::new(3, Limits::default(), Time::from_millis(1000), 1);
        Self { node, effects: Recorder::default(), number: 0 }
    }

    fn caller(&mut self, address: LaneAddress, namespace: u16, shard: usize) -> Caller {
        self.number += 1;
        let lane = self.node.shards[shard].lane(address, &Arc::from(*b"owner"), namespace);
        Caller { lane, ticket: Ticket { lane: address, number: self.number }, namespace }
    }

    /// What was said to the newest request, if it was answered.
    fn answer(&mut self) -> Option<Answer> {
        let said = std::mem::take(&mut self.effects.said);
        said.into_iter().rev().find_map(|effect| match effect {
            Effect::Answer(ticket, answer) if ticket.number == self.number => Some(answer),
            _ => None,
        })
    }

    /// The victim holds a key in the last shard, in the record with the number that the attacker's stub has in another one.
    fn hold_victims_key(&mut self) -> ClaimId {
        let caller = self.caller(VICTIM, VICTIMS_NAMESPACE, 2);
        let shard = &mut self.node.shards[2];
        let hash = shard.hash(VICTIMS_NAMESPACE, b"v");
        let acquire = Acquire { key: b"v", hash, ..Acquire::default() };
        shard.acquire(&caller, &acquire, &mut self.effects);
        match self.answer() {
            Some(Answer::Granted(grant)) => grant.id,
            other => panic!("the key is free: {other:?}"),
        }
    }

    /// The holds of a lane in all shards.
    fn holds_of(&mut self, address: LaneAddress, namespace: u16) -> Vec<ClaimId> {
        let mut ids = Vec::new();
        for shard in 0..self.node.shards.len() {
            let caller = self.caller(address, namespace, shard);
            let bounds = PageBounds { count_max: 100, bytes_max: 10_000 };
            self.node.shards[shard].holds(&caller, 0, &bounds, &mut self.effects);
            let Some(Answer::Listed(page)) = self.answer() else { panic!("a page is the answer") };
            ids.extend(page.locks.iter().map(|lock| lock.id));
        }
        ids
    }

    /// The attacker asks for keys, each in a shard, always with the same request id.
    fn acquire(&mut self, wait_ms: u32, keys: &[(&[u8], u16)]) -> Option<Answer> {
        self.number += 1;
        let ticket = Ticket { lane: ATTACKER, number: self.number };
        let keys: Vec<_> =
            keys.iter().map(|(key, shard)| RequestedKey { key, shared: false, shard: *shard }).collect();
        let request = AcquireMultiKey {
            keys: &keys,
            terms: AcquireTerms {
                wait_ms,
                notify_queued: true,
                options: Some(&AcquireOptions { request_id: Some(b"r"), ..AcquireOptions::default() }),
                ..AcquireTerms::default()
            },
        };
        let shards = Node::distinct(keys.iter().map(|key| key.shard));
        let mut participants = self.node.participants(&shards, Some((ATTACKER, &Arc::from(*b"owner"), 0)));
        multi_key::acquire(&mut participants, ticket, 0, &request, &mut self.effects);
        self.node.verify();
        self.answer()
    }

    fn acquire_set(&mut self, wait_ms: u32, path: &[u8]) -> Option<Answer> {
        let caller = self.caller(ATTACKER, 0, 0);
        let request = AcquireSet {
            items: &[TreeItem { path, write: true }],
            terms: AcquireTerms {
                wait_ms,
                options: Some(&AcquireOptions { request_id: Some(b"r"), ..AcquireOptions::default() }),
                ..AcquireTerms::default()
            },
        };
        self.node.shards[0].acquire_set(&caller, &request, &mut self.effects);
        self.node.verify();
        self.answer()
    }
}

#[test]
fn a_waiting_set_is_not_confused_with_a_set_of_equal_hash() {
    let mut attack = Attack::new();
    let victims = attack.hold_victims_key();
    // The home waits for this hold, so all of the claim does.
    let Some(Answer::GrantedMultiKey(held)) = attack.acquire(0, &[(b"a", 0)]) else { panic!("it is free") };
    assert_eq!(attack.acquire(u32::MAX, &[(b"a", 0), (KEYS[0], 1)]), None);
    assert_eq!(attack.acquire(u32::MAX, &[(b"a", 0), (KEYS[1], 2)]), None);
    assert_eq!(attack.holds_of(VICTIM, VICTIMS_NAMESPACE), [victims], "the victim keeps its hold");
    assert_eq!(attack.holds_of(ATTACKER, 0), [held[0].grant.id]);
}

#[test]
fn a_set_of_equal_hash_also_waits_in_a_shard_without_claims() {
    let mut attack = Attack::new();
    assert!(matches!(attack.acquire(0, &[(b"a", 0)]), Some(Answer::GrantedMultiKey(_))));
    assert_eq!(attack.acquire(u32::MAX, &[(b"a", 0), (KEYS[0], 1)]), None);
    assert_eq!(attack.acquire(u32::MAX, &[(b"a", 0), (KEYS[1], 2)]), None);
}

#[test]
fn a_held_set_is_not_confused_with_a_set_of_equal_hash() {
    let mut attack = Attack::new();
    let first = attack.acquire(0, &[(b"a", 0), (KEYS[0], 1)]);
    assert!(matches!(first, Some(Answer::GrantedMultiKey(_))), "{first:?}");
    let second = attack.acquire(0, &[(b"a", 0), (KEYS[1], 2)]);
    assert!(matches!(second, Some(Answer::Refused(Refusal::Busy(_)))), "{second:?}");
}

#[test]
fn a_path_set_is_not_confused_with_one_of_equal_hash() {
    let mut attack = Attack::new();
    for wait_ms in [0, u32::MAX] {
        // Granted at first, then with an id of its own it would wait.
        attack.acquire_set(wait_ms, PATHS[0]);
        let other = attack.acquire_set(wait_ms, PATHS[1]);
        let is_refused =
            matches!(other, Some(Answer::Refused(Refusal::BadInput { field: "request_id", .. })));
        assert!(is_refused, "{other:?}");
    }
}
