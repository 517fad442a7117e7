//! The guard of a lock.

use super::LocktopusClient;
use super::error::{CloseReason, Result};
use super::message::Request;
use super::session::Session;

/// A held lock, from [`LocktopusClient::hold`]. Dropping it releases the lock in the background.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub struct LocktopusLock<'client> {
    client: &'client LocktopusClient,
    number: u64,
}

impl<'client> LocktopusLock<'client> {
    pub(super) fn new(client: &'client LocktopusClient, number: u64) -> Self {
        Self { client, number }
    }

    /// Releases the lock and waits for the response.
    ///
    /// # Errors
    ///
    /// As [`LocktopusClient::release`].
    pub async fn release(self) -> Result<()> {
        self.client.release().await
    }

    /// Returns the id of the lock, as [`LocktopusClient::lock_id`] does.
    pub fn id(&self) -> String {
        self.client.lock_id().unwrap_or_default()
    }

    /// Returns a future that resolves when the connection ends, and the lock with it. The result is the reason.
    pub fn closed(&self) -> impl Future<Output = CloseReason> + Send + use<> {
        self.client.closed()
    }

    pub(super) async fn acquired(&self) -> Result<()> {
        self.client.acquired(self.number).await
    }
}

impl Drop for LocktopusLock<'_> {
    fn drop(&mut self) {
        // The guard borrows the client mutably, so any lock of the client is this one. The call fails if the lock is already
        // released.
        let _ = self.client.ask(&Request::Release, Session::ask_release);
    }
}
