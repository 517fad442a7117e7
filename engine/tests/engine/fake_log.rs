//! A durable log in memory, which is durable when the test says so, and loses what was not when the test crashes.

use crate::recorder::{Recorder, Written};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use waymaker_engine::{Answer, ClaimId, Grant, LogState, QuorumQuestion, Time, WhenDurable};
use waymaker_log::{Durable, Image, Record, Started};

/// Milliseconds between the beginning of a boot and that of 1970, for the first boot.
const UNIX_LESS_BOOT_MS: i64 = 1_000_000;

/// What one sync made durable.
#[derive(Debug, Default)]
struct Frame {
    records: Vec<Vec<u8>>,
    /// When it was known to be durable, if anything durable says so.
    durable_at: Option<Time>,
}

#[derive(Debug)]
pub(crate) struct FakeLog {
    pub(crate) state: LogState,
    started: Started,
    frames: Vec<Frame>,
    /// Records and effects that are not durable yet, in the order of the turns, and the time of each turn.
    pending: VecDeque<(Time, Written)>,
    /// By shard: the number of its last record, and of the last that is durable.
    numbers: BTreeMap<u16, (u64, u64)>,
    /// Holds that were recorded since the last start, and their ends.
    held: BTreeSet<ClaimId>,
    ended: BTreeSet<ClaimId>,
}

impl FakeLog {
    pub(crate) fn new(now: Time) -> Self {
        let mut log = Self {
            state: LogState::Absent,
            started: Started::default(),
            frames: Vec::new(),
            pending: VecDeque::new(),
            numbers: BTreeMap::new(),
            held: BTreeSet::new(),
            ended: BTreeSet::new(),
        };
        let now_ms = now.as_millis();
        log.begin(Started { boot_id: [1; 16], now_ms, unix_ms: UNIX_LESS_BOOT_MS + now_ms as i64 });
        log
    }

    /// Takes over what the turns said.
    ///
    /// # Panics
    /// If a shard leaves out a number, or records something though there is no log.
    pub(crate) fn take(&mut self, effects: &mut Recorder, now: Time) {
        for written in effects.written.drain(..) {
            if let Written::Record { shard, number, .. } = &written {
                assert_ne!(self.state, LogState::Absent, "there is no log to record anything");
                let (last, _) = self.numbers.entry(*shard).or_default();
                assert_eq!(*number, *last + 1, "records of shard {shard} are numbered one by one");
                *last = *number;
            }
            match written.record() {
                Some(Record::Held(hold)) => drop(self.held.insert(hold.id)),
                Some(Record::Ended { id }) => drop(self.ended.insert(id)),
                _ => {}
            }
            self.pending.push_back((now, written));
        }
    }

    /// A cluster has counted the grants of this question, which begin once that is durable.
    pub(crate) fn note_counted(&mut self, question: QuorumQuestion, now: Time) {
        for member in &question.members {
            let fence = member.reserved.fence;
            let counted = Written::Counted(encoded(&Record::Counted { id: member.id, fence }));
            self.pending.push_back((now, counted));
        }
        self.pending.extend(question.begin().map(|then| (now, Written::Then(then))));
    }

    /// Holds that were granted as a whole, all of which are recorded and none has ended, and nobody was told of.
    pub(crate) fn unanswered_groups(&self) -> Vec<Vec<ClaimId>> {
        let ids = self.pending().filter_map(Written::ids_of_multi_key_claim);
        let groups = ids.map(|ids| ids.into_iter().filter(|id| self.held.contains(id)).collect::<Vec<_>>());
        groups.filter(|group| !group.iter().any(|id| self.ended.contains(id))).collect()
    }

    /// How many syncs had something to do.
    pub(crate) fn sync_count(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Nothing durable says any more when the last sync was done.
    pub(crate) fn forget_last_sync(&mut self) {
        if let Some(frame) = self.frames.iter_mut().rfind(|frame| !frame.records.is_empty()) {
            frame.durable_at = None;
        }
    }

    /// Up to which number everything that a shard recorded is durable.
    pub(crate) fn durable_number(&self, shard: u16) -> u64 {
        self.numbers.get(&shard).map_or(0, |(_, durable)| *durable)
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = &Written> {
        self.pending.iter().map(|(_, written)| written)
    }

    /// Makes at least the first `count` items durable and returns the effects that waited for them. Leases in answers are reduced by
    /// the age of the answer, as a client does with its stamp.
    pub(crate) fn sync(&mut self, count: usize, now: Time) -> Vec<WhenDurable> {
        let mut then = Vec::new();
        let mut frame = Frame { records: Vec::new(), durable_at: Some(now) };
        for (at, written) in self.pending.drain(..self.whole_turns(count)) {
            match written {
                Written::Record { shard, number, bytes } => {
                    self.numbers.entry(shard).or_default().1 = number;
                    frame.records.push(bytes);
                }
                Written::Counted(bytes) => frame.records.push(bytes),
                Written::Then(when_durable) => then.push(aged(when_durable, now.ms_since(at) as u32)),
            }
        }
        if !frame.records.is_empty() {
            self.frames.push(frame);
        }
        then
    }

    /// Gives up what is not durable. Returns the effects that waited for it.
    pub(crate) fn fail(&mut self) -> Vec<WhenDurable> {
        let then = |(_, written)| if let Written::Then(then) = written { Some(then) } else { None };
        std::mem::take(&mut self.pending).into_iter().filter_map(then).collect()
    }

    /// The server is gone. Of what was not durable the first so many records are there all the same.
    pub(crate) fn crash(&mut self, surviving: usize) {
        let end = self.whole_turns(surviving);
        let mut records = Vec::new();
        for (_, written) in std::mem::take(&mut self.pending).into_iter().take(end) {
            if let Written::Record { bytes, .. } | Written::Counted(bytes) = written {
                records.push(bytes);
            }
        }
        self.frames.push(Frame { records, durable_at: None });
        self.numbers.clear();
        self.held.clear();
        self.ended.clear();
    }

    /// Rounds a count of items up. No frame ends between the holds of one grant, nor between the fences that a cluster counted for
    /// them.
    fn whole_turns(&self, count: usize) -> usize {
        let mut end = count.min(self.pending.len());
        for (place, (_, written)) in self.pending.iter().enumerate() {
            let Some(ids) = written.ids_of_multi_key_claim() else { continue };
            let first_of = |id_of: fn(&Written) -> Option<ClaimId>| {
                let mut before = self.pending.range(..place);
                before.position(|(_, written)| id_of(written).is_some_and(|id| ids.contains(&id)))
            };
            if let Some(first) = first_of(Written::counted).or_else(|| first_of(Written::held))
                && (first + 1..place).contains(&end)
            {
                end = place;
            }
        }
        // What waits for nothing else is done as well.
        let waits_for_nothing = |(_, written): &&(Time, Written)| matches!(written, Written::Then(_));
        end + self.pending.range(end..).take_while(waits_for_nothing).count()
    }

    /// A server begins to write at this instant of its clock, in the boot of this number, so long after the last one began.
    pub(crate) fn restart(&mut self, boot: u8, now: Time, elapsed_ms: u64) -> Image {
        let unix_ms = self.started.unix_ms + elapsed_ms as i64;
        let started = Started { boot_id: [boot; 16], now_ms: now.as_millis(), unix_ms };
        let mut image = self.image();
        image.rebase(&started);
        self.begin(started);
        image
    }

    fn begin(&mut self, started: Started) {
        let records = vec![encoded(&Record::Started(started))];
        self.frames.push(Frame { records, durable_at: Some(Time::from_millis(started.now_ms)) });
        self.started = started;
    }

    pub(crate) fn started(&self) -> &Started {
        &self.started
    }

    /// What is durable adds up to this.
    pub(crate) fn image(&self) -> Image {
        let mut image = Image::default();
        for (lsn, frame) in self.frames.iter().enumerate() {
            for record in &frame.records {
                image.apply(lsn as u64, record).expect("what was written is a record");
            }
            if let Some(at) = frame.durable_at {
                image.durable(Durable { lsn: lsn as u64, at_ms: at.as_millis() });
            }
        }
        image
    }

    /// What is durable is written anew, as short as it can be.
    pub(crate) fn compact(&mut self) {
        let mut records = Vec::new();
        self.image().write(&mut |record| records.push(record.to_vec()));
        self.frames = vec![Frame { records, durable_at: None }];
    }

    /// The server says in the end that it stopped in order.
    pub(crate) fn stop(&mut self, now: Time) {
        self.frames.push(Frame { records: vec![encoded(&Record::Stopped)], durable_at: Some(now) });
    }
}

/// Ages an answer by this time.
fn aged(mut then: WhenDurable, age_ms: u32) -> WhenDurable {
    let age = |grant: &mut Grant| grant.remaining_ms = grant.remaining_ms.saturating_sub(age_ms);
    if let WhenDurable::Answer(_, answer) | WhenDurable::AnswerWaiter(_, answer) = &mut then {
        match answer {
            Answer::Granted(grant) => age(grant),
            Answer::GrantedMultiKey(grants) => grants.iter_mut().for_each(|key| age(&mut key.grant)),
            _ => {}
        }
    }
    then
}

pub(crate) fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes.split_off(4)
}

impl Written {
    /// The hold that this record says is there.
    pub(crate) fn held(&self) -> Option<ClaimId> {
        match self.record()? {
            Record::Held(hold) => Some(hold.id),
            _ => None,
        }
    }

    pub(crate) fn record(&self) -> Option<Record<'_>> {
        let (Self::Record { bytes, .. } | Self::Counted(bytes)) = self else { return None };
        Some(Record::decode(bytes).expect("what was written is a record"))
    }

    /// The hold that the cluster has counted, as this record says.
    fn counted(&self) -> Option<ClaimId> {
        match self.record()? {
            Record::Counted { id, .. } => Some(id),
            _ => None,
        }
    }

    /// The holds that begin together here.
    pub(crate) fn ids_of_multi_key_claim(&self) -> Option<Vec<ClaimId>> {
        let Self::Then(WhenDurable::BeginMultiKey(together)) = self else { return None };
        Some(together.grants.iter().map(|key| key.grant.id).collect())
    }
}
