//! Rules about requests of operators: freezes and forced releases.

use super::Auditor;
use super::duties::Word;
use crate::key::{Key, kind_of};
use crate::operation::Operation;
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::{ForceReleased, Frozen, LockId, NamespaceKind};

/// Freezes and forced releases.
#[derive(Debug, Default)]
pub(crate) struct OperatorRecords {
    prefixes: BTreeMap<(u8, Option<Key>), FrozenPrefix>,
    /// Ids that an operator asked to release.
    forced: BTreeSet<LockId>,
}

#[derive(Debug, Default)]
struct FrozenPrefix {
    /// Requests that may have frozen the prefix.
    doubts: Vec<Doubt>,
    /// Time at which a thaw was last sent or answered.
    thawed_ms: Option<u64>,
    /// Thaws that may still take effect.
    open_thaws: BTreeSet<usize>,
    /// Time since which the prefix is surely frozen.
    since_ms: Option<u64>,
    /// Earlier intervals: surely frozen from the first instant, perhaps thawed from the second on.
    spans: Vec<(u64, u64)>,
}

/// Effect of one request to freeze.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    request: usize,
    sent_ms: u64,
    /// Time at which a later thaw was answered.
    thawed_ms: Option<u64>,
}

impl OperatorRecords {
    /// Records that the log lost records. The record of each thaw may be among them.
    pub(super) fn doubt_thaws(&mut self) {
        for frozen in self.prefixes.values_mut() {
            frozen.doubts.iter_mut().for_each(|doubt| doubt.thawed_ms = None);
        }
    }

    /// Records that no prefix is surely frozen from here on.
    pub(super) fn thaw_all(&mut self, now_ms: u64) {
        for frozen in self.prefixes.values_mut() {
            if let Some(since_ms) = frozen.since_ms.take() {
                frozen.spans.push((since_ms, now_ms));
            }
        }
    }
}

impl Auditor {
    /// Records that a request to freeze or thaw is sent, perhaps again: it may take effect from now on.
    pub(super) fn note_if_freeze(&mut self, request: usize, operation: &Operation, now_ms: u64) {
        let Operation::Freeze { kind, prefix, thaw } = *operation else { return };
        let frozen = self.operators.prefixes.entry((kind.number(), prefix)).or_default();
        if thaw {
            frozen.open_thaws.insert(request);
            frozen.thawed_ms = Some(now_ms);
            if let Some(since_ms) = frozen.since_ms.take() {
                frozen.spans.push((since_ms, now_ms));
            }
        } else {
            frozen.doubts.push(Doubt { request, sent_ms: now_ms, thawed_ms: None });
        }
    }

    /// Rule `durable` for the response to a freeze. Records since when the prefix is surely frozen or thawed.
    pub(super) fn judge_frozen(
        &mut self,
        request: usize,
        kind: NamespaceKind,
        prefix: Option<Key>,
        thaw: bool,
        now_ms: u64,
    ) {
        let sent_ms = self.requests[request].first_sent_ms;
        // If a freeze and a thaw are in flight together, either may take effect last.
        if thaw {
            self.end_doubts(kind, prefix, sent_ms, now_ms);
        }
        let Some(frozen) = self.operators.prefixes.get_mut(&(kind.number(), prefix)) else { return };
        if thaw {
            frozen.open_thaws.remove(&request);
            frozen.thawed_ms = Some(now_ms);
            return;
        }
        // Some request has frozen the prefix, and its record is durable.
        let unthawed = frozen.doubts.iter().filter(|doubt| doubt.thawed_ms.is_none());
        // A repeated request may get the response to its first arrival, which a thaw has followed.
        let first_ms = unthawed.map(|doubt| doubt.sent_ms).fold(sent_ms, u64::min);
        if frozen.open_thaws.is_empty() && frozen.thawed_ms.is_none_or(|thawed_ms| thawed_ms < sent_ms) {
            frozen.since_ms.get_or_insert(now_ms);
        }
        self.judge_durable_since(request, first_ms);
    }

    /// Rule `count`: FROZEN counts no more prefixes than were ever requested, and includes its own.
    pub(super) fn judge_frozen_count(
        &mut self,
        kind: NamespaceKind,
        prefix: Option<Key>,
        thaw: bool,
        frozen: &Frozen,
    ) {
        let own = (kind.number(), prefix);
        let others = self
            .operators
            .prefixes
            .iter()
            .filter(|(name, other)| name.0 == kind.number() && **name != own && !other.doubts.is_empty());
        let (least, most) = (u16::from(!thaw), others.count() as u16 + u16::from(!thaw));
        if !(least..=most).contains(&frozen.frozen_count) {
            self.accuse("count", || {
                format!("{least} to {most} prefixes can be frozen, but the response is {frozen:?}")
            });
        }
    }

    /// Records that a thaw sent at `sent_ms` was answered: it ends freezes that took effect before it was
    /// sent.
    fn end_doubts(&mut self, kind: NamespaceKind, prefix: Option<Key>, sent_ms: u64, now_ms: u64) {
        let place = (kind.number(), prefix);
        let Some(mut frozen) = self.operators.prefixes.remove(&place) else { return };
        for doubt in frozen.doubts.iter_mut().filter(|doubt| doubt.thawed_ms.is_none()) {
            let record = &self.requests[doubt.request];
            let done_ms = match record.answered_ms.filter(|_| record.is_answered && record.sent_count == 1) {
                Some(answered_ms) => Some(answered_ms),
                None => self.last_effect_ms(doubt.request),
            };
            if done_ms.is_some_and(|done_ms| done_ms < sent_ms) {
                doubt.thawed_ms = Some(now_ms);
            }
        }
        self.operators.prefixes.insert(place, frozen);
    }

    /// Rule `frozen`: the server grants nothing under a prefix that is surely frozen.
    pub(super) fn judge_freeze_at(&mut self, key: Key, id: LockId, stamp_ms: u64) {
        let spans = |frozen: &FrozenPrefix| {
            let open = frozen.since_ms.map(|since_ms| (since_ms, u64::MAX));
            frozen.spans.iter().copied().chain(open).collect::<Vec<_>>()
        };
        let is_met = |(since_ms, until_ms): &(u64, u64)| *since_ms < stamp_ms && stamp_ms < *until_ms;
        let spans: Vec<(u64, u64)> = self.covering(key).flat_map(spans).collect();
        let met = spans.into_iter().find(is_met);
        if let Some((since_ms, _)) = met {
            self.accuse("frozen", || {
                format!(
                    "key {key}: {id} was granted at {stamp_ms} ms, but the key is frozen since {since_ms} ms"
                )
            });
        }
    }

    /// Returns the requested prefixes that cover this key.
    fn covering(&self, key: Key) -> impl Iterator<Item = &FrozenPrefix> + Clone {
        let name = self.settings.name_of(key);
        let covers = move |kind: u8, prefix: Option<Key>| {
            kind == kind_of(key).number()
                && prefix.is_none_or(|prefix| name.starts_with(&self.settings.name_of(prefix)))
        };
        let prefixes = self.operators.prefixes.iter();
        prefixes.filter(move |((kind, prefix), _)| covers(*kind, *prefix)).map(|(_, frozen)| frozen)
    }

    /// Returns whether this key may have been frozen between the two instants, or its waiters not have
    /// continued after that.
    pub(super) fn may_be_frozen(&self, key: Key, from_ms: u64, to_ms: u64) -> bool {
        let met = |doubt: &Doubt| {
            doubt.sent_ms <= to_ms
                && doubt.thawed_ms.is_none_or(|thawed_ms| self.latest_ms(thawed_ms) >= from_ms)
        };
        self.covering(key).any(|frozen| frozen.doubts.iter().any(met))
    }

    pub(super) fn note_forced(&mut self, id: LockId, now_ms: u64) {
        self.operators.forced.insert(id);
        self.note_may_end(id, now_ms);
    }

    /// Returns whether an operator asked to release this claim.
    pub(super) fn is_forced(&self, id: LockId) -> bool {
        self.operators.forced.contains(&id)
    }

    /// Rule `old-id`: a forced release ends a hold that was not over, and reports its fence, owner and key.
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
        let is_certain = !hold.may_have_moved && hold.settled_ms < first_sent_ms;
        let lane = hold.lane;
        let key = hold.key;
        let over_before = hold.was_over_before(first_sent_ms);
        if !is_same || over_before {
            let hold = format!("{hold:?}");
            self.accuse("old-id", || {
                format!(
                    "{id} was released by force, but had ended before or is reported with other values: {released:?}: {hold}"
                )
            });
        }
        self.note_over(id, now_ms);
        self.note_revoked(key, now_ms);
        if is_certain && self.requests[request].sent_count == 1 {
            self.owe_event(lane, first_sent_ms, now_ms, Word::Revoked(id));
        }
    }
}
