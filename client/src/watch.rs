//! Watching a key.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use waymaker_protocol::Readable;

use crate::error::{Error, Result};
use crate::handle::{Command, Handle};
use crate::key::{Key, KeyState};
use crate::request::job::{Job, Listener, WatchJob};
use crate::request::reply::Reply;

/// A watch of a key, from [`Client::watch`](crate::Client::watch). It reports the current state of the key, then each
/// change.
///
/// The first state is the state at the start of the watch. A slow reader misses states, but never the newest. After a
/// lost connection, the watch begins again by itself and reports the newest state if it has changed. Dropping this
/// value ends the watch.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
/// let mut watch = client.watch("leader").await?;
/// // How it is now; called again, it waits for the next change.
/// if let Some(state) = watch.next().await {
///     println!("{}", if state.is_held() { "somebody leads" } else { "nobody leads" });
/// }
/// # Ok(())
/// # });
/// ```
#[must_use = "dropping it ends the watch"]
pub struct Watch {
    key: Key,
    token: u64,
    states: watch::Receiver<Option<KeyState>>,
    handle: Arc<Handle>,
}

impl Watch {
    /// Begins the watch, and waits until the server has confirmed it.
    pub(crate) async fn begin(handle: Arc<Handle>, key: Key) -> Result<Self> {
        let (sender, states) = watch::channel(None);
        let (reply, answer) = Reply::channel();
        let token = handle.next_token();
        let job = WatchJob { token, key: key.clone(), listener: Some(Listener::new(sender)), reply };
        // If the caller drops this future from here on, the drop of `watch` withdraws the request.
        let watch = Self { key, token, states, handle };
        watch.handle.submit(Job::Watch(job))?;
        answer.await.unwrap_or(Err(Error::Closed))?;
        Ok(watch)
    }

    /// Returns the watched key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Waits for the newest state that was not returned yet. Returns `None` at the end of the watch: the client was
    /// closed, its runtime has shut down, or the server refused. The server may refuse the credentials after an outage,
    /// or refuse to begin the watch again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no state; the next call returns it.
    pub async fn next(&mut self) -> Option<KeyState> {
        self.states.changed().await.ok()?;
        self.states.borrow_and_update().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // An error means that the connection task has ended, and all watches with it; ignore the error.
        let _ = self.handle.command(Command::Unwatch { token: self.token });
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Watch")
            .field("key", &format_args!("\"{}\"", Readable(&self.key)))
            .field("state", &*self.states.borrow())
            .finish_non_exhaustive()
    }
}
