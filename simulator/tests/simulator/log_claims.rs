//! Tests of the log with claims that need several frames, and with records that are longer than a frame, on a
//! slow disk.
//!
//! A rig appends claims to a log with the shortest segments, at every position relative to the end of a
//! segment. It also compacts the log, and crashes at every operation of the disk. After each crash, a start
//! must find every acknowledged claim completely, and no lease that ends early.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use waymaker_engine::{ClaimId, Fence, Scope, Time};
use waymaker_log::store::committer::FoldableSegments;
use waymaker_log::store::writer::LogWriter;
use waymaker_log::store::{AppendError, Log, OpenOptions, SegmentFile, Storage, keeper};
use waymaker_log::{Hold, Image, Item, Record, SEGMENT_LEN_MIN, Started};
use waymaker_server::log::LogBatch;
use waymaker_simulator::disk::{DiskState, SimulatedDisk, Survival};

const OPTIONS: OpenOptions = OpenOptions { segment_len: SEGMENT_LEN_MIN, log_id: 0x1d, accept_damage: false };
const LEASE_MS: u32 = 60_000;
/// Number of blocks in a segment that can have frames.
const BLOCKS_PER_SEGMENT: usize = SEGMENT_LEN_MIN as usize / 4096 - 1;
const LOSE_NOTHING: Survival = Survival { pieces: u64::MAX, torn_sectors: 0, name_changes: usize::MAX };
const LOSE_EVERYTHING: Survival = Survival { pieces: 0, torn_sectors: 0, name_changes: 0 };

/// Milliseconds of boot time, which tests advance by hand.
#[derive(Clone, Debug, Default)]
struct SlowClock(Arc<AtomicU64>);

impl SlowClock {
    fn pass(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }

    fn now(&self) -> Time {
        Time::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// A disk on which every sync of a file takes some time.
#[derive(Clone, Debug)]
struct SlowDisk {
    disk: SimulatedDisk,
    clock: SlowClock,
    sync_ms: u64,
}

impl SlowDisk {
    fn slow(&self, file: io::Result<Box<dyn SegmentFile>>) -> io::Result<Box<dyn SegmentFile>> {
        Ok(Box::new(SlowFile { file: file?, clock: self.clock.clone(), sync_ms: self.sync_ms }))
    }
}

impl Storage for SlowDisk {
    fn list(&self) -> io::Result<Vec<(String, Option<u64>)>> {
        self.disk.list()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk.read(name)
    }

    fn make_zeroed(&self, name: &str, len: u64) -> io::Result<()> {
        self.disk.make_zeroed(name, len)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        self.slow(self.disk.create(name))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        self.slow(self.disk.open(name))
    }

    fn open_segment(&self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        self.slow(self.disk.open_segment(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }
}

struct SlowFile {
    file: Box<dyn SegmentFile>,
    clock: SlowClock,
    sync_ms: u64,
}

impl SegmentFile for SlowFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.clock.pass(self.sync_ms);
        self.file.sync()
    }
}

/// One request, whose holds are in one batch.
#[derive(Clone, Copy, Debug)]
enum Claim {
    /// A claim on `count` keys, each with `metadata_len` bytes of metadata.
    Keys { count: u64, metadata_len: usize },
    /// A claim on one set of `path_count` paths, each of 1,000 bytes.
    Set { path_count: usize },
}

/// The knowledge of clients about one claim.
#[derive(Clone, Debug)]
struct Known {
    first: u64,
    count: u64,
    /// Time at which the leases of the claim began; `None` until the claim is acknowledged.
    granted_ms: Option<u64>,
    /// True if the record of its end is durable; `None` before its end.
    ended: Option<bool>,
}

struct Rig {
    disk: SlowDisk,
    writer: LogWriter,
    claims: Vec<Known>,
    next_hold: u64,
    next_record: u64,
}

fn id(number: u64) -> ClaimId {
    ClaimId { place: number, secret: !number }
}

fn started(clock: &SlowClock) -> Started {
    let now_ms = clock.now().as_millis();
    Started { boot_id: [7; 16], now_ms, unix_ms: 1_000_000 + now_ms as i64 }
}

impl Rig {
    fn new(sync_ms: u64) -> Self {
        let clock = SlowClock::default();
        clock.pass(1_000);
        Self::open(SlowDisk { disk: SimulatedDisk::new(DiskState::default()), clock, sync_ms }).0
    }

    /// Starts a writer on this disk.
    fn open(disk: SlowDisk) -> (Self, Image) {
        let (log, mut image, _) = Log::open::<Image>(Arc::new(disk.clone()), &OPTIONS).unwrap();
        let started = started(&disk.clock);
        image.rebase(&started);
        let writer = LogWriter::start(log, started, &[], || disk.clock.now()).unwrap();
        (Self { disk, writer, claims: Vec::new(), next_hold: 0, next_record: 1 }, image)
    }

    fn push(&mut self, batch: &mut LogBatch, record: &Record<'_>) {
        batch.push(0, self.next_record, record);
        self.next_record += 1;
    }

    fn batch_of(&mut self, claim: Claim) -> LogBatch {
        let mut batch = LogBatch::default();
        let metadata =
            vec![0xab; if let Claim::Keys { metadata_len, .. } = claim { metadata_len } else { 0 }];
        let count = if let Claim::Keys { count, .. } = claim { count } else { 1 };
        let paths: Vec<Vec<u8>> = match claim {
            Claim::Set { path_count } => (0..path_count).map(|path| vec![path as u8; 1_000]).collect(),
            Claim::Keys { .. } => Vec::new(),
        };
        self.claims.push(Known { first: self.next_hold, count, granted_ms: None, ended: None });
        for _ in 0..count {
            let key = self.next_hold.to_le_bytes();
            let item = if paths.is_empty() {
                Item::Key(&key)
            } else {
                Item::Paths(paths.iter().map(|path| (&**path, true)).collect())
            };
            let hold = Hold {
                id: id(self.next_hold),
                namespace: 0,
                scope: Scope::Local,
                shared: false,
                session_lease: false,
                endless: false,
                clamped: false,
                waited: false,
                repeated: false,
                fence: Fence::new(self.next_hold + 1),
                begins_counted: false,
                awaits_count: false,
                since_ms: self.disk.clock.now().as_millis(),
                deadline_ms: None,
                lease_ms: LEASE_MS,
                release_after_ms: None,
                priority: 0,
                number: 0,
                session: None,
                owner: b"",
                identity: None,
                request_id: None,
                metadata: (!metadata.is_empty()).then_some(&metadata),
                set_hash: None,
                item,
            };
            self.push(&mut batch, &Record::Held(hold));
            self.next_hold += 1;
        }
        batch
    }

    /// Appends all frames and syncs. Returns the time from which they are durable.
    fn flush(&mut self) -> Result<Time, AppendError> {
        self.writer.append()?;
        Ok(self.writer.sync(|| self.disk.clock.now())?)
    }

    fn confirm(&mut self) -> Result<Time, AppendError> {
        self.writer.add_confirmation();
        self.flush()
    }

    /// Grants claims in one flush and acknowledges them.
    fn grant(&mut self, claims: &[Claim]) -> Result<(), AppendError> {
        let first = self.claims.len();
        let batches: Vec<_> = claims.iter().map(|claim| self.batch_of(*claim)).collect();
        self.writer.take(&batches)?;
        let at = self.flush()?;
        for known in &mut self.claims[first..] {
            known.granted_ms = Some(at.as_millis());
        }
        self.disk.clock.pass(5);
        Ok(())
    }

    /// Ends the claim with this number.
    fn end(&mut self, number: usize) -> Result<(), AppendError> {
        let Known { first, count, .. } = self.claims[number];
        let mut batch = LogBatch::default();
        for hold in first..first + count {
            self.push(&mut batch, &Record::Ended { id: id(hold) });
        }
        self.claims[number].ended = Some(false);
        self.writer.take(&[batch])?;
        self.flush()?;
        self.claims[number].ended = Some(true);
        Ok(())
    }

    /// Folds all full segments into a snapshot and deletes them, as the server does.
    fn compact(&mut self) {
        if let Some(FoldableSegments { plan, .. }) = self.writer.foldable() {
            keeper::compact::<Image>(&self.disk, &plan).unwrap();
            let dead = self.writer.compacted(&plan).unwrap();
            keeper::remove(&self.disk, &dead).unwrap();
        }
    }

    /// Starts on a disk in this state and compares the restored holds with those that clients know.
    fn assert_kept(&self, state: DiskState, context: &dyn std::fmt::Debug) {
        let (_, image) = Self::open(self.restarted(state));
        let deadlines: BTreeMap<u64, Option<u64>> =
            image.holds().map(|hold| (hold.id.place, hold.deadline_ms)).collect();
        for Known { first, count, granted_ms, ended } in &self.claims {
            let held: Vec<_> = deadlines.range(first..&(first + count)).map(|(_, at)| *at).collect();
            let found = held.len() as u64;
            assert!(
                found == 0 || found == *count,
                "{context:?}: the claim has only {found} of {count} holds"
            );
            assert!(
                granted_ms.is_none() || ended.is_some() || found == *count,
                "{context:?}: a claim of {count} holds was lost"
            );
            assert!(
                *ended != Some(true) || found == 0,
                "{context:?}: a claim of {count} holds is back after its end"
            );
            for deadline_ms in held {
                let (deadline_ms, granted_ms) = (deadline_ms.unwrap(), granted_ms.unwrap_or(0));
                let end_ms = granted_ms + u64::from(LEASE_MS);
                assert!(deadline_ms >= end_ms, "{context:?}: a lease ends {} ms early", end_ms - deadline_ms);
            }
        }
    }

    /// Returns a disk in this state, some time later.
    fn restarted(&self, state: DiskState) -> SlowDisk {
        let clock = SlowClock::default();
        clock.pass(self.disk.clock.now().as_millis() + 100);
        SlowDisk { disk: SimulatedDisk::new(state), clock, sync_ms: 0 }
    }

    fn crash(&self) -> DiskState {
        self.disk.disk.state().crash(LOSE_EVERYTHING)
    }
}

const ONE_KEY: Claim = Claim::Keys { count: 1, metadata_len: 0 };

/// Claims of one frame and of several frames, whose last frame is nearly empty, half full or full.
const CLAIMS: [Claim; 5] = [
    ONE_KEY,
    Claim::Keys { count: 1_024, metadata_len: 0 },
    Claim::Keys { count: 40, metadata_len: 4_096 },
    Claim::Keys { count: 15, metadata_len: 4_096 },
    Claim::Set { path_count: 1_000 },
];

#[test]
fn a_claim_over_several_frames_survives_at_every_distance_from_the_end_of_a_segment() {
    for claim in CLAIMS {
        for before in 0..=BLOCKS_PER_SEGMENT {
            let mut rig = Rig::new(1);
            for _ in 0..before {
                rig.grant(&[ONE_KEY]).unwrap();
            }
            rig.grant(&[claim]).unwrap();
            rig.compact();
            rig.assert_kept(rig.crash(), &(claim, before));
            rig.grant(&[claim]).unwrap();
            rig.end(before).unwrap();
            rig.compact();
            rig.assert_kept(rig.crash(), &(claim, before, "ended"));
        }
    }
}

#[test]
fn a_record_that_is_longer_than_a_frame_is_kept() {
    for path_count in [50, 100, 255, 256, 257, 1_000] {
        let mut rig = Rig::new(1);
        rig.grant(&[Claim::Set { path_count }]).unwrap();
        rig.compact();
        rig.assert_kept(rig.crash(), &path_count);
    }
}

#[test]
fn a_crash_at_any_operation_leaves_each_claim_as_a_whole() {
    for claim in CLAIMS {
        for before in [0, 1, BLOCKS_PER_SEGMENT - 1, BLOCKS_PER_SEGMENT] {
            let mut rig = Rig::new(1);
            for _ in 0..before {
                rig.grant(&[ONE_KEY]).unwrap();
            }
            rig.grant(&[claim]).unwrap();
            let known = rig.claims.clone();
            rig.disk.disk.record();
            rig.grant(&[claim]).unwrap();
            rig.compact();
            let grown = std::mem::replace(&mut rig.claims, known);
            rig.claims.push(Known { granted_ms: None, ..grown.last().unwrap().clone() });
            for state in rig.disk.disk.recorded() {
                for survival in [LOSE_EVERYTHING, LOSE_NOTHING] {
                    rig.assert_kept(state.crash(survival), &(claim, before, survival));
                }
            }
        }
    }
}

/// While the disk is full, a frame that finds no room is tried again.
#[test]
fn a_confirmation_without_room_stays_one_frame() {
    let mut rig = Rig::new(1);
    for _ in 0..BLOCKS_PER_SEGMENT - 1 {
        rig.grant(&[ONE_KEY]).unwrap();
    }
    rig.disk.disk.set_full(true);
    for _ in 0..100 {
        assert!(matches!(rig.confirm(), Err(AppendError::NoSpace)));
    }
    rig.disk.disk.set_full(false);
    rig.confirm().unwrap();
    let disk = rig.restarted(rig.crash());
    let (_, _, opened) = Log::open::<Image>(Arc::new(disk), &OPTIONS).unwrap();
    assert_eq!(opened.last_lsn, BLOCKS_PER_SEGMENT as u64 + 1);
}

/// Durations of a sync, in milliseconds: none, on a local disk, on a busy disk, and on an overloaded disk.
const SYNCS_MS: [u64; 4] = [0, 1, 64, 2_400];

#[test]
fn no_lease_ends_early_after_a_restart_however_slow_the_disk_is() {
    for claim in CLAIMS {
        for sync_ms in SYNCS_MS {
            let mut rig = Rig::new(sync_ms);
            for _ in 0..3 {
                rig.grant(&[ONE_KEY, claim, ONE_KEY, claim]).unwrap();
                rig.assert_kept(rig.crash(), &(claim, sync_ms));
            }
        }
    }
}

#[test]
fn no_lease_ends_early_after_a_restart_from_a_snapshot() {
    for claim in CLAIMS {
        for sync_ms in SYNCS_MS {
            for before in 0..=BLOCKS_PER_SEGMENT {
                let mut rig = Rig::new(sync_ms);
                for _ in 0..before {
                    rig.grant(&[ONE_KEY]).unwrap();
                }
                for _ in 0..2 {
                    rig.grant(&[ONE_KEY, claim, ONE_KEY, claim]).unwrap();
                    rig.compact();
                    rig.assert_kept(rig.crash(), &(claim, sync_ms, before));
                }
            }
        }
    }
}

/// A frame without records follows when the log is idle. After it, a restart knows the end of every lease
/// exactly.
#[test]
fn an_idle_log_knows_the_end_of_every_lease_exactly() {
    for claim in CLAIMS {
        let mut rig = Rig::new(64);
        rig.grant(&[ONE_KEY, claim, ONE_KEY, claim]).unwrap();
        rig.grant(&[ONE_KEY, claim, ONE_KEY, claim]).unwrap();
        rig.confirm().unwrap();
        for is_compacted in [false, true] {
            if is_compacted {
                rig.compact();
            }
            let image = Rig::open(rig.restarted(rig.crash())).1;
            let found: BTreeMap<_, _> = image.holds().map(|hold| (hold.id.place, hold.deadline_ms)).collect();
            for Known { first, count, granted_ms, .. } in &rig.claims {
                let end_ms = granted_ms.unwrap() + u64::from(LEASE_MS);
                for number in *first..first + count {
                    let context = format!("{claim:?}, compacted: {is_compacted}, hold {number}");
                    assert_eq!(found.get(&number), Some(&Some(end_ms)), "{context}");
                }
            }
        }
    }
}
