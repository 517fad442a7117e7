//! Tests that damage to durable records is never silent: either a start finds all records, or its error names
//! the file and the byte.

use std::sync::Arc;

use crate::log_rig::{Numbers, OPTIONS, Rig, Step, open};
use waymaker_log::store::{Log, OpenError, OpenOptions};
use waymaker_log::{
    Damage, FileName, Grouped, Position, Recovery, SUPERBLOCK_FILE_LEN, SegmentHeader, Superblock,
    read_snapshot,
};
use waymaker_simulator::disk::{BLOCK_LEN, DiskState, SimulatedDisk, Survival};

/// Returns a log with a snapshot, a sealed segment and a last segment, each with frames. The last frame has
/// no records and confirms that all others were durable.
fn durable_log() -> (DiskState, u64) {
    let mut rig = Rig::new(DiskState::default());
    rig.start().unwrap();
    for step in [Step::Append, Step::Rotate, Step::Put, Step::Compact, Step::Claim, Step::Append] {
        rig.step(step).unwrap();
    }
    rig.sync().unwrap();
    rig.step(Step::Kill).unwrap();
    for step in [Step::Put, Step::Append, Step::Claim, Step::Append, Step::Put] {
        rig.step(step).unwrap();
    }
    let log = rig.log.as_mut().unwrap();
    log.append(&[], 0).unwrap();
    log.flush(|| 1).unwrap();
    (rig.disk.state(), rig.acknowledged)
}

/// Opens a log that was damaged in this file. Either all records are found, or the error names the file and a
/// byte at or before the damage.
fn check(state: DiskState, name: &str, count: u64, first_changed: usize) {
    let damaged = state.clone();
    match open(&SimulatedDisk::new(state)) {
        Ok((_, found, _)) => assert_eq!(found.count, count, "{name} from byte {first_changed}"),
        Err(OpenError::Damage(damage)) => {
            assert_eq!(damage.file().to_string(), name);
            assert!(damage.offset() <= first_changed as u64, "{damage}: from byte {first_changed}");
            start_over(damaged, count);
        }
        Err(OpenError::Superblock(_)) => assert_eq!(name, "superblock"),
        Err(error) => panic!("{error}"),
    }
}

/// Starts with accepted damage: the start keeps only records before the damage, and the log works again.
fn start_over(state: DiskState, count: u64) {
    let disk = SimulatedDisk::new(state);
    let accepting = OpenOptions { accept_damage: true, ..OPTIONS };
    let (log, found, opened) = Log::open::<Numbers>(Arc::new(disk.clone()), &accepting).unwrap();
    assert!(opened.lost.is_some() && found.count <= count);
    drop(log);
    disk.mark((found.count, found.count));
    let mut rig = Rig::new(disk.state());
    for step in [Step::Put, Step::Kill, Step::Rotate, Step::Compact, Step::Restart] {
        if rig.log.is_none() {
            rig.start().unwrap();
        }
        rig.step(step).unwrap();
    }
}

/// Crashes at every operation of a start that accepts damage. The next start, which does not accept damage,
/// either refuses the damage or knows that records were given up.
#[test]
fn no_crash_of_a_start_over_damage_forgets_the_losses() {
    let (mut state, _) = durable_log();
    let name = segments(&state).pop().expect("a segment");
    state.rot(&name, |bytes| bytes[BLOCK_LEN + 100] ^= 1);
    let disk = SimulatedDisk::new(state);
    disk.record();
    let accepting = OpenOptions { accept_damage: true, ..OPTIONS };
    let (log, ..) = Log::open::<Numbers>(Arc::new(disk.clone()), &accepting).expect("a start");
    let given_up = log.superblock().losses;
    assert!(given_up.is_some());
    drop(log);
    let (mut refused, mut known) = (0, 0);
    let survivals = [(0, 0), (u64::MAX, usize::MAX), (0xaaaa, usize::MAX), (0x5555, 0)];
    for state in disk.recorded() {
        for (pieces, name_changes) in survivals {
            let crashed = state.crash(Survival { pieces, torn_sectors: 1, name_changes });
            match open(&SimulatedDisk::new(crashed)) {
                Err(OpenError::Damage(_)) => refused += 1,
                Ok((log, ..)) => {
                    assert_eq!(log.superblock().losses, given_up);
                    known += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(refused > 0 && known > 0, "{refused} refused, {known} knew");
}

fn segments(state: &DiskState) -> Vec<String> {
    state.names().filter(|name| name.starts_with("segment-")).map(str::to_owned).collect()
}

/// Reads the last two segments as a start does, without the other files.
struct Segments {
    number: u64,
    sealed: Vec<u8>,
    last: Vec<u8>,
    log_id: u64,
    superblock: Superblock,
    before: u64,
    after: Position,
    count: u64,
}

impl Segments {
    fn new() -> Self {
        let (state, count) = durable_log();
        let superblock = Superblock::decode_file(state.bytes("superblock").unwrap()).unwrap().0;
        let snapshot = FileName::Snapshot(superblock.snapshot).to_string();
        let mut before = Grouped::<Numbers>::default();
        let (log_id, number) = (superblock.log_id, superblock.first_segment);
        let after =
            read_snapshot(log_id, superblock.snapshot, &mut state.bytes(&snapshot).unwrap(), &mut before)
                .unwrap()
                .covers;
        let bytes = |number| state.bytes(&FileName::Segment(number).to_string()).unwrap().to_vec();
        assert_eq!(superblock.last_segment, number + 1);
        let before = before.fold().count;
        Self {
            number,
            sealed: bytes(number),
            last: bytes(number + 1),
            log_id,
            superblock,
            before,
            after,
            count,
        }
    }

    fn next(&self) -> SegmentHeader {
        SegmentHeader::decode(&self.last).unwrap()
    }

    fn read_sealed(&self) -> Result<Recovery<Numbers>, Damage> {
        let mut recovery = Recovery::new(self.log_id, Numbers::up_to(self.before), self.after);
        let header = recovery.header(self.number, &mut &self.sealed[..])?;
        recovery.sealed(&header, &mut &self.sealed[..], &self.next())?;
        Ok(recovery)
    }

    /// Reads the last segment after `count` earlier records.
    fn read_last(&self, count: u64) -> Result<u64, Damage> {
        let mut recovery = Recovery::new(self.log_id, Numbers::up_to(count), self.next().after);
        let header = recovery.header(self.number + 1, &mut &self.last[..])?;
        recovery.last(&header, &mut &self.last[..], &self.superblock)?;
        Ok(recovery.into_fold().count)
    }
}

fn check_bit(bit: usize, read: Result<u64, Damage>, count: u64) {
    match read {
        Ok(found) => assert_eq!(found, count, "bit {bit}"),
        Err(damage) => assert!(damage.offset() <= bit as u64 / 8, "bit {bit}: {damage}"),
    }
}

#[test]
fn every_flipped_bit_of_a_last_segment_is_reported_or_harmless() {
    let mut segments = Segments::new();
    let before = segments.read_sealed().unwrap().into_fold().count;
    assert_eq!(segments.read_last(before), Ok(segments.count));
    let header = segments.next();
    for bit in 0..segments.last.len() * 8 {
        segments.last[bit / 8] ^= 1 << (bit % 8);
        if bit < BLOCK_LEN * 8 {
            let recovery = Recovery::new(segments.log_id, Numbers::up_to(before), header.after);
            assert_eq!(recovery.header(header.number, &mut &segments.last[..]).unwrap_err().offset(), 0);
        } else {
            check_bit(bit, segments.read_last(before), segments.count);
        }
        segments.last[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_flipped_bit_of_a_sealed_segment_is_reported_or_harmless() {
    let mut segments = Segments::new();
    let count = segments.read_sealed().unwrap().into_fold().count;
    for bit in 0..segments.sealed.len() * 8 {
        segments.sealed[bit / 8] ^= 1 << (bit % 8);
        check_bit(bit, segments.read_sealed().map(|recovery| recovery.into_fold().count), count);
        segments.sealed[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_truncation_is_reported() {
    let (state, count) = durable_log();
    for name in segments(&state) {
        let len = state.bytes(&name).unwrap().len();
        for len in (0..len).step_by(97).chain((0..len).step_by(BLOCK_LEN)) {
            let mut state = state.clone();
            state.rot(&name, |bytes| bytes.truncate(len));
            assert!(open(&SimulatedDisk::new(state.clone())).is_err());
            check(state, &name, count, len);
        }
    }
    let mut segments = Segments::new();
    for len in (0..segments.sealed.len()).rev() {
        segments.sealed.truncate(len);
        assert_eq!(segments.read_sealed().unwrap_err().offset(), len as u64);
    }
}

#[test]
fn flipped_bits_of_snapshot_and_superblock_are_reported_or_harmless() {
    let (state, count) = durable_log();
    let snapshot = state.names().find(|name| name.starts_with("snapshot-")).unwrap().to_owned();
    for name in [snapshot.as_str(), "superblock"] {
        let len = state.bytes(name).unwrap().len();
        let dense =
            (0..len).filter(|at| at % BLOCK_LEN < 128 || at % 61 == 0 || at % BLOCK_LEN > BLOCK_LEN - 9);
        for at in dense {
            let mut state = state.clone();
            state.rot(name, |bytes| bytes[at] ^= 1 << (at % 8));
            check(state, name, count, at);
        }
    }
    for len in (0..SUPERBLOCK_FILE_LEN).step_by(3) {
        let mut state = state.clone();
        state.rot("superblock", |bytes| bytes.truncate(len));
        check(state, "superblock", count, len);
    }
    for len in (0..state.bytes(&snapshot).unwrap().len()).step_by(13) {
        let mut state = state.clone();
        state.rot(&snapshot, |bytes| bytes.truncate(len));
        assert!(open(&SimulatedDisk::new(state.clone())).is_err());
        check(state, &snapshot, count, len);
    }
}

/// Only the last frame may be lost without an error, because no later frame confirms it and it has no
/// records.
#[test]
fn swapped_doubled_or_zeroed_blocks_are_reported_or_harmless() {
    let (state, count) = durable_log();
    for name in segments(&state) {
        let blocks = state.bytes(&name).unwrap().len() / BLOCK_LEN;
        for first in 0..blocks {
            let block = |number: usize| number * BLOCK_LEN..(number + 1) * BLOCK_LEN;
            let mut zeroed = state.clone();
            zeroed.rot(&name, |bytes| bytes[block(first)].fill(0));
            check(zeroed, &name, count, first * BLOCK_LEN);
            for second in 0..blocks {
                let mut doubled = state.clone();
                doubled.rot(&name, |bytes| bytes.copy_within(block(first), second * BLOCK_LEN));
                check(doubled, &name, count, second * BLOCK_LEN);
                let mut swapped = state.clone();
                swapped.rot(&name, |bytes| {
                    let kept = bytes[block(first)].to_vec();
                    bytes.copy_within(block(second), first * BLOCK_LEN);
                    bytes[block(second)].copy_from_slice(&kept);
                });
                check(swapped, &name, count, first.max(second) * BLOCK_LEN);
            }
        }
    }
}

#[test]
fn blocks_from_another_segment_are_reported_or_harmless() {
    let (state, count) = durable_log();
    let names = segments(&state);
    for (from, to) in [(0, 1), (1, 0)] {
        let other = state.bytes(&names[from]).unwrap().to_vec();
        for (block, piece) in other.chunks(BLOCK_LEN).enumerate() {
            let mut state = state.clone();
            let at = block * BLOCK_LEN;
            state.rot(&names[to], |bytes| bytes[at..at + BLOCK_LEN].copy_from_slice(piece));
            check(state, &names[to], count, at);
        }
    }
}

/// The clean stop confirms its last frame until the new segment does.
#[test]
fn the_loss_of_the_last_frame_of_a_clean_stop_is_reported_at_every_operation_of_the_next_start() {
    let mut rig = Rig::new(DiskState::default());
    rig.start().unwrap();
    rig.step(Step::Put).unwrap();
    rig.log.take().unwrap().close_clean(|| 1).unwrap();
    rig.acknowledged = rig.appended;
    rig.disk.record();
    rig.start().unwrap();
    for state in rig.disk.recorded() {
        for pieces in [0, u64::MAX] {
            let survival = Survival { pieces, torn_sectors: 0, name_changes: usize::MAX };
            let mut crashed = state.crash(survival);
            crashed.rot("segment-0000000000000001", |bytes| bytes[BLOCK_LEN..3 * BLOCK_LEN].fill(0));
            assert!(matches!(open(&SimulatedDisk::new(crashed)), Err(OpenError::Damage(_))));
        }
    }
}
