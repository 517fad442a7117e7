//! The namespaces of a server: their names, kinds and numbers, their use, and their removal.

mod built_in;
mod declared;

pub use built_in::built_in_kind;
pub(crate) use built_in::{DYNAMODB_TABLES, LOCKET_LOCK, LOCKET_NAMESPACE, LOCKET_PRESENCE, LOCKET_TYPES};
pub use declared::{DeclaredNamespace, LeaseAboveMaximum};

use crate::limits::{
    NAMESPACE_COUNT_MAX, NAMESPACE_IDLE_MS, NAMESPACE_REMOVALS_MAX, NAMESPACE_REMOVALS_WANTED_MAX,
};
use built_in::{BUILT_IN, is_built_in};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use waymaker_engine::{Accounts, Counted, QuotaReached, Resource, Ticket, Time};
use waymaker_protocol::NamespaceKind;

/// Maximum of namespaces that one `HELLO` removes to make room.
const UNKNOWN_REMOVED_AT_ONCE: usize = 64;

/// All namespaces of a server, by name.
///
/// The first accepted `HELLO` for a name creates the namespace with its kind. The server removes a namespace when no
/// lane uses it and it is empty:
///
/// - If no shard knows its number, it is removed at once, and another namespace may get the number.
/// - If the configuration declares it, it stays.
/// - Otherwise a `Removal` makes every shard check that it is empty and forget its idle keys. The namespace is removed
///   unless a connection opened it since it was found unused. Its number is not used again before the next start,
///   because late answers of a cluster may still name it.
#[derive(Debug, Default)]
pub struct Namespaces {
    by_name: BTreeMap<Box<[u8]>, Namespace>,
    /// Name of each number, so that a page of a list takes time for its own length only.
    names: BTreeMap<u16, Box<[u8]>>,
    /// Numbers that were used and that no shard knows.
    spare_numbers: BTreeSet<u16>,
    /// Lowest number that was never used.
    next_number: u32,
    /// Removal in progress.
    removal: Option<Removal>,
    removal_count: u64,
    /// Namespaces that operators want to remove, for the next removal.
    requests: Vec<RemovalRequest>,
    /// Number of declared namespaces that are not built in.
    declared_count: usize,
    /// Number of openings of all namespaces.
    opening_count: u64,
    limits: NamespaceLimits,
}

/// Limits of the namespaces of a server.
#[derive(Clone, Copy, Debug)]
struct NamespaceLimits {
    /// Maximum of namespaces without the built-in and the declared ones.
    count_max: usize,
    /// Idle time after which an empty namespace is removed, in milliseconds.
    idle_ms: u64,
}

impl Default for NamespaceLimits {
    fn default() -> Self {
        Self { count_max: NAMESPACE_COUNT_MAX, idle_ms: NAMESPACE_IDLE_MS }
    }
}

#[derive(Debug)]
struct Namespace {
    namespace: Arc<SharedNamespace>,
    kind: NamespaceKind,
    /// Number of the last opening of this namespace.
    last_opening: u64,
    /// Time of the first check without a lane since the last use.
    idle_since: Option<Time>,
    /// Whether the log has the namespace.
    is_recorded: bool,
    /// Whether the configuration declares the namespace.
    is_declared: bool,
    /// Counts the namespace in the accounts of the client that created it.
    _counted: Option<Counted>,
}

#[derive(Debug)]
struct SharedNamespace {
    number: u16,
    /// Whether a shard may know the namespace.
    is_known: AtomicBool,
    /// Default lease in milliseconds; `None` uses the default of the server.
    lease_default_ms: Option<u32>,
}

/// The use of a namespace by a lane. A namespace in use is not removed.
#[derive(Clone, Debug)]
pub struct NamespaceUse(Arc<SharedNamespace>);

impl NamespaceUse {
    /// Returns the number of the namespace.
    pub fn number(&self) -> u16 {
        self.0.number
    }

    /// Returns the default lease of the namespace in milliseconds. `None` means the default of the server.
    pub fn lease_default_ms(&self) -> Option<u32> {
        self.0.lease_default_ms
    }

    /// Notes that a shard is about to learn the number of the namespace.
    pub fn note_known(&self) {
        self.0.is_known.store(true, Ordering::Relaxed);
    }
}

/// A change that the log must record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceChange<'a> {
    /// The namespace was created.
    Made {
        /// Number of the namespace.
        number: u16,
        /// Kind of the namespace.
        kind: NamespaceKind,
        /// Name of the namespace.
        name: &'a [u8],
    },
    /// The namespace with this number was removed.
    Removed(u16),
}

/// Reasons why a namespace cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceRefusal {
    /// The namespace has another kind, or its name is built in with another kind.
    OtherKind(NamespaceKind),
    /// The server has the maximum number of namespaces.
    TooMany,
    /// The client has created as many namespaces as its quota allows.
    Quota(QuotaReached),
}

/// A removal of namespaces, which takes effect for those that are empty in every shard.
#[derive(Debug)]
struct Removal {
    number: u64,
    /// Candidates by number, with the name and the last opening before no lane used it.
    candidates: BTreeMap<u16, (Box<[u8]>, u64)>,
    /// Operators that wait for the removal.
    requests: Vec<RemovalRequest>,
    shards_left: usize,
}

/// A namespace that an operator wants to remove.
#[derive(Debug)]
struct RemovalRequest {
    /// Ticket of the response.
    ticket: Ticket,
    name: Box<[u8]>,
    /// Last opening of the namespace at the request. No lane used it then.
    last_opening: u64,
}

/// Reasons why a namespace is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalRefusal {
    /// There is no namespace with this name.
    Unknown,
    /// The namespace belongs to a front end.
    BuiltIn,
    /// The configuration declares the namespace.
    Declared,
    /// This number of lanes uses the namespace.
    Used(u64),
    /// The namespace is not empty.
    NotEmpty,
    /// This number of operators, the maximum, is already waiting for removals.
    TooManyWait(usize),
}

/// The result of a removal.
#[derive(Debug, Default)]
pub struct RemovalResult {
    /// Numbers of the removed namespaces.
    pub removed: Vec<u16>,
    /// Responses to the operators that requested removals.
    pub answers: Vec<(Ticket, Result<(), RemovalRefusal>)>,
}

/// Namespaces that the shards must check.
#[derive(Clone, Debug)]
pub struct EmptinessCheck {
    /// Number of the removal.
    pub removal: u64,
    /// Numbers of the namespaces, in ascending order.
    pub namespaces: Arc<[u16]>,
}

impl Namespaces {
    /// Sets the maximum of namespaces without the built-in and declared ones, and the idle time before removal in
    /// milliseconds.
    pub(crate) fn limit(&mut self, count_max: usize, idle_ms: u64) {
        self.limits = NamespaceLimits { count_max, idle_ms };
    }

    /// Opens the namespace, and creates it if it is new. The client's accounts count a namespace that it creates. The
    /// caller must call [`Namespaces::settle`] when it knows whether the client is accepted.
    ///
    /// # Errors
    /// Returns a [`NamespaceRefusal`] if the kind is wrong or a limit is reached.
    pub fn open(
        &mut self,
        name: &[u8],
        kind: NamespaceKind,
        accounts: &Accounts,
        mut tell: impl FnMut(NamespaceChange<'_>),
    ) -> Result<NamespaceUse, NamespaceRefusal> {
        if let Some(entry) = self.by_name.get_mut(name) {
            if entry.kind != kind {
                return Err(NamespaceRefusal::OtherKind(entry.kind));
            }
            self.opening_count += 1;
            entry.last_opening = self.opening_count;
            entry.idle_since = None;
            return Ok(NamespaceUse(Arc::clone(&entry.namespace)));
        }
        if let Some(own) = built_in_kind(name).filter(|own| *own != kind) {
            return Err(NamespaceRefusal::OtherKind(own));
        }
        if !is_built_in(name) && self.count() >= self.limits.count_max {
            self.remove_unknown(&mut tell);
            if self.count() >= self.limits.count_max {
                return Err(NamespaceRefusal::TooMany);
            }
        }
        // Count before taking a number, so that a client above its quota uses up no numbers.
        let counted = (!is_built_in(name)).then(|| accounts.count(Resource::Namespaces));
        let counted = counted.transpose().map_err(NamespaceRefusal::Quota)?;
        let number = self.new_number(is_built_in(name)).ok_or(NamespaceRefusal::TooMany)?;
        let entry = self.insert(number, name, kind);
        entry._counted = counted;
        Ok(NamespaceUse(Arc::clone(&entry.namespace)))
    }

    /// Opens a declared namespace and returns its number. No limit applies to it, and it is never removed. Must be
    /// called before a lane uses the namespace.
    pub(crate) fn declare(
        &mut self,
        name: &[u8],
        kind: NamespaceKind,
        lease_default_ms: Option<u32>,
        mut tell: impl FnMut(NamespaceChange<'_>),
    ) -> Result<u16, NamespaceRefusal> {
        let number = match self.find(name) {
            Some((_, own)) if own != kind => return Err(NamespaceRefusal::OtherKind(own)),
            Some((number, _)) => number,
            None => self.new_number(is_built_in(name)).ok_or(NamespaceRefusal::TooMany)?,
        };
        let entry = self.insert(number, name, kind);
        entry.is_declared = true;
        // `open_declared` sets the terms in the shards, so the shards know the number.
        entry.namespace =
            Arc::new(SharedNamespace { number, is_known: AtomicBool::new(true), lease_default_ms });
        if !std::mem::replace(&mut entry.is_recorded, true) {
            tell(NamespaceChange::Made { number, kind, name });
        }
        self.declared_count += usize::from(!is_built_in(name));
        Ok(number)
    }

    /// Completes the opening of a namespace. Records a new namespace in the log, or removes it if the client was
    /// refused.
    pub fn settle(&mut self, name: &[u8], is_refused: bool, mut tell: impl FnMut(NamespaceChange<'_>)) {
        let Some(entry) = self.by_name.get_mut(name) else { return };
        if entry.is_recorded {
            return;
        }
        let number = entry.namespace.number;
        if !is_refused {
            entry.is_recorded = true;
            tell(NamespaceChange::Made { number, kind: entry.kind, name });
        } else if !entry.is_used() {
            self.remove(name, &mut tell);
            self.spare_numbers.insert(number);
        }
    }

    /// Returns the number and the kind of the namespace, if it exists.
    pub fn find(&self, name: &[u8]) -> Option<(u16, NamespaceKind)> {
        self.by_name.get(name).map(|entry| (entry.namespace.number, entry.kind))
    }

    /// Returns the name of the namespace with this number.
    pub fn name_of(&self, number: u16) -> Option<&[u8]> {
        self.names.get(&number).map(|name| &**name)
    }

    /// Returns a use of a restored namespace.
    pub fn use_of(&self, number: u16) -> Option<NamespaceUse> {
        self.use_named(self.names.get(&number)?)
    }

    /// Returns a use of the namespace with this name, if it exists.
    pub fn use_named(&self, name: &[u8]) -> Option<NamespaceUse> {
        self.by_name.get(name).map(|entry| NamespaceUse(Arc::clone(&entry.namespace)))
    }

    /// Restores a namespace from the log. If a front end owns the name with another kind, the namespace gets another
    /// name, which is returned.
    pub fn restore(&mut self, number: u16, name: &[u8], kind: NamespaceKind) -> Option<Box<[u8]>> {
        let is_foreign = built_in_kind(name).is_some_and(|own| own != kind);
        let renamed = is_foreign.then(|| self.free_name(name, kind));
        let entry = self.insert(number, renamed.as_deref().unwrap_or(name), kind);
        entry.is_recorded = true;
        entry.namespace.is_known.store(true, Ordering::Relaxed);
        // The log has forgotten the namespaces with the missing numbers.
        for between in self.next_number..u32::from(number) {
            self.spare_numbers.insert(between as u16);
        }
        self.next_number = self.next_number.max(u32::from(number) + 1);
        self.spare_numbers.remove(&number);
        renamed
    }

    /// Returns a free name for a namespace whose own name belongs to a front end.
    fn free_name(&self, name: &[u8], kind: NamespaceKind) -> Box<[u8]> {
        let name = [b"restored/", kind.name().as_bytes(), b"/", name].concat();
        let name = &name[..name.len().min(waymaker_protocol::limits::NAMESPACE_LEN_MAX)];
        if !self.by_name.contains_key(name) {
            return name.into();
        }
        let numbered = (2u32..).map(|number| [number.to_string().as_bytes(), b"/", name].concat());
        let mut fitting = numbered.map(|mut name| {
            name.truncate(waymaker_protocol::limits::NAMESPACE_LEN_MAX);
            name
        });
        fitting.find(|name| !self.by_name.contains_key(&**name)).map(Into::into).unwrap_or_default()
    }

    /// Returns the namespaces with this number or a higher one, in the order of their numbers.
    pub fn by_number(&self, from: u64) -> impl Iterator<Item = (u16, &[u8], NamespaceKind)> {
        // Clamping is harmless: no namespace has the number `u16::MAX`.
        let from = u16::try_from(from).unwrap_or(u16::MAX);
        let names = self.names.range(from..);
        names.filter_map(|(number, name)| Some((*number, &**name, self.by_name.get(name)?.kind)))
    }

    /// Updates which namespaces are idle; must be called regularly. Removes namespaces that have been idle for long and
    /// that no shard knows. For the other idle namespaces it returns a check for every shard.
    pub fn look(
        &mut self,
        now: Time,
        shard_count: usize,
        is_frozen: impl Fn(u16) -> bool,
        mut tell: impl FnMut(NamespaceChange<'_>),
    ) -> Option<EmptinessCheck> {
        let mut candidates = BTreeMap::new();
        for (name, entry) in &mut self.by_name {
            if is_built_in(name) || entry.is_declared || entry.is_used() || is_frozen(entry.namespace.number)
            {
                entry.idle_since = None;
                continue;
            }
            let idle_since = *entry.idle_since.get_or_insert(now);
            if now.ms_since(idle_since) >= self.limits.idle_ms && candidates.len() < NAMESPACE_REMOVALS_MAX {
                candidates.insert(entry.namespace.number, (name.clone(), entry.last_opening));
            }
        }
        candidates.retain(|number, (name, _)| {
            let is_known = self.by_name.get(name).is_some_and(Namespace::is_known);
            if !is_known {
                self.remove(name, &mut tell);
                self.spare_numbers.insert(*number);
            }
            is_known
        });
        // The next call handles the others, which stay idle.
        if candidates.is_empty() || self.removal.is_some() {
            return None;
        }
        for (name, _) in candidates.values() {
            if let Some(entry) = self.by_name.get_mut(name) {
                // If the namespace is not empty, the next check follows after the same idle time.
                entry.idle_since = Some(now);
            }
        }
        Some(self.begin(candidates, Vec::new(), shard_count))
    }

    /// Removes a namespace for an operator. `Ok(true)` means that it is removed. `Ok(false)` means that the shards must
    /// check it first: [`Namespaces::begin_requested`] starts that check, and its result has the response.
    ///
    /// # Errors
    /// Returns the reason why the namespace stays.
    pub fn remove_wanted(
        &mut self,
        ticket: Ticket,
        name: &[u8],
        is_frozen: impl Fn(u16) -> bool,
        mut tell: impl FnMut(NamespaceChange<'_>),
    ) -> Result<bool, RemovalRefusal> {
        if is_built_in(name) {
            return Err(RemovalRefusal::BuiltIn);
        }
        let entry = self.by_name.get(name).ok_or(RemovalRefusal::Unknown)?;
        if entry.is_declared {
            return Err(RemovalRefusal::Declared);
        }
        if entry.is_used() {
            return Err(RemovalRefusal::Used(entry.lane_count()));
        }
        if is_frozen(entry.namespace.number) {
            return Err(RemovalRefusal::NotEmpty);
        }
        if !entry.is_known() {
            if let Some(number) = self.remove(name, &mut tell) {
                self.spare_numbers.insert(number);
            }
            return Ok(true);
        }
        if self.requests.len() >= NAMESPACE_REMOVALS_WANTED_MAX {
            return Err(RemovalRefusal::TooManyWait(NAMESPACE_REMOVALS_WANTED_MAX));
        }
        // A lane may open it before the check and leave claims in a shard. `last_opening` detects that.
        self.requests.push(RemovalRequest { ticket, name: name.into(), last_opening: entry.last_opening });
        Ok(false)
    }

    /// Starts a check of the namespaces that operators want to remove, unless one is in progress. The end of that one
    /// must call this again.
    pub fn begin_requested(&mut self, shard_count: usize) -> Option<EmptinessCheck> {
        if self.removal.is_some() || self.requests.is_empty() {
            return None;
        }
        let requests = std::mem::take(&mut self.requests);
        let candidate = |RemovalRequest { name, last_opening, .. }: &RemovalRequest| {
            // Another removal may have removed the namespace meanwhile.
            let entry = self.by_name.get(name)?;
            Some((entry.namespace.number, (name.clone(), *last_opening)))
        };
        let candidates = requests.iter().filter_map(candidate).collect();
        Some(self.begin(candidates, requests, shard_count))
    }

    fn begin(
        &mut self,
        candidates: BTreeMap<u16, (Box<[u8]>, u64)>,
        requests: Vec<RemovalRequest>,
        shard_count: usize,
    ) -> EmptinessCheck {
        self.removal_count += 1;
        let number = self.removal_count;
        let looking = EmptinessCheck { removal: number, namespaces: candidates.keys().copied().collect() };
        self.removal = Some(Removal { number, candidates, requests, shards_left: shard_count });
        looking
    }

    /// Notes that a shard has forgotten the idle keys of a removal and found claims in the namespaces `in_use`. After
    /// the last shard, removes each namespace that is empty everywhere and that no lane has opened since.
    pub fn note_looked(
        &mut self,
        removal: u64,
        in_use: &[u16],
        mut tell: impl FnMut(NamespaceChange<'_>),
    ) -> RemovalResult {
        let Some(own) = self.removal.as_mut().filter(|own| own.number == removal) else {
            return RemovalResult::default();
        };
        for number in in_use {
            own.candidates.remove(number);
        }
        // A shard that has checked may get new claims, but only from a lane, whose opening shows in `last_opening`.
        own.shards_left -= 1;
        if own.shards_left > 0 {
            return RemovalResult::default();
        }
        let Some(Removal { candidates, requests, .. }) = self.removal.take() else {
            return RemovalResult::default();
        };
        let mut removed = Vec::new();
        for (number, (name, last_opening)) in candidates {
            let is_unused = |entry: &Namespace| !entry.is_used() && entry.last_opening == last_opening;
            if self.by_name.get(&name).is_some_and(is_unused) {
                self.remove(&name, &mut tell);
                removed.push(number);
            }
        }
        let answer = |name: &[u8]| match self.by_name.get(name) {
            None => Ok(()),
            Some(entry) if entry.is_used() => Err(RemovalRefusal::Used(entry.lane_count())),
            Some(_) => Err(RemovalRefusal::NotEmpty),
        };
        let answers = requests.into_iter().map(|request| (request.ticket, answer(&request.name))).collect();
        RemovalResult { removed, answers }
    }

    /// Returns the number of namespaces that are neither built in nor declared.
    fn count(&self) -> usize {
        let built_in_count = BUILT_IN.iter().filter(|(name, _)| self.by_name.contains_key(*name)).count();
        self.by_name.len() - built_in_count - self.declared_count
    }

    /// Returns a number for a new namespace. The last few numbers are reserved for built-in namespaces.
    fn new_number(&mut self, is_built_in: bool) -> Option<u16> {
        if let Some(number) = self.spare_numbers.pop_first() {
            return Some(number);
        }
        let reserved = if is_built_in { 0 } else { BUILT_IN.len() as u32 };
        // `u16::MAX` is not a valid number.
        if self.next_number + reserved >= u32::from(u16::MAX) {
            return None;
        }
        self.next_number += 1;
        Some((self.next_number - 1) as u16)
    }

    fn insert(&mut self, number: u16, name: &[u8], kind: NamespaceKind) -> &mut Namespace {
        let namespace =
            Arc::new(SharedNamespace { number, is_known: AtomicBool::new(false), lease_default_ms: None });
        self.opening_count += 1;
        let last_opening = self.opening_count;
        let entry = Namespace {
            namespace,
            kind,
            last_opening,
            idle_since: None,
            is_recorded: false,
            is_declared: false,
            _counted: None,
        };
        if !self.by_name.contains_key(name) {
            self.names.insert(number, name.into());
        }
        self.by_name.entry(name.into()).or_insert(entry)
    }

    /// Removes some namespaces that no lane uses and no shard knows. It removes a limited number, so that no `HELLO`
    /// takes long.
    fn remove_unknown(&mut self, tell: &mut impl FnMut(NamespaceChange<'_>)) {
        let is_unknown = |entry: &Namespace| !entry.is_used() && !entry.is_known() && !entry.is_declared;
        let unknown = self.by_name.iter().filter(|(_, entry)| is_unknown(entry));
        let names: Vec<_> = unknown.map(|(name, _)| name.clone()).take(UNKNOWN_REMOVED_AT_ONCE).collect();
        for name in names {
            if let Some(number) = self.remove(&name, tell) {
                self.spare_numbers.insert(number);
            }
        }
    }

    fn remove(&mut self, name: &[u8], tell: &mut impl FnMut(NamespaceChange<'_>)) -> Option<u16> {
        let entry = self.by_name.remove(name)?;
        self.names.remove(&entry.namespace.number);
        if entry.is_recorded {
            tell(NamespaceChange::Removed(entry.namespace.number));
        }
        Some(entry.namespace.number)
    }
}

impl Namespace {
    /// Returns whether a lane uses the namespace. Lanes start a use only while they hold the lock of all namespaces.
    fn is_used(&self) -> bool {
        let is_used = Arc::strong_count(&self.namespace) > 1;
        // Everything that the last lane did must be visible before the namespace is removed.
        std::sync::atomic::fence(Ordering::Acquire);
        is_used
    }

    /// Returns the number of lanes that use the namespace.
    fn lane_count(&self) -> u64 {
        Arc::strong_count(&self.namespace) as u64 - 1
    }

    fn is_known(&self) -> bool {
        self.namespace.is_known.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAT: NamespaceKind = NamespaceKind::Flat;

    fn open(namespaces: &mut Namespaces, name: &str) -> Result<NamespaceUse, NamespaceRefusal> {
        let opened = namespaces.open(name.as_bytes(), FLAT, &Accounts::NONE, |_| {});
        namespaces.settle(name.as_bytes(), opened.is_err(), |_| {});
        opened
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// Checks all namespaces that are idle at this time; the only shard finds claims in `in_use`.
    fn look_for(namespaces: &mut Namespaces, now: Time, in_use: &[u16]) -> Vec<u16> {
        let Some(looking) = namespaces.look(now, 1, |_| false, |_| {}) else { return Vec::new() };
        namespaces.note_looked(looking.removal, in_use, |_| {}).removed
    }

    #[test]
    fn a_namespace_keeps_its_number_and_kind_while_it_is_used() {
        let mut namespaces = Namespaces::default();
        let (a, b) = (open(&mut namespaces, "a").unwrap(), open(&mut namespaces, "b").unwrap());
        assert_eq!((a.number(), b.number()), (0, 1));
        assert_eq!(open(&mut namespaces, "a").unwrap().number(), 0);
        let refused = namespaces.open(b"a", NamespaceKind::Pool, &Accounts::NONE, |_| {});
        assert_eq!(refused.unwrap_err(), NamespaceRefusal::OtherKind(FLAT));
        assert_eq!(namespaces.find(b"b"), Some((1, FLAT)));
        assert_eq!(namespaces.find(b"c"), None);
        namespaces.look(at(0), 1, |_| false, |_| {});
        assert!(namespaces.look(at(10 * NAMESPACE_IDLE_MS), 1, |_| false, |_| {}).is_none());
        assert_eq!(namespaces.find(b"b"), Some((1, FLAT)));
    }

    #[test]
    fn a_built_in_namespace_has_a_fixed_kind_and_always_has_room() {
        let mut namespaces = Namespaces::default();
        for (name, kind) in BUILT_IN {
            for other in NamespaceKind::ALL.into_iter().filter(|other| *other != kind) {
                assert_eq!(
                    namespaces.open(name, other, &Accounts::NONE, |_| {}).unwrap_err(),
                    NamespaceRefusal::OtherKind(kind)
                );
            }
            assert_eq!(namespaces.find(name), None, "what is refused makes nothing");
        }
        let refused = namespaces.open(b"tree/locktopus/any", FLAT, &Accounts::NONE, |_| {});
        assert_eq!(refused.unwrap_err(), NamespaceRefusal::OtherKind(NamespaceKind::Tree));
        let users: Vec<_> = (0..NAMESPACE_COUNT_MAX)
            .map(|number| open(&mut namespaces, &number.to_string()).unwrap())
            .collect();
        assert_eq!(open(&mut namespaces, "one more").unwrap_err(), NamespaceRefusal::TooMany);
        assert_eq!(open(&mut namespaces, "7").unwrap().number(), users[7].number());
        for (name, kind) in BUILT_IN {
            assert!(namespaces.open(name, kind, &Accounts::NONE, |_| {}).is_ok());
        }
    }

    #[test]
    fn unused_namespaces_make_room_at_once() {
        let mut namespaces = Namespaces::default();
        for number in 0..3 * NAMESPACE_COUNT_MAX {
            open(&mut namespaces, &number.to_string()).expect("there is room");
        }
        assert!(namespaces.next_number <= NAMESPACE_COUNT_MAX as u32);
    }

    #[test]
    fn a_namespace_of_a_refused_user_is_removed_unless_others_use_it() {
        let mut namespaces = Namespaces::default();
        let mut told = Vec::new();
        drop(namespaces.open(b"a", FLAT, &Accounts::NONE, |_| {}).unwrap());
        namespaces.settle(b"a", true, |_| panic!("the log hears nothing of it"));
        assert_eq!(namespaces.find(b"a"), None);
        let first = namespaces.open(b"b", FLAT, &Accounts::NONE, |_| {}).unwrap();
        let second = namespaces.open(b"b", FLAT, &Accounts::NONE, |_| {}).unwrap();
        drop(first);
        namespaces.settle(b"b", true, |_| panic!("the log hears nothing of it"));
        namespaces.settle(b"b", false, |change| told.push(format!("{change:?}")));
        assert_eq!((told.len(), namespaces.find(b"b")), (1, Some((second.number(), FLAT))));
    }

    #[test]
    fn an_idle_empty_namespace_is_removed_and_its_number_is_not_reused() {
        let mut namespaces = Namespaces::default();
        let user = open(&mut namespaces, "a").unwrap();
        user.note_known();
        drop(user);
        assert!(look_for(&mut namespaces, at(0), &[]).is_empty(), "it has just become idle");
        assert!(look_for(&mut namespaces, at(NAMESPACE_IDLE_MS - 1), &[]).is_empty());
        assert!(look_for(&mut namespaces, at(NAMESPACE_IDLE_MS), &[0]).is_empty(), "something is in it");
        assert!(namespaces.find(b"a").is_some());
        assert_eq!(look_for(&mut namespaces, at(2 * NAMESPACE_IDLE_MS), &[]), [0]);
        assert_eq!(namespaces.find(b"a"), None);
        assert_eq!(open(&mut namespaces, "b").unwrap().number(), 1);
    }

    #[test]
    fn namespaces_have_the_number_and_the_idle_time_that_are_set() {
        let mut namespaces = Namespaces::default();
        namespaces.limit(1, 1_000);
        let user = open(&mut namespaces, "a").unwrap();
        user.note_known();
        assert!(matches!(open(&mut namespaces, "b"), Err(NamespaceRefusal::TooMany)));
        drop(user);
        look_for(&mut namespaces, at(0), &[]);
        assert!(look_for(&mut namespaces, at(999), &[]).is_empty());
        assert_eq!(look_for(&mut namespaces, at(1_000), &[]), [0]);
    }

    #[test]
    fn a_namespace_opened_during_its_removal_check_stays() {
        let mut namespaces = Namespaces::default();
        open(&mut namespaces, "a").unwrap().note_known();
        namespaces.look(at(0), 2, |_| false, |_| {});
        let looking = namespaces.look(at(NAMESPACE_IDLE_MS), 2, |_| false, |_| {}).expect("it is idle");
        assert!(namespaces.note_looked(looking.removal, &[], |_| {}).removed.is_empty());
        drop(open(&mut namespaces, "a").unwrap());
        assert!(
            namespaces.note_looked(looking.removal, &[], |_| {}).removed.is_empty(),
            "it was opened meanwhile"
        );
        assert!(namespaces.find(b"a").is_some());
    }

    #[test]
    fn a_restored_namespace_with_a_built_in_name_is_renamed() {
        let mut namespaces = Namespaces::default();
        let renamed = namespaces.restore(3, b"waymaker", NamespaceKind::Pool).expect("another name");
        assert_eq!(&*renamed, b"restored/pool/waymaker");
        assert_eq!(namespaces.find(&renamed), Some((3, NamespaceKind::Pool)));
        assert_eq!(
            open(&mut namespaces, "waymaker").unwrap().number(),
            0,
            "a number that the log does not name"
        );
        assert_eq!(namespaces.restore(5, b"default", FLAT), None);
    }

    #[test]
    fn the_order_by_number_has_each_namespace_exactly_once() {
        let mut namespaces = Namespaces::default();
        assert_eq!(namespaces.restore(7, b"old", FLAT), None);
        let _used = open(&mut namespaces, "used").unwrap();
        let known = open(&mut namespaces, "known").unwrap();
        known.note_known();
        drop(known);
        drop(open(&mut namespaces, "idle").unwrap());
        drop(namespaces.open(b"refused", FLAT, &Accounts::NONE, |_| {}).unwrap());
        namespaces.settle(b"refused", true, |_| {});
        let names = |namespaces: &Namespaces, from| {
            let all = namespaces.by_number(from);
            all.map(|(number, name, _)| (number, String::from_utf8_lossy(name).into_owned()))
                .collect::<Vec<_>>()
        };
        let of = |number: u16, name: &str| (number, name.to_owned());
        let all = [of(0, "used"), of(1, "known"), of(2, "idle"), of(7, "old")];
        assert_eq!(names(&namespaces, 0), all);
        assert_eq!(names(&namespaces, 2), all[2..]);
        assert_eq!(names(&namespaces, u64::MAX), []);
        look_for(&mut namespaces, at(0), &[]);
        look_for(&mut namespaces, at(NAMESPACE_IDLE_MS), &[7]);
        assert_eq!(names(&namespaces, 0), [of(0, "used"), of(7, "old")]);
        drop(open(&mut namespaces, "next").unwrap());
        assert_eq!(namespaces.name_of(2), Some(&b"next"[..]));
        assert_eq!(namespaces.use_of(7).map(|user| user.number()), Some(7));
        assert!(namespaces.use_of(1).is_none());
    }

    #[test]
    fn each_new_namespace_evicts_only_a_few_others() {
        let mut namespaces = Namespaces::default();
        for number in 0..3 * NAMESPACE_COUNT_MAX {
            let before = namespaces.count();
            assert!(open(&mut namespaces, &number.to_string()).is_ok());
            assert!(namespaces.count() + UNKNOWN_REMOVED_AT_ONCE > before);
        }
    }

    #[test]
    fn an_operator_is_answered_even_if_another_removal_ended_the_namespace() {
        let mut namespaces = Namespaces::default();
        open(&mut namespaces, "a").unwrap().note_known();
        assert!(namespaces.look(at(0), 1, |_| false, |_| {}).is_none());
        let looking = namespaces.look(at(NAMESPACE_IDLE_MS), 1, |_| false, |_| {}).unwrap();
        let ticket = Ticket::default();
        assert_eq!(namespaces.remove_wanted(ticket, b"a", |_| false, |_| {}), Ok(false));
        assert!(namespaces.begin_requested(1).is_none(), "a removal is in progress");
        assert_eq!(namespaces.note_looked(looking.removal, &[], |_| {}).removed, [0]);
        let looking = namespaces.begin_requested(1).unwrap();
        let [(_, answer)] = namespaces.note_looked(looking.removal, &[], |_| {}).answers[..] else {
            panic!("one operator waits")
        };
        assert_eq!(answer, Ok(()), "the namespace is gone");
    }

    /// The lane may leave a claim in a shard that has already been checked.
    #[test]
    fn a_namespace_used_during_a_removal_by_an_operator_stays() {
        let mut namespaces = Namespaces::default();
        open(&mut namespaces, "a").unwrap().note_known();
        let ticket = Ticket::default();
        assert_eq!(namespaces.remove_wanted(ticket, b"a", |_| false, |_| {}), Ok(false));
        let user = open(&mut namespaces, "a").unwrap();
        let looking = namespaces.begin_requested(2).expect("no removal is in progress");
        assert!(namespaces.note_looked(looking.removal, &[], |_| {}).removed.is_empty());
        drop(user);
        let RemovalResult { removed, answers } = namespaces.note_looked(looking.removal, &[], |_| {});
        assert!(removed.is_empty());
        assert!(matches!(answers[..], [(_, Err(RemovalRefusal::NotEmpty))]), "{answers:?}");
    }

    #[test]
    fn a_declared_namespace_stays_and_leaves_the_room_of_others() {
        let mut namespaces = Namespaces::default();
        namespaces.limit(1, 1_000);
        let mut told = Vec::new();
        let number =
            namespaces.declare(b"jobs", FLAT, Some(7), |change| told.push(format!("{change:?}"))).unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(namespaces.find(b"jobs"), Some((number, FLAT)));
        namespaces.look(at(0), 1, |_| false, |_| {});
        assert!(namespaces.look(at(10_000), 1, |_| false, |_| {}).is_none());
        let ticket = Ticket::default();
        let removed = namespaces.remove_wanted(ticket, b"jobs", |_| false, |_| {});
        assert_eq!(removed, Err(RemovalRefusal::Declared));
        let refused = namespaces.open(b"jobs", NamespaceKind::Pool, &Accounts::NONE, |_| {});
        assert_eq!(refused.unwrap_err(), NamespaceRefusal::OtherKind(FLAT));
        let own = open(&mut namespaces, "jobs").unwrap();
        assert_eq!((own.number(), own.lease_default_ms()), (number, Some(7)));
        assert_eq!(open(&mut namespaces, "one").unwrap().lease_default_ms(), None);
        open(&mut namespaces, "two").expect("the unused one makes room");
        assert!(namespaces.find(b"jobs").is_some());
    }

    #[test]
    fn a_declaration_takes_over_a_restored_namespace_of_its_kind_only() {
        let mut namespaces = Namespaces::default();
        namespaces.restore(3, b"jobs", FLAT);
        let told = |_: NamespaceChange<'_>| panic!("the log has it");
        assert_eq!(
            namespaces.declare(b"jobs", NamespaceKind::Tree, None, told),
            Err(NamespaceRefusal::OtherKind(FLAT))
        );
        assert_eq!(namespaces.declare(b"jobs", FLAT, None, told), Ok(3));
        assert_eq!(namespaces.declare(b"waymaker", FLAT, None, |_| {}), Ok(0));
        assert_eq!(namespaces.count(), 0);
    }
}
