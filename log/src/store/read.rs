//! Reading of a whole log. If a part of it is damaged and the operator accepts that, the log continues from the records
//! before the damage.

use std::io;

use crate::{
    Damage, FileName, FileReader, Fold, Found, FrameHeader, Grouped, Position, SegmentHeader, SnapshotHeader,
    Superblock, Tail, Unread, read_log, read_snapshot, write_snapshot,
};

use super::directory::Directory;
use super::keeper;
use super::storage::Storage;

/// Loss that a start accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedLoss {
    /// First damage that was found.
    pub damage: Damage,
    /// Last frame whose records were kept, like those of all frames before it; 0 if no frame was kept. A group of
    /// records that ended behind this frame was dropped.
    pub last_good_lsn: u64,
}

/// Opens a log file for reading from the disk. An error, also for a missing file, counts as damage and not as the end
/// of the log.
pub(super) fn open(storage: &dyn Storage, file: FileName) -> Result<Box<dyn FileReader>, Damage> {
    storage.reader(&file.to_string()).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Damage::Missing(file),
        _ => Damage::Unreadable { file, reason: error.to_string() },
    })
}

/// Reads the snapshot and the segments that the superblock names.
pub(super) fn read_all<F: Fold>(
    storage: &dyn Storage,
    directory: &Directory,
    superblock: &Superblock,
) -> Result<Found<F>, Unread<F>> {
    let newest_segment = directory.segments().next_back().unwrap_or(0);
    read_log(superblock, newest_segment, F::default(), &mut |file| open(storage, file))
}

/// Writes a snapshot of the records before the damage or, if the current snapshot is damaged, of the records of the
/// previous one. The log continues after the snapshot, in a new segment. The next frame, segment, snapshot and start
/// get higher numbers than any that can be read in the old files. So old files and frames cannot be mistaken for new
/// ones.
pub(super) fn give_up_behind<F: Fold>(
    storage: &dyn Storage,
    directory: &Directory,
    superblock: &Superblock,
    unread: Unread<F>,
) -> io::Result<(Found<F>, AcceptedLoss)> {
    let Unread { damage, mut fold, mut position } = unread;
    if damage.file() == FileName::Snapshot(superblock.snapshot) {
        // The file of the current snapshot is damaged, so none of its records is used. The previous snapshot was kept
        // for this case. The state is read from it, and all later records are lost.
        (fold, position) = older_snapshot(storage, superblock);
    }
    let lost = AcceptedLoss { damage, last_good_lsn: position.lsn };
    let mut generation = superblock.generation;
    let mut lsn = position.lsn.max(superblock.clean_lsn).max(superblock.start.lsn);
    for number in directory.segments() {
        let Ok(bytes) = storage.read(&FileName::Segment(number).to_string()) else { continue };
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
    // An incomplete group at the end is dropped, because its other records were lost with the damage.
    let grouped = Grouped::new(fold);
    keeper::write_snapshot(storage, snapshot.number, &mut |out| write_snapshot(&snapshot, &grouped, out))?;
    let found = Found {
        fold: grouped.into_fold(),
        position: snapshot.covers,
        tail: Tail::Clean,
        generation,
        snapshot: snapshot.number,
        first_segment: snapshot.next_segment,
        last_segment: None,
    };
    Ok((found, lost))
}

fn older_snapshot<F: Fold>(storage: &dyn Storage, superblock: &Superblock) -> (F, Position) {
    let number = superblock.snapshot.saturating_sub(1);
    let mut grouped = Grouped::default();
    let header = open(storage, FileName::Snapshot(number))
        .and_then(|mut file| read_snapshot(superblock.log_id, number, &mut *file, &mut grouped));
    match header {
        Ok(header) => (grouped.into_fold(), header.covers),
        Err(_) => Default::default(),
    }
}
