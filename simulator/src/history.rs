//! What clients asked of flat keys and what they heard, with the times of the run: for a judge that knows nothing of the
//! auditor.

use crate::mix::kind_of;
use crate::operation::{Key, Operation, granted_one_by_one};
use crate::workload::Settings;
use std::collections::BTreeMap;
use waymaker_protocol::limits::INSPECT_HOLDERS_MAX;
use waymaker_protocol::{ErrorCode, Granted, LockId, LockState, NamespaceKind, Response, SessionId};

/// The calls of one run. One clock stamps all of them, in microseconds since the run began.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Every call, in the order in which they were first sent.
    pub calls: Vec<Call>,
    /// When a connection of a client was lost, and of which client.
    pub losses: Vec<(u64, usize)>,
    /// Counters of idle keys were forgotten now and then, so fences may jump.
    pub is_forgetful: bool,
}

/// One call, from its question to its answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who asked.
    pub client: usize,
    /// In which session, and the lease of that.
    pub session: Option<(SessionId, u64)>,
    /// What for.
    pub wish: Wish,
    /// Each time that it was sent: first, and then to a lane that was resumed.
    pub sent_us: Vec<u64>,
    /// What the client heard, and when. Without that, all may have happened, or nothing.
    pub heard: Option<(u64, Answer)>,
}

/// What was asked for, as far as it matters to flat keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To hold these keys, each shared or not.
    Acquire {
        /// The keys, in their order.
        keys: Vec<(u16, bool)>,
        /// It is no try.
        waits: bool,
        /// Its lease is that of the session.
        session_lease: bool,
        /// Its holds end with its lane.
        ends_with_lane: bool,
        /// The name of the claim.
        request_id: Option<u8>,
    },
    /// The end of a hold, by its client, a stranger or an operator.
    Release(LockId),
    /// Another lease, which is the given one and not the one asked for.
    Extend(LockId, u64),
    /// Whether a claim is there.
    Status(LockId),
    /// Who holds a key.
    Inspect(u16),
    /// That nothing is granted under some prefix, or is again.
    Freeze,
    /// The end of the session.
    Goodbye,
    /// Something else; it shows that the session lived.
    Other,
}

/// What a client heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A hold on each key.
    Granted(Vec<Grant>),
    /// The lease was moved, and ends then.
    Extended(Word),
    /// The hold was ended.
    Released,
    /// The claim is held.
    Held,
    /// The newest fence of the key, and the fences of all who hold it.
    Inspected {
        /// The newest fence.
        fence: u64,
        /// Those of the holders.
        holders: Vec<u64>,
    },
    /// No.
    Refused(ErrorCode),
    /// Something else.
    Other,
}

/// One hold as it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Names it.
    pub id: LockId,
    /// Its fence.
    pub fence: u64,
    /// It was found again, and granted earlier.
    pub repeated: bool,
    /// On its lease.
    pub lease: Word,
}

/// What the server said of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// When it was decided, by the server's clock.
    pub stamp_ms: u64,
    /// When the lease ends, in microseconds since the run began.
    pub end_us: u64,
}

/// Takes a history down.
#[derive(Debug)]
pub(crate) struct Recorder {
    history: History,
    start_ms: u64,
    /// Calls by the lane and the number.
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

    /// A client sends a request, or sends it again.
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

    /// The client hears the answer.
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
