//! Quotas of identities, source addresses and namespaces, and counts of the resources that they use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Resource that a quota limits.
///
/// The server counts connections, sessions and namespaces with [`Counted`], and new connections with
/// [`Accounts::count_connection`]. Shards count the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Open connections.
    Connections,
    /// Connections that began in the current second.
    NewConnections,
    /// Sessions of clients.
    Sessions,
    /// Namespaces that the clients created.
    Namespaces,
    /// Holds, waiters and registrations. A multi-key claim counts once for each key.
    Claims,
    /// Claims whose acquire is not answered yet. A multi-key claim counts once.
    Waiters,
    /// Bytes of keys, paths, owners, request ids, metadata, types and values of claims.
    Bytes,
}

/// Number of resources.
const RESOURCE_COUNT: usize = Resource::ALL.len();

impl Resource {
    /// All resources, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Connections,
        Self::NewConnections,
        Self::Sessions,
        Self::Namespaces,
        Self::Claims,
        Self::Waiters,
        Self::Bytes,
    ];

    /// Returns the name of the quota in the access file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::NewConnections => "new_connections_per_second",
            Self::Sessions => "sessions",
            Self::Namespaces => "namespaces",
            Self::Claims => "claims",
            Self::Waiters => "waiters",
            Self::Bytes => "bytes",
        }
    }
}

/// Kind of owner of an account: the clients whose resources the account counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// All clients of one identity.
    Identity,
    /// The clients of an identity at one IPv4 address, or in one /64 network of IPv6 addresses.
    Address,
    /// All clients of a namespace.
    Namespace,
}

/// Error of a request that would exceed a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the quota in the access file allows {max} {limit}")]
pub struct QuotaReached {
    /// Name of the resource, with the kind of the owner of the quota, such as `sessions of the identity`.
    pub limit: &'static str,
    /// Largest amount that the quota allows.
    pub max: u64,
}

/// Largest amount of each resource. By default, nothing is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas([u64; RESOURCE_COUNT]);

impl Default for Quotas {
    fn default() -> Self {
        Self([u64::MAX; RESOURCE_COUNT])
    }
}

impl Quotas {
    /// Returns the largest amount of a resource, or `None` without a limit.
    pub fn get(&self, resource: Resource) -> Option<u64> {
        Some(self.0[resource as usize]).filter(|max| *max != u64::MAX)
    }

    /// Limits a resource to `max`.
    pub fn set(&mut self, resource: Resource, max: u64) {
        // The largest number stands for no limit.
        self.0[resource as usize] = max.min(u64::MAX - 1);
    }

    /// Whether no resource is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Counts of the resources of one identity, of one identity at one source address, or of one namespace, in all shards
/// and workers.
///
/// A worker first checks for room and adds later. Workers that serve the same owner at the same moment can thus exceed
/// a quota, each by the amount of one request.
#[derive(Debug)]
pub struct Account {
    holder: Holder,
    used: [AtomicU64; RESOURCE_COUNT],
    max: [AtomicU64; RESOURCE_COUNT],
    /// Second in which the connections counted as [`Resource::NewConnections`] began. In a later second, or if the
    /// clock was set back by more than one second, the count restarts.
    second: AtomicU64,
}

impl Account {
    /// Returns an account that has counted nothing.
    pub fn new(holder: Holder, quotas: &Quotas) -> Self {
        Self {
            holder,
            used: [const { AtomicU64::new(0) }; RESOURCE_COUNT],
            max: quotas.0.map(AtomicU64::new),
            second: AtomicU64::new(0),
        }
    }

    /// Replaces the quotas. Existing resources stay, even if they exceed the new quotas.
    pub fn set_quotas(&self, quotas: &Quotas) {
        for (max, new) in self.max.iter().zip(quotas.0) {
            max.store(new, Ordering::Relaxed);
        }
    }

    /// Returns the counted amount of a resource.
    pub fn used(&self, resource: Resource) -> u64 {
        self.used[resource as usize].load(Ordering::Relaxed)
    }

    /// Checks that the quota has room for this amount of a resource.
    ///
    /// # Errors
    /// Returns an error if the quota does not have enough room.
    #[inline]
    fn has_room(&self, resource: Resource, more: u64) -> Result<(), QuotaReached> {
        let max = self.max[resource as usize].load(Ordering::Relaxed);
        if self.used(resource).saturating_add(more) <= max {
            return Ok(());
        }
        Err(QuotaReached { limit: limit_name(self.holder, resource), max })
    }

    fn add(&self, resource: Resource, more: u64) {
        self.used[resource as usize].fetch_add(more, Ordering::Relaxed);
    }

    fn subtract(&self, resource: Resource, less: u64) {
        let before = self.used[resource as usize].fetch_sub(less, Ordering::Relaxed);
        debug_assert!(before >= less, "{resource:?}: {before} less {less}");
    }

    /// Restarts the count of new connections, unless `second` is the stored second or the one before it.
    fn begin_second(&self, second: u64) {
        let last = self.second.load(Ordering::Relaxed);
        // Another worker may already have begun the next second. A connection of the previous second then counts in the
        // next one. If the stored second is more than one ahead, the clock was set back, so the count of new
        // connections restarts.
        let is_last = second == last || second.checked_add(1) == Some(last);
        if !is_last
            && self.second.compare_exchange(last, second, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.used[Resource::NewConnections as usize].store(0, Ordering::Relaxed);
        }
    }
}

/// Accounts of a client. A field is `None` if there is no quota to count for.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    /// Account of the client's identity.
    pub identity: Option<Arc<Account>>,
    /// Account of the identity at the client's source address.
    pub address: Option<Arc<Account>>,
    /// Account of the client's namespace.
    pub namespace: Option<Arc<Account>>,
}

/// Two values are equal if they refer to the same accounts.
impl PartialEq for Accounts {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Option<Arc<Account>>, other: &Option<Arc<Account>>| {
            one.as_ref().map(Arc::as_ptr) == other.as_ref().map(Arc::as_ptr)
        };
        same(&self.identity, &other.identity)
            && same(&self.address, &other.address)
            && same(&self.namespace, &other.namespace)
    }
}

impl Eq for Accounts {}

impl Accounts {
    /// No accounts.
    pub const NONE: Self = Self { identity: None, address: None, namespace: None };

    /// Whether there are no accounts.
    pub fn is_empty(&self) -> bool {
        self.identity.is_none() && self.address.is_none() && self.namespace.is_none()
    }

    /// Returns the accounts that `other` does not contain.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let only = |own: &Option<Arc<Account>>, other: &Option<Arc<Account>>| {
            own.clone().filter(|own| !other.as_ref().is_some_and(|other| Arc::ptr_eq(own, other)))
        };
        Self {
            identity: only(&self.identity, &other.identity),
            address: only(&self.address, &other.address),
            namespace: only(&self.namespace, &other.namespace),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.identity.iter().chain(&self.address).chain(&self.namespace)
    }

    /// Checks that each account has room for this amount of a resource.
    ///
    /// # Errors
    /// Returns an error if a quota does not have enough room.
    pub fn have_room(&self, resource: Resource, more: u64) -> Result<(), QuotaReached> {
        self.iter().try_for_each(|account| account.has_room(resource, more))
    }

    /// Adds this amount of a resource to each account.
    pub fn add(&self, resource: Resource, more: u64) {
        self.iter().for_each(|account| account.add(resource, more));
    }

    /// Subtracts this amount of a resource from each account.
    pub fn subtract(&self, resource: Resource, less: u64) {
        self.iter().for_each(|account| account.subtract(resource, less));
    }

    /// Counts one unit of a resource until the returned value is dropped.
    ///
    /// # Errors
    /// Returns an error if a quota does not have enough room.
    pub fn count(&self, resource: Resource) -> Result<Counted, QuotaReached> {
        self.have_room(resource, 1)?;
        self.add(resource, 1);
        Ok(Counted { accounts: self.clone(), resource })
    }

    /// Counts a connection until the returned value is dropped, and a new connection in the second with this number. A
    /// new number restarts the count of new connections, unless it is one below the last number.
    ///
    /// # Errors
    /// Returns an error if a quota does not have enough room.
    pub fn count_connection(&self, second: u64) -> Result<Counted, QuotaReached> {
        self.iter().for_each(|account| account.begin_second(second));
        self.have_room(Resource::NewConnections, 1)?;
        let counted = self.count(Resource::Connections)?;
        self.add(Resource::NewConnections, 1);
        Ok(counted)
    }
}

/// One unit of a resource, counted until this value is dropped.
#[derive(Debug)]
pub struct Counted {
    accounts: Accounts,
    resource: Resource,
}

impl Counted {
    /// Whether exactly these accounts count the resource.
    pub fn is_in(&self, accounts: &Accounts) -> bool {
        self.accounts == *accounts
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.accounts.subtract(self.resource, 1);
    }
}

/// Returns the name of a quota for refusals.
const fn limit_name(holder: Holder, resource: Resource) -> &'static str {
    match (holder, resource) {
        (Holder::Identity, Resource::Connections) => "connections of the identity",
        (Holder::Identity, Resource::NewConnections) => "new connections of the identity per second",
        (Holder::Identity, Resource::Sessions) => "sessions of the identity",
        (Holder::Identity, Resource::Namespaces) => "namespaces of the identity",
        (Holder::Identity, Resource::Claims) => "claims of the identity",
        (Holder::Identity, Resource::Waiters) => "waiters of the identity",
        (Holder::Identity, Resource::Bytes) => "bytes of the identity",
        (Holder::Address, Resource::Connections) => "connections of the source address",
        (Holder::Address, Resource::NewConnections) => "new connections of the source address per second",
        (Holder::Address, Resource::Sessions) => "sessions of the source address",
        (Holder::Address, Resource::Namespaces) => "namespaces of the source address",
        (Holder::Address, Resource::Claims) => "claims of the source address",
        (Holder::Address, Resource::Waiters) => "waiters of the source address",
        (Holder::Address, Resource::Bytes) => "bytes of the source address",
        (Holder::Namespace, Resource::Connections) => "connections of the namespace",
        (Holder::Namespace, Resource::NewConnections) => "new connections of the namespace per second",
        (Holder::Namespace, Resource::Sessions) => "sessions of the namespace",
        (Holder::Namespace, Resource::Namespaces) => "namespaces of the namespace",
        (Holder::Namespace, Resource::Claims) => "claims of the namespace",
        (Holder::Namespace, Resource::Waiters) => "waiters of the namespace",
        (Holder::Namespace, Resource::Bytes) => "bytes of the namespace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(holder: Holder, quotas: &[(Resource, u64)]) -> Arc<Account> {
        let mut all = Quotas::default();
        quotas.iter().for_each(|(resource, max)| all.set(*resource, *max));
        Arc::new(Account::new(holder, &all))
    }

    fn reached<T: std::fmt::Debug>(result: Result<T, QuotaReached>) -> (&'static str, u64) {
        let QuotaReached { limit, max } = result.unwrap_err();
        (limit, max)
    }

    #[test]
    fn a_quota_has_room_again_when_something_ends() {
        let accounts = Accounts {
            identity: Some(account(Holder::Identity, &[(Resource::Sessions, 2)])),
            ..Accounts::NONE
        };
        let first = accounts.count(Resource::Sessions).unwrap();
        let _second = accounts.count(Resource::Sessions).unwrap();
        assert_eq!(reached(accounts.count(Resource::Sessions)), ("sessions of the identity", 2));
        drop(first);
        accounts.count(Resource::Sessions).unwrap();
    }

    #[test]
    fn the_quota_of_an_address_is_part_of_the_quota_of_its_identity() {
        let identity = Some(account(Holder::Identity, &[(Resource::Claims, 10)]));
        let at = || Some(account(Holder::Address, &[(Resource::Claims, 6)]));
        let (here, there) = (
            Accounts { identity: identity.clone(), address: at(), ..Accounts::NONE },
            Accounts { identity, address: at(), ..Accounts::NONE },
        );
        here.have_room(Resource::Claims, 6).unwrap();
        here.add(Resource::Claims, 6);
        assert_eq!(reached(here.have_room(Resource::Claims, 1)), ("claims of the source address", 6));
        there.have_room(Resource::Claims, 4).unwrap();
        assert_eq!(reached(there.have_room(Resource::Claims, 5)), ("claims of the identity", 10));
        here.subtract(Resource::Claims, 6);
        there.have_room(Resource::Claims, 5).unwrap();
    }

    #[test]
    fn a_changed_quota_counts_what_is_there_already() {
        let account = account(Holder::Identity, &[]);
        let accounts = Accounts { identity: Some(Arc::clone(&account)), ..Accounts::NONE };
        accounts.add(Resource::Waiters, 7);
        let mut quotas = Quotas::default();
        quotas.set(Resource::Waiters, 5);
        account.set_quotas(&quotas);
        assert_eq!(reached(accounts.have_room(Resource::Waiters, 1)), ("waiters of the identity", 5));
        account.set_quotas(&Quotas::default());
        accounts.have_room(Resource::Waiters, u64::MAX).unwrap();
    }

    #[test]
    fn new_connections_are_counted_anew_in_each_second() {
        let accounts = Accounts {
            identity: Some(account(Holder::Identity, &[(Resource::NewConnections, 2)])),
            ..Accounts::NONE
        };
        accounts.count_connection(1).unwrap();
        accounts.count_connection(1).unwrap();
        assert_eq!(reached(accounts.count_connection(1)), ("new connections of the identity per second", 2));
        accounts.count_connection(2).unwrap();
    }

    #[test]
    fn a_worker_that_is_a_second_behind_does_not_begin_the_count_anew() {
        let accounts = Accounts {
            identity: Some(account(Holder::Identity, &[(Resource::NewConnections, 3)])),
            ..Accounts::NONE
        };
        for second in [5, 4, 5] {
            accounts.count_connection(second).unwrap();
        }
        assert_eq!(reached(accounts.count_connection(4)), ("new connections of the identity per second", 3));
        // The clock was set back.
        accounts.count_connection(2).unwrap();
    }

    #[test]
    fn each_quota_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Resource::ALL.map(Resource::name).into();
        assert_eq!(names.len(), RESOURCE_COUNT);
        for (place, resource) in Resource::ALL.into_iter().enumerate() {
            assert_eq!(resource as usize, place);
        }
    }
}
