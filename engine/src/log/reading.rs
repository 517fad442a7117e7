//! Reading all that a log has: the snapshot, then segment after segment.

use super::damage::Damage;
use super::file_name::FileName;
use super::file_reader::FileReader;
use super::fold::Fold;
use super::group::Grouped;
use super::recovery::{End, Position, Recovery, Tail};
use super::segment::SegmentHeader;
use super::snapshot::read_snapshot;
use super::superblock::Superblock;
use std::ops::RangeInclusive;

/// What was read, and how a new segment continues it.
#[derive(Debug)]
pub struct Found<F> {
    /// What the records add up to.
    pub fold: F,
    /// The last frame that was kept.
    pub position: Position,
    /// How the last segment ends.
    pub tail: Tail,
    /// The newest generation that was seen.
    pub generation: u64,
    /// The number of the snapshot; 0 if there is none.
    pub snapshot: u64,
    /// The first segment that counts.
    pub first_segment: u64,
    /// The segment that the log continues in; if there is none, the first segment is still to be begun.
    pub last_segment: Option<LastSegment>,
}

/// The segment that a log continues in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSegment {
    /// What it says of itself.
    pub header: SegmentHeader,
    /// The block behind its last frame.
    pub end_block: u32,
}

/// What was read before something was found that a crash cannot explain.
#[derive(Debug)]
pub struct Unread<F> {
    /// What was found.
    pub damage: Damage,
    /// What the records before it add up to; nothing if it is in the snapshot.
    pub fold: F,
    /// The last frame before it.
    pub position: Position,
}

/// Opens a file. An error is damage, never an end.
pub type ReadFile<'a> = dyn FnMut(FileName) -> Result<Box<dyn FileReader>, Damage> + 'a;

/// Reads snapshot and segments, piece by piece. `newest_segment` is the highest number among
/// the files that are there, 0 if there is none.
///
/// # Errors
/// If anything is there that a crash cannot explain.
pub fn read_log<F: Fold>(
    superblock: &Superblock,
    newest_segment: u64,
    fold: F,
    read: &mut ReadFile<'_>,
) -> Result<Found<F>, Unread<F>> {
    let (log_id, first_segment) = (superblock.log_id, superblock.first_segment);
    let mut recovery = fold_snapshot(log_id, superblock.snapshot, first_segment, fold, read)
        .map_err(|damage| Unread { damage, fold: F::default(), position: Position::default() })?;
    match read_segments(superblock, newest_segment, &mut recovery, read) {
        Ok(last) => Ok(Found {
            position: recovery.position(),
            fold: recovery.into_fold(),
            tail: last.map_or(Tail::Clean, |(_, end)| end.tail),
            generation: last.map_or(0, |(header, _)| header.generation),
            snapshot: superblock.snapshot,
            first_segment,
            last_segment: last.map(|(header, end)| LastSegment { header, end_block: end.block }),
        }),
        Err(damage) => Err(Unread { damage, position: recovery.position(), fold: recovery.into_fold() }),
    }
}

/// Folds a snapshot, behind which recovery continues. Number 0 is the empty one before the first segment.
///
/// # Errors
/// If it is not whole, or another segment comes next than this one.
pub fn fold_snapshot<F: Fold>(
    log_id: u64,
    number: u64,
    first_segment: u64,
    fold: F,
    read: &mut ReadFile<'_>,
) -> Result<Recovery<F>, Damage> {
    let mut grouped = Grouped::new(fold);
    if number == 0 {
        return Ok(Recovery::new(log_id, grouped, Position::default()));
    }
    let file = FileName::Snapshot(number);
    let header = read_snapshot(log_id, number, &mut *read(file)?, &mut grouped)?;
    if header.next_segment != first_segment {
        return Err(Damage::Stranger { file, field: "next segment" });
    }
    Ok(Recovery::new(log_id, grouped, header.covers))
}

/// Returns the last segment and its end; `None` if there is no segment yet.
fn read_segments<F: Fold>(
    superblock: &Superblock,
    newest_segment: u64,
    recovery: &mut Recovery<F>,
    read: &mut ReadFile<'_>,
) -> Result<Option<(SegmentHeader, End)>, Damage> {
    let (first, last) = (superblock.first_segment, superblock.last_segment);
    let newest = newest_segment.max(last);
    if last == 0 && newest == 0 {
        return Ok(None);
    }
    // One more than the superblock knows was begun just before a crash. More than that were never begun.
    if newest > last + 1 {
        return Err(Damage::Stranger { file: FileName::Segment(newest), field: "number" });
    }
    let (header, mut file) = read_sealed(first..=newest, recovery, read)?;
    let end = recovery.last(&header, &mut *file, superblock)?;
    Ok(Some((header, end)))
}

/// Reads the frames of all these segments but the last. Returns the header and the file of the last one, whose frames are not read.
///
/// # Errors
/// If a segment is damaged, or does not continue the one before it.
pub fn read_sealed<F: Fold>(
    numbers: RangeInclusive<u64>,
    recovery: &mut Recovery<F>,
    read: &mut ReadFile<'_>,
) -> Result<(SegmentHeader, Box<dyn FileReader>), Damage> {
    let (first, last) = numbers.into_inner();
    let mut file = read(FileName::Segment(first))?;
    let mut header = recovery.header(first, &mut *file)?;
    for number in first + 1..=last {
        let mut next_file = read(FileName::Segment(number))?;
        let next = recovery.header(number, &mut *next_file)?;
        recovery.sealed(&header, &mut *file, &next)?;
        (file, header) = (next_file, next);
    }
    Ok((header, file))
}
