//! Leases that one real client has read, and the earliest and latest local deadlines of its guards that
//! follow from them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::LockId;

/// Lease of a hold, as the server reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseWord {
    pub(super) stamp_ms: u64,
    pub(super) end_ms: u64,
    pub(super) remaining_ms: u32,
    /// Whole lease that the acquire requested; 0 for a response to another request and for an event.
    pub(super) lease_ms: u32,
    pub(super) by: Speaker,
    /// Whether no earlier connection can have sent the request, so that the response proves that the hold
    /// exists.
    pub(super) is_fresh: bool,
}

/// Kind of a report. It decides which of two reports of one millisecond counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    Grant,
    /// Response to an extend. The server decides the requests of a lane in the order of their numbers.
    Answer(u32),
    /// Response to a status request, which moves nothing.
    Status(u32),
    /// Event, which may have been decided before or after a response of the same millisecond.
    Event,
}

impl Speaker {
    /// Returns the number of the answered request.
    fn number(self) -> Option<u32> {
        match self {
            Self::Answer(number) | Self::Status(number) => Some(number),
            Self::Grant | Self::Event => None,
        }
    }

    /// Returns whether a guard shows the remaining time of this report as its lease.
    fn shows_length(self) -> bool {
        !matches!(self, Self::Status(_))
    }
}

/// Leases that one process has read.
#[derive(Debug, Default)]
pub(super) struct LeaseWords {
    /// Newest lease of each hold.
    newest: BTreeMap<LockId, LeaseWord>,
    /// Remaining times of the two newest reports.
    lengths: BTreeMap<LockId, [u32; 2]>,
    /// Status requests and renewals that were sent while the newest report about their hold was an event,
    /// with the stamp of that event, by lane and number.
    asked_behind: BTreeMap<(usize, u32), u64>,
    /// Other remaining times that a guard may show: those in status responses, and those in reports of one
    /// millisecond whose order is unknown.
    other_lengths: BTreeSet<(LockId, u32)>,
    /// Earliest allowed local deadline of each guard, by a report that it has read.
    floors: BTreeMap<LockId, u64>,
    /// Time at which a caller last moved the end of a lease.
    extend_calls: BTreeMap<LockId, u64>,
}

impl LeaseWords {
    /// Records a reported lease of a hold. The newest report counts. Of two with one stamp, the response to
    /// the later request counts. If one of them is an event, the shorter lease counts, unless the request was
    /// sent after the event. `is_first` is set if the lane has read no response to a later request: only then
    /// the report sets the earliest deadline of the guard.
    pub(super) fn note(
        &mut self,
        lane: usize,
        id: LockId,
        mut word: LeaseWord,
        sent_ms: u64,
        is_first: bool,
    ) {
        let event_ms = word.by.number().and_then(|number| self.asked_behind.remove(&(lane, number)));
        let is_newer = self.newest.get(&id).is_none_or(|known| match word.stamp_ms.cmp(&known.stamp_ms) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => match (known.by.number(), word.by.number()) {
                (Some(earlier), Some(later)) => earlier < later,
                _ if known.by == Speaker::Event && event_ms == Some(known.stamp_ms) => true,
                _ if known.by == Speaker::Event || word.by == Speaker::Event => word.end_ms < known.end_ms,
                _ => true,
            },
        });
        if let Some(known) = self.newest.get_mut(&id).filter(|known| known.stamp_ms == word.stamp_ms)
            && (known.by == Speaker::Event || word.by == Speaker::Event)
        {
            self.other_lengths.extend([(id, known.remaining_ms), (id, word.remaining_ms)]);
            if event_ms != Some(word.stamp_ms) {
                // The order of later responses with this stamp is unknown too.
                (known.by, word.by) = (Speaker::Event, Speaker::Event);
            }
        }
        if !is_newer {
            return;
        }
        self.newest.insert(id, word);
        if word.by.shows_length() {
            let lengths = self.lengths.entry(id).or_default();
            *lengths = [lengths[1], word.remaining_ms];
        } else {
            self.other_lengths.insert((id, word.remaining_ms));
        }
        let is_alone = self.extend_calls.get(&id).is_none_or(|call_ms| *call_ms <= sent_ms);
        if word.is_fresh && is_first && is_alone && word.end_ms < u64::MAX {
            self.floors.insert(id, belief_floor_ms(sent_ms, word.remaining_ms, word.lease_ms));
        } else {
            self.floors.remove(&id);
        }
    }

    /// Records that a status request about a hold, or a renewal, is sent.
    pub(super) fn note_asked(&mut self, lane: usize, number: u32, id: LockId) {
        if let Some(word) = self.newest.get(&id).filter(|word| word.by == Speaker::Event) {
            self.asked_behind.entry((lane, number)).or_insert(word.stamp_ms);
        }
    }

    /// Records that a caller moves the end of a lease.
    pub(super) fn note_extend_call(&mut self, id: LockId, now_ms: u64) {
        self.forget_floor(id);
        self.extend_calls.insert(id, now_ms);
    }

    /// Records that no report sets the earliest deadline of the guard any more.
    pub(super) fn forget_floor(&mut self, id: LockId) {
        self.floors.remove(&id);
    }

    /// Returns the newest reported lease of a hold.
    pub(super) fn newest(&self, id: LockId) -> Option<LeaseWord> {
        self.newest.get(&id).copied()
    }

    /// Returns the earliest allowed local deadline of the guard of a hold.
    pub(super) fn floor_ms(&self, id: LockId) -> Option<u64> {
        self.floors.get(&id).copied()
    }

    /// Returns the remaining times in the two newest reports about a hold.
    pub(super) fn lengths(&self, id: LockId) -> Option<[u32; 2]> {
        self.lengths.get(&id).copied()
    }

    /// Returns whether a guard may show this lease.
    pub(super) fn may_show(&self, id: LockId, length_ms: u32) -> bool {
        self.other_lengths.contains(&(id, length_ms))
            || self.lengths(id).is_none_or(|lengths| lengths.contains(&length_ms))
    }
}

/// Returns the earliest local deadline of a client with this remaining lease after `sent_ms`: minus its
/// margin and the drift of its clock.
fn belief_floor_ms(sent_ms: u64, remaining_ms: u32, lease_ms: u32) -> u64 {
    let (remaining_ms, lease_ms) = (u64::from(remaining_ms), u64::from(lease_ms.max(remaining_ms)));
    let margin_ms = (lease_ms / 10).min(50) + lease_ms / 100;
    (sent_ms + remaining_ms).saturating_sub(margin_ms + remaining_ms / 1000 + 4)
}
