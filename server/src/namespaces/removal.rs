//! Removal of namespaces that no lane uses and that are empty in every shard.

use super::built_in::is_built_in;
use super::namespace::Namespace;
use super::{NamespaceChange, Namespaces};
use crate::limits::{NAMESPACE_REMOVALS_MAX, NAMESPACE_REMOVALS_WANTED_MAX};
use std::collections::BTreeMap;
use std::sync::Arc;
use waymaker_engine::{Ticket, Time};

/// A removal of unused namespaces, in progress while the shards check them. The removal takes effect for the namespaces
/// that are empty in every shard.
#[derive(Debug)]
pub(super) struct Removal {
    number: u64,
    /// Namespaces that this removal may remove, by their numbers. Each has its name and the value that its
    /// `last_opening` (number of its last opening, counted over all namespaces) had when it was found unused.
    candidates: BTreeMap<u16, (Box<[u8]>, u64)>,
    /// Requests of operators that this removal answers.
    requests: Vec<RemovalRequest>,
    shards_left: usize,
}

/// A namespace that an operator wants to remove.
#[derive(Debug)]
pub(super) struct RemovalRequest {
    /// Ticket of the response.
    ticket: Ticket,
    name: Box<[u8]>,
    /// Number of the last opening of the namespace, counted over all namespaces, when the operator requested the
    /// removal. No lane used the namespace at that time.
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
    /// Lanes use the namespace; the value is their number.
    Used(u64),
    /// The namespace has claims or a frozen prefix, or a lane opened it during the check.
    NotEmpty,
    /// Too many operators wait for removals already; the value is the maximum.
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
    /// Notes which namespaces are idle; must be called regularly. Of the namespaces that have been idle for
    /// `--limits-namespace-idle` (at most `NAMESPACE_REMOVALS_MAX` in one call), removes those whose numbers no shard
    /// has received. For the other ones, returns an [`EmptinessCheck`]: the caller must send it to every shard, which
    /// reports the namespaces with claims. Returns `None` if there are no others or another check is in progress.
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
        // While the shards are busy with another check, the namespaces in `candidates` keep their idle time. A later
        // call of this function, after that check, returns a check for them.
        if candidates.is_empty() || self.removal.is_some() {
            return None;
        }
        for (name, _) in candidates.values() {
            if let Some(entry) = self.by_name.get_mut(name) {
                // If a shard finds that the namespace is not empty, the next check follows after another full idle
                // time.
                entry.idle_since = Some(now);
            }
        }
        Some(self.begin(candidates, Vec::new(), shard_count))
    }

    /// Removes a namespace for an operator. `Ok(true)` means that it is removed. `Ok(false)` means that the shards must
    /// first check that they have no claim in it. [`Namespaces::begin_requested`] starts that check, and the
    /// [`RemovalResult`] at its end has the response for the operator.
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
        // A lane may open the namespace before the shards check that it is empty, and leave claims in a shard.
        // `note_looked` recognizes such an opening after the check, because it changes `last_opening`.
        self.requests.push(RemovalRequest { ticket, name: name.into(), last_opening: entry.last_opening });
        Ok(false)
    }

    /// Starts a check of the namespaces that operators want to remove, unless another check is in progress. The caller
    /// must call this function again after the end of the other check.
    pub fn begin_requested(&mut self, shard_count: usize) -> Option<EmptinessCheck> {
        if self.removal.is_some() || self.requests.is_empty() {
            return None;
        }
        let requests = std::mem::take(&mut self.requests);
        let candidate = |RemovalRequest { name, last_opening, .. }: &RemovalRequest| {
            // Another removal may have removed the namespace since the operator's request.
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

    /// Notes that a shard has forgotten the idle keys in the namespaces of the removal with this number, and that it
    /// has claims in the namespaces `in_use`. After the last shard, removes each namespace that is empty everywhere and
    /// that no lane has opened since.
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
        // A shard that has already checked may get new claims in the namespace, but only from a lane. Such a lane
        // changes `last_opening` when it opens the namespace. So after the answer of the last shard, a namespace with
        // another `last_opening` than at the start is kept.
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
}
