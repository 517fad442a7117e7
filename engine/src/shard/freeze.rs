//! Prefixes under which nothing new is granted until an operator thaws them. What is held stays and is renewed.

use super::work::Work;
use super::{Caller, Shard};
use crate::claim::flag;
use crate::effect::Effects;
use crate::entry::Kind;
use crate::handle::{ClaimIx, KeyIx};
use crate::limits::FREEZE_COUNT_MAX;
use crate::measure::FreedAt;

/// One frozen prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Freeze {
    namespace: u16,
    prefix: Box<[u8]>,
}

/// All frozen prefixes of a server. There is one list, which every shard gets a copy of; a copy that is older than what
/// the shard has is of no effect, so it does not matter in which order they arrive.
#[derive(Clone, Debug, Default)]
pub struct FreezeList {
    version: u64,
    freezes: Vec<Freeze>,
}

impl FreezeList {
    /// Whether nothing is frozen.
    pub(super) fn is_empty(&self) -> bool {
        self.freezes.is_empty()
    }

    /// Freezes or thaws the keys of a namespace that begin with `prefix`. Says whether it was not so before. `Err` names
    /// the limit: there are as many frozen prefixes as there may be.
    pub fn change(&mut self, namespace: u16, prefix: &[u8], frozen: bool) -> Result<bool, u64> {
        self.change_within(FREEZE_COUNT_MAX, namespace, prefix, frozen)
    }

    /// Like [`Self::change`], for a caller who freezes nothing if there are so many frozen prefixes.
    pub fn change_within(
        &mut self,
        count_max: usize,
        namespace: u16,
        prefix: &[u8],
        frozen: bool,
    ) -> Result<bool, u64> {
        let place = self.freezes.iter().position(|f| f.namespace == namespace && *f.prefix == *prefix);
        match place {
            Some(place) if !frozen => {
                self.freezes.swap_remove(place);
            }
            None if frozen => {
                if self.freezes.len() >= count_max {
                    return Err(count_max as u64);
                }
                self.freezes.push(Freeze { namespace, prefix: prefix.into() });
            }
            _ => return Ok(false),
        }
        self.version += 1;
        Ok(true)
    }

    /// How many prefixes of a namespace are frozen.
    pub fn count(&self, namespace: u16) -> u16 {
        self.freezes.iter().filter(|freeze| freeze.namespace == namespace).count() as u16
    }

    /// All frozen prefixes, each with its namespace.
    pub fn all(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.freezes.iter().map(|freeze| (freeze.namespace, &*freeze.prefix))
    }

    /// The prefixes of a namespace that are frozen.
    pub fn prefixes(&self, namespace: u16) -> impl Iterator<Item = &[u8]> {
        let own = self.freezes.iter().filter(move |freeze| freeze.namespace == namespace);
        own.map(|freeze| &*freeze.prefix)
    }

    fn covers(&self, namespace: u16, key: &[u8]) -> bool {
        self.freezes.iter().any(|freeze| freeze.namespace == namespace && key.starts_with(&freeze.prefix))
    }
}

/// A walk over everything that waits, for all thaws together: one work item, however many thaws there are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Thaw {
    /// Whether a work item for the walk is queued.
    is_queued: bool,
    /// Whether another walk has to follow: a thaw came after this walk had begun.
    is_asked_again: bool,
    /// Place at which the walk goes on.
    next: u64,
}

impl Thaw {
    /// Asks for a walk that begins from now on. Returns whether the caller has to queue a work item.
    fn ask(&mut self) -> bool {
        self.is_asked_again = self.is_queued && self.next > 0;
        !std::mem::replace(&mut self.is_queued, true)
    }

    /// Ends the walk. Returns whether the caller has to queue a work item for another walk.
    fn end(&mut self) -> bool {
        *self = Self { is_queued: self.is_asked_again, ..Self::default() };
        self.is_queued
    }
}

impl Shard {
    /// From here on nothing is granted under these prefixes, and under no others is anything kept back.
    pub fn set_freezes(&mut self, freezes: &FreezeList) {
        if freezes.version <= self.freezes.version {
            return;
        }
        self.freezes = freezes.clone();
        self.careful = self.is_careful();
        if self.thaw.ask() {
            self.work.push(Work::Thaw);
        }
    }

    /// Whether nothing may be granted under this key.
    pub(super) fn is_frozen(&self, namespace: u16, key: &[u8]) -> bool {
        self.freezes.covers(namespace, key)
    }

    /// Whether nothing may be granted at this entry.
    #[inline]
    pub(super) fn is_entry_frozen(&self, entry: KeyIx) -> bool {
        self.careful && self.is_frozen(self.keys.entries[entry].namespace, self.keys.key(entry))
    }

    /// Whether the acquire of this caller would meet a frozen prefix.
    pub(super) fn meets_freeze(&self, caller: &Caller, key: &[u8]) -> bool {
        self.careful && self.is_frozen(caller.namespace, key)
    }

    /// Grants what a key kept back, the first time that one of its waiters comes by.
    fn thaw_queue(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let queue = self.keys.entries[entry].queue();
        if std::mem::replace(&mut self.queues[queue].thawed, self.freezes.version) < self.freezes.version {
            self.grant_from_head(entry, FreedAt::NEVER, effects);
        }
    }

    /// Sees to it that what a tree kept back is granted, the first time that one of its waiters comes by.
    fn thaw_tree(&mut self, entry: KeyIx) {
        let space = &mut self.trees[self.keys.entries[entry].tree()];
        if std::mem::replace(&mut space.thawed, self.freezes.version) < self.freezes.version
            && space.thaw.ask()
        {
            self.work.push(Work::ThawSets(entry));
        }
    }

    /// Grants the sets that a thawed tree kept back, in order of arrival, as far as the budget goes.
    pub(super) fn go_on_thawing_sets(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let space = self.keys.entries[entry].tree();
        while let Some((arrival, claim)) = self.trees[space].tree.first_clear(self.trees[space].thaw.next) {
            if !self.steps.take() {
                return self.work.push(Work::ThawSets(entry));
            }
            self.grant_set_if_clear(claim, effects);
            self.trees[space].thaw.next = arrival + 1;
        }
        if self.trees[space].thaw.end() {
            self.work.push(Work::ThawSets(entry));
        }
        // A set that was refused lets in the sets behind it, and a large one may have paths that are not held yet.
        self.settle_tree(entry, effects);
    }

    /// Grants what a thawed prefix kept back, as far as the budget goes.
    pub(super) fn go_on_thawing(&mut self, effects: &mut impl Effects) {
        while self.thaw.next < u64::from(self.claims.end()) {
            if !self.steps.take() {
                return self.work.push(Work::Thaw);
            }
            let record = &self.claims[ClaimIx::new(self.thaw.next as u32)];
            self.thaw.next += 1;
            if record.has(flag::LIVE) && !record.has(flag::HELD) {
                let entry = record.entry;
                match self.keys.entries[entry].kind() {
                    Kind::Flat => self.thaw_queue(entry, effects),
                    Kind::Pool => self.grant_permits(entry, effects),
                    Kind::Tree => self.thaw_tree(entry),
                }
            }
        }
        if self.thaw.end() {
            self.work.push(Work::Thaw);
        }
    }
}
