//! The durable log as bytes: what its files look like, what may be believed of what is found in them, what it says
//! (`record`), and what that adds up to (`image`).
//!
//! Nothing here opens a file or reads a clock. `docs/log-format.md` has every byte and the argument why no acknowledged
//! record is lost and no dropped one returns.

pub mod block;
mod damage;
mod fields;
mod file_name;
mod fold;
pub mod frame;
mod hold;
pub mod image;
mod reading;
pub mod record;
mod recovery;
mod segment;
mod snapshot;
mod superblock;
#[cfg(test)]
mod tests;

pub use block::{BLOCK_LEN, BadBlock};
pub use damage::{Damage, Evidence};
pub use file_name::{FileName, Temporary};
pub use fold::Fold;
pub use frame::{BadFrame, FRAME_LIMIT, FrameFields, FrameHeader, Origin, Records};
pub use hold::{Hold, Item, SessionTag};
pub use image::Image;
pub use reading::{Found, ReadFile, Unread, fold_snapshot, read_log};
pub use record::{BadRecord, Record, Started};
pub use recovery::{Position, Recovery, Tail};
pub use segment::{SEGMENT_LEN_DEFAULT, SEGMENT_LEN_MIN, SegmentHeader};
pub use snapshot::{SnapshotHeader, SnapshotWriter, read_snapshot};
pub use superblock::{Copy, SUPERBLOCK_FILE_LEN, Superblock, SuperblockError};
