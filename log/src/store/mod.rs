//! Store of the durable log: its files, and the ways to write them to the disk.
//!
//! After a start has opened the [`Log`] and appended its first records, only the log thread uses it. [`keeper`] is
//! mostly the work of the keeper thread: it creates segments for later use, compacts old ones, and removes files. Both
//! access the disk only through [`Storage`], so that a simulated disk can fail at every step.

mod agenda;
pub mod committer;
mod directory;
mod disk;
pub mod errand;
pub mod keeper;
mod keeper_thread;
mod log;
mod map;
mod open;
pub mod port;
mod read;
mod segment_source;
mod storage;
mod superblock_file;
#[cfg(test)]
mod tests;
pub mod thread;
mod window;
pub mod writer;

pub use directory::Directory;
pub use disk::{Device, Disk};
pub use log::{AppendError, AppendedFrame, CompactionPlan, Log, ObsoleteFiles};
pub use open::{OpenError, OpenOptions, OpenResult};
pub use read::AcceptedLoss;
pub use storage::{SegmentFile, Storage, is_no_space};
