//! The path from a data directory and the configuration to a node that continues the state of an earlier server.

mod declared;
mod restore;
mod start;

pub use declared::DeclarationError;
pub(crate) use declared::open_declared;
pub use restore::{RestoreError, RestoredCounts, restore};
pub use start::{ReadLog, RestoredLog};
