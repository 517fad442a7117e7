//! Where the file of the next segment comes from.

use std::io;

use waymaker_engine::log::{FileName, SegmentHeader};

use super::directory::Temporary;
use super::storage::{SegmentFile, Storage, is_no_space};

/// Why a segment cannot be begun.
#[derive(Debug)]
pub(super) enum BeginError {
    /// There is no room, and nothing was changed.
    NoSpace,
    /// The disk failed.
    Failed(io::Error),
}

impl From<io::Error> for BeginError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Begins the segment with this header, in a file that was made ahead if there is one. When this returns, header and
/// name are durable. Everything before `header.after` must be durable already.
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
    // Only then the name: a segment that can be found has a whole header.
    file.sync()?;
    let name = FileName::Segment(header.number).to_string();
    storage.rename(&source, &name)?;
    storage.sync_directory()?;
    Ok(storage.open_segment(&name)?)
}

/// Makes a file of zeros, or none of it.
pub(super) fn make(storage: &dyn Storage, file: FileName, len: u64) -> Result<String, BeginError> {
    let name = file.to_string();
    storage.make_zeroed(&name, len).map_err(|error| {
        if is_no_space(&error) {
            // What was taken up to here is what others now lack. If it stays, the next start removes it.
            let _ = storage.remove(&name);
            BeginError::NoSpace
        } else {
            BeginError::Failed(error)
        }
    })?;
    Ok(name)
}
