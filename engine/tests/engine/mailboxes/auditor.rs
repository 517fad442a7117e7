//! What clients may conclude from their answers.

use crate::fake_log::FakeLog;
use crate::recorder::Effect;
use std::collections::{BTreeMap, BTreeSet};
use waymaker_engine::{Answer, ClaimId, Event, Fence, Grant, LaneAddress, Ticket};

/// A request without an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenRequest {
    /// Key of a request for one key.
    pub(super) key: Option<&'static [u8]>,
    /// Shard that decides about the request.
    pub(super) home: u16,
    /// Whether a grant has a fence above all earlier fences of the key. It is new, exclusive and durable.
    pub(super) is_fence_new: bool,
    /// Whether the request has a request id. A client may ask for its grant again after a crash.
    pub(super) has_request_id: bool,
}

#[derive(Default)]
pub(super) struct Auditor {
    open: BTreeMap<Ticket, OpenRequest>,
    answered: BTreeMap<Ticket, Answer>,
    /// Open requests whose home shard heard that their connection was lost.
    lost: BTreeSet<Ticket>,
    /// Highest fence in the answers about each key since the key became durable.
    fences: BTreeMap<Box<[u8]>, u64>,
    /// The claim of each fence in an answer of this server.
    claims: BTreeMap<(Box<[u8]>, u64), ClaimId>,
}

impl Auditor {
    pub(super) fn note_request(&mut self, ticket: Ticket, request: OpenRequest) {
        self.open.insert(ticket, request);
    }

    /// The number of an open request of this lane.
    pub(super) fn open_number(&self, lane: LaneAddress) -> Option<u32> {
        self.open.keys().find(|ticket| ticket.lane == lane).map(|ticket| ticket.number)
    }

    pub(super) fn lost(&mut self, lane: LaneAddress, shard: u16) {
        let is_lost =
            |(ticket, request): &(&Ticket, &OpenRequest)| ticket.lane == lane && request.home == shard;
        self.lost.extend(self.open.iter().filter(is_lost).map(|(ticket, _)| *ticket));
    }

    /// The answer to this request waited for the log: its shard may have decided before it lost the connection.
    pub(super) fn was_decided_before(&mut self, ticket: Ticket) {
        self.lost.remove(&ticket);
    }

    /// The server is another one. Connections of the earlier server expect no answers, and ephemeral fences may come again.
    pub(super) fn restarted(&mut self) {
        self.open.clear();
        self.claims.clear();
    }

    pub(super) fn hear(&mut self, effect: &Effect, log: &FakeLog) {
        let Effect::Answer(ticket, answer) = effect else { return };
        let before = self.answered.insert(*ticket, answer.clone());
        let Some(request) = self.open.remove(ticket) else {
            panic!("{ticket:?} is answered again: {answer:?}, before: {before:?}");
        };
        let is_grant = matches!(answer, Answer::Granted(_) | Answer::GrantedMultiKey(_));
        assert!(
            !is_grant || !self.lost.contains(ticket),
            "{ticket:?} was granted after its connection was lost"
        );
        match answer {
            Answer::Granted(grant) => {
                if let Some(key) = request.key {
                    self.granted(&request, key, grant);
                }
            }
            Answer::GrantedMultiKey(grants) => {
                grants.iter().for_each(|key| self.granted(&request, &key.key, &key.grant));
                if request.has_request_id {
                    let ids: Vec<ClaimId> = grants.iter().map(|key| key.grant.id).collect();
                    check_numbers(*ticket, &ids, log);
                }
            }
            _ => {}
        }
    }

    fn granted(&mut self, request: &OpenRequest, key: &[u8], grant: &Grant) {
        let Grant { id, fence, repeated, remaining_ms, .. } = *grant;
        let first = *self.claims.entry((key.into(), fence.get())).or_insert(id);
        assert_eq!(first, id, "two claims of {key:?} have the fence {fence}");
        // The answer about an expired lease may arrive after the answer to the next holder.
        let is_new = request.is_fence_new && !repeated && remaining_ms > 0;
        let Some(last) = self.fences.get_mut(key) else {
            if request.is_fence_new {
                self.fences.insert(key.into(), fence.get());
            }
            return;
        };
        assert!(!is_new || fence > Fence::new(*last), "fence {fence} of {key:?} after {last}");
        *last = (*last).max(fence.get());
    }
}

/// A crash right after the answer to an acquire must not give its holds back to the request before it.
fn check_numbers(ticket: Ticket, ids: &[ClaimId], log: &FakeLog) {
    let image = log.image();
    for hold in image.holds().filter(|hold| ids.contains(&hold.id)) {
        assert!(hold.number >= ticket.number, "{ticket:?} is answered before this is durable: {hold:?}");
    }
}

/// The claims whose ids a client learns.
pub(super) fn told_ids(effect: &Effect) -> Vec<ClaimId> {
    match effect {
        Effect::Answer(_, Answer::Granted(grant)) => vec![grant.id],
        Effect::Answer(_, Answer::GrantedMultiKey(grants)) => grants.iter().map(|key| key.grant.id).collect(),
        Effect::Event(_, Event::Queued { id, .. }) => vec![*id],
        _ => Vec::new(),
    }
}

impl Auditor {
    /// Checks that no connection of these waits for an answer.
    pub(super) fn check_all_answered(&self, lanes: &[LaneAddress]) {
        // A connection whose session ended expects no answers.
        let is_expected = |(ticket, _): &(&Ticket, &OpenRequest)| lanes.contains(&ticket.lane);
        let unanswered: Vec<_> = self.open.iter().filter(is_expected).collect();
        assert!(unanswered.is_empty(), "not answered: {unanswered:?}");
    }
}
