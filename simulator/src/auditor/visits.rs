//! Rule `visit`: fences rise across removals of their namespace and ends of the server; no namespace is
//! removed that is in use.

use super::Auditor;
use super::restarts::Ending;
use std::collections::BTreeMap;
use waymaker_engine::Scope;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Granted, LockId, next_frame};

/// Numbers of a visited namespace and of one of its keys.
pub(crate) type Place = (usize, usize);

/// Known state of all visited namespaces.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    fences: BTreeMap<Place, KnownFences>,
    holds: BTreeMap<LockId, VisitHold>,
    /// Namespaces that are frozen as a whole, each with the time from which this is known.
    frozen: BTreeMap<usize, u64>,
    /// Number of requests to thaw a namespace, and the number of them without a response.
    thaws: BTreeMap<usize, (u32, u32)>,
    /// Highest fence of a response. After the removal of a namespace, its new keys start above it.
    highest: u64,
    /// Number of ends of the server.
    end_count: u32,
}

/// Highest fences of a key in responses, by scope.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownFences {
    /// Highest fence of any scope; forgotten when the server ends without a clean stop.
    ephemeral: u64,
    /// Highest durable fence; forgotten when the disk is lost.
    local: u64,
    /// Highest fence that the cluster counted.
    counted: u64,
    /// Number of earlier ends of the server.
    end_count: u32,
}

/// A hold whose visitor has not released it.
#[derive(Debug)]
struct VisitHold {
    namespace: usize,
    told_ms: u64,
    /// Earliest end of the hold.
    until_ms: u64,
}

impl Visits {
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// Records an end of the server.
    pub(super) fn note_end(&mut self, ending: Ending) {
        self.holds.clear();
        if matches!(ending, Ending::Loss | Ending::Damage) {
            self.frozen.clear();
        }
        self.end_count += 1;
        for known in self.fences.values_mut() {
            if ending != Ending::Clean {
                known.ephemeral = 0;
            }
            if ending == Ending::Loss {
                known.local = 0;
            }
        }
    }
}

impl Auditor {
    /// Returns the fences that the next grant of this key must exceed.
    pub(crate) fn visited(&self, place: Place) -> KnownFences {
        let known = self.visits.fences.get(&place).copied().unwrap_or_default();
        KnownFences { end_count: self.visits.end_count, ..known }
    }

    /// Rule `visit`: a grant to a visitor has a fence above `before`, the fences of responses before its
    /// request was sent at `sent_ms`.
    pub(crate) fn judge_visit(
        &mut self,
        place: Place,
        scope: Scope,
        before: KnownFences,
        granted: &Granted,
        (sent_ms, now_ms): (u64, u64),
    ) {
        let Granted { id, fence, remaining_ms, .. } = *granted;
        self.visits.highest = self.visits.highest.max(fence);
        if before.end_count != self.visits.end_count {
            // An earlier server sent the grant.
            return;
        }
        let counted = if scope == Scope::Quorum { before.counted } else { 0 };
        if fence <= before.ephemeral.max(before.local).max(counted) {
            self.accuse("visit", || {
                format!(
                    "key {place:?} (namespace, key): {id} got fence {fence}, which must be above the earlier fences {before:?}"
                )
            });
        }
        let has_log = self.settings.log().is_some();
        let known = self.visits.fences.entry(place).or_default();
        known.ephemeral = known.ephemeral.max(fence);
        if scope.is_durable() && has_log {
            known.local = known.local.max(fence);
        }
        if scope == Scope::Quorum {
            known.counted = known.counted.max(fence);
        }
        let until_ms = sent_ms + u64::from(remaining_ms);
        self.visits.holds.insert(id, VisitHold { namespace: place.0, told_ms: now_ms, until_ms });
    }

    /// Records that a visitor releases a hold, or that its connection is lost.
    pub(crate) fn note_visit_over(&mut self, id: LockId) {
        self.visits.holds.remove(&id);
    }

    /// Records that a visitor asks to freeze or thaw a namespace. Returns the number of thaws so far, or
    /// `u32::MAX` if a thaw without a response may still take effect.
    pub(crate) fn note_visited_freeze(&mut self, namespace: usize, thaw: bool) -> u32 {
        let (count, open) = self.visits.thaws.entry(namespace).or_default();
        if thaw {
            self.visits.frozen.remove(&namespace);
            (*count, *open) = (*count + 1, *open + 1);
        }
        if *open == 0 { *count } else { u32::MAX }
    }

    /// Records the response to a freeze or thaw. `thaw_count` is the number of thaws before the request.
    pub(crate) fn note_visited_frozen(
        &mut self,
        namespace: usize,
        (thaw, thaw_count): (bool, u32),
        now_ms: u64,
    ) {
        let (count, open) = self.visits.thaws.entry(namespace).or_default();
        *open = open.saturating_sub(u32::from(thaw));
        if !thaw && (*count, *open) == (thaw_count, 0) {
            self.visits.frozen.entry(namespace).or_insert(now_ms);
        }
    }

    /// Records that a visitor asks to remove a namespace. The server owes a response once the last byte of
    /// the request, at `end`, has arrived.
    pub(crate) fn note_asked_to_remove(&mut self, connection: usize, number: u32, end: u64) {
        self.connections[connection].unarrived_visits.push_back((end, number));
    }

    /// Records which requests of a visitor are answered.
    pub(super) fn note_said_to_visitor(&mut self, connection: usize, bytes: &[u8]) {
        let listener = &mut self.connections[connection];
        listener.said.extend_from_slice(bytes);
        while let Ok(Some(frame)) = next_frame(&listener.said, FRAME_LEN_MAX) {
            let len = frame.len();
            listener.answered.insert(frame.number());
            listener.said.drain(..len);
        }
    }

    /// Rule `visit`: a namespace is removed only if it has no hold and is not frozen. The request was sent at
    /// `sent_ms`.
    pub(crate) fn judge_removed(&mut self, namespace: usize, (sent_ms, now_ms): (u64, u64)) {
        let is_there = |hold: &VisitHold| {
            hold.namespace == namespace && hold.told_ms < sent_ms && now_ms < hold.until_ms
        };
        if let Some((id, _)) = self.visits.holds.iter().find(|(_, hold)| is_there(hold)) {
            let id = *id;
            self.accuse("visit", || {
                format!("namespace {namespace} was removed, although {id} is held in it")
            });
        }
        if self.visits.frozen.get(&namespace).is_some_and(|since_ms| *since_ms < sent_ms) {
            self.accuse("visit", || format!("namespace {namespace} was removed, although it is frozen"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::durable_tests::logged;
    use super::super::scene::{auditor, granted, rule};
    use super::*;
    use waymaker_protocol::{NamespaceRemoved, Response};

    /// Returns the auditor of a server with a log that granted fence 5 to a visitor.
    fn visited(scope: Scope) -> Auditor {
        let mut auditor = logged();
        auditor.judge_visit((1, 2), scope, KnownFences::default(), &granted(5, 1_000), (1_000, 1_001));
        auditor
    }

    fn next(auditor: &mut Auditor, fence: u64) -> Option<&'static str> {
        let before = auditor.visited((1, 2));
        auditor.judge_visit((1, 2), Scope::Local, before, &granted(fence, 3_000), (3_000, 3_001));
        rule(auditor)
    }

    #[test]
    fn a_fence_rises_across_the_end_of_its_namespace_and_of_the_server() {
        assert_eq!(next(&mut visited(Scope::Ephemeral), 5), Some("visit"));
        assert_eq!(next(&mut visited(Scope::Ephemeral), 6), None);
        for (scope, ending, expected) in [
            (Scope::Ephemeral, Ending::Crash, None),
            (Scope::Ephemeral, Ending::Clean, Some("visit")),
            (Scope::Local, Ending::Crash, Some("visit")),
            (Scope::Local, Ending::Damage, Some("visit")),
            (Scope::Local, Ending::Loss, None),
        ] {
            let mut auditor = visited(scope);
            auditor.visits.note_end(ending);
            assert_eq!(next(&mut auditor, 1), expected, "{scope:?} {ending:?}");
        }
    }

    #[test]
    fn a_namespace_with_a_hold_is_not_removed() {
        let removed = |namespace, sent_ms, is_released| {
            let mut auditor = visited(Scope::Local);
            if is_released {
                auditor.note_visit_over(granted(5, 1_000).id);
            }
            auditor.judge_removed(namespace, (sent_ms, sent_ms + 10));
            rule(&auditor)
        };
        assert_eq!(removed(1, 1_100, false), Some("visit"));
        assert_eq!(removed(2, 1_100, false), None);
        assert_eq!(removed(1, 1_100, true), None);
        assert_eq!(removed(1, 1_700, false), None, "its lease may be over");
        assert_eq!(removed(1, 1_000, false), None, "the namespace may have been created again");
    }

    #[test]
    fn a_frozen_namespace_is_not_removed() {
        let removed = |changes: &[(bool, bool)]| {
            let mut auditor = logged();
            for (thaw, is_told) in changes {
                let thaw_count = auditor.note_visited_freeze(1, *thaw);
                if *is_told {
                    auditor.note_visited_frozen(1, (*thaw, thaw_count), 1_000);
                }
            }
            auditor.judge_removed(1, (1_001, 1_002));
            rule(&auditor)
        };
        assert_eq!(removed(&[(false, true)]), Some("visit"));
        assert_eq!(removed(&[(false, false)]), None, "the freeze may not be done yet");
        assert_eq!(removed(&[(false, true), (true, false)]), None);
        assert_eq!(removed(&[(true, false), (false, true)]), None, "the thaw may come later");
        assert_eq!(removed(&[(true, true), (false, true)]), Some("visit"));
        let mut auditor = logged();
        let before = auditor.note_visited_freeze(1, false);
        let thaw = auditor.note_visited_freeze(1, true);
        auditor.note_visited_frozen(1, (true, thaw), 1_000);
        auditor.note_visited_frozen(1, (false, before), 1_000);
        auditor.judge_removed(1, (1_001, 1_002));
        assert_eq!(rule(&auditor), None, "the thaw may have come later");
    }

    /// Returns the rule that is broken if the server sends only these bytes to a visitor that has asked to
    /// remove a namespace.
    fn broken_by_saying(bytes: &[u8]) -> Option<&'static str> {
        let mut auditor = auditor();
        auditor.settings.durability = None;
        auditor.open_to_visitor(9);
        let connection = auditor.connections.len() - 1;
        let asked_ms = auditor.settings.start_ms + 1_000;
        auditor.note_asked_to_remove(connection, 3, 40);
        auditor.arrived(connection, 40, asked_ms);
        auditor.said(connection, bytes, asked_ms);
        auditor.look_at_duties(3_000_000);
        auditor.look_at_duties(6_000_000);
        rule(&auditor)
    }

    #[test]
    fn a_visitor_gets_the_response_to_a_removal() {
        let mut answer = Vec::new();
        Response::NamespaceRemoved(NamespaceRemoved).encode(3, &mut answer);
        assert_eq!(broken_by_saying(&answer), None);
        assert_eq!(broken_by_saying(&answer[..5]), Some("late-answer"));
    }
}
