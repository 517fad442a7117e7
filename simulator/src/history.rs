//! Requests and responses of clients for flat keys, with the times of the run. The linearizability checker
//! reads them; it is independent of the auditor.

use crate::key::{Key, kind_of};
use crate::operation::{Operation, granted_one_by_one};
use crate::workload::Settings;
use std::collections::BTreeMap;
use waymaker_protocol::limits::INSPECT_HOLDERS_MAX;
use waymaker_protocol::{ErrorCode, Granted, LockId, LockState, NamespaceKind, Response, SessionId};

/// The calls of one run. One clock stamps all of them, in microseconds since the run began.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All calls, in the order in which they were first sent.
    pub calls: Vec<Call>,
    /// Time and client of each lost connection.
    pub losses: Vec<(u64, usize)>,
    /// True if the server sometimes forgets the counters of idle keys, so that fences may jump.
    pub is_forgetful: bool,
}

/// One call, from its request to its response.
#[derive(Clone, Debug)]
pub struct Call {
    /// The client that sent the request.
    pub client: usize,
    /// The session of the client, and the lease of the session.
    pub session: Option<(SessionId, u64)>,
    /// The request.
    pub wish: Wish,
    /// Times at which the request was sent. Repetitions follow the first request on resumed lanes.
    pub sent_us: Vec<u64>,
    /// Time and content of the response. Without a response, the request may or may not have been served.
    pub heard: Option<(u64, Answer)>,
}

/// The request of a call, as far as it matters for flat keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A claim on these keys.
    Acquire {
        /// The keys in their order, and whether each is shared.
        keys: Vec<(u16, bool)>,
        /// True if the acquire waits; false for a try.
        waits: bool,
        /// True if the hold has the lease of the session.
        session_lease: bool,
        /// True if the holds end with their lane.
        ends_with_lane: bool,
        /// Request id of the claim.
        request_id: Option<u8>,
    },
    /// End of a hold, by its client, another client or an operator.
    Release(LockId),
    /// Extend of a lease, with the lease that the server grants for it.
    Extend(LockId, u64),
    /// Question whether a claim exists.
    Status(LockId),
    /// Question for the holders of a key.
    Inspect(u16),
    /// Freeze or thaw of a prefix.
    Freeze,
    /// End of the session.
    Goodbye,
    /// Any other request. It shows that the session was alive.
    Other,
}

/// The response of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A hold on each key.
    Granted(Vec<Grant>),
    /// The lease was changed.
    Extended(Word),
    /// The hold was ended.
    Released,
    /// The claim is held.
    Held,
    /// The holders of a key.
    Inspected {
        /// The newest fence of the key.
        fence: u64,
        /// The fences of all holders.
        holders: Vec<u64>,
    },
    /// The request was refused.
    Refused(ErrorCode),
    /// Any other response.
    Other,
}

/// One hold, as its grant describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Id of the claim.
    pub id: LockId,
    /// Fence of the hold.
    pub fence: u64,
    /// True if the hold was granted before and was found again.
    pub repeated: bool,
    /// The lease of the hold.
    pub lease: Word,
}

/// The server's statement about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Time of the decision on the server's clock.
    pub stamp_ms: u64,
    /// End of the lease, in microseconds since the run began.
    pub end_us: u64,
}

/// Records the history of a run.
#[derive(Debug)]
pub(crate) struct Recorder {
    history: History,
    start_ms: u64,
    /// Position of each call in the history, by its lane and request number.
    places: BTreeMap<(usize, u32), usize>,
}

impl Recorder {
    pub(crate) fn new(settings: &Settings) -> Self {
        let history = History { is_forgetful: settings.is_forgetful, ..History::default() };
        Self { history, start_ms: settings.start_ms, places: BTreeMap::new() }
    }

    pub(crate) fn into_history(self) -> History {
        self.history
    }

    /// Records that a client sends a request, or sends it again.
    pub(crate) fn note_sent(
        &mut self,
        settings: &Settings,
        (client, lane, number): (usize, usize, u32),
        session: Option<(SessionId, u64)>,
        operation: &Operation,
        now_us: u64,
    ) {
        if let Some(place) = self.places.get(&(lane, number)) {
            return self.history.calls[*place].sent_us.push(now_us);
        }
        self.places.insert((lane, number), self.history.calls.len());
        let wish = wish_of(settings, operation);
        self.history.calls.push(Call { client, session, wish, sent_us: vec![now_us], heard: None });
    }

    /// Records that a client receives the response.
    pub(crate) fn note_heard(&mut self, lane: usize, number: u32, response: &Response<'_>, now_us: u64) {
        let answer = self.answer_of(response);
        if let Some(place) = self.places.get(&(lane, number)) {
            self.history.calls[*place].heard.get_or_insert((now_us, answer));
        }
    }

    pub(crate) fn note_lost(&mut self, client: usize, now_us: u64) {
        self.history.losses.push((now_us, client));
    }

    fn answer_of(&self, response: &Response<'_>) -> Answer {
        match response {
            Response::Granted(granted) => Answer::Granted(vec![self.grant_of(granted)]),
            Response::GrantedKeys(granted) => {
                Answer::Granted(granted_one_by_one(granted).iter().map(|one| self.grant_of(one)).collect())
            }
            Response::Extended(extended) => {
                Answer::Extended(self.word_of(extended.stamp_ms, extended.remaining_ms))
            }
            Response::Released(released) if !released.was_waiting => Answer::Released,
            Response::ForceReleased(released) if !released.was_waiting => Answer::Released,
            Response::Status(status) if status.state == LockState::Held => Answer::Held,
            Response::Inspected(inspected) if inspected.holder_count as usize <= INSPECT_HOLDERS_MAX => {
                let holders = inspected.holders.iter().map(|holder| holder.fence).collect();
                Answer::Inspected { fence: inspected.fence, holders }
            }
            Response::Error(error) => Answer::Refused(error.code),
            _ => Answer::Other,
        }
    }

    fn grant_of(&self, granted: &Granted) -> Grant {
        let Granted { id, fence, repeated, stamp_ms, remaining_ms, .. } = *granted;
        Grant { id, fence, repeated, lease: self.word_of(stamp_ms, remaining_ms) }
    }

    fn word_of(&self, stamp_ms: u64, remaining_ms: u32) -> Word {
        let end_ms = stamp_ms + u64::from(remaining_ms);
        Word { stamp_ms, end_us: end_ms.saturating_sub(self.start_ms) * 1000 }
    }
}

fn wish_of(settings: &Settings, operation: &Operation) -> Wish {
    let is_flat = |key: Key| kind_of(key) == NamespaceKind::Flat;
    match *operation {
        Operation::Acquire(acquire) if is_flat(acquire.key) => Wish::Acquire {
            keys: acquire.keys(),
            waits: acquire.wait_ms > 0,
            session_lease: acquire.session_lease,
            ends_with_lane: acquire.release_after_ms.is_some(),
            request_id: acquire.request_id,
        },
        Operation::Release { id, forged: false, .. } | Operation::ForceRelease { id } => Wish::Release(id),
        Operation::Extend { id, lease_ms, .. } => {
            Wish::Extend(id, u64::from(settings.given_lease_ms(lease_ms)) * 1000)
        }
        Operation::Status { id } => Wish::Status(id),
        Operation::Inspect { key } if is_flat(key) => Wish::Inspect(key),
        Operation::Freeze { .. } => Wish::Freeze,
        Operation::Goodbye => Wish::Goodbye,
        _ => Wish::Other,
    }
}
