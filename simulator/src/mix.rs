//! The mix of a run: the kinds of namespaces that its seed chooses, and the requests in each of them.

use crate::form::{DEPTH_MAX, Form, KEYS_MAX, KeySet, PATHS_MAX, PathItem, PathSet, Permits, SEGMENT_COUNT};
use crate::key::{FIRST_BUCKET, FIRST_LAZY_REGISTRATION, FIRST_POOL, FIRST_REGISTRATION, Key, TREE};
use crate::operation::{Registration, Rule, Withdrawal};
use crate::random::Random;
use waymaker_protocol::{NamespaceKind, PoolOrder};

/// Number of flat keys in a run with a crowd of clients.
const CROWD_KEY_COUNT: u64 = 1_000;
/// Largest number of flat keys in a run with multi-key claims. The numbers of these keys have one digit.
const KEY_COUNT_MAX: u64 = 10;

/// Largest difference between the timestamp of a waiter and the server's time that the server accepts.
pub(crate) const SKEW_MAX_US: u64 = 3_600_000_000;

/// Settings of one pool.
#[derive(Clone, Copy, Debug)]
struct PoolRule {
    capacity: u64,
    order: PoolOrder,
}

/// The namespace kinds of a run, and how clients use each of them.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// Kinds of namespaces. Each client chooses one of them.
    kinds: Vec<NamespaceKind>,
    /// Number of flat keys; `None` leaves it to the settings of the run.
    pub(crate) key_count: Option<u64>,
    multi_key_percent: u64,
    /// True if all clients want several keys and wait without a limit, as in the dining philosophers problem.
    is_philosophical: bool,
    pools: Vec<PoolRule>,
    /// True if operators change the capacities of pools.
    pub(crate) resizes: bool,
    /// True if some clients name a wrong capacity.
    mismatches: bool,
    registration_count: u64,
    buckets: Vec<Rule>,
    write_percent: u64,
    /// Share of the acts of operators and watchers, in percent.
    pub(crate) operator_percent: u64,
    /// True if operators freeze prefixes.
    pub(crate) freezes: bool,
    /// True if several clients are processes of one owner and use the same request ids.
    pub(crate) shares_owners: bool,
    /// True if clients cancel requests at once, or leave before they are answered.
    pub(crate) drops: bool,
    /// Share of releases that are replaced by an extend of the hold, in percent.
    pub(crate) keep_percent: u64,
    /// Largest number of waiting acquires of one client.
    pub(crate) waiting_count_max: usize,
}

impl Mix {
    /// Chooses the mix of a seed. It has its own random source, so that the other choices of the seed do not
    /// depend on it.
    pub(crate) fn new(seed: u64) -> Self {
        use NamespaceKind::{Flat, Lazy, Limit, Pool, Registry, Tree};
        let random = &mut Random::new(seed ^ 0x006d_6978_006d_6978);
        // Rare defects of single keys need runs that use nothing else.
        let is_plain = random.percent(20);
        let dice = if is_plain { 0 } else { random.below(20) };
        let kinds = match dice {
            0..=6 => vec![Flat],
            7..=9 => vec![Tree],
            10..=12 => vec![Pool],
            13..=15 => vec![random.pick(&[Limit, Registry, Lazy]).unwrap_or(Limit)],
            16..=18 => {
                let all = [Flat, Tree, Pool, Limit, Registry, Lazy];
                vec![random.pick(&all).unwrap_or(Flat), random.pick(&all).unwrap_or(Tree)]
            }
            _ => vec![Flat, Flat, Tree, Pool, Limit, Registry, Lazy],
        };
        let has_multi_key_claims = matches!(dice, 3..=6) || kinds.len() > 1;
        let is_philosophical = matches!(dice, 3..=4);
        Self {
            kinds,
            key_count: has_multi_key_claims.then(|| {
                if is_philosophical { random.between(5, KEY_COUNT_MAX) } else { random.between(2, 8) }
            }),
            multi_key_percent: if has_multi_key_claims {
                random.pick(&[20, 60, 90]).unwrap_or(60)
            } else {
                0
            },
            is_philosophical,
            pools: (0..random.between(1, 2))
                .map(|_| PoolRule {
                    capacity: random.between(1, 5),
                    order: if random.once_in(2) { PoolOrder::Timestamp } else { PoolOrder::Arrival },
                })
                .collect(),
            resizes: random.once_in(2),
            mismatches: random.once_in(3),
            registration_count: random.between(1, 3),
            buckets: (0..random.between(2, 3))
                .map(|_| Rule {
                    rate: random.between(1, 20) as u32,
                    burst: random.between(1, 12) as u32,
                    period_ns: random.spread(8_000_000, 1_000_000_000),
                })
                .collect(),
            write_percent: random.pick(&[20, 50, 80]).unwrap_or(50),
            operator_percent: if is_plain { 0 } else { random.pick(&[0, 5, 15]).unwrap_or(0) },
            freezes: random.once_in(2),
            shares_owners: random.once_in(3),
            drops: random.once_in(2),
            keep_percent: random.pick(&[0, 0, 60, 90]).unwrap_or(0),
            waiting_count_max: random.pick(&[6, 6, 6, 24]).unwrap_or(6),
        }
    }

    /// Returns the mix of a crowd: only flat keys. Most clients have a key for themselves.
    pub(crate) fn of_crowd(seed: u64) -> Self {
        let kinds = vec![NamespaceKind::Flat];
        let key_count = Some(CROWD_KEY_COUNT);
        Self {
            kinds,
            key_count,
            multi_key_percent: 0,
            is_philosophical: false,
            freezes: false,
            ..Self::new(seed)
        }
    }

    /// Chooses the kind of a client's namespace.
    pub(crate) fn choose_kind(&self, random: &mut Random) -> NamespaceKind {
        if let [kind] = self.kinds[..] { kind } else { random.pick(&self.kinds).unwrap_or_default() }
    }

    /// Returns whether the run has registrations.
    pub(crate) fn has_registrations(&self) -> bool {
        let is_registry =
            |kind: &NamespaceKind| matches!(kind, NamespaceKind::Registry | NamespaceKind::Lazy);
        self.kinds().iter().any(is_registry)
    }

    pub(crate) fn kinds(&self) -> &[NamespaceKind] {
        &self.kinds
    }

    /// Returns whether a server of this run may lose everything it has: nothing is known to be durable, and
    /// something has fences.
    pub(crate) fn may_begin_anew(&self) -> bool {
        use NamespaceKind::{Flat, Lazy, Pool, Registry, Tree};
        let has = |kinds: &[NamespaceKind]| self.kinds.iter().any(|kind| kinds.contains(kind));
        has(&[Flat, Tree, Pool]) && !has(&[Registry, Lazy])
    }

    /// Chooses the keys of a multi-key claim; `None` if the acquire asks for a single key.
    pub(crate) fn choose_keys(
        &self,
        key_count: u64,
        shared_percent: u64,
        random: &mut Random,
    ) -> Option<KeySet> {
        if self.multi_key_percent == 0 || !self.is_philosophical && !random.percent(self.multi_key_percent) {
            return None;
        }
        let least = if self.is_philosophical { 2 } else { 1 };
        let count = random.between(least, KEYS_MAX as u64).min(key_count);
        let mut wanted = Vec::new();
        while wanted.len() < count as usize {
            let key = random.below(key_count) as Key;
            if wanted.iter().all(|(other, _)| *other != key) || random.once_in(8) {
                wanted.push((key, random.percent(shared_percent)));
            }
        }
        Some(KeySet::new(wanted))
    }

    /// Returns whether all clients wait without a limit.
    pub(crate) fn is_philosophical(&self) -> bool {
        self.is_philosophical
    }

    /// Chooses a set of paths.
    pub(crate) fn choose_paths(&self, random: &mut Random) -> PathSet {
        let count = random.between(1, PATHS_MAX as u64);
        let items: Vec<PathItem> = (0..count)
            .map(|_| {
                // Paths inside the tree are more frequent than the whole tree.
                let depth = random.pick(&[0, 1, 1, 2, 2, 2, 3, 3]).unwrap_or(2);
                let mut segments = [0; DEPTH_MAX];
                segments[..depth].fill_with(|| random.below(SEGMENT_COUNT) as u8);
                PathItem { write: random.percent(self.write_percent), depth, segments }
            })
            .collect();
        PathSet::new(&items)
    }

    pub(crate) fn choose_pool(&self, random: &mut Random) -> Key {
        FIRST_POOL + random.below(self.pools.len() as u64) as Key
    }

    /// Chooses permits of a pool. The request sometimes names a wrong capacity, and sometimes asks for more
    /// than the capacity.
    pub(crate) fn choose_permits(&self, pool: Key, unix_us: u64, random: &mut Random) -> Permits {
        let rule = self.pools[usize::from(pool - FIRST_POOL)];
        let capacity = match random.below(20) {
            0 if self.mismatches => Some(rule.capacity + 1),
            1..=4 => None,
            _ if self.resizes && random.once_in(2) => None,
            _ => Some(rule.capacity),
        };
        let timestamp_us = match rule.order {
            PoolOrder::Arrival => None,
            PoolOrder::Timestamp => Some(choose_timestamp_us(unix_us, random)),
        };
        Permits { permits: random.between(1, 3).min(rule.capacity + random.below(2)), capacity, timestamp_us }
    }

    pub(crate) fn choose_capacity(&self, pool: Key, random: &mut Random) -> u64 {
        let rule = self.pools[usize::from(pool - FIRST_POOL)];
        if random.once_in(2) { rule.capacity } else { random.between(1, 5) }
    }

    pub(crate) fn order_of(&self, pool: Key) -> PoolOrder {
        self.pools[usize::from(pool - FIRST_POOL)].order
    }

    pub(crate) fn choose_registry_key(&self, kind: NamespaceKind, random: &mut Random) -> Key {
        let first = if kind == NamespaceKind::Lazy { FIRST_LAZY_REGISTRATION } else { FIRST_REGISTRATION };
        first + random.below(self.registration_count) as Key
    }

    /// Returns the largest number of registrations that may remain after all clients have left. A lazy
    /// registration remains if its owner never gets the response to its request.
    pub(crate) fn lazy_registration_count(&self) -> u64 {
        if self.kinds.contains(&NamespaceKind::Lazy) { self.registration_count } else { 0 }
    }

    pub(crate) fn choose_registration(
        &self,
        key: Key,
        value: u32,
        unix_us: u64,
        random: &mut Random,
    ) -> Registration {
        // Some leases have already expired. Half of these expired longer ago than the grace period
        // of lazy registrations.
        let over_ms = if value.is_multiple_of(2) { 5 } else { 6_000 };
        let lease_ms = if random.once_in(10) { -over_ms } else { random.spread(10, 4_000) as i64 };
        let absolute = random.once_in(3);
        let from_ms = if absolute { (unix_us / 1000) as i64 } else { 0 };
        Registration { key, lease_ms: from_ms + lease_ms, absolute, value, heartbeat: random.once_in(3) }
    }

    pub(crate) fn choose_withdrawal(&self, random: &mut Random) -> Withdrawal {
        let count = self.buckets.len() as u64;
        let first = random.below(count);
        let part = |number: u64, random: &mut Random| {
            let burst = u64::from(self.buckets[number as usize].burst);
            let cost_max = burst.min(5) + random.below(2);
            (FIRST_BUCKET + number as Key, random.below(cost_max + 1) as u32)
        };
        let second = random.percent(50).then(|| (first + 1) % count).filter(|second| *second != first);
        Withdrawal {
            first: part(first, random),
            second: second.map(|second| part(second, random)),
            refund: random.once_in(12),
        }
    }

    pub(crate) fn rule_of(&self, bucket: Key) -> Rule {
        self.buckets[usize::from(bucket - FIRST_BUCKET)]
    }

    /// Chooses the key and the form of an acquire of this kind; `None` if the kind has flat keys.
    pub(crate) fn choose_form(
        &self,
        kind: NamespaceKind,
        unix_us: u64,
        random: &mut Random,
    ) -> Option<(Key, Form)> {
        match kind {
            NamespaceKind::Tree => Some((TREE, Form::Paths(self.choose_paths(random)))),
            NamespaceKind::Pool => {
                let pool = self.choose_pool(random);
                Some((pool, Form::Permits(self.choose_permits(pool, unix_us, random))))
            }
            _ => None,
        }
    }

    /// Returns all keys except the flat ones and the trees.
    pub(crate) fn named_keys(&self) -> Vec<Key> {
        let numbered = |first: Key, count: u64| (0..count).map(move |number| first + number as Key);
        numbered(FIRST_POOL, self.pools.len() as u64)
            .chain(numbered(FIRST_REGISTRATION, self.registration_count))
            .chain(numbered(FIRST_LAZY_REGISTRATION, self.registration_count))
            .chain(numbered(FIRST_BUCKET, self.buckets.len() as u64))
            .collect()
    }

    pub(crate) fn bucket_keys(&self) -> impl Iterator<Item = Key> + use<> {
        (0..self.buckets.len() as Key).map(|number| FIRST_BUCKET + number)
    }
}

/// Chooses the timestamp that orders a waiter in its pool. Most timestamps are a little before the current
/// time. The others are near the limits of the server or beyond them. The order of the timestamps does not
/// follow the order of arrival.
fn choose_timestamp_us(unix_us: u64, random: &mut Random) -> u64 {
    let near_us = unix_us - random.below(50_000);
    match random.below(9) {
        0 => 0,
        1 => near_us - SKEW_MAX_US,
        2 => near_us + SKEW_MAX_US,
        3 => near_us - SKEW_MAX_US - random.below(SKEW_MAX_US),
        4 => near_us + SKEW_MAX_US + random.below(SKEW_MAX_US),
        _ => near_us,
    }
}
