//! What operators do: they freeze, and they end what others hold.

use super::Auditor;
use crate::mix::kind_of;
use crate::operation::Key;
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::{ForceReleased, LockId, NamespaceKind};

/// What is frozen, and since when that is certain.
#[derive(Debug, Default)]
pub(crate) struct OperatorRecords {
    prefixes: BTreeMap<(u8, Option<Key>), FrozenPrefix>,
    /// Ids that an operator asked to end.
    forced: BTreeSet<LockId>,
}

#[derive(Debug, Default)]
struct FrozenPrefix {
    /// When a thaw was last sent or answered.
    thawed_ms: Option<u64>,
    /// Thaws that may still take effect.
    open_thaws: BTreeSet<usize>,
    since_ms: Option<u64>,
    /// When it was surely frozen, and from when on perhaps not.
    spans: Vec<(u64, u64)>,
}

impl OperatorRecords {
    /// Nothing is surely frozen from here on.
    pub(super) fn thaw_all(&mut self, now_ms: u64) {
        for frozen in self.prefixes.values_mut() {
            if let Some(since_ms) = frozen.since_ms.take() {
                frozen.spans.push((since_ms, now_ms));
            }
        }
    }
}

impl Auditor {
    pub(super) fn note_freeze(
        &mut self,
        request: usize,
        kind: NamespaceKind,
        prefix: Option<Key>,
        thaw: bool,
        now_ms: u64,
    ) {
        let frozen = self.operators.prefixes.entry((kind.number(), prefix)).or_default();
        if thaw {
            frozen.open_thaws.insert(request);
            frozen.thawed_ms = Some(now_ms);
            if let Some(since_ms) = frozen.since_ms.take() {
                frozen.spans.push((since_ms, now_ms));
            }
        }
    }

    pub(super) fn judge_frozen(
        &mut self,
        request: usize,
        kind: NamespaceKind,
        prefix: Option<Key>,
        thaw: bool,
        now_ms: u64,
    ) {
        let sent_ms = self.requests[request].first_sent_ms;
        // Of a thaw that was on its way at the same time it is open which took effect last.
        let Some(frozen) = self.operators.prefixes.get_mut(&(kind.number(), prefix)) else { return };
        if thaw {
            frozen.open_thaws.remove(&request);
            frozen.thawed_ms = Some(now_ms);
        } else if frozen.open_thaws.is_empty() && frozen.thawed_ms.is_none_or(|thawed_ms| thawed_ms < sent_ms)
        {
            frozen.since_ms.get_or_insert(now_ms);
        }
    }

    /// Nothing is granted under a prefix that is surely frozen.
    pub(super) fn judge_freeze_at(&mut self, key: Key, id: LockId, stamp_ms: u64) {
        let name = self.settings.name_of(key);
        let covers = |kind: u8, prefix: Option<Key>| {
            kind == kind_of(key).number()
                && prefix.is_none_or(|prefix| name.starts_with(&self.settings.name_of(prefix)))
        };
        let covering = self.operators.prefixes.iter().filter(|((kind, prefix), _)| covers(*kind, *prefix));
        let spans = covering.flat_map(|(_, frozen)| {
            frozen.spans.iter().copied().chain(frozen.since_ms.map(|since_ms| (since_ms, u64::MAX)))
        });
        let met = spans.clone().find(|(since_ms, until_ms)| *since_ms < stamp_ms && stamp_ms < *until_ms);
        if let Some((since_ms, _)) = met {
            self.accuse("frozen", || {
                format!("key {key}: {id} was granted at {stamp_ms}, frozen since {since_ms}")
            });
        }
    }

    /// Somebody froze something in the namespace of this key.
    pub(super) fn may_be_frozen(&self, key: Key) -> bool {
        self.operators.prefixes.keys().any(|(kind, _)| *kind == kind_of(key).number())
    }

    pub(super) fn note_forced(&mut self, id: LockId, now_ms: u64) {
        self.operators.forced.insert(id);
        self.note_may_end(id, now_ms);
    }

    /// Whether an operator asked for the end of this claim.
    pub(super) fn is_forced(&self, id: LockId) -> bool {
        self.operators.forced.contains(&id)
    }

    pub(super) fn judge_force_release(
        &mut self,
        request: usize,
        id: LockId,
        released: &ForceReleased<'_>,
        now_ms: u64,
    ) {
        let first_sent_ms = self.requests[request].first_sent_ms;
        let Some(hold) = self.holds.get(&id) else { return };
        let (owner, ..) = hold.shown();
        let is_same = released.fence == hold.fence
            && !released.was_waiting
            && released.owner == owner
            && (kind_of(hold.key) == NamespaceKind::Tree || released.key == self.settings.name_of(hold.key));
        let over_before = hold.was_over_before(first_sent_ms);
        if !is_same || over_before {
            let hold = format!("{hold:?}");
            self.accuse("old-id", || format!("{id} was ended by force: {released:?}; it was {hold}"));
        }
        self.note_over(id, now_ms);
    }
}
