//! Reading all that a log has, and what to go on with if not all of it is whole.

use std::io;

use waymaker_engine::log::{
    Damage, FileName, Fold, FrameHeader, Position, Recovery, SegmentHeader, SnapshotHeader, Superblock, Tail,
    read_snapshot,
};

use super::directory::Directory;
use super::keeper::write_snapshot;
use super::storage::Storage;

/// What was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The first thing that was wrong.
    pub damage: Damage,
    /// The last frame of which all records were kept; 0 if there is none.
    pub last_good_lsn: u64,
}

/// What was read, and how a new segment continues it.
pub(super) struct Found<F> {
    pub(super) fold: F,
    /// The last frame that was kept.
    pub(super) position: Position,
    pub(super) tail: Tail,
    /// The newest generation that was seen.
    pub(super) generation: u64,
    pub(super) snapshot: u64,
    pub(super) first_segment: u64,
    pub(super) next_segment: u64,
}

/// What was read before something was found that a crash cannot explain.
pub(super) struct Unread<F> {
    pub(super) damage: Damage,
    fold: F,
    position: Position,
}

/// Reads a file as the disk has it. An error is damage, never an end.
pub(super) fn read(storage: &dyn Storage, file: FileName) -> Result<Vec<u8>, Damage> {
    storage.read(&file.to_string()).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Damage::Missing(file),
        _ => Damage::Unreadable { file, reason: error.to_string() },
    })
}

/// Folds a snapshot; number 0 is the empty one before the first segment.
pub(super) fn fold_snapshot<F: Fold>(
    storage: &dyn Storage,
    log_id: u64,
    number: u64,
    first_segment: u64,
) -> Result<(F, Position), Damage> {
    let mut fold = F::default();
    if number == 0 {
        return Ok((fold, Position::default()));
    }
    let file = FileName::Snapshot(number);
    let header = read_snapshot(log_id, number, &read(storage, file)?, &mut fold)?;
    if header.next_segment != first_segment {
        return Err(Damage::Stranger { file, field: "next segment" });
    }
    Ok((fold, header.covers))
}

/// Reads snapshot and segments.
pub(super) fn read_all<F: Fold>(
    storage: &dyn Storage,
    directory: &Directory,
    superblock: &Superblock,
) -> Result<Found<F>, Unread<F>> {
    let (log_id, first_segment) = (superblock.log_id, superblock.first_segment);
    let (fold, position) = fold_snapshot(storage, log_id, superblock.snapshot, first_segment)
        .map_err(|damage| Unread { damage, fold: F::default(), position: Position::default() })?;
    let mut recovery = Recovery::new(log_id, fold, position);
    match read_segments(storage, directory, superblock, &mut recovery) {
        Ok((tail, generation, next_segment)) => Ok(Found {
            position: recovery.position(),
            fold: recovery.into_fold(),
            tail,
            generation,
            snapshot: superblock.snapshot,
            first_segment,
            next_segment,
        }),
        Err(damage) => Err(Unread { damage, position: recovery.position(), fold: recovery.into_fold() }),
    }
}

/// The end of the last segment, its generation, and the number of the next one.
fn read_segments<F: Fold>(
    storage: &dyn Storage,
    directory: &Directory,
    superblock: &Superblock,
    recovery: &mut Recovery<F>,
) -> Result<(Tail, u64, u64), Damage> {
    let (first, last) = (superblock.first_segment, superblock.last_segment);
    let newest = directory.segments().next_back().unwrap_or(0).max(last);
    if last == 0 && newest == 0 {
        return Ok((Tail::Clean, 0, first));
    }
    // One more than the superblock knows was begun just before a crash. More than that were never begun.
    if newest > last + 1 {
        return Err(Damage::Stranger { file: FileName::Segment(newest), field: "number" });
    }
    let mut bytes = read(storage, FileName::Segment(first))?;
    let mut header = recovery.header(first, &bytes)?;
    for number in first + 1..=newest {
        let next_bytes = read(storage, FileName::Segment(number))?;
        let next = recovery.header(number, &next_bytes)?;
        recovery.sealed(&header, &bytes, &next)?;
        (bytes, header) = (next_bytes, next);
    }
    let tail = recovery.last(&header, &bytes, superblock.clean_lsn)?;
    // A segment in which nothing was kept is replaced by one that continues after the same frame. So starts without
    // any traffic do not fill the disk.
    let next_segment = if recovery.frames_of_last_segment() == 0 { newest } else { newest + 1 };
    Ok((tail, header.generation, next_segment))
}

/// Makes a snapshot of what was read before the damage. The segment that comes next continues behind it, and no number is
/// used again.
pub(super) fn give_up_behind<F: Fold>(
    storage: &dyn Storage,
    directory: &Directory,
    superblock: &Superblock,
    unread: Unread<F>,
) -> io::Result<(Found<F>, Lost)> {
    let Unread { damage, mut fold, mut position } = unread;
    if damage.file() == FileName::Snapshot(superblock.snapshot) {
        // The snapshot before it was kept for this.
        (fold, position) = older_snapshot(storage, superblock);
    }
    let lost = Lost { damage, last_good_lsn: position.lsn };
    let mut generation = superblock.generation;
    let mut lsn = position.lsn.max(superblock.clean_lsn);
    for number in directory.segments() {
        let Ok(bytes) = read(storage, FileName::Segment(number)) else { continue };
        let Ok(header) = SegmentHeader::decode(&bytes) else { continue };
        generation = generation.max(header.generation);
        lsn = lsn.max(header.after.lsn).max(FrameHeader::highest_lsn(&header.origin(), &bytes));
    }
    let newest_snapshot = directory.snapshots().next_back().unwrap_or(0);
    let newest_segment = directory.segments().next_back().unwrap_or(0);
    let snapshot = SnapshotHeader {
        log_id: superblock.log_id,
        number: newest_snapshot.max(superblock.snapshot) + 1,
        generation: generation + 1,
        covers: Position { lsn, checksum: 0 },
        next_segment: newest_segment.max(superblock.last_segment) + 1,
    };
    write_snapshot(storage, &snapshot, &fold)?;
    let found = Found {
        fold,
        position: snapshot.covers,
        tail: Tail::Clean,
        generation,
        snapshot: snapshot.number,
        first_segment: snapshot.next_segment,
        next_segment: snapshot.next_segment,
    };
    Ok((found, lost))
}

fn older_snapshot<F: Fold>(storage: &dyn Storage, superblock: &Superblock) -> (F, Position) {
    let number = superblock.snapshot.saturating_sub(1);
    let mut fold = F::default();
    let bytes = read(storage, FileName::Snapshot(number)).unwrap_or_default();
    match read_snapshot(superblock.log_id, number, &bytes, &mut fold) {
        Ok(header) => (fold, header.covers),
        Err(_) => Default::default(),
    }
}
