//! Locks on the paths of a tree.

use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol::{ErrorCode, NamespaceKind, PathKey};

use super::acquire::AcquireBuilder;
use super::guard::guard_of_one_lock;
use super::lock::Lock;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::key::Key;
use crate::lane::RELEASE_AFTER_BELIEVED_MIN_MS;
use crate::request::check::milliseconds;
use crate::request::claim::{Lease, Wanted, WantedPath};
use crate::snapshot::{HeldLock, KeyStatus, WaitingClaim};
use crate::space::Space;

/// Locks on the paths of a tree, from [`Client::tree`](crate::Client::tree).
///
/// A path is a list of segments. A writer locks a path and everything below it exclusively; readers share it. A claim
/// names a set of paths and is granted as a whole:
///
/// ```
/// # use std::time::Duration;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
/// let tree = client.tree();
/// let lock = tree.write(["shop", "orders", "17"]).read(["shop", "prices"]).wait(Duration::from_secs(5)).await?;
/// println!("fence {}", lock.fence());
/// lock.release().await?;
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Tree {
    space: Arc<Space>,
}

impl Tree {
    pub(crate) fn new(space: Arc<Space>) -> Self {
        Self { space }
    }

    /// Starts a request for an exclusive lock on a path and everything below it. The empty path is the whole tree.
    pub fn write(&self, path: impl IntoIterator<Item = impl AsRef<[u8]>>) -> AcquireBuilder<TreeLock> {
        self.builder().write(path)
    }

    /// Starts a request for a shared lock on a path and everything below it.
    pub fn read(&self, path: impl IntoIterator<Item = impl AsRef<[u8]>>) -> AcquireBuilder<TreeLock> {
        self.builder().read(path)
    }

    /// Returns the holders of this path and of all paths above or below it, and the waiters for these paths. Lists at
    /// most 64 of each, but counts all.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a path beyond the limits, [`Error::Unavailable`], [`Error::Uncertain`] and
    /// [`Error::Closed`].
    pub async fn inspect(&self, path: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<KeyStatus> {
        let path = path_key(path)?;
        self.handle()?.inspect(path).await
    }

    /// Returns all locks held on paths at or below this path, by their path keys; see [`path_segments`].
    ///
    /// # Errors
    ///
    /// As [`Tree::inspect`].
    pub async fn list(&self, path: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Vec<HeldLock>> {
        let path = path_key(path)?;
        self.handle()?.list(path).await
    }

    /// Returns all claims that wait for paths at or below this path, by their path keys; see [`path_segments`].
    ///
    /// # Errors
    ///
    /// The errors of [`Tree::inspect`]. Also [`Error::Refused`] with `bad_input` and the field `waiting` if the server
    /// is older and lacks [`Capabilities::LIST_WAITING`](crate::Capabilities).
    pub async fn list_waiting(
        &self,
        path: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<WaitingClaim>> {
        let path = path_key(path)?;
        self.handle()?.list_waiting(path).await
    }

    fn builder(&self) -> AcquireBuilder<TreeLock> {
        AcquireBuilder::new(self.handle(), Wanted::Paths(Vec::new()))
    }

    fn handle(&self) -> Result<Arc<Handle>> {
        self.space.handle(NamespaceKind::Tree)
    }
}

impl AcquireBuilder<TreeLock> {
    /// Adds one path to the claim. The path and everything below it are locked exclusively.
    pub fn write(self, path: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        self.with(path, true)
    }

    /// Adds one path to the claim. The path and everything below it are shared with other readers.
    pub fn read(self, path: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        self.with(path, false)
    }

    /// Acquires without a lease. The lock is held until it is released, or until `release_after` has passed since the
    /// loss of the connection. With a `release_after` below 1 s, the acquire fails with [`Error::Refused`].
    pub fn without_lease(mut self, release_after: Duration) -> Self {
        let release_after_ms = milliseconds(release_after);
        self.claim.lease = Lease::Without;
        self.claim.release_after_ms = Some(release_after_ms);
        if release_after_ms < RELEASE_AFTER_BELIEVED_MIN_MS {
            let min = u64::from(RELEASE_AFTER_BELIEVED_MIN_MS);
            // Refuse a `release_after` below 1 s. The server could otherwise release the lock before the client notices
            // the loss of the connection, and the guard would still count as held.
            let message = format!("{release_after_ms} ms; the minimum without a lease is {min} ms");
            self.check(Err(Error::refused(ErrorCode::BadInput, "release_after", min, message)));
        }
        self
    }

    fn with(mut self, path: impl IntoIterator<Item = impl AsRef<[u8]>>, write: bool) -> Self {
        let path = path_key(path);
        if let (Wanted::Paths(wanted), Ok(path)) = (&mut self.claim.wanted, &path) {
            wanted.push(WantedPath { path: path.clone(), write });
        }
        self.check(path.map(|_| ()));
        self
    }
}

/// A set of paths that is held as one lock. It is a [`Lock`] whose key is the path key of the first path; see
/// [`path_segments`].
#[must_use = "dropping the guard releases the lock"]
pub struct TreeLock {
    lock: Lock,
}

guard_of_one_lock!(TreeLock);

/// Returns the segments of the path with this path key. A path key is a path as one byte string; lists show paths in
/// this form. The result is empty for the empty path, and if the bytes are not a path key.
pub fn path_segments(path_key: &[u8]) -> Vec<&[u8]> {
    PathKey::new(path_key).map(|path| path.segments().collect()).unwrap_or_default()
}

/// Returns the path key of a path.
fn path_key(path: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Key> {
    let mut bytes = Vec::new();
    match PathKey::append(path, &mut bytes) {
        Ok(()) => Ok(bytes.into()),
        Err(error) => {
            Err(Error::refused(ErrorCode::BadInput, error.field(), error.limit(), error.to_string()))
        }
    }
}
