//! Words of the server on the leases of holds that one real client has read, and until when its guards must and may believe by them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::LockId;

/// A word of the server on the own lease of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseWord {
    pub(super) stamp_ms: u64,
    pub(super) end_ms: u64,
    pub(super) remaining_ms: u32,
    /// The whole lease, if it is known to be longer.
    pub(super) lease_ms: u32,
    pub(super) by: SaidBy,
    /// No earlier connection can have asked for it, so it proves that the hold lives.
    pub(super) is_fresh: bool,
}

/// Kind of a word. It decides which of two words of one millisecond counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SaidBy {
    Grant,
    /// The server decides the requests of a lane in the order of their numbers.
    Answer(u32),
    /// The same of a question that moves nothing.
    Status(u32),
    /// It may have been decided before or after an answer of the same millisecond.
    Event,
}

impl SaidBy {
    /// Returns the number of the request that was answered.
    fn number(self) -> Option<u32> {
        match self {
            Self::Answer(number) | Self::Status(number) => Some(number),
            Self::Grant | Self::Event => None,
        }
    }

    /// Returns whether a guard shows the remaining time as its lease from then on.
    fn shows_length(self) -> bool {
        !matches!(self, Self::Status(_))
    }
}

/// What one process has read about leases.
#[derive(Debug, Default)]
pub(super) struct LeaseWords {
    /// The newest word on the lease of each hold.
    newest: BTreeMap<LockId, LeaseWord>,
    /// The remaining times of the two newest words.
    lengths: BTreeMap<LockId, [u32; 2]>,
    /// Questions and renewals that were sent when the newest word on their hold was an event, with the stamp of that event, by lane and
    /// number.
    asked_behind: BTreeMap<(usize, u32), u64>,
    /// Other remaining times that a guard may show: in answers to questions, and in words of one millisecond whose order is not known.
    other_lengths: BTreeSet<(LockId, u32)>,
    /// How long each guard believes at least, by a word that it has read.
    floors: BTreeMap<LockId, u64>,
    /// When a caller last moved the end of a lease.
    extend_calls: BTreeMap<LockId, u64>,
}

impl LeaseWords {
    /// Reads a word on the lease of a hold. The newest counts. Of two from one millisecond, the answer to the later request counts. If one
    /// of them is an event, the shorter lease counts, unless the request was sent behind the event. `is_first` says that the lane has read no
    /// answer to a later request: only then the word shows how long a guard must believe.
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
                _ if known.by == SaidBy::Event && event_ms == Some(known.stamp_ms) => true,
                _ if known.by == SaidBy::Event || word.by == SaidBy::Event => word.end_ms < known.end_ms,
                _ => true,
            },
        });
        if let Some(known) = self.newest.get_mut(&id).filter(|known| known.stamp_ms == word.stamp_ms)
            && (known.by == SaidBy::Event || word.by == SaidBy::Event)
        {
            self.other_lengths.extend([(id, known.remaining_ms), (id, word.remaining_ms)]);
            if event_ms != Some(word.stamp_ms) {
                // Later answers of this millisecond do not tell either.
                (known.by, word.by) = (SaidBy::Event, SaidBy::Event);
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

    /// A question about a hold, or a renewal, is sent.
    pub(super) fn note_asked(&mut self, lane: usize, number: u32, id: LockId) {
        if let Some(word) = self.newest.get(&id).filter(|word| word.by == SaidBy::Event) {
            self.asked_behind.entry((lane, number)).or_insert(word.stamp_ms);
        }
    }

    /// A caller moves the end of a lease.
    pub(super) fn note_extend_call(&mut self, id: LockId, now_ms: u64) {
        self.forget_floor(id);
        self.extend_calls.insert(id, now_ms);
    }

    /// No word says any more how long the guard must believe.
    pub(super) fn forget_floor(&mut self, id: LockId) {
        self.floors.remove(&id);
    }

    /// Returns the newest word on the lease of a hold.
    pub(super) fn newest(&self, id: LockId) -> Option<LeaseWord> {
        self.newest.get(&id).copied()
    }

    /// Returns until when the guard of a hold believes at least.
    pub(super) fn floor_ms(&self, id: LockId) -> Option<u64> {
        self.floors.get(&id).copied()
    }

    /// Returns the remaining times of the two newest words on a hold.
    pub(super) fn lengths(&self, id: LockId) -> Option<[u32; 2]> {
        self.lengths.get(&id).copied()
    }

    /// Returns whether a guard may show this as its lease.
    pub(super) fn may_show(&self, id: LockId, length_ms: u32) -> bool {
        self.other_lengths.contains(&(id, length_ms))
            || self.lengths(id).is_none_or(|lengths| lengths.contains(&length_ms))
    }
}

/// Returns until when a client surely believes in a hold, with this remaining lease after `sent_ms`: less its margin and the drift of
/// its clock.
fn belief_floor_ms(sent_ms: u64, remaining_ms: u32, lease_ms: u32) -> u64 {
    let (remaining_ms, lease_ms) = (u64::from(remaining_ms), u64::from(lease_ms.max(remaining_ms)));
    let margin_ms = (lease_ms / 10).min(50) + lease_ms / 100;
    (sent_ms + remaining_ms).saturating_sub(margin_ms + remaining_ms / 1000 + 4)
}
