//! The durable log: its byte format, and its store.
//!
//! In the format, `record` defines the records, `split` stores them in frames, `group` joins them again, and `image` is
//! the state that they result in. Other modules describe the files and decide which bytes in them to trust. No module
//! of the format opens a file; `store` owns the files and the threads that write them. The crate reads no clock: the
//! server passes the time.
//!
//! `docs/reference/log-format.md` describes every byte. It also explains why no acknowledged record is lost, and why a
//! record that one start dropped does not reappear at a later start.

pub mod block;
mod contradiction;
mod damage;
mod fields;
mod file_name;
mod file_reader;
mod fold;
pub mod frame;
mod group;
#[cfg(test)]
mod group_tests;
mod hold;
mod ids;
pub mod image;
pub mod limits;
mod reading;
pub mod record;
mod recovery;
mod segment;
mod snapshot;
pub mod split;
mod state;
#[cfg(feature = "store")]
pub mod store;
mod superblock;
#[cfg(test)]
mod tests;
mod time;

pub use block::{BLOCK_LEN, BadBlock, NUMBER_LIMIT};
pub use contradiction::Contradiction;
pub use damage::{Damage, Evidence};
pub use file_name::{BACKUP_SUPERBLOCK_NAME, FileName, Temporary};
pub use file_reader::FileReader;
pub use fold::Fold;
pub use frame::{BadFrame, Durable, FRAME_LIMIT, FrameFields, FrameHeader, Origin, Records};
pub use group::Grouped;
pub use hold::{Hold, Item, SessionTag};
pub use ids::{ClaimId, Fence, Scope};
pub use image::Image;
pub use reading::{Found, LastSegment, ReadFile, Unread, fold_snapshot, read_log, read_sealed};
pub use record::{BadRecord, Record, Started};
pub use recovery::{End, Position, Recovery, Tail};
pub use segment::{SEGMENT_LEN_DEFAULT, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN, SegmentHeader};
pub use snapshot::{SnapshotHeader, Source, read_snapshot, write_records, write_snapshot};
pub use state::LogState;
pub use superblock::{Copy, Losses, SUPERBLOCK_FILE_LEN, Superblock, SuperblockError};
pub use time::Time;
