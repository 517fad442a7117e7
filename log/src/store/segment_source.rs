//! Creation of the next segment: from a file that was created before it was needed, or from a new one.

use std::io;

use crate::{FileName, SegmentHeader};

use super::directory::Temporary;
use super::storage::{SegmentFile, Storage, is_no_space};

/// Reason for which a segment cannot be begun.
#[derive(Debug)]
pub(super) enum BeginError {
    /// The disk has no room for the segment. No file of the log was changed.
    NoSpace,
    /// A file operation failed for another reason.
    Failed(io::Error),
}

impl From<io::Error> for BeginError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Begins the segment with this header. Uses the spare or else the reserve file if it has the right length, otherwise
/// creates a file. When this function returns, the header and the name of the segment are durable. All frames up to
/// `header.after` must be durable before the call.
pub(super) fn begin_segment(
    storage: &dyn Storage,
    header: &SegmentHeader,
) -> Result<Box<dyn SegmentFile>, BeginError> {
    let files = storage.list()?;
    let ready = [FileName::Spare, FileName::Reserve]
        .map(|file| file.to_string())
        .into_iter()
        .find(|name| files.iter().any(|(other, len)| other == name && *len == Some(header.len)));
    let source = match ready {
        Some(name) => name,
        None => make(storage, FileName::Temporary(Temporary::Segment), header.len)?,
    };
    let mut file = storage.open(&source)?;
    file.write_at(0, &header.encode())?;
    // The file gets its name only after this sync, because a start that finds a segment expects a whole header in it.
    file.sync()?;
    let name = FileName::Segment(header.number).to_string();
    storage.rename(&source, &name)?;
    storage.sync_directory()?;
    Ok(storage.open_segment(&name)?)
}

/// Creates a file of zeros, and returns its name. If the disk has no room for the file, removes what was written of it.
pub(super) fn make(storage: &dyn Storage, file: FileName, len: u64) -> Result<String, BeginError> {
    let name = file.to_string();
    storage.make_zeroed(&name, len).map_err(|error| {
        if is_no_space(&error) {
            // The incomplete file is removed to free the room that it has taken. If the removal fails, the next start
            // removes the file.
            let _ = storage.remove(&name);
            BeginError::NoSpace
        } else {
            BeginError::Failed(error)
        }
    })?;
    Ok(name)
}
