//! Slow work on the files of the log, which a second thread does: segments are created ahead, and old ones are folded
//! into a snapshot.

use std::io;

use crate::{Damage, FileName, Fold, SnapshotHeader, Source, Temporary, fold_snapshot, read_sealed};

use super::directory::Directory;
use super::log::{CompactionPlan, ObsoleteFiles};
use super::read::open;
use super::segment_source::{BeginError, make};
use super::storage::{SegmentFile, Storage, is_no_space};

/// Room for the segments that the log needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// There are a spare and a reserve segment.
    Ample,
    /// The disk is full: the spare or the reserve segment could not be created. Only records that free room should
    /// still be appended.
    Low,
}

/// Reason for which there is no new snapshot. The log is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// Durable data is damaged. The server may continue. After a crash its next start will refuse the log, but a
    /// clean stop replaces the damaged file.
    #[error("compaction: {0}")]
    Damage(#[from] Damage),
    /// The disk is full, or fails.
    #[error("compaction: {0}")]
    Io(#[from] io::Error),
}

impl CompactError {
    /// Returns true if the disk is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io(error) if is_no_space(error))
    }
}

/// Creates the spare and the reserve segment if they are missing. Must be called at the start, after each new
/// segment, and from time to time while space is low.
///
/// # Errors
/// If the disk fails. A full disk is not an error.
pub fn prepare(storage: &dyn Storage, segment_len: u64) -> io::Result<Space> {
    for (file, temporary) in [(FileName::Reserve, Temporary::Reserve), (FileName::Spare, Temporary::Spare)] {
        let files = storage.list()?;
        let name = file.to_string();
        if files.iter().any(|(other, len)| *other == name && *len == Some(segment_len)) {
            continue;
        }
        match make(storage, FileName::Temporary(temporary), segment_len) {
            Ok(made) => storage.rename(&made, &name)?,
            Err(BeginError::NoSpace) => return Ok(Space::Low),
            Err(BeginError::Failed(error)) => return Err(error),
        }
        storage.sync_directory()?;
    }
    Ok(Space::Ample)
}

/// Folds the segments of this plan and the snapshot before them into a new snapshot. When it is durable,
/// [`Log::compacted`](super::Log::compacted) adopts it, and [`remove`] removes the files that it replaces.
///
/// # Errors
/// If something is damaged, or the disk is full or fails. The log is unchanged then.
pub fn compact<F: Fold>(storage: &dyn Storage, plan: &CompactionPlan) -> Result<(), CompactError> {
    let mut read_file = |file| open(storage, file);
    let previous = plan.previous_snapshot;
    let mut recovery =
        fold_snapshot(plan.log_id, previous, plan.first_segment, F::default(), &mut read_file)?;
    let next_segment = plan.last_segment + 1;
    read_sealed(plan.first_segment..=next_segment, &mut recovery, &mut read_file)?;
    let snapshot = SnapshotHeader {
        log_id: plan.log_id,
        number: plan.previous_snapshot + 1,
        generation: plan.generation,
        covers: recovery.position(),
        next_segment,
    };
    let grouped = recovery.into_grouped();
    Ok(write_snapshot(storage, snapshot.number, &mut |out| {
        crate::write_snapshot(&snapshot, &grouped, out);
    })?)
}

/// Removes files that are no longer needed: a compaction replaced them, or a crash came before they were used.
///
/// # Errors
/// If the disk fails. The next start removes the remaining files.
pub fn remove(storage: &dyn Storage, dead: &ObsoleteFiles) -> io::Result<()> {
    let directory = Directory::list(storage)?;
    let mut is_any = false;
    for file in directory.files().filter(|file| dead.contains(*file)) {
        storage.remove(&file.to_string())?;
        is_any = true;
    }
    if is_any { storage.sync_directory() } else { Ok(()) }
}

/// Writes the snapshot file with this number. `write` provides its bytes. When this function returns, the file is
/// durable under its name.
pub(super) fn write_snapshot(storage: &dyn Storage, number: u64, write: &mut Source<'_>) -> io::Result<()> {
    let temporary = FileName::Temporary(Temporary::Snapshot).to_string();
    let mut file = storage.create(&temporary)?;
    let written = write_to(&mut *file, write);
    if written.is_err() {
        // Free the room of a full disk. If the removal fails, the file has no meaning.
        let _ = storage.remove(&temporary);
    }
    written?;
    storage.rename(&temporary, &FileName::Snapshot(number).to_string())?;
    storage.sync_directory()
}

fn write_to(file: &mut dyn SegmentFile, write: &mut Source<'_>) -> io::Result<()> {
    let mut offset = 0;
    let mut result = Ok(());
    write(&mut |bytes| {
        if result.is_ok() {
            result = file.write_at(offset, bytes);
            offset += bytes.len() as u64;
        }
    });
    result?;
    file.sync()
}
