//! The namespaces of a server: their names, kinds and numbers, their use, and their removal.

mod built_in;
mod declared;
mod namespace;
mod removal;

pub use built_in::built_in_kind;
pub(crate) use built_in::{DYNAMODB_TABLES, LOCKET_LOCK, LOCKET_NAMESPACE, LOCKET_PRESENCE, LOCKET_TYPES};
pub use declared::{DeclaredNamespace, LeaseAboveMaximum};
pub use namespace::NamespaceUse;
pub use removal::{EmptinessCheck, RemovalRefusal, RemovalResult};

use crate::limits::{NAMESPACE_COUNT_MAX, NAMESPACE_IDLE_MS};
use built_in::{BUILT_IN, is_built_in};
use namespace::{Namespace, SharedNamespace};
use removal::{Removal, RemovalRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use waymaker_engine::{Accounts, QuotaReached, Resource};
use waymaker_protocol::NamespaceKind;

/// Maximum number of unused namespaces that one `HELLO` removes to make room for a new one.
const UNKNOWN_REMOVED_AT_ONCE: usize = 64;

/// All namespaces of a server, by name.
///
/// A namespace is declared in the configuration, restored from the log, or created with its kind by the first accepted
/// `HELLO` for its name. The server removes a namespace after an idle time, at the request of an operator, or to make
/// room for another one. At that time no lane and no DynamoDB table uses the namespace, and it has no claim and no
/// frozen prefix:
///
/// - If no shard has received the number of an unused namespace, from a request or from the log, no shard has a claim
///   in it. The server removes such a namespace without asking the shards. Another namespace may get the number.
/// - A namespace is not removed if the configuration declares it. A built-in namespace is not removed once a shard has
///   received its number from a request or from the log.
/// - If the namespace is neither declared nor built in and a shard has received its number, a `Removal` asks every
///   shard. Each shard checks that it has no content of the namespace, and forgets the idle keys of the namespace. The
///   server then removes the namespace unless a connection opened it since it was found unused. Its number is not used
///   again before the next start, because late answers of the etcd cluster may still name it.
#[derive(Debug, Default)]
pub struct Namespaces {
    by_name: BTreeMap<Box<[u8]>, Namespace>,
    /// Names of the namespaces by number. A page of the list of namespaces begins at a number, so making a page takes
    /// no time for the pages before it.
    names: BTreeMap<u16, Box<[u8]>>,
    /// Numbers that namespaces had before, and of which no shard has data. New namespaces get these numbers first.
    spare_numbers: BTreeSet<u16>,
    /// Lowest number that was never used.
    next_number: u32,
    /// Removal in progress.
    removal: Option<Removal>,
    removal_count: u64,
    /// Requests of operators to remove namespaces, which wait for the start of the next check by the shards.
    requests: Vec<RemovalRequest>,
    /// Number of declared namespaces that are not built in.
    declared_count: usize,
    /// Number of openings of all namespaces so far; declarations and restores count too. Each opening gets the next
    /// number.
    opening_count: u64,
    limits: NamespaceLimits,
}

/// Limits of the namespaces of a server.
#[derive(Clone, Copy, Debug)]
struct NamespaceLimits {
    /// Maximum number of namespaces, not counting the built-in and the declared ones.
    count_max: usize,
    /// Idle time after which an empty namespace is removed, in milliseconds.
    idle_ms: u64,
}

impl Default for NamespaceLimits {
    fn default() -> Self {
        Self { count_max: NAMESPACE_COUNT_MAX, idle_ms: NAMESPACE_IDLE_MS }
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
    /// The namespace, or every namespace of this name, has this other kind.
    OtherKind(NamespaceKind),
    /// The server has the maximum number of namespaces, or no number is left.
    TooMany,
    /// A quota on the number of namespaces that the client created is reached.
    Quota(QuotaReached),
}

impl Namespaces {
    /// Sets the maximum number of namespaces, not counting the built-in and the declared ones. Also sets the idle time
    /// before removal, in milliseconds.
    pub(crate) fn limit(&mut self, count_max: usize, idle_ms: u64) {
        self.limits = NamespaceLimits { count_max, idle_ms };
    }

    /// Opens the namespace, and creates it if it is new. A created namespace counts for the quotas of the client
    /// (`accounts`), unless it is built in. Calls `tell` for each recorded namespace that was removed to make room. The
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
        // Count the namespace for the client's quota before taking a number, so that a client above its quota uses up
        // no numbers.
        let counted = (!is_built_in(name)).then(|| accounts.count(Resource::Namespaces));
        let counted = counted.transpose().map_err(NamespaceRefusal::Quota)?;
        let number = self.new_number(is_built_in(name)).ok_or(NamespaceRefusal::TooMany)?;
        let entry = self.insert(number, name, kind);
        entry._counted = counted;
        Ok(NamespaceUse(Arc::clone(&entry.namespace)))
    }

    /// Creates a declared namespace, or marks an existing one as declared, and returns its number. It does not count
    /// for the maximum number of namespaces and is never removed. Calls `tell` if the log does not contain it. Must be
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
        // `open_declared` may set terms for this number in the shards, so treat the number as known to them.
        entry.namespace =
            Arc::new(SharedNamespace { number, is_known: AtomicBool::new(true), lease_default_ms });
        if !std::mem::replace(&mut entry.is_recorded, true) {
            tell(NamespaceChange::Made { number, kind, name });
        }
        self.declared_count += usize::from(!is_built_in(name));
        Ok(number)
    }

    /// Completes an opening by [`Namespaces::open`] once it is known whether the client is accepted. If the client is
    /// accepted and the durable log does not contain the namespace yet, calls `tell`, which records it there. If the
    /// client is refused, removes a namespace that the log does not contain, unless another lane uses it.
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

    /// Returns the name of the namespace with this number, if it exists.
    pub fn name_of(&self, number: u16) -> Option<&[u8]> {
        self.names.get(&number).map(|name| &**name)
    }

    /// Returns a [`NamespaceUse`] of the namespace with this number, if the namespace exists. While the value exists,
    /// the namespace is not removed.
    pub fn use_of(&self, number: u16) -> Option<NamespaceUse> {
        self.use_named(self.names.get(&number)?)
    }

    /// Returns a [`NamespaceUse`] of the namespace with this name, if the namespace exists. While the value exists, the
    /// namespace is not removed.
    pub fn use_named(&self, name: &[u8]) -> Option<NamespaceUse> {
        self.by_name.get(name).map(|entry| NamespaceUse(Arc::clone(&entry.namespace)))
    }

    /// Restores a namespace from the log. If namespaces of this name must have another kind (see [`built_in_kind`]),
    /// the namespace gets another name, which is returned. Otherwise returns `None`.
    pub fn restore(&mut self, number: u16, name: &[u8], kind: NamespaceKind) -> Option<Box<[u8]>> {
        let is_foreign = built_in_kind(name).is_some_and(|own| own != kind);
        let renamed = is_foreign.then(|| self.free_name(name, kind));
        let entry = self.insert(number, renamed.as_deref().unwrap_or(name), kind);
        entry.is_recorded = true;
        entry.namespace.is_known.store(true, Ordering::Relaxed);
        // No namespace in the log has a number between `next_number` and this one. The namespaces with these numbers
        // were removed, so no shard has data of them.
        for between in self.next_number..u32::from(number) {
            self.spare_numbers.insert(between as u16);
        }
        self.next_number = self.next_number.max(u32::from(number) + 1);
        self.spare_numbers.remove(&number);
        renamed
    }

    /// Returns a free name for a restored namespace whose own name requires another kind.
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
        // A number above `u16::MAX` becomes `u16::MAX`. The result is the same, because no namespace has the number
        // `u16::MAX`.
        let from = u16::try_from(from).unwrap_or(u16::MAX);
        let names = self.names.range(from..);
        names.filter_map(|(number, name)| Some((*number, &**name, self.by_name.get(name)?.kind)))
    }

    /// Returns the number of namespaces that are neither built in nor declared.
    fn count(&self) -> usize {
        let built_in_count = BUILT_IN.iter().filter(|(name, _)| self.by_name.contains_key(*name)).count();
        self.by_name.len() - built_in_count - self.declared_count
    }

    /// Returns a number for a new namespace, or `None` if all are used. The last few numbers are reserved for built-in
    /// namespaces.
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

    /// Makes room for a new namespace when the maximum number is reached. Removes at most [`UNKNOWN_REMOVED_AT_ONCE`]
    /// namespaces that no lane uses and whose numbers no shard has received, so that no shard has a claim in them.
    /// Calls `tell` for each removed namespace that the durable log contains.
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

#[cfg(test)]
mod tests;
