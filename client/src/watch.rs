//! Watching a key.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use waymaker_protocol::Readable;

use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::hold::Key;
use crate::job::{Command, Job};
use crate::reply::Reply;

/// The state of a key: held or free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The key is held.
    Held {
        /// The newest fence of the key.
        fence: u64,
        /// Newest holder. `None` if the key was already held when the watch began; [`Client::inspect`] returns the
        /// holder.
        ///
        /// [`Client::inspect`]: crate::Client::inspect
        holder: Option<KeyHolder>,
    },
    /// The key is free.
    Free {
        /// The newest fence of the key.
        fence: u64,
    },
}

/// Holder of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    /// Whether the key is shared with other readers.
    pub shared: bool,
    /// Owner; may be empty.
    pub owner: Vec<u8>,
}

impl KeyState {
    /// Returns whether the key is held.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }

    /// Returns the newest fence of the key.
    pub fn fence(&self) -> u64 {
        match self {
            Self::Held { fence, .. } | Self::Free { fence } => *fence,
        }
    }

    /// Returns whether this is the same state, and includes the holder if `other` does.
    pub(crate) fn tells_as_much_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Held { fence, .. }, Self::Held { fence: newer, holder: None }) => fence == newer,
            _ => self == other,
        }
    }
}

/// A watched key: reports its current state, then each change.
///
/// The first state is the state at the start of the watch. A slow reader misses states, but never the newest. After a
/// lost connection, the watch begins again by itself and reports the newest state. Dropping it ends the watch.
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

/// A watch that the server has not confirmed yet.
pub(crate) struct WatchJob {
    pub(crate) token: u64,
    pub(crate) key: Key,
    /// Destination of the states, until the lane has taken it.
    pub(crate) listener: Option<Listener>,
    /// Present if a caller waits for the watch to begin.
    pub(crate) reply: Reply<()>,
}

/// Destination of the states of a watched key.
pub(crate) struct Listener(watch::Sender<Option<KeyState>>);

impl Listener {
    pub(crate) fn new(states: watch::Sender<Option<KeyState>>) -> Self {
        Self(states)
    }

    /// Reports this state, unless the listener knows it already.
    pub(crate) fn tell(&self, state: KeyState) {
        self.0.send_if_modified(|known| match known {
            Some(known) if known.tells_as_much_as(&state) => false,
            _ => {
                *known = Some(state);
                true
            }
        });
    }
}

impl Watch {
    pub(crate) async fn begin(handle: Arc<Handle>, key: Key) -> Result<Self> {
        let (sender, states) = watch::channel(None);
        let (reply, answer) = Reply::channel();
        let token = handle.next_token();
        let job = WatchJob { token, key: key.clone(), listener: Some(Listener::new(sender)), reply };
        // From here on, dropping `watch` withdraws the request.
        let watch = Self { key, token, states, handle };
        watch.handle.submit(Job::Watch(job))?;
        answer.await.unwrap_or(Err(Error::Closed))?;
        Ok(watch)
    }

    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Waits for the next state that was not returned yet. Returns `None` at the end of the watch: the client
    /// was closed, or the server refused to watch the key again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no state.
    pub async fn next(&mut self) -> Option<KeyState> {
        self.states.changed().await.ok()?;
        self.states.borrow_and_update().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Without the connection task there is no watch to end.
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
