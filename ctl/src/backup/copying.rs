//! Copies the log of a data directory, also while a server writes to it.
//!
//! The copy is a state that a crash could have left, and it has every record that was acknowledged before the copy began:
//!
//! 1. The superblock is read first. A frame is acknowledged only after the superblock names its segment, so these frames are in the
//!    files that this superblock names. Later segments are not needed.
//! 2. These files are opened at once. A compaction may remove their names afterwards, but an open file keeps its bytes: the server never
//!    writes to a removed file, and never uses one again. If a name is gone already, the next attempt reads a newer superblock.
//! 3. The last segment is copied from its end to its beginning. Frames are written in order, so if any part of a frame is copied, all
//!    frames before it are copied completely.
//! 4. The superblock is read again, for two bounds that the server raises before it writes a frame: the fence floor, and the longest
//!    lease. Only the second reading is above everything in the copied frames.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use indicatif::ProgressBar;
use waymaker_log::{BACKUP_SUPERBLOCK_NAME, BLOCK_LEN, FileName, Superblock};

use super::interrupt::Interrupt;
use super::manifest::CHUNK_LEN;
use super::problem::{BackupError, failed};
use super::staging::Staging;
use crate::log::progress_bar;

/// The files of one attempt.
#[derive(Debug)]
pub(super) struct Copied {
    /// Names in the backup.
    pub(super) names: Vec<String>,
    /// The superblock as it was before the files were opened.
    pub(super) before: Superblock,
}

/// The end of one attempt.
#[derive(Debug)]
pub(super) enum Attempt {
    Copied(Copied),
    /// A file is missing or cannot be used, as the text says. The superblock was intact if it is there.
    Failed {
        before: Option<Superblock>,
        reason: String,
    },
}

/// A file to copy.
struct Source {
    name: String,
    file: File,
    len: u64,
    /// A server may be writing to the file.
    is_written: bool,
}

/// Reads the superblock of a data directory. `None` if there is none.
pub(super) fn read_superblock(data_dir: &Path) -> Result<Option<Vec<u8>>, BackupError> {
    let path = data_dir.join(FileName::Superblock.to_string());
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", &path)(error)),
    }
}

/// Copies the log once. The copy still has to be checked.
pub(super) fn copy(
    data_dir: &Path,
    staging: &Staging,
    interrupt: &Interrupt,
) -> Result<Attempt, BackupError> {
    let without_superblock = |reason| Ok(Attempt::Failed { before: None, reason });
    let Some(bytes) = read_superblock(data_dir)? else {
        return without_superblock("superblock is missing".to_owned());
    };
    let before = match Superblock::decode_file(&bytes) {
        Ok((superblock, _)) => superblock,
        // Both copies were read while the server wrote them, or both are damaged.
        Err(error) => return without_superblock(format!("superblock, byte 0: {error}")),
    };
    let mut sources = Vec::new();
    for (file, is_written) in files_of(&before) {
        let name = file.to_string();
        let path = data_dir.join(&name);
        let opened = std::fs::metadata(&path).and_then(|about| {
            if !about.is_file() {
                // A pipe without a writer would block for ever.
                return Err(std::io::Error::other("it is not a regular file"));
            }
            Ok((about.len(), File::open(&path)?))
        });
        match opened {
            Ok((len, file)) => sources.push(Source { name, file, len, is_written }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let reason = format!("{name} is missing");
                return Ok(Attempt::Failed { before: Some(before), reason });
            }
            Err(error) => return Err(failed("read", &path)(error)),
        }
    }
    let progress = progress_bar(sources.iter().map(|source| source.len).sum());
    for source in &sources {
        copy_file(source, data_dir, staging, &progress, interrupt)?;
    }
    progress.finish_and_clear();
    let after = read_superblock(data_dir)?.and_then(|bytes| Superblock::decode_file(&bytes).ok());
    let Some((after, _)) = after else {
        return without_superblock("superblock is missing, or was being written".to_owned());
    };
    let superblock = with_bounds(&bytes, &before, &after);
    staging
        .write(BACKUP_SUPERBLOCK_NAME, &superblock)
        .map_err(failed("write", &staging.path().join(BACKUP_SUPERBLOCK_NAME)))?;
    let names =
        sources.into_iter().map(|source| source.name).chain([BACKUP_SUPERBLOCK_NAME.to_owned()]).collect();
    Ok(Attempt::Copied(Copied { names, before }))
}

/// Returns whether a server changed the files of the log between these two superblocks.
pub(super) fn has_moved(before: &Superblock, after: &Superblock) -> bool {
    let files = |superblock: &Superblock| {
        let Superblock { log_id, generation, first_segment, last_segment, .. } = *superblock;
        (log_id, generation, first_segment, last_segment, superblock.snapshot, superblock.clean_lsn)
    };
    files(before) != files(after)
}

/// Returns the files that a superblock names, each with whether a server may be writing to it.
fn files_of(superblock: &Superblock) -> impl Iterator<Item = (FileName, bool)> + use<> {
    let Superblock { first_segment, last_segment, snapshot, .. } = *superblock;
    let snapshot = (snapshot != 0).then_some((FileName::Snapshot(snapshot), false));
    let segments =
        (first_segment..=last_segment).map(move |number| (FileName::Segment(number), number == last_segment));
    snapshot.into_iter().chain(segments)
}

/// Returns the bytes of the first superblock with the bounds of the second one.
fn with_bounds(bytes: &[u8], before: &Superblock, after: &Superblock) -> Vec<u8> {
    let raised = Superblock {
        fence_floor: before.fence_floor.max(after.fence_floor),
        longest_lease_ms: before.longest_lease_ms.max(after.longest_lease_ms),
        ..*before
    };
    // Unchanged, the copy keeps the format version of the server.
    if raised == *before { bytes.to_vec() } else { raised.encode().repeat(2) }
}

/// Copies a file without its blank parts, and makes the copy durable.
fn copy_file(
    source: &Source,
    data_dir: &Path,
    staging: &Staging,
    progress: &ProgressBar,
    interrupt: &Interrupt,
) -> Result<(), BackupError> {
    let (from, to) = (data_dir.join(&source.name), staging.path().join(&source.name));
    let (unreadable, unwritable) = (failed("read", &from), failed("write", &to));
    let target = staging.create(&source.name).map_err(&unwritable)?;
    target.set_len(source.len).map_err(&unwritable)?;
    let copy = |offset: u64, buffer: &mut [u8]| {
        interrupt.check()?;
        source.file.read_exact_at(buffer, offset).map_err(&unreadable)?;
        if buffer.iter().any(|byte| *byte != 0) {
            target.write_all_at(buffer, offset).map_err(&unwritable)?;
        }
        progress.inc(buffer.len() as u64);
        Ok::<(), BackupError>(())
    };
    // One block after the other: a longer piece would be read from its front.
    let piece_len = if source.is_written { BLOCK_LEN } else { CHUNK_LEN };
    let mut buffer = vec![0; piece_len];
    let piece_count = source.len.div_ceil(piece_len as u64);
    for index in 0..piece_count {
        let index = if source.is_written { piece_count - 1 - index } else { index };
        let offset = index * piece_len as u64;
        let len = (source.len - offset).min(piece_len as u64) as usize;
        copy(offset, &mut buffer[..len])?;
    }
    target.sync_all().map_err(unwritable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::directory::in_order::assert_read_in_order;
    use waymaker_log::Fence;

    fn superblock() -> Superblock {
        Superblock { sequence: 3, first_segment: 2, last_segment: 4, snapshot: 1, ..Superblock::default() }
    }

    #[test]
    fn a_superblock_names_its_snapshot_and_its_segments_and_the_last_one_is_written() {
        let files: Vec<_> = files_of(&superblock()).collect();
        let segment = |number, is_written| (FileName::Segment(number), is_written);
        assert_eq!(
            files,
            [(FileName::Snapshot(1), false), segment(2, false), segment(3, false), segment(4, true)]
        );
        let fresh = Superblock { first_segment: 1, ..Superblock::default() };
        assert_eq!(files_of(&fresh).count(), 0);
    }

    #[test]
    fn a_copied_superblock_has_the_bounds_that_were_raised_while_the_files_were_copied() {
        let before = superblock();
        let bytes = before.encode().repeat(2);
        assert_eq!(with_bounds(&bytes, &before, &before), bytes);
        let after = Superblock { fence_floor: Fence::new(7), longest_lease_ms: 9, last_segment: 5, ..before };
        let (copied, _) = Superblock::decode_file(&with_bounds(&bytes, &before, &after)).unwrap();
        assert_eq!(copied, Superblock { fence_floor: Fence::new(7), longest_lease_ms: 9, ..before });
        assert!(has_moved(&before, &after));
        assert!(!has_moved(&before, &Superblock { fence_floor: Fence::new(7), sequence: 4, ..before }));
    }

    #[test]
    fn a_block_is_never_copied_without_the_blocks_written_before_it() {
        let place = tempfile::tempdir().unwrap();
        let name = "segment".to_owned();
        let path = place.path().join(&name);
        let staging = Staging::begin(&place.path().join("copy")).unwrap();
        let copied = || {
            let file = File::open(&path).unwrap();
            let len = file.metadata().unwrap().len();
            let source = Source { name: name.clone(), len, file, is_written: true };
            let (progress, interrupt) = (ProgressBar::hidden(), Interrupt::default());
            copy_file(&source, place.path(), &staging, &progress, &interrupt).unwrap();
            std::fs::read(staging.path().join(&name)).unwrap()
        };
        assert_read_in_order(&path, 64, 100, copied);
    }
}
