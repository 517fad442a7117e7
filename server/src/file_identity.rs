//! The identity of a file, which shows whether a path still names the same file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Device and inode of a file. Files that exist at the same time have different identities; a later file may get the
/// identity of a file that no longer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl From<&Metadata> for FileIdentity {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}
