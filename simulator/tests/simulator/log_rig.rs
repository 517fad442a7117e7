//! A rig with a log on a simulated disk. The records are the numbers from 0 on.

use std::io::ErrorKind;
use std::sync::Arc;

use waymaker_log::split::split_batch;
use waymaker_log::store::{AppendError, Log, OpenError, OpenOptions, OpenResult, keeper};
use waymaker_log::{Durable, Fold, Grouped, Record, SEGMENT_LEN_MIN, Started};
use waymaker_simulator::disk::{DiskState, SimulatedDisk};

/// Number of records that were found, which are the numbers from 0 on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) count: u64,
    /// True if the last record applies only together with the next record.
    is_cut: bool,
}

impl Numbers {
    pub(crate) fn up_to(count: u64) -> Grouped<Self> {
        Grouped::new(Self { count, is_cut: false })
    }
}

/// First byte of every record. It is no kind of record that the log itself knows.
const MARK: u8 = 0xff;
/// Number of bytes of a record before its padding.
const RECORD_LEN: usize = 10;

/// Encodes the first record of a server start. An unfinished claim of an earlier start does not apply after
/// it.
fn started() -> Vec<u8> {
    let mut record = Vec::new();
    Record::Started(Started::default()).encode(&mut record);
    record
}

/// Encodes a record with its length.
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
            return if record == &started()[4..] { Ok(()) } else { Err("not a record of the rig") };
        };
        let number =
            number.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).ok_or("the record has no number")?;
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

pub(crate) fn open(disk: &SimulatedDisk) -> Result<(Log, Numbers, OpenResult), OpenError> {
    Log::open(Arc::new(disk.clone()), &OPTIONS)
}

/// One step of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Appends one frame and syncs.
    Put,
    /// Appends two frames without a sync.
    Append,
    /// Appends records that apply only together, in several frames and one of them in parts, and syncs.
    Claim,
    /// Appends a frame that needs a new segment.
    Rotate,
    /// Folds old segments into a snapshot, and makes spare segments.
    Compact,
    /// Stops cleanly and starts again.
    Restart,
    /// Stops cleanly with a snapshot of everything, and starts again.
    Stop,
    /// Kills the process and starts again.
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

/// A log, with the records that a start must find.
pub(crate) struct Rig {
    pub(crate) disk: SimulatedDisk,
    /// The log; `None` after a failed start.
    pub(crate) log: Option<Log>,
    /// Number of acknowledged records.
    pub(crate) acknowledged: u64,
    /// Number of records that were handed to the log.
    pub(crate) appended: u64,
}

/// A step failed, which ends the server.
#[derive(Debug)]
pub(crate) struct Failed;

impl Rig {
    pub(crate) fn new(state: DiskState) -> Self {
        let (acknowledged, appended) = state.mark;
        Self { disk: SimulatedDisk::new(state), log: None, acknowledged, appended }
    }

    /// Opens the log. It must have all acknowledged records, and no record that was never written.
    pub(crate) fn start(&mut self) -> Result<(), Failed> {
        let segments = self.segment_count();
        match open(&self.disk) {
            Ok((log, found, _)) => {
                assert!(self.segment_count() <= segments.max(1), "a start made segments");
                assert!(
                    (self.acknowledged..=self.appended).contains(&found.count),
                    "{} of {}..={}",
                    found.count,
                    self.acknowledged,
                    self.appended
                );
                assert!(!found.is_cut, "the first {} records end with an incomplete claim", found.count);
                // From now on, found records are durable, and lost records must not come back.
                (self.acknowledged, self.appended) = (found.count, found.count);
                self.mark();
                self.log = Some(log);
                match self.log().append(&started(), 1) {
                    Ok(_) => Ok(()),
                    Err(AppendError::NoFrame) => panic!("a short record did not fit into a frame"),
                    Err(AppendError::NoSpace | AppendError::Failed(_)) => Err(Failed),
                }
            }
            Err(OpenError::Io { .. } | OpenError::NoSpace) => Err(Failed),
            // No record of an unreadable file is trusted.
            Err(OpenError::Damage(waymaker_log::Damage::Unreadable { .. })) => Err(Failed),
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

    /// Appends records that apply only together, in frames with at most one block of records each.
    pub(crate) fn claim(&mut self) -> Result<(), Failed> {
        let first = self.appended;
        let records = [record(first, true, 0), record(first + 1, true, 5_000), record(first + 2, false, 0)];
        let mut frames = Vec::new();
        split_batch(&records.concat(), 3, 3_000, &mut |frame| frames.push(frame));
        assert!(frames.len() > 1, "the claim fits into one frame");
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
                // The second append finds the segment full, if the first did not.
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

/// Returns every sequence of this number of steps.
pub(crate) fn workloads(len: usize) -> Vec<Vec<Step>> {
    (0..len).fold(vec![Vec::new()], |shorter, _| {
        let longer = |row: &Vec<Step>| Step::ALL.map(|step| [row.as_slice(), &[step]].concat());
        shorter.iter().flat_map(longer).collect()
    })
}

pub(crate) fn eio() -> ErrorKind {
    ErrorKind::Other
}
