//! The guard of a lock.

use super::LocktopusClient;
use super::error::{CloseReason, Result};
use super::message::Request;
use super::session::Session;

/// A lock that is held, from [`LocktopusClient::hold`]. Dropping it releases it, in the background.
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

    /// Releases it, and returns when it is released.
    ///
    /// # Errors
    ///
    /// As [`LocktopusClient::release`].
    pub async fn release(self) -> Result<()> {
        self.client.release().await
    }

    /// What the server calls it, as [`LocktopusClient::lock_id`].
    pub fn id(&self) -> String {
        self.client.lock_id().unwrap_or_default()
    }

    /// Resolves when the connection ends, and with it the lock, and says why.
    pub fn closed(&self) -> impl Future<Output = CloseReason> + Send + use<> {
        self.client.closed()
    }

    pub(super) async fn acquired(&self) -> Result<()> {
        self.client.acquired(self.number).await
    }
}

impl Drop for LocktopusLock<'_> {
    fn drop(&mut self) {
        // Nobody else uses the client meanwhile, so a lock that there is must be this one. It fails if there is none any more.
        let _ = self.client.ask(&Request::Release, Session::ask_release);
    }
}
