//! Terms that all clients of a namespace share.

use crate::node::{Node, Places};
use crate::recorder::{Effect, Recorder};
use std::sync::Arc;
use waymaker_engine::multi_key::{self, AcquireMultiKey, RequestedKey};
use waymaker_engine::{
    Account, Acquire, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Answer, Caller, Fence, Grant,
    Holder, LaneAddress, LaneSlot, Lease, Limits, LogState, NamespaceTerms, PoolOrder, Quotas, Refusal,
    Register, Resource, Scope, Ticket, Time, TreeItem,
};
use waymaker_log::image::KeyCounter;

const START: Time = Time::from_millis(1000);
/// A namespace without terms.
const OTHER: u16 = 10;
const LOCAL: NamespaceTerms =
    NamespaceTerms { lease_default_ms: None, scope_min: Scope::Local, account: None };

/// One shard with the same terms for namespaces 0 to 3, which no client has used.
struct Rig {
    node: Node,
    number: u32,
    effects: Recorder,
}

/// A request in this namespace.
type Ask = fn(&mut Rig, u16);

/// A request for each kind of claim, each in a namespace of its own.
const ASKS: [(u16, Ask); 4] = [
    (0, |rig, namespace| rig.acquire(namespace, b"key", 0)),
    (1, Rig::acquire_multi_key),
    (2, Rig::acquire_permits),
    (3, Rig::acquire_set),
];

impl Rig {
    fn new(terms: &NamespaceTerms) -> Self {
        let mut node = Node::new(1, Limits::default(), START, 1);
        for namespace in 0..4 {
            node.shards[0].set_terms(namespace, terms.clone());
        }
        Self { node, number: 0, effects: Recorder::default() }
    }

    fn caller(&mut self, namespace: u16) -> Caller {
        self.number += 1;
        let address = LaneAddress { worker: 0, slot: LaneSlot(namespace.into()), generation: 0 };
        let lane = self.node.lane(0, address, &Arc::from(*b"owner"), namespace);
        Caller { lane, ticket: Ticket { lane: address, number: self.number }, namespace }
    }

    /// Returns lease and options of an acquire for this lease.
    fn in_terms(&self, namespace: u16, lease_ms: u32) -> (u32, AcquireOptions<'static>) {
        let (mut options, mut terms) = (AcquireOptions::default(), AcquireTerms::default());
        terms.lease_ms = lease_ms;
        self.node.shards[0].apply_terms(namespace, &mut terms, &mut options);
        (terms.lease_ms, options)
    }

    fn acquire(&mut self, namespace: u16, key: &[u8], lease_ms: u32) {
        let (lease_ms, options) = self.in_terms(namespace, lease_ms);
        let (caller, shard) = (self.caller(namespace), &mut self.node.shards[0]);
        let options = (options != AcquireOptions::default()).then_some(&options);
        let acquire = Acquire {
            key,
            hash: shard.hash(namespace, key),
            terms: AcquireTerms { lease_ms, options, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        shard.acquire(&caller, &acquire, &mut self.effects);
    }

    fn acquire_multi_key(&mut self, namespace: u16) {
        let (lease_ms, options) = self.in_terms(namespace, 0);
        let ticket = self.caller(namespace).ticket;
        let keys = [b"j", b"k"].map(|key| RequestedKey { key, shared: false, shard: 0 });
        let request = AcquireMultiKey {
            keys: &keys,
            terms: AcquireTerms { lease_ms, options: Some(&options), ..AcquireTerms::default() },
        };
        let asking = Some((ticket.lane, &Arc::from(*b"owner"), namespace));
        let mut participants = self.node.participants(&[0], asking);
        multi_key::acquire(&mut participants, ticket, namespace, &request, &mut self.effects);
    }

    fn acquire_permits(&mut self, namespace: u16) {
        let (lease_ms, options) = self.in_terms(namespace, 0);
        let caller = self.caller(namespace);
        let acquire = AcquirePermits {
            name: b"pool",
            capacity: Some(1),
            permits: 1,
            order: PoolOrder::Arrival,
            timestamp_us: 0,
            terms: AcquireTerms { lease_ms, options: Some(&options), ..AcquireTerms::default() },
        };
        self.node.shards[0].acquire_permits(&caller, &acquire, &mut self.effects);
    }

    fn acquire_set(&mut self, namespace: u16) {
        let (lease_ms, options) = self.in_terms(namespace, 0);
        let caller = self.caller(namespace);
        let items = [TreeItem { path: b"\x01\0a", write: true }];
        let acquire = AcquireSet {
            items: &items,
            terms: AcquireTerms { lease_ms, options: Some(&options), ..AcquireTerms::default() },
        };
        self.node.shards[0].acquire_set(&caller, &acquire, &mut self.effects);
    }

    fn register(&mut self, namespace: u16) {
        let (caller, lease) = (self.caller(namespace), Lease::FromNow(1000));
        let register = Register {
            key: b"k",
            owner: b"o",
            value: b"",
            type_name: b"",
            lease,
            lazy: false,
            ephemeral: true,
        };
        self.node.shards[0].register(&caller, &register, &mut self.effects);
    }

    /// The answers since the last call.
    fn answers(&mut self) -> Vec<Answer> {
        self.node.log.take(&mut self.effects, START);
        self.node.verify();
        let answer = |effect| match effect {
            Effect::Answer(_, answer) => Some(answer),
            _ => None,
        };
        std::mem::take(&mut self.effects.said).into_iter().filter_map(answer).collect()
    }

    fn granted(&mut self) -> Grant {
        let answers = self.answers();
        let [Answer::Granted(grant)] = answers[..] else { panic!("{answers:?}") };
        grant
    }

    /// Checks that the only answer is the refusal of a quota.
    fn assert_refused(&mut self, limit: &str, value: u64) {
        let answers = self.answers();
        let [Answer::Refused(Refusal::Overloaded { limit: own, value: max })] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert_eq!((*own, *max), (limit, value));
    }

    /// The log becomes durable.
    fn sync(&mut self) {
        self.node.log.take(&mut self.effects, START);
        self.node.sync(usize::MAX, START, START, &mut self.effects);
    }
}

#[test]
fn a_request_for_the_default_lease_gets_the_lease_of_its_namespace() {
    let mut rig = Rig::new(&NamespaceTerms { lease_default_ms: Some(45_000), ..NamespaceTerms::default() });
    // The key is unknown, then known and free.
    for _ in 0..2 {
        for (namespace, lease_ms, remaining_ms) in
            [(0, 0, 45_000), (0, 2_000, 2_000), (OTHER, 0, Limits::default().lease_default_ms)]
        {
            rig.acquire(namespace, b"key", lease_ms);
            let grant = rig.granted();
            assert_eq!(grant.remaining_ms, remaining_ms);
            let caller = rig.caller(namespace);
            rig.node.shards[0].extend(&caller, grant.id, None, lease_ms, &mut rig.effects);
            let answers = rig.answers();
            assert!(
                matches!(answers[..], [Answer::Extended { remaining_ms: extended, .. }] if extended == remaining_ms),
                "{answers:?}"
            );
            rig.node.shards[0].release(&caller, grant.id, None, &mut rig.effects);
            rig.answers();
        }
    }
}

#[test]
fn a_hold_of_a_session_has_no_default_lease() {
    let mut rig = Rig::new(&NamespaceTerms { lease_default_ms: Some(45_000), ..NamespaceTerms::default() });
    let mut terms = AcquireTerms { session_lease: true, ..AcquireTerms::default() };
    let caller = rig.caller(0);
    let shard = &mut rig.node.shards[0];
    shard.apply_terms(0, &mut terms, &mut AcquireOptions::default());
    let acquire = Acquire { key: b"key", hash: shard.hash(0, b"key"), terms, ..Acquire::default() };
    shard.acquire(&caller, &acquire, &mut rig.effects);
    assert!(rig.granted().session_lease);
}

#[test]
fn a_claim_of_a_lower_scope_is_raised_to_the_lowest_of_its_namespace() {
    for (namespace, ask) in ASKS {
        let mut rig = Rig::new(&LOCAL);
        rig.node.set_log_state(LogState::Ready);
        ask(&mut rig, namespace);
        assert!(rig.answers().is_empty(), "namespace {namespace}: granted before the log has it");
        rig.sync();
        let answers = rig.answers();
        assert!(matches!(answers[..], [Answer::Granted(_) | Answer::GrantedMultiKey(_)]), "{answers:?}");
        ask(&mut rig, OTHER);
        assert_eq!(rig.answers().len(), 1, "namespace {namespace}: another namespace has no terms");
    }
}

#[test]
fn a_claim_is_refused_if_the_lowest_scope_of_its_namespace_is_unavailable() {
    for scope_min in [Scope::Local, Scope::Quorum] {
        for (namespace, ask) in ASKS {
            let mut rig = Rig::new(&NamespaceTerms { scope_min, ..NamespaceTerms::default() });
            ask(&mut rig, namespace);
            let answers = rig.answers();
            let [Answer::Refused(Refusal::ScopeUnavailable(scope))] = answers[..] else {
                panic!("{answers:?}")
            };
            assert_eq!(scope, scope_min);
            ask(&mut rig, OTHER);
            assert_eq!(rig.answers().len(), 1);
        }
    }
}

#[test]
fn no_known_key_of_a_namespace_with_a_lowest_scope_is_granted_at_once() {
    let mut rig = Rig::new(&LOCAL);
    rig.node.set_log_state(LogState::Ready);
    // An earlier server without these terms counted in memory, and stopped cleanly.
    let counter = KeyCounter { namespace: 0, key: b"old", fence: Fence::new(7), scope: Scope::Ephemeral };
    rig.node.shards[0].restore_counter(&counter);
    for key in [&b"old"[..], b"new", b"new"] {
        rig.acquire(0, key, 0);
        assert!(rig.answers().is_empty());
        rig.sync();
        let grant = rig.granted();
        assert_eq!(grant.fence > Fence::new(7), key == b"old");
        let caller = rig.caller(0);
        rig.node.shards[0].release(&caller, grant.id, None, &mut rig.effects);
        rig.sync();
        rig.answers();
    }
}

#[test]
fn an_ephemeral_registration_is_raised_too() {
    let mut rig = Rig::new(&LOCAL);
    rig.register(0);
    let answers = rig.answers();
    assert!(matches!(answers[..], [Answer::Refused(Refusal::ScopeUnavailable(Scope::Local))]), "{answers:?}");
    rig.node.set_log_state(LogState::Ready);
    rig.register(0);
    assert!(rig.answers().is_empty());
    rig.sync();
    let answers = rig.answers();
    assert!(matches!(answers[..], [Answer::Registered(_)]), "{answers:?}");
    rig.register(OTHER);
    assert_eq!(rig.answers().len(), 1);
}

#[test]
fn the_account_of_a_namespace_counts_the_claims_of_all_its_clients() {
    let mut quotas = Quotas::default();
    quotas.set(Resource::Claims, 2);
    let account = Arc::new(Account::new(Holder::Namespace, &quotas));
    let mut rig =
        Rig::new(&NamespaceTerms { account: Some(Arc::clone(&account)), ..NamespaceTerms::default() });
    rig.acquire(OTHER, b"a", 0);
    rig.granted();
    assert_eq!(account.used(Resource::Claims), 0, "the claims of another namespace do not count");
    rig.acquire(0, b"a", 0);
    let first = rig.granted();
    rig.acquire(0, b"bcd", 0);
    rig.granted();
    assert_eq!((account.used(Resource::Claims), account.used(Resource::Bytes)), (2, 4));
    rig.acquire(0, b"c", 0);
    rig.assert_refused("claims of the namespace", 2);
    let caller = rig.caller(0);
    rig.node.shards[0].release(&caller, first.id, None, &mut rig.effects);
    rig.answers();
    rig.acquire(0, b"c", 0);
    rig.granted();
}

#[test]
fn restored_holds_count_in_the_account_of_their_namespace() {
    let mut rig = Rig::new(&LOCAL);
    rig.node.set_log_state(LogState::Ready);
    rig.acquire(0, b"key", 0);
    rig.sync();
    rig.granted();
    let image = rig.node.log.restart(0, START, 0);
    let account = Arc::new(Account::new(Holder::Namespace, &Quotas::default()));
    let mut next =
        Rig::new(&NamespaceTerms { account: Some(Arc::clone(&account)), ..NamespaceTerms::default() });
    let places = Places { shard_of: &|_, _| 0, lane_of: &|_| None };
    next.node.restore(&image, &places, &mut next.effects);
    next.node.verify();
    // The key and the owner.
    assert_eq!((account.used(Resource::Claims), account.used(Resource::Bytes)), (1, 8));
    let now = START.after_ms(10_000_000);
    next.node.settle(now, now, &mut next.effects);
    assert_eq!((account.used(Resource::Claims), account.used(Resource::Bytes)), (0, 0));
}
