//! Source of the file for the next segment.

use std::io;

use crate::{FileName, SegmentHeader};

use super::directory::Temporary;
use super::storage::{SegmentFile, Storage, is_no_space};

/// Reason for which a segment cannot be begun.
#[derive(Debug)]
pub(super) enum BeginError {
    /// There is no room, and no file was changed.
    NoSpace,
    /// The disk failed.
    Failed(io::Error),
}

impl From<io::Error> for BeginError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Begins the segment with this header, in a file that was created ahead if there is one. When this function returns,
/// header and name are durable. All frames up to `header.after` must be durable already.
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
    // Rename only after this sync: a segment that a start can find must have a whole header.
    file.sync()?;
    let name = FileName::Segment(header.number).to_string();
    storage.rename(&source, &name)?;
    storage.sync_directory()?;
    Ok(storage.open_segment(&name)?)
}

/// Creates a file of zeros, and returns its name. If there is no room, removes the incomplete file.
pub(super) fn make(storage: &dyn Storage, file: FileName, len: u64) -> Result<String, BeginError> {
    let name = file.to_string();
    storage.make_zeroed(&name, len).map_err(|error| {
        if is_no_space(&error) {
            // Free the room that the incomplete file has taken. If the removal fails, the next start removes the
            // file.
            let _ = storage.remove(&name);
            BeginError::NoSpace
        } else {
            BeginError::Failed(error)
        }
    })?;
    Ok(name)
}
