//! Namespaces that come and go. Their fences rise although namespaces and servers end, and no namespace ends that is in use.

use super::Auditor;
use super::restarts::Ending;
use std::collections::BTreeMap;
use waymaker_engine::Scope;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Granted, LockId, next_frame};

/// A key of such a namespace: the numbers of both.
pub(crate) type Place = (usize, usize);

/// All visits.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    told: BTreeMap<Place, ToldFences>,
    holds: BTreeMap<LockId, VisitHold>,
    /// Namespaces that are frozen as a whole, and since when that is known.
    frozen: BTreeMap<usize, u64>,
    /// The number of requests to thaw a namespace, and of those without a response.
    thaws: BTreeMap<usize, (u32, u32)>,
    /// The highest fence of a response. New keys begin above it after the removal of its namespace.
    highest: u64,
    /// Ends of the server.
    end_count: u32,
}

/// The highest fences of a key in responses, by their scopes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ToldFences {
    /// The next stop that is not in order ends them.
    ephemeral: u64,
    /// The loss of the disk ends them.
    local: u64,
    /// The cluster counted them.
    counted: u64,
    /// Ends of the server before.
    end_count: u32,
}

/// A hold whose visitor has not released it.
#[derive(Debug)]
struct VisitHold {
    namespace: usize,
    told_ms: u64,
    /// It lasts until then at least.
    until_ms: u64,
}

impl Visits {
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// The server ended.
    pub(super) fn note_end(&mut self, ending: Ending) {
        self.holds.clear();
        if matches!(ending, Ending::Loss | Ending::Damage) {
            self.frozen.clear();
        }
        self.end_count += 1;
        for told in self.told.values_mut() {
            if ending != Ending::Clean {
                told.ephemeral = 0;
            }
            if ending == Ending::Loss {
                told.local = 0;
            }
        }
    }
}

impl Auditor {
    /// The fences that the next grant of this key has to be above.
    pub(crate) fn visited(&self, place: Place) -> ToldFences {
        let told = self.visits.told.get(&place).copied().unwrap_or_default();
        ToldFences { end_count: self.visits.end_count, ..told }
    }

    /// Judges a grant to a visitor. `before` are the fences of responses before its request, which was sent at `sent_ms`.
    pub(crate) fn judge_visit(
        &mut self,
        place: Place,
        scope: Scope,
        before: ToldFences,
        granted: &Granted,
        (sent_ms, now_ms): (u64, u64),
    ) {
        let Granted { id, fence, remaining_ms, .. } = *granted;
        self.visits.highest = self.visits.highest.max(fence);
        if before.end_count != self.visits.end_count {
            // A server before this one said it.
            return;
        }
        let counted = if scope == Scope::Quorum { before.counted } else { 0 };
        if fence <= before.ephemeral.max(before.local).max(counted) {
            self.accuse("visit", || {
                format!("key {place:?}: {id} got the fence {fence}, and before were told {before:?}")
            });
        }
        let has_log = self.settings.log().is_some();
        let told = self.visits.told.entry(place).or_default();
        told.ephemeral = told.ephemeral.max(fence);
        if scope.is_durable() && has_log {
            told.local = told.local.max(fence);
        }
        if scope == Scope::Quorum {
            told.counted = told.counted.max(fence);
        }
        let until_ms = sent_ms + u64::from(remaining_ms);
        self.visits.holds.insert(id, VisitHold { namespace: place.0, told_ms: now_ms, until_ms });
    }

    /// A visitor releases a hold, or its connection is over.
    pub(crate) fn note_visit_over(&mut self, id: LockId) {
        self.visits.holds.remove(&id);
    }

    /// A visitor asks to freeze or to thaw a namespace. Returns the number of thaws so far, or `u32::MAX` if a thaw that may be served later
    /// has no answer yet.
    pub(crate) fn note_visited_freeze(&mut self, namespace: usize, thaw: bool) -> u32 {
        let (count, open) = self.visits.thaws.entry(namespace).or_default();
        if thaw {
            self.visits.frozen.remove(&namespace);
            (*count, *open) = (*count + 1, *open + 1);
        }
        if *open == 0 { *count } else { u32::MAX }
    }

    /// The server says that this is done. `thaw_count` is the number of thaws before the request.
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

    /// A visitor asks to remove a namespace. The server owes the answer once the last byte of the request, at `end`, has arrived.
    pub(crate) fn note_asked_to_remove(&mut self, connection: usize, number: u32, end: u64) {
        self.connections[connection].unarrived_visits.push_back((end, number));
    }

    /// Notes which requests of a visitor are answered.
    pub(super) fn note_said_to_visitor(&mut self, connection: usize, bytes: &[u8]) {
        let listener = &mut self.connections[connection];
        listener.said.extend_from_slice(bytes);
        while let Ok(Some(frame)) = next_frame(&listener.said, FRAME_LEN_MAX) {
            let len = frame.len();
            listener.answered.insert(frame.number());
            listener.said.drain(..len);
        }
    }

    /// Judges the removal of a namespace. Its request was sent at `sent_ms`.
    pub(crate) fn judge_removed(&mut self, namespace: usize, (sent_ms, now_ms): (u64, u64)) {
        let is_there = |hold: &VisitHold| {
            hold.namespace == namespace && hold.told_ms < sent_ms && now_ms < hold.until_ms
        };
        if let Some((id, _)) = self.visits.holds.iter().find(|(_, hold)| is_there(hold)) {
            let id = *id;
            self.accuse("visit", || format!("namespace {namespace} is removed, and {id} is held in it"));
        }
        if self.visits.frozen.get(&namespace).is_some_and(|since_ms| *since_ms < sent_ms) {
            self.accuse("visit", || format!("namespace {namespace} is removed, and it is frozen"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::durable_tests::logged;
    use super::super::scene::{auditor, granted, rule};
    use super::*;
    use waymaker_protocol::{NamespaceRemoved, Response};

    /// An auditor of a server with a log that granted a visitor the fence 5.
    fn visited(scope: Scope) -> Auditor {
        let mut auditor = logged();
        auditor.judge_visit((1, 2), scope, ToldFences::default(), &granted(5, 1_000), (1_000, 1_001));
        auditor
    }

    fn next(auditor: &mut Auditor, fence: u64) -> Option<&'static str> {
        let before = auditor.visited((1, 2));
        auditor.judge_visit((1, 2), Scope::Local, before, &granted(fence, 3_000), (3_000, 3_001));
        rule(auditor)
    }

    #[test]
    fn a_fence_rises_over_the_end_of_its_namespace_and_of_the_server() {
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
        assert_eq!(removed(1, 1_000, false), None, "the namespace may have been made anew");
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
        assert_eq!(removed(&[(false, false)]), None, "it may not be frozen yet");
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

    /// The rule that is broken if the server says these bytes to a visitor that has asked to remove a namespace.
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
    fn a_visitor_hears_what_became_of_a_removal() {
        let mut answer = Vec::new();
        Response::NamespaceRemoved(NamespaceRemoved).encode(3, &mut answer);
        assert_eq!(broken_by_saying(&answer), None);
        assert_eq!(broken_by_saying(&answer[..5]), Some("late-answer"));
    }
}
