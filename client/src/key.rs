//! A key and its state: held or free.

use std::sync::Arc;

/// Immutable bytes, such as a key, a path key, a name or a reason, shared by their users.
pub(crate) type Key = Arc<[u8]>;

/// The state of a key, as a [`Watch`](crate::Watch) reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The key is held.
    Held {
        /// The newest fence of the key.
        fence: u64,
        /// Newest holder. `None` if the key was already held when the watch began, or began again, for example after an
        /// outage; [`Client::inspect`] returns the holder.
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
    /// Whether the holder shares the key with other readers.
    pub shared: bool,
    /// Owner of the hold; may be empty.
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

    /// Returns whether `other` adds nothing to this state: it is the same state, or the same without the holder.
    pub(crate) fn tells_as_much_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Held { fence, .. }, Self::Held { fence: newer, holder: None }) => fence == newer,
            _ => self == other,
        }
    }
}
