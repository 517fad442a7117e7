//! Rights of an identity in one namespace.

use crate::account::Accounts;
use std::ops::BitOr;
use std::sync::Arc;

/// Set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u16);

impl Rights {
    /// Empty set.
    pub const NONE: Self = Self(0);
    /// Right to acquire keys for shared use, and sets of paths that only read.
    pub const ACQUIRE_SHARED: Self = Self(1 << 0);
    /// Right to acquire exclusively, to acquire permits and tokens, and to register. Includes [`Self::ACQUIRE_SHARED`].
    pub const ACQUIRE: Self = Self(1 << 1 | 1 << 0);
    /// Right to inspect and watch keys, to describe pools and trees, to verify fences, to look up registrations, and to
    /// see ids, owners and values of claims of other identities.
    pub const INSPECT: Self = Self(1 << 2);
    /// Right to list holds, waiters, registrations, pools and namespaces, without ids and owners of other identities.
    pub const LIST: Self = Self(1 << 3);
    /// Right to release, renew and take over the claims of another identity, by id, request id or owner.
    pub const RELEASE_OTHERS: Self = Self(1 << 4);
    /// Right to end claims as an operator.
    pub const FORCE_RELEASE: Self = Self(1 << 5);
    /// Right to freeze and thaw prefixes.
    pub const FREEZE: Self = Self(1 << 6);
    /// Right to set the capacity of pools.
    pub const RESIZE: Self = Self(1 << 7);
    /// Right to remove namespaces and to create DynamoDB tables. The deletion of a DynamoDB table needs it too.
    pub const ADMIN: Self = Self(1 << 8);
    /// Right to read the metrics of the server.
    pub const METRICS: Self = Self(1 << 9);
    /// Set of all rights.
    pub const ALL: Self = Self((1 << 10) - 1);

    /// All single rights in the order of their bits, each with its name in access rules.
    pub const NAMED: [(&'static str, Self); 10] = [
        ("acquire_shared", Self::ACQUIRE_SHARED),
        ("acquire", Self::ACQUIRE),
        ("inspect", Self::INSPECT),
        ("list", Self::LIST),
        ("release_others", Self::RELEASE_OTHERS),
        ("force_release", Self::FORCE_RELEASE),
        ("freeze", Self::FREEZE),
        ("resize", Self::RESIZE),
        ("admin", Self::ADMIN),
        ("metrics", Self::METRICS),
    ];

    /// Returns the bits of the set, below `1 << 10`.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the name of a single right in access rules, or "all" for any other set.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, right)| *right == self).map_or("all", |(name, _)| *name)
    }

    /// Returns the set without these rights.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all rights of `other` are in the set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether at least one right of `other` is in the set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Identity of a lane, its rights in the lane's namespace, and the accounts that count its resources for quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    everywhere: Rights,
    somewhere: Rights,
    grants: Arc<Grants>,
    accounts: Accounts,
}

/// Name of an identity, and its rights in one namespace. Several accesses can share one value.
#[derive(Debug, PartialEq, Eq)]
pub struct Grants {
    identity: Arc<str>,
    everywhere: Rights,
    somewhere: Rights,
    prefixes: Prefixes,
}

impl Access {
    /// Returns the access of an identity. `everywhere` applies to every key, `by_prefix` adds rights for keys that
    /// begin with a prefix.
    pub fn new(identity: Arc<str>, everywhere: Rights, by_prefix: Vec<(Box<[u8]>, Rights)>) -> Self {
        let somewhere = by_prefix.iter().fold(everywhere, |all, (_, rights)| all | *rights);
        let prefixes = Prefixes::new(by_prefix);
        Self::of(Arc::new(Grants { identity, everywhere, somewhere, prefixes }))
    }

    /// Returns an access without accounts that shares these rights with other accesses.
    pub fn of(grants: Arc<Grants>) -> Self {
        let Grants { everywhere, somewhere, .. } = *grants;
        Self { everywhere, somewhere, grants, accounts: Accounts::default() }
    }

    /// Returns the rights, which other accesses can share.
    pub fn grants(&self) -> &Arc<Grants> {
        &self.grants
    }

    /// Returns the same access with accounts that count the resources of the identity's clients.
    #[must_use]
    pub fn counted_by(self, accounts: Accounts) -> Self {
        Self { accounts, ..self }
    }

    /// Returns the accounts that count the resources of the identity's clients.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Returns the name of the identity.
    pub fn identity(&self) -> &Arc<str> {
        &self.grants.identity
    }

    /// Returns the rights for every key of the namespace.
    pub fn everywhere(&self) -> Rights {
        self.everywhere
    }

    /// Returns the rights for at least some keys of the namespace.
    pub fn somewhere(&self) -> Rights {
        self.somewhere
    }

    /// Returns the number of prefixes with further rights.
    pub fn prefix_count(&self) -> usize {
        self.grants.prefixes.0.len()
    }

    /// Whether this access has every right that `other` has. The identities are not compared. Rights of `other` for
    /// every key are compared only with `everywhere`, not with the rights by prefix.
    pub fn includes(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.grants, &other.grants)
            || self.everywhere.contains(other.everywhere)
                && other.grants.prefixes.0.iter().all(|prefix| self.covers(prefix.rights, &prefix.bytes))
    }

    /// Whether the identity has these rights for a key, and for all keys that begin with `key`.
    pub fn covers(&self, wanted: Rights, key: &[u8]) -> bool {
        self.everywhere.contains(wanted)
            || (self.everywhere | self.grants.prefixes.rights_of(key)).contains(wanted)
    }
}

/// Rights by prefix, sorted by prefix. A search compares a key with about log2(n) of n prefixes.
#[derive(Debug, PartialEq, Eq)]
struct Prefixes(Box<[Prefix]>);

#[derive(Debug, PartialEq, Eq)]
struct Prefix {
    bytes: Box<[u8]>,
    /// Rights for keys that begin with this prefix, including the rights of the prefixes with which it begins itself.
    rights: Rights,
    /// Position, in the list of all prefixes, of the longest other prefix with which this prefix begins; `None` if
    /// there is none.
    shorter: Option<u32>,
}

impl Prefixes {
    fn new(mut by_prefix: Vec<(Box<[u8]>, Rights)>) -> Self {
        by_prefix.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let mut prefixes: Vec<Prefix> = Vec::with_capacity(by_prefix.len());
        // Stack of positions in `prefixes`. At the start of each round, the prefix that was added last is on top. Below
        // it are all prefixes with which that prefix begins, the shortest at the bottom. The round finds `shorter` of
        // the next prefix in this stack.
        let mut open: Vec<u32> = Vec::new();
        for (bytes, rights) in by_prefix {
            while open.last().is_some_and(|place| !bytes.starts_with(&prefixes[*place as usize].bytes)) {
                open.pop();
            }
            let shorter = open.last().copied();
            match shorter.map(|place| &mut prefixes[place as usize]) {
                Some(same) if same.bytes == bytes => same.rights = same.rights | rights,
                outer => {
                    let rights = outer.map_or(rights, |outer| outer.rights | rights);
                    open.push(prefixes.len() as u32);
                    prefixes.push(Prefix { bytes, rights, shorter });
                }
            }
        }
        Self(prefixes.into())
    }

    fn rights_of(&self, key: &[u8]) -> Rights {
        // Let `last` be the last prefix that does not sort after the key. All prefixes with which the key begins sort
        // at or before `last`. Every prefix between the longest of these and `last` begins with that longest one. So
        // the chain of `shorter` from `last` leads to it.
        let mut place = self.0.partition_point(|prefix| *prefix.bytes <= *key).checked_sub(1);
        let Some(last) = place else { return Rights::NONE };
        let common = self.0[last].bytes.iter().zip(key).take_while(|(one, other)| one == other).count();
        while let Some(prefix) = place.map(|place| &self.0[place]) {
            if prefix.bytes.len() <= common {
                return prefix.rights;
            }
            place = prefix.shorter.map(|place| place as usize);
        }
        Rights::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_for_a_prefix_add_to_the_rights_for_all_keys() {
        let by_prefix =
            vec![(Box::from(&b"a/"[..]), Rights::ACQUIRE), (Box::from(&b"a/b"[..]), Rights::INSPECT)];
        let access = Access::new("me".into(), Rights::LIST, by_prefix);
        assert!(access.covers(Rights::LIST, b"x"));
        assert!(access.covers(Rights::ACQUIRE | Rights::LIST, b"a/x"));
        assert!(access.covers(Rights::ACQUIRE | Rights::INSPECT, b"a/b"));
        assert!(
            !access.covers(Rights::INSPECT, b"a/x"),
            "the prefix is longer than what it shares with the key"
        );
        assert!(!access.covers(Rights::ACQUIRE, b"a"), "other keys begin with it too");
        assert!(access.somewhere().contains(Rights::ACQUIRE | Rights::INSPECT | Rights::LIST));
        assert!(!access.everywhere().intersects(Rights::ACQUIRE));
    }

    /// Compares the search with a scan of all prefixes. The alphabet is small, so many prefixes begin with others.
    #[test]
    fn a_search_finds_the_rights_of_all_prefixes_of_a_key() {
        let mut seed = 7_u64;
        let mut draw = |count: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % count
        };
        for _ in 0..2_000 {
            let mut text =
                |len_max| -> Box<[u8]> { (0..draw(len_max)).map(|_| b"ab\xff"[draw(3) as usize]).collect() };
            let texts: Vec<_> = (0..12).map(|_| text(5)).collect();
            let keys: Vec<_> = (0..20).map(|_| text(7)).collect();
            let by_prefix: Vec<_> = texts.into_iter().map(|text| (text, Rights(1 << draw(10)))).collect();
            let access = Access::new("me".into(), Rights::NONE, by_prefix.clone());
            for key in keys {
                let applying = by_prefix.iter().filter(|(prefix, _)| key.starts_with(prefix));
                let rights = applying.fold(Rights::NONE, |all, (_, rights)| all | *rights);
                for (name, right) in Rights::NAMED {
                    assert_eq!(
                        access.covers(right, &key),
                        rights.contains(right),
                        "{name} {key:?} {by_prefix:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_access_includes_another_if_no_right_is_missing() {
        let access = |everywhere, prefix: &[u8], rights| {
            Access::new("me".into(), everywhere, vec![(Box::from(prefix), rights)])
        };
        let narrow = access(Rights::LIST, b"a/b", Rights::ACQUIRE);
        assert!(narrow.includes(&narrow));
        assert!(access(Rights::LIST | Rights::ACQUIRE, b"x", Rights::LIST).includes(&narrow));
        assert!(access(Rights::LIST, b"a/", Rights::ACQUIRE).includes(&narrow));
        assert!(!access(Rights::NONE, b"a/", Rights::ACQUIRE).includes(&narrow));
        assert!(!access(Rights::LIST, b"a/bc", Rights::ACQUIRE).includes(&narrow));
        assert!(!access(Rights::LIST, b"a/b", Rights::INSPECT).includes(&narrow));
    }

    #[test]
    fn each_right_has_a_name_and_only_acquire_implies_another() {
        let all = Rights::NAMED.iter().fold(Rights::NONE, |all, (_, right)| all | *right);
        assert_eq!(all, Rights::ALL);
        for (name, right) in Rights::NAMED {
            let implied = Rights::NAMED.iter().filter(|(_, other)| right.contains(*other)).count();
            assert_eq!(implied, if right == Rights::ACQUIRE { 2 } else { 1 }, "{name}");
        }
    }
}
