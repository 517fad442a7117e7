//! What is done beside the log, by a thread that may take its time: segments are made ahead, and old ones are folded into
//! a snapshot.

use std::io;

use waymaker_engine::log::{
    self, Damage, FileName, Fold, SnapshotHeader, Source, Temporary, fold_snapshot, read_sealed,
};

use super::directory::Directory;
use super::log::{CompactionPlan, Dead};
use super::read::open;
use super::segment_source::{BeginError, make};
use super::storage::{SegmentFile, Storage, is_no_space};

/// Whether the log can go on when its segment is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// A spare and a reserve segment are there.
    Ample,
    /// The disk is full: one of them could not be made. What frees room may still be appended, nothing else should be.
    Low,
}

/// Why there is no new snapshot. Nothing was changed that counts.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// Something durable is damaged. The server may go on. After a crash its next start will refuse, but a clean stop does without the
    /// damaged file.
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

/// Makes the spare and the reserve segment if they are missing. To be called at the start, whenever a segment was begun,
/// and now and then while space is low.
///
/// # Errors
/// If the disk fails. A full one is no error.
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
/// [`Log::compacted`](super::Log::compacted) makes it count, and [`remove`] takes away what it replaces.
///
/// # Errors
/// If something is damaged, or the disk is full or fails. The log is as it was then.
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
    Ok(write_snapshot(storage, snapshot.number, &mut |out| log::write_snapshot(&snapshot, &grouped, out))?)
}

/// Removes what nothing needs any more: what a compaction replaced, and what a crash left half made.
///
/// # Errors
/// If the disk fails. What is left is removed by the next start.
pub fn remove(storage: &dyn Storage, dead: &Dead) -> io::Result<()> {
    let directory = Directory::list(storage)?;
    let mut is_any = false;
    for file in directory.files().filter(|file| dead.contains(*file)) {
        storage.remove(&file.to_string())?;
        is_any = true;
    }
    if is_any { storage.sync_directory() } else { Ok(()) }
}

/// Writes the snapshot file with this number, whose bytes `write` hands out. When this returns it is durable under its name.
pub(super) fn write_snapshot(storage: &dyn Storage, number: u64, write: &mut Source<'_>) -> io::Result<()> {
    let temporary = FileName::Temporary(Temporary::Snapshot).to_string();
    let mut file = storage.create(&temporary)?;
    let written = write_to(&mut *file, write);
    if written.is_err() {
        // On a full disk others need the room. If it stays, it means nothing.
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
