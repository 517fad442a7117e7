//! A log on a simulated disk, with records that are the numbers from 0 on.

use std::io::ErrorKind;
use std::sync::Arc;

use waymaker_engine::log::split::split_batch;
use waymaker_engine::log::{Durable, Fold, Grouped, Record, SEGMENT_LEN_MIN, Started};
use waymaker_server::log::{AppendError, Log, OpenError, OpenOptions, Opened, keeper};
use waymaker_simulator::disk::{DiskState, SimulatedDisk};

/// Records up to this one, from 0 on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) count: u64,
    /// The last record says that it counts only with the next one.
    is_cut: bool,
}

impl Numbers {
    pub(crate) fn up_to(count: u64) -> Grouped<Self> {
        Grouped::new(Self { count, is_cut: false })
    }
}

/// First byte of every record: no kind of record that the log itself knows.
const MARK: u8 = 0xff;
/// Bytes of a record in front of its padding.
const RECORD_LEN: usize = 10;

/// The first record of a server: an unfinished claim of the server before it does not count.
fn started() -> Vec<u8> {
    let mut record = Vec::new();
    Record::Started(Started::default()).encode(&mut record);
    record
}

/// A record with its length.
fn record(number: u64, counts_with_next: bool, padding_len: usize) -> Vec<u8> {
    let mut record = ((RECORD_LEN + padding_len) as u32).to_le_bytes().to_vec();
    record.extend_from_slice(&[MARK, u8::from(counts_with_next)]);
    record.extend_from_slice(&number.to_le_bytes());
    record.resize(4 + RECORD_LEN + padding_len, 0xaa);
    record
}

impl Fold for Numbers {
    type Error = &'static str;

    fn apply(&mut self, _lsn: u64, record: &[u8]) -> Result<(), &'static str> {
        let Some(([MARK, counts_with_next], number)) = record.split_first_chunk() else {
            return if record == &started()[4..] { Ok(()) } else { Err("no record of the rig") };
        };
        let number = number.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).ok_or("no number")?;
        if number != self.count {
            return Err("not the next number");
        }
        self.count += 1;
        self.is_cut = *counts_with_next == 1;
        Ok(())
    }

    fn durable(&mut self, _durable: Durable) {}

    fn write(&self, out: &mut dyn FnMut(&[u8])) {
        for number in 0..self.count {
            out(&record(number, self.is_cut && number + 1 == self.count, 0)[4..]);
        }
    }
}

pub(crate) const OPTIONS: OpenOptions =
    OpenOptions { segment_len: SEGMENT_LEN_MIN, log_id: 0x1d, accept_damage: false };

pub(crate) fn open(disk: &SimulatedDisk) -> Result<(Log, Numbers, Opened), OpenError> {
    Log::open(Arc::new(disk.clone()), &OPTIONS)
}

/// What is done to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// One frame, synced.
    Put,
    /// Two frames, not synced.
    Append,
    /// Records that count only together, in several frames, one of them in parts; synced.
    Claim,
    /// A frame that needs a new segment.
    Rotate,
    /// Old segments become a snapshot, and spares are made.
    Compact,
    /// A clean stop and another start.
    Restart,
    /// A clean stop that leaves a snapshot of everything, and another start.
    Stop,
    /// The process ends without a word, and another starts.
    Kill,
}

impl Step {
    pub(crate) const ALL: [Self; 8] = [
        Self::Put,
        Self::Append,
        Self::Claim,
        Self::Rotate,
        Self::Compact,
        Self::Restart,
        Self::Stop,
        Self::Kill,
    ];
}

/// A log with what was promised of it.
pub(crate) struct Rig {
    pub(crate) disk: SimulatedDisk,
    /// `None` after a failed start.
    pub(crate) log: Option<Log>,
    /// Records that were acknowledged.
    pub(crate) acknowledged: u64,
    /// Records that were handed to the log.
    pub(crate) appended: u64,
}

/// A step that failed, and with it the server.
#[derive(Debug)]
pub(crate) struct Failed;

impl Rig {
    pub(crate) fn new(state: DiskState) -> Self {
        let (acknowledged, appended) = state.mark;
        Self { disk: SimulatedDisk::new(state), log: None, acknowledged, appended }
    }

    /// Opens the log, which must have everything that was acknowledged and nothing that was never written.
    pub(crate) fn start(&mut self) -> Result<(), Failed> {
        let segments = self.segment_count();
        match open(&self.disk) {
            Ok((log, found, _)) => {
                assert!(self.segment_count() <= segments.max(1), "a start uses up room");
                assert!(
                    (self.acknowledged..=self.appended).contains(&found.count),
                    "{} of {}..={}",
                    found.count,
                    self.acknowledged,
                    self.appended
                );
                assert!(!found.is_cut, "the first {} records have a part of a claim", found.count);
                // What was found is durable, and what was not is gone for ever.
                (self.acknowledged, self.appended) = (found.count, found.count);
                self.mark();
                self.log = Some(log);
                match self.log().append(&started(), 1) {
                    Ok(_) => Ok(()),
                    Err(AppendError::NoFrame) => panic!("a short record makes a frame"),
                    Err(AppendError::NoSpace | AppendError::Failed(_)) => Err(Failed),
                }
            }
            Err(OpenError::Io { .. } | OpenError::NoSpace) => Err(Failed),
            // Of a file that cannot be read nothing is believed.
            Err(OpenError::Damage(waymaker_engine::log::Damage::Unreadable { .. })) => Err(Failed),
            Err(refused) => panic!("{refused}"),
        }
    }

    pub(crate) fn segment_count(&self) -> usize {
        self.disk.state().names().filter(|name| name.starts_with("segment-")).count()
    }

    fn mark(&self) {
        self.disk.mark((self.acknowledged, self.appended));
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().unwrap()
    }

    pub(crate) fn append(&mut self, padding_len: usize) -> Result<(), Failed> {
        let framed = record(self.appended, false, padding_len);
        self.appended += 1;
        self.mark();
        match self.log().append(&framed, 1) {
            Ok(_) => Ok(()),
            Err(AppendError::NoSpace) => {
                self.appended -= 1;
                Err(Failed)
            }
            Err(_) => Err(Failed),
        }
    }

    /// Appends records that count only together, in frames with at most one block of records.
    pub(crate) fn claim(&mut self) -> Result<(), Failed> {
        let first = self.appended;
        let records = [record(first, true, 0), record(first + 1, true, 5_000), record(first + 2, false, 0)];
        let mut frames = Vec::new();
        split_batch(&records.concat(), 3, 3_000, &mut |frame| frames.push(frame));
        assert!(frames.len() > 1, "a claim in one frame");
        self.appended += 3;
        self.mark();
        for frame in frames {
            self.log().append(&frame.bytes, frame.count).map_err(|_| Failed)?;
        }
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<(), Failed> {
        self.log().flush(|| 1).map_err(|_| Failed)?;
        self.acknowledged = self.appended;
        self.mark();
        Ok(())
    }

    pub(crate) fn step(&mut self, step: Step) -> Result<(), Failed> {
        match step {
            Step::Put => {
                self.append(0)?;
                self.sync()
            }
            Step::Append => {
                self.append(5000)?;
                self.append(0)
            }
            Step::Claim => {
                self.claim()?;
                self.sync()
            }
            Step::Rotate => {
                let len = self.log().records_limit() - 4 - RECORD_LEN;
                let before = self.log().sealed_segments();
                // The second one finds the segment full, if the first did not.
                while self.log().sealed_segments() == before {
                    self.append(len)?;
                }
                self.sync()
            }
            Step::Compact => {
                let disk = self.disk.clone();
                if let Some(plan) = self.log().compaction_plan() {
                    keeper::compact::<Numbers>(&disk, &plan).map_err(|_| Failed)?;
                    let dead = self.log().compacted(&plan).map_err(|_| Failed)?;
                    keeper::remove(&disk, &dead).map_err(|_| Failed)?;
                }
                keeper::prepare(&disk, SEGMENT_LEN_MIN).map(drop).map_err(|_| Failed)
            }
            Step::Restart => {
                self.log.take().unwrap().close_clean(|| 1).map_err(|_| Failed)?;
                self.acknowledged = self.appended;
                self.mark();
                self.start()
            }
            Step::Stop => {
                let count = self.appended;
                let mut contents = |out: &mut dyn FnMut(&[u8])| {
                    out(&started()[4..]);
                    (0..count).for_each(|number| out(&record(number, false, 0)[4..]));
                };
                let log = self.log.take().unwrap().close_clean(|| 1).map_err(|_| Failed)?;
                log.replace(&mut contents).map_err(|_| Failed)?;
                self.acknowledged = self.appended;
                self.mark();
                self.start()
            }
            Step::Kill => {
                self.log = None;
                self.start()
            }
        }
    }
}

/// Every row of so many steps.
pub(crate) fn workloads(len: usize) -> Vec<Vec<Step>> {
    (0..len).fold(vec![Vec::new()], |shorter, _| {
        let longer = |row: &Vec<Step>| Step::ALL.map(|step| [row.as_slice(), &[step]].concat());
        shorter.iter().flat_map(longer).collect()
    })
}

pub(crate) fn eio() -> ErrorKind {
    ErrorKind::Other
}
