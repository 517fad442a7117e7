//! Reads of a whole log: the snapshot, then one segment after the other.

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

/// Result of reading a log: its state, and where new frames continue it.
#[derive(Debug)]
pub struct Found<F> {
    /// State that results from the records.
    pub fold: F,
    /// Last frame of the log. The next frame follows it.
    pub position: Position,
    /// State of the bytes behind the last frame in the last segment.
    pub tail: Tail,
    /// Number of the server start that began the last segment; 0 without a segment. Later starts may have appended to
    /// that segment.
    pub generation: u64,
    /// Number of the snapshot; 0 without one.
    pub snapshot: u64,
    /// Number of the first segment that is not in the snapshot.
    pub first_segment: u64,
    /// Segment to which new frames are appended. `None` if the first segment does not exist yet.
    pub last_segment: Option<LastSegment>,
}

/// Segment in which a log continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSegment {
    /// Header of the segment.
    pub header: SegmentHeader,
    /// Number of the first block behind the last frame of the segment.
    pub end_block: u32,
}

/// Result of reading a log up to damage that a crash cannot explain.
#[derive(Debug)]
pub struct Unread<F> {
    /// Damage that stopped the reading.
    pub damage: Damage,
    /// State that results from the records before the damage; empty if the snapshot is damaged.
    pub fold: F,
    /// Last frame before the damage; the position before the first frame if the snapshot is damaged.
    pub position: Position,
}

/// Function that opens a file of the log. An error, also for a missing file, counts as damage and not as the end of the
/// log.
pub type ReadFile<'a> = dyn FnMut(FileName) -> Result<Box<dyn FileReader>, Damage> + 'a;

/// Reads the snapshot and the segments, piece by piece. `newest_segment` is the highest number of an existing segment
/// file, 0 without any.
///
/// # Errors
/// Returns the damage if a crash cannot explain the contents of the files.
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

/// Reads a snapshot into `fold`. Returns a [`Recovery`] that continues with the first frame after the snapshot. If the
/// number is 0, there is no snapshot: reads nothing, and the [`Recovery`] continues with frame 1.
///
/// # Errors
/// Returns an error if the snapshot is damaged, or its next segment is not `first_segment`.
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

/// Reads all segments. Returns the header of the last one and where its frames end, or `None` if there is no segment
/// yet.
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
    // A server first creates a segment and then writes its number to the superblock. So a crash can leave one segment
    // that the superblock does not know, but never two.
    if newest > last + 1 {
        return Err(Damage::Stranger { file: FileName::Segment(newest), field: "number" });
    }
    let (header, mut file) = read_sealed(first..=newest, recovery, read)?;
    let end = recovery.last(&header, &mut *file, superblock)?;
    Ok(Some((header, end)))
}

/// Reads the frames of all these segments except the last. Returns the header and the file of the last one, without
/// reading its frames.
///
/// # Errors
/// Returns an error if a segment is damaged, or does not continue the one before it.
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
