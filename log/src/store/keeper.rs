//! Slow work on the files of the log, which the keeper thread does beside the log thread. It creates segments before
//! they are needed, folds old segments into a snapshot, and removes files that are no longer needed.

use std::io;

use crate::{Damage, FileName, Fold, SnapshotHeader, Source, Temporary, fold_snapshot, read_sealed};

use super::directory::Directory;
use super::log::{CompactionPlan, ObsoleteFiles};
use super::read::open;
use super::segment_source::{BeginError, make};
use super::storage::{SegmentFile, Storage, is_no_space};

/// Whether the disk has room for the segments that the log needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// There are a spare and a reserve segment, or the lack of room is not known yet.
    Ample,
    /// The disk is full: the spare or the reserve segment could not be created, or frames found no room. The server
    /// then refuses new durable grants.
    Low,
}

/// Reason for which a compaction failed. The log still uses its old files.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// Durable data in the old files is damaged. The server may continue, because its state is in memory. After a
    /// crash, the next start refuses the log, unless the operator accepts the damage. A clean stop replaces the damaged
    /// files by a snapshot.
    #[error("compaction: {0}")]
    Damage(#[from] Damage),
    /// The disk is full, or fails.
    #[error("compaction: {0}")]
    Io(#[from] io::Error),
}

impl CompactError {
    /// Whether the disk is full, or another limit on the length of files is reached ([`is_no_space`]).
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io(error) if is_no_space(error))
    }
}

/// Creates the spare and the reserve segment if they are missing or have another length. The log begins its next
/// segment in the spare or, if that is missing, in the reserve, even if the disk has become full. Must be called at the
/// start, after each new segment, and from time to time while space is low.
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

/// Folds the segments of this plan, together with the previous snapshot, into a new snapshot, which is durable when
/// this function returns. The caller must then call [`Log::compacted`](super::Log::compacted), which names the snapshot
/// in the superblock, and pass the returned files to [`remove`].
///
/// # Errors
/// If a file that this function reads is damaged, or the disk is full or fails. The log still uses its old files then.
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

/// Removes files that are no longer needed, because a newer snapshot replaced them, or because a crash happened before
/// the superblock named them.
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

/// Writes the snapshot file with this number. `write` provides its bytes. When this function returns without an error,
/// the file and its name are durable.
pub(super) fn write_snapshot(storage: &dyn Storage, number: u64, write: &mut Source<'_>) -> io::Result<()> {
    let temporary = FileName::Temporary(Temporary::Snapshot).to_string();
    let mut file = storage.create(&temporary)?;
    let written = write_to(&mut *file, write);
    if written.is_err() {
        // The incomplete file is removed to free its room on the disk. A failure of the removal is ignored, because no
        // reader uses a temporary file.
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
