//! Guards of granted claims, and the builders that acquire them.
//!
//! `lock` is the guard of one hold; `multi_key`, `tree` and `semaphore` are built on it. `guard` has the trait of all
//! guards. `acquire` builds, sends and awaits an acquire, and `queued` a claim that waits in its queue.

mod acquire;
mod guard;
mod lock;
mod multi_key;
mod queued;
mod semaphore;
mod tree;

pub use acquire::{AcquireBuilder, AcquireFuture};
pub use guard::Guard;
pub use lock::Lock;
pub use multi_key::MultiLock;
pub use queued::{Enqueued, Queued};
pub use semaphore::{Permit, Semaphore};
pub use tree::{Tree, TreeLock, path_segments};
