//! Requests to watch a key, and the destination of the key's states.

use tokio::sync::watch;

use crate::key::{Key, KeyState};
use crate::request::reply::Reply;

/// A watch that the server has not confirmed yet.
pub(crate) struct WatchJob {
    pub(crate) token: u64,
    pub(crate) key: Key,
    /// Destination of the states; `None` once the lane has moved it to its table of watches.
    pub(crate) listener: Option<Listener>,
    /// Caller that waits for the watch to begin; [`Reply::Nobody`] if the lane begins a confirmed watch again.
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
