//! Watching a key.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use waymaker_protocol::Readable;

use crate::error::{Error, Result};
use crate::hold::Key;
use crate::job::{Command, Job};
use crate::reply::Reply;
use crate::space::Shared;

/// The state of a key: held or free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Somebody holds it.
    Held {
        /// The newest fence of the key.
        fence: u64,
        /// Who was granted it last. `None` where the watch found it held already; [`Client::inspect`] tells.
        ///
        /// [`Client::inspect`]: crate::Client::inspect
        holder: Option<KeyHolder>,
    },
    /// Nobody holds it.
    Free {
        /// The newest fence of the key.
        fence: u64,
    },
}

/// Who was granted a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    /// Shared with other readers.
    pub shared: bool,
    /// The owner; may be empty.
    pub owner: Vec<u8>,
}

impl KeyState {
    /// Somebody holds the key.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }

    /// The newest fence of the key.
    pub fn fence(&self) -> u64 {
        match self {
            Self::Held { fence, .. } | Self::Free { fence } => *fence,
        }
    }

    /// It is the same state, and knows the holder if the other does.
    pub(crate) fn tells_as_much_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Held { fence, .. }, Self::Held { fence: newer, holder: None }) => fence == newer,
            _ => self == other,
        }
    }
}

/// A watched key: how it is, and then each change.
///
/// The first state is that of when the watch began. A reader that is slow misses states, but never the newest. After a
/// lost connection the watch begins again by itself, and what changed meanwhile shows as its newest state. Dropping it
/// ends the watch.
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
    shared: Arc<Shared>,
}

/// A watch on its way.
pub(crate) struct WatchJob {
    pub(crate) token: u64,
    pub(crate) key: Key,
    /// Where the states go, until the watch is known to the connection.
    pub(crate) listener: Option<Listener>,
    /// Set where a caller waits for it to begin.
    pub(crate) reply: Reply<()>,
}

/// Where the states of a watched key go.
pub(crate) struct Listener(watch::Sender<Option<KeyState>>);

impl Listener {
    pub(crate) fn new(states: watch::Sender<Option<KeyState>>) -> Self {
        Self(states)
    }

    /// The key is in this state, unless the listener knows as much already.
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
    pub(crate) async fn begin(shared: Arc<Shared>, key: Key) -> Result<Self> {
        let (sender, states) = watch::channel(None);
        let (reply, answer) = Reply::channel();
        let token = shared.next_token();
        let job = WatchJob { token, key: key.clone(), listener: Some(Listener::new(sender)), reply };
        // From here on, dropping it takes the watch back.
        let watch = Self { key, token, states, shared };
        watch.shared.submit(Job::Watch(job))?;
        answer.await.unwrap_or(Err(Error::Closed))?;
        Ok(watch)
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The next state that this has not returned yet, or `None` when there will be none: the client was closed, or the
    /// server would not watch the key again. May be dropped at any time without missing a state.
    pub async fn next(&mut self) -> Option<KeyState> {
        self.states.changed().await.ok()?;
        self.states.borrow_and_update().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Without the connection task there is nothing to take back.
        let _ = self.shared.command(Command::Unwatch { token: self.token });
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
