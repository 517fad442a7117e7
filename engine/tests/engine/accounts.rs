//! Accounts of the lanes of tests: what they count is counted anew after each step.

use crate::node::Node;
use crate::recorder::{Effect, Recorder};
use std::sync::Arc;
use waymaker_engine::multi_key::{self, AcquireMultiKey, RequestedKey};
use waymaker_engine::{
    Access, Account, Accounts, Acquire, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Answer,
    Caller, Holder, LaneAddress, LaneIx, LaneSlot, Lease, Limits, LogState, PoolOrder, Quotas, Refusal,
    Register, Resource, Rights, Scope, Shard, Ticket, Time, TreeItem,
};

/// Requests after which lanes get other accounts.
const CHANGE_EVERY: u32 = 23;

/// Lanes with and without accounts. All lanes have the same identity and all rights, so accounts change no answer.
pub(crate) struct Book {
    accounts: Vec<Arc<Account>>,
    accesses: Vec<Option<Arc<Access>>>,
    change_count: usize,
}

impl Book {
    /// Two accounts of identities, and one of a source address that belongs to the first identity.
    pub(crate) fn new() -> Self {
        let account = |holder| Arc::new(Account::new(holder, &Quotas::default()));
        let accounts = vec![account(Holder::Identity), account(Holder::Identity), account(Holder::Address)];
        let access = |identity: usize, address: Option<usize>| {
            let identity = Some(Arc::clone(&accounts[identity]));
            let address = address.map(|number| Arc::clone(&accounts[number]));
            Some(access(Accounts { identity, address, namespace: None }))
        };
        let accesses =
            vec![access(0, None), access(1, None), Some(self::access(Accounts::NONE)), access(0, Some(2))];
        Self { accounts, accesses, change_count: 0 }
    }

    /// No lane is counted.
    pub(crate) fn empty() -> Self {
        Self { accounts: Vec::new(), accesses: vec![None], change_count: 0 }
    }

    /// Every other seed has accounts.
    pub(crate) fn of_seed(seed: u64) -> Self {
        if seed % 2 == 1 { Self::new() } else { Self::empty() }
    }

    /// After some requests each lane gets the accounts that another lane had.
    pub(crate) fn change_sometimes(&mut self, request: u32) {
        self.change_count = (request / CHANGE_EVERY) as usize;
    }

    /// Gives a lane its present accounts.
    pub(crate) fn note(&self, shard: &mut Shard, lane: LaneIx, address: LaneAddress) {
        let place = (address.slot.index() + self.change_count) % self.accesses.len();
        shard.note_access(lane, self.accesses[place].as_ref());
    }

    /// Checks that the accounts count what the shards have.
    ///
    /// # Panics
    /// If an account counts more or less.
    pub(crate) fn verify(&self, shards: &[Shard]) {
        for (number, account) in self.accounts.iter().enumerate() {
            let used = [Resource::Claims, Resource::Waiters, Resource::Bytes].map(|what| account.used(what));
            let mut found = [0; 3];
            for shard in shards {
                for (sum, part) in found.iter_mut().zip(shard.count_account(account)) {
                    *sum += part;
                }
            }
            assert_eq!(used, found, "claims, waiters and bytes of account {number}");
        }
    }
}

fn access(accounts: Accounts) -> Arc<Access> {
    Arc::new(Access::new("me".into(), Rights::ALL, Vec::new()).counted_by(accounts))
}

/// Two shards. Lanes with an even number are counted by one account with a quota, the others are not counted.
struct Limited {
    node: Node,
    now: Time,
    number: u32,
    effects: Recorder,
}

const START: Time = Time::from_millis(1000);
/// The owner, the metadata and the request id have 11 bytes.
const OPTIONS: AcquireOptions<'static> = AcquireOptions {
    release_after_ms: None,
    priority: 0,
    scope: Scope::Ephemeral,
    request_id: Some(b"id"),
    owner: Some(b"owner"),
    metadata: Some(b"data"),
};

impl Limited {
    fn new(resource: Resource, max: u64) -> Self {
        let account = Arc::new(Account::new(Holder::Identity, &quotas(resource, max)));
        let access = access(Accounts { identity: Some(Arc::clone(&account)), ..Accounts::NONE });
        let mut node = Node::new(2, Limits { lease_min_ms: 1, ..Limits::default() }, START, 1);
        node.book = Book { accounts: vec![account], accesses: vec![Some(access), None], change_count: 0 };
        Self { node, now: START, number: 0, effects: Recorder::default() }
    }

    fn unlimited() -> Self {
        Self::new(Resource::Claims, u64::MAX)
    }

    fn used(&self) -> [u64; 3] {
        let resources = [Resource::Claims, Resource::Waiters, Resource::Bytes];
        resources.map(|resource| self.node.book.accounts[0].used(resource))
    }

    fn caller(&mut self, slot: u32) -> Caller {
        self.number += 1;
        let address = LaneAddress { worker: 0, slot: LaneSlot(slot), generation: 0 };
        let lane = self.node.lane(0, address, &Arc::from(*b"owner"), 0);
        Caller { lane, ticket: Ticket { lane: address, number: self.number }, namespace: 0 }
    }

    /// Whether the last request was served. False if a quota refused it.
    fn is_served(&mut self) -> bool {
        self.node.log.take(&mut self.effects, START);
        self.node.verify();
        let is_refused = |effect: &Effect| matches!(effect, Effect::Answer(_, Answer::Refused(Refusal::Overloaded { limit, .. })) if limit.ends_with("identity"));
        !std::mem::take(&mut self.effects.said).iter().any(is_refused)
    }

    fn acquire(&mut self, slot: u32, key: &[u8], options: AcquireOptions<'_>) -> bool {
        let (caller, shard) = (self.caller(slot), &mut self.node.shards[0]);
        let options = (options != AcquireOptions::default()).then_some(&options);
        let acquire = Acquire {
            key,
            hash: shard.hash(0, key),
            terms: AcquireTerms { wait_ms: 1000, options, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        shard.acquire(&caller, &acquire, &mut self.effects);
        self.is_served()
    }

    /// Asks for keys in both shards.
    fn acquire_multi_key(&mut self, slot: u32, options: AcquireOptions<'_>) -> bool {
        let ticket = self.caller(slot).ticket;
        let key = |key, shard| RequestedKey { key, shared: false, shard };
        let keys = [key(&b"j"[..], 0), key(b"kk", 0), key(b"l", 1)];
        let (session_lease, notify_queued) = (false, false);
        let request = AcquireMultiKey {
            keys: &keys,
            terms: AcquireTerms {
                lease_ms: 0,
                wait_ms: 1000,
                session_lease,
                notify_queued,
                options: Some(&options),
            },
        };
        let mut participants = self.node.participants(&[0, 1], Some((ticket.lane, &Arc::from(*b"owner"), 0)));
        multi_key::acquire(&mut participants, ticket, 0, &request, &mut self.effects);
        self.is_served()
    }

    fn acquire_permits(&mut self, slot: u32, options: AcquireOptions<'_>) -> bool {
        let caller = self.caller(slot);
        let acquire = AcquirePermits {
            name: b"pool",
            capacity: Some(1),
            permits: 1,
            order: PoolOrder::Arrival,
            timestamp_us: 0,
            terms: AcquireTerms { wait_ms: 1000, options: Some(&options), ..AcquireTerms::default() },
        };
        self.node.shards[0].acquire_permits(&caller, &acquire, &mut self.effects);
        self.is_served()
    }

    fn acquire_set(&mut self, slot: u32, options: AcquireOptions<'_>) -> bool {
        let caller = Caller { namespace: 1, ..self.caller(slot) };
        let items = [b"\x01\0a", b"\x01\0b"].map(|path| TreeItem { path, write: true });
        let acquire = AcquireSet {
            items: &items,
            terms: AcquireTerms { wait_ms: 1000, options: Some(&options), ..AcquireTerms::default() },
        };
        self.node.shards[0].acquire_set(&caller, &acquire, &mut self.effects);
        self.is_served()
    }

    /// Registers a value, or renews it with a heartbeat.
    fn register(&mut self, slot: u32, value: &[u8], is_heartbeat: bool) -> bool {
        let (caller, lease) = (self.caller(slot), Lease::FromNow(1000));
        let register =
            Register { key: b"k", owner: b"o", value, type_name: b"t", lease, lazy: false, ephemeral: true };
        if is_heartbeat {
            self.node.shards[0].heartbeat(&caller, &register, &mut self.effects);
        } else {
            self.node.shards[0].register(&caller, &register, &mut self.effects);
        }
        self.is_served()
    }

    /// Registers a key lazily for an owner, with a lease that ended long ago.
    fn register_overdue(&mut self, slot: u32, owner: &[u8]) -> bool {
        let (caller, lease) = (self.caller(slot), Lease::FromNow(-1_000_000));
        let register =
            Register { key: b"lazy", owner, value: b"", type_name: b"", lease, lazy: true, ephemeral: true };
        self.node.shards[0].register(&caller, &register, &mut self.effects);
        self.is_served()
    }

    /// All leases and waits end.
    fn end_all(&mut self) {
        self.now = self.now.after_ms(10_000_000);
        let now = self.now;
        self.node.settle(now, now, &mut self.effects);
        self.node.follow_up(now, now, &mut self.effects);
        self.node.settle(now, now, &mut self.effects);
        assert!(self.is_served());
        assert!(self.node.shards.iter().all(|shard| shard.claim_count() == 0));
    }
}

fn quotas(resource: Resource, max: u64) -> Quotas {
    let mut quotas = Quotas::default();
    quotas.set(resource, max);
    quotas
}

/// A request of a lane.
type Ask = fn(&mut Limited, u32, AcquireOptions<'_>) -> bool;

/// The requests, with the number of claims and the bytes of their keys and paths.
const ASKS: [(Ask, u64, u64); 4] = [
    (|limited, slot, options| limited.acquire(slot, b"key", options), 1, 3),
    (Limited::acquire_multi_key, 3, 4),
    (Limited::acquire_permits, 1, 4),
    (Limited::acquire_set, 1, 6),
];

#[test]
fn keys_and_paths_count_for_each_claim_and_other_strings_once_for_each_request() {
    for (ask, claims, bytes) in ASKS {
        for (options, more) in [(AcquireOptions::default(), 0), (OPTIONS, 11)] {
            let mut limited = Limited::unlimited();
            // A lane that is not counted holds what the counted lane waits for.
            assert!(ask(&mut limited, 1, AcquireOptions::default()));
            assert_eq!(limited.used(), [0; 3]);
            assert!(ask(&mut limited, 2, options));
            assert_eq!(limited.used(), [claims, 1, bytes + more]);
            limited.end_all();
            assert_eq!(limited.used(), [0; 3]);
            assert!(ask(&mut limited, 2, options));
            assert_eq!(limited.used(), [claims, 0, bytes + more]);
        }
    }
}

#[test]
fn a_quota_allows_what_fits_and_refuses_one_more() {
    for (ask, claims, bytes) in ASKS {
        for (resource, max) in [(Resource::Claims, claims), (Resource::Bytes, bytes + 11)] {
            assert!(ask(&mut Limited::new(resource, max), 2, OPTIONS), "{resource:?} {max}");
            assert!(!ask(&mut Limited::new(resource, max - 1), 2, OPTIONS), "{resource:?} {max} less one");
        }
        for max in [0, 1] {
            let mut limited = Limited::new(Resource::Waiters, max);
            assert!(ask(&mut limited, 2, AcquireOptions::default()));
            assert_eq!(ask(&mut limited, 4, AcquireOptions::default()), max > 0);
            assert!(!ask(&mut limited, 6, AcquireOptions::default()));
            assert_eq!(limited.used()[1], max);
        }
    }
}

#[test]
fn claims_that_move_between_lanes_move_between_accounts_in_every_state() {
    for (ask, claims, bytes) in ASKS {
        for scope in [Scope::Ephemeral, Scope::Local] {
            for is_waiting in [false, true] {
                let mut limited = Limited::unlimited();
                limited.node.set_log_state(LogState::Ready);
                if is_waiting {
                    assert!(ask(&mut limited, 3, AcquireOptions::default()));
                }
                let options = AcquireOptions { scope, ..OPTIONS };
                // A claim that is reserved, until the log has it, waits too.
                let waiters = u64::from(is_waiting || scope == Scope::Local);
                for slot in [0, 1, 2, 4, 5] {
                    assert!(ask(&mut limited, slot, options));
                    let expected = [claims, waiters, bytes + 11];
                    assert_eq!(limited.used(), if slot % 2 == 0 { expected } else { [0; 3] });
                }
                assert!(ask(&mut limited, 6, options));
                limited.node.sync(usize::MAX, START, START, &mut limited.effects);
                // The answers wait for the record of the last move.
                limited.node.sync(usize::MAX, START, START, &mut limited.effects);
                assert!(limited.is_served());
                assert_eq!(limited.used(), [claims, u64::from(is_waiting), bytes + 11]);
                assert!(ask(&mut limited, 1, options));
                assert_eq!(limited.used(), [0; 3]);
                limited.end_all();
            }
        }
    }
}

#[test]
fn a_lane_that_gets_accounts_while_it_has_claims_is_counted_with_them() {
    let mut limited = Limited::new(Resource::Claims, 2);
    assert!(limited.acquire(1, b"first", OPTIONS));
    // From now on odd numbers are counted.
    limited.node.book.change_count = 1;
    assert!(limited.acquire(1, b"second", AcquireOptions::default()));
    assert_eq!(limited.used(), [2, 0, 6], "of the first claim only the number is known");
    assert!(!limited.acquire(1, b"third", AcquireOptions::default()));
    // And now again even numbers.
    limited.node.book.change_count = 2;
    assert!(limited.acquire(1, b"third", AcquireOptions::default()));
    assert_eq!(limited.used(), [0; 3]);
    limited.node.book.change_count = 3;
    assert!(!limited.acquire(1, b"fourth", AcquireOptions::default()));
    assert_eq!(limited.used(), [3, 0, 0]);
    limited.end_all();
    assert_eq!(limited.used(), [0; 3]);
    assert!(limited.acquire(1, b"first", AcquireOptions::default()));
    assert_eq!(limited.used(), [1, 0, 5]);
}

#[test]
fn a_claim_does_not_move_to_accounts_without_room_for_it() {
    for (ask, claims, _) in ASKS {
        for (max, is_served) in [(claims, true), (claims - 1, false)] {
            let mut limited = Limited::new(Resource::Claims, max);
            assert!(ask(&mut limited, 1, OPTIONS));
            assert_eq!(ask(&mut limited, 2, OPTIONS), is_served, "{claims} claims");
            assert!(ask(&mut limited, 1, OPTIONS));
            assert_eq!(limited.used(), [0; 3]);
        }
    }
    for (max, is_served) in [(3, true), (2, false)] {
        let mut limited = Limited::new(Resource::Bytes, max);
        assert!(limited.acquire(1, b"key", OPTIONS));
        assert_eq!(limited.acquire(2, b"key", OPTIONS), is_served, "{max} bytes");
    }
    // Of claims that move together all bytes count. Their keys have 4 bytes.
    for (max, is_served) in [(4, true), (3, false)] {
        let mut limited = Limited::new(Resource::Bytes, max);
        assert!(limited.acquire_multi_key(1, OPTIONS));
        assert_eq!(limited.acquire_multi_key(2, OPTIONS), is_served, "{max} bytes");
    }
    // Two of its lanes have one account, which has no room left.
    let mut limited = Limited::new(Resource::Claims, 1);
    for slot in [2, 4, 2] {
        assert!(limited.acquire(slot, b"key", OPTIONS));
    }
    // A waiter moves as a waiter.
    let mut limited = Limited::new(Resource::Waiters, 0);
    for slot in [1, 3] {
        assert!(limited.acquire(slot, b"key", AcquireOptions { request_id: None, ..OPTIONS }));
    }
    assert!(limited.acquire(1, b"key", OPTIONS));
    assert!(!limited.acquire(2, b"key", OPTIONS));
}

#[test]
fn a_renewal_with_more_bytes_than_the_quota_has_room_for_is_refused() {
    let mut limited = Limited::new(Resource::Bytes, 13);
    assert!(limited.register(2, b"0123456789", false));
    for is_heartbeat in [false, true] {
        assert!(!limited.register(2, b"0123456789a", is_heartbeat));
        assert!(limited.register(2, b"9876543210", is_heartbeat));
    }
    assert_eq!(limited.used(), [1, 0, 13]);
    // A quota that became smaller ends nothing.
    limited.node.book.accounts[0].set_quotas(&quotas(Resource::Bytes, 5));
    for is_heartbeat in [false, true] {
        assert!(limited.register(2, b"0123456789", is_heartbeat));
    }
    assert!(limited.register(2, b"", true));
    assert_eq!(limited.used(), [1, 0, 3]);
    assert!(!limited.register(2, b"0123", true));
    assert!(limited.register(1, b"0123", true), "the lane is not counted");
    assert_eq!(limited.used(), [0; 3]);
}

#[test]
fn a_registration_that_moves_and_grows_is_within_the_quota() {
    for (max, is_served) in [(14, true), (13, false)] {
        let mut limited = Limited::new(Resource::Bytes, max);
        assert!(limited.register(1, b"", false));
        assert_eq!(limited.register(2, b"0123456789a", false), is_served, "{max} bytes");
        assert_eq!(limited.used(), if is_served { [1, 0, 14] } else { [0; 3] });
    }
}

#[test]
fn a_quota_refuses_an_overdue_registration_of_another_lane() {
    for max in [0, 1] {
        let mut limited = Limited::new(Resource::Claims, max);
        assert!(limited.register_overdue(1, b"first"));
        assert_eq!(limited.register_overdue(2, b"second"), max > 0);
        assert_eq!(limited.used(), if max > 0 { [1, 0, 10] } else { [0; 3] });
        assert!(limited.register_overdue(1, b"third"));
        assert_eq!(limited.used(), [0; 3]);
    }
}
