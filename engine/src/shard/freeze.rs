//! Frozen prefixes, below which nothing new is granted until an operator thaws them. Existing holds stay and can be
//! renewed.

use super::work::Work;
use super::{Caller, Shard};
use crate::effect::Effects;
use crate::handle::{ClaimIx, KeyIx};
use crate::limits::FREEZE_COUNT_MAX;

/// Frozen prefix of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Freeze {
    namespace: u16,
    prefix: Box<[u8]>,
}

/// All frozen prefixes of a server. Every shard gets a copy of the server's list. A copy that is not newer than the
/// shard's has no effect, so the order of arrival does not matter.
#[derive(Clone, Debug, Default)]
pub struct FreezeList {
    version: u64,
    freezes: Vec<Freeze>,
}

impl FreezeList {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Whether nothing is frozen.
    pub(super) fn is_empty(&self) -> bool {
        self.freezes.is_empty()
    }

    /// Adds `prefix` to the frozen prefixes of a namespace, or removes exactly this prefix. Returns whether the list
    /// changed.
    ///
    /// Keys that begin with a frozen prefix are not granted. If the list already has the maximum number of frozen
    /// prefixes, a further prefix is not frozen, and the error is this maximum.
    pub fn change(&mut self, namespace: u16, prefix: &[u8], frozen: bool) -> Result<bool, u64> {
        self.change_within(FREEZE_COUNT_MAX, namespace, prefix, frozen)
    }

    /// Adds or removes a prefix like [`Self::change`], but freezes no further prefix if `count_max` prefixes are
    /// frozen.
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

    /// Returns the number of frozen prefixes of a namespace.
    pub fn count(&self, namespace: u16) -> u16 {
        self.freezes.iter().filter(|freeze| freeze.namespace == namespace).count() as u16
    }

    /// Returns all frozen prefixes, each with its namespace.
    pub fn all(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.freezes.iter().map(|freeze| (freeze.namespace, &*freeze.prefix))
    }

    /// Returns the frozen prefixes of a namespace.
    pub fn prefixes(&self, namespace: u16) -> impl Iterator<Item = &[u8]> {
        let own = self.freezes.iter().filter(move |freeze| freeze.namespace == namespace);
        own.map(|freeze| &*freeze.prefix)
    }

    fn covers(&self, namespace: u16, key: &[u8]) -> bool {
        self.freezes.iter().any(|freeze| freeze.namespace == namespace && key.starts_with(&freeze.prefix))
    }
}

/// Progress of the walk that grants waiters after a change of the frozen prefixes: over all waiters of a shard, or over
/// the sets that wait in one tree. Only one work item for the walk is queued at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Thaw {
    /// Whether a work item (work for a later turn) is queued that will begin or continue the walk over the waiters. The
    /// walk grants the waiters of thawed keys, which an operator allowed to be granted again.
    is_queued: bool,
    /// Whether another walk over the waiters must follow, because the frozen prefixes changed after the present walk
    /// began.
    is_asked_again: bool,
    /// Position at which the walk continues: the slot of a claim, or the arrival number of a set in a tree.
    pub(super) next: u64,
}

impl Thaw {
    /// Requests a walk over all waiters that begins after this call. Returns whether the caller must queue a work item
    /// for the walk.
    pub(super) fn ask(&mut self) -> bool {
        self.is_asked_again = self.is_queued && self.next > 0;
        !std::mem::replace(&mut self.is_queued, true)
    }

    /// Ends the walk over the waiters, which has granted the waiters of thawed keys. If another walk was requested
    /// after this one began, it must follow. Returns whether this is so, and the caller must queue a work item for it.
    pub(super) fn end(&mut self) -> bool {
        *self = Self { is_queued: self.is_asked_again, ..Self::default() };
        self.is_queued
    }
}

impl Shard {
    /// Sets the frozen prefixes, unless the shard has a list of the same or a newer version. Keys that begin with one
    /// of them are no longer granted. Waiters of thawed keys are granted in later turns.
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

    /// Whether grants of this key are frozen.
    pub(super) fn is_frozen(&self, namespace: u16, key: &[u8]) -> bool {
        self.freezes.covers(namespace, key)
    }

    /// Whether grants of the key with this record are frozen.
    #[inline]
    pub(super) fn is_entry_frozen(&self, entry: KeyIx) -> bool {
        self.careful && self.is_frozen(self.keys.entries[entry].namespace, self.keys.key(entry))
    }

    /// Whether a key in the namespace of the caller begins with a frozen prefix.
    pub(super) fn meets_freeze(&self, caller: &Caller, key: &[u8]) -> bool {
        self.careful && self.is_frozen(caller.namespace, key)
    }

    /// Continues the walk over the waiters of the shard after the list of frozen prefixes has changed. Grants the
    /// waiters of thawed keys: no frozen prefix prevents their grants any more. Each claim record takes one step of the
    /// limited follow-up work of this turn. If no step is left, a later turn continues.
    pub(super) fn go_on_thawing(&mut self, effects: &mut impl Effects) {
        while self.thaw.next < u64::from(self.claims.end()) {
            if !self.steps.take() {
                return self.work.push(Work::Thaw);
            }
            let record = &self.claims[ClaimIx::new(self.thaw.next as u32)];
            self.thaw.next += 1;
            if record.is_waiting() {
                let entry = record.entry;
                self.thaw_waiters(entry, effects);
            }
        }
        if self.thaw.end() {
            self.work.push(Work::Thaw);
        }
    }
}
