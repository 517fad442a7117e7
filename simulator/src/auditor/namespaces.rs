//! Rules about the listed namespaces.

use super::Auditor;
use crate::identities::TENANT_NAMESPACE;
use crate::key::{Key, VISITED, kind_of};
use std::collections::BTreeMap;
use waymaker_protocol::{ListedNamespace, LockId, NamespaceKind, NamespacesListed};

/// Known namespaces, by the number of their kind.
pub(crate) type Namespaces = BTreeMap<u8, NamespaceRecord>;

#[derive(Clone, Debug, Default)]
pub(crate) struct NamespaceRecord {
    /// Time of the first WELCOME in the namespace.
    welcome_ms: Option<u64>,
    /// Newest reported statistics (ended waits, expired holds, revoked holds), and the time of that report.
    counted: (u64, u64, u64),
    counted_ms: u64,
    /// Times at which the server reported ended waits, expired holds and revoked holds.
    timeouts_ms: Vec<u64>,
    expired_ms: Vec<u64>,
    revoked_ms: Vec<u64>,
}

impl NamespaceRecord {
    /// Records that another server starts its statistics at 0; after a crash it may not know the namespace.
    pub(super) fn begin_anew(&mut self, is_clean: bool) {
        (self.counted, self.counted_ms) = ((0, 0, 0), 0);
        self.timeouts_ms.clear();
        self.expired_ms.clear();
        self.revoked_ms.clear();
        self.welcome_ms = self.welcome_ms.filter(|_| is_clean);
    }
}

impl Auditor {
    pub(super) fn note_namespace(&mut self, kind: NamespaceKind, now_ms: u64) {
        self.namespaces.entry(kind.number()).or_default().welcome_ms.get_or_insert(now_ms);
    }

    pub(super) fn note_timeout(&mut self, key: Key, now_ms: u64) {
        self.namespaces.entry(kind_of(key).number()).or_default().timeouts_ms.push(now_ms);
    }

    /// Records the reported expiry of a hold. The namespace of a hold without a known grant is unknown.
    pub(super) fn note_expired(&mut self, id: LockId, now_ms: u64) {
        if let Some(hold) = self.holds.get(&id) {
            self.namespaces.entry(kind_of(hold.key).number()).or_default().expired_ms.push(now_ms);
        }
    }

    pub(super) fn note_revoked(&mut self, key: Key, now_ms: u64) {
        self.namespaces.entry(kind_of(key).number()).or_default().revoked_ms.push(now_ms);
    }

    /// Rule `view` for one page of NAMESPACES. The first page has all known namespaces if they fit. The held
    /// count includes all holds that surely exist, and statistics never fall.
    pub(super) fn judge_namespaces(
        &mut self,
        request: usize,
        is_whole: bool,
        listed: &NamespacesListed<'_>,
        now_ms: u64,
    ) {
        let sent_ms = self.requests[request].first_sent_ms;
        let is_own = |one: &&ListedNamespace<'_>| {
            !one.name.starts_with(VISITED) && !one.name.starts_with(TENANT_NAMESPACE)
        };
        let is_shown = |number: u8| {
            listed.namespaces.iter().filter(is_own).filter(|one| one.kind.number() == number).count() == 1
        };
        let is_known = |record: &NamespaceRecord| record.welcome_ms.is_some_and(|at_ms| at_ms < sent_ms);
        let missing = self.namespaces.iter().find(|(number, record)| is_known(record) && !is_shown(**number));
        if let Some((number, _)) = missing.filter(|_| is_whole) {
            let number = *number;
            return self.accuse("view", || {
                format!("the namespace of kind {number} must be listed exactly once: {listed:?}")
            });
        }
        for one in listed.namespaces.iter().filter(is_own) {
            self.judge_namespace(one, sent_ms, now_ms);
        }
    }

    /// Rule `view` for one listed namespace.
    fn judge_namespace(&mut self, one: &ListedNamespace<'_>, sent_ms: u64, now_ms: u64) {
        let surely_held = self.holds.iter().filter(|(id, hold)| {
            kind_of(hold.key) == one.kind
                && self.stamp_of(hold.key, hold.fence).is_some_and(|stamp_ms| stamp_ms < sent_ms)
                && self.surely_lives(**id, now_ms)
        });
        let least = surely_held.count() as u64;
        let record = self.namespaces.entry(one.kind.number()).or_default();
        let counted = (one.timeouts, one.expired, one.revoked);
        let (timeouts, expired, revoked) = record.counted;
        let count_before = |times: &[u64]| times.partition_point(|at_ms| *at_ms < sent_ms) as u64;
        let is_short = one.timeouts < count_before(&record.timeouts_ms)
            || one.expired < count_before(&record.expired_ms)
            || one.revoked < count_before(&record.revoked_ms);
        let falls = record.counted_ms < sent_ms
            && (one.timeouts < timeouts || one.expired < expired || one.revoked < revoked);
        if now_ms > record.counted_ms {
            (record.counted, record.counted_ms) = (counted, now_ms);
        }
        if one.held < least || falls || is_short || one.name != one.kind.name().as_bytes() {
            self.accuse("view", || {
                format!(
                    "{one:?}: at least {least} holds exist; earlier counts were {timeouts} timeouts, {expired} expired, {revoked} revoked"
                )
            });
        }
    }
}
