//! Commands of an operator.

use std::sync::Arc;

use waymaker_protocol::limits::{PATH_KEY_LEN_MAX, REASON_LEN_MAX};
use waymaker_protocol::{LockId, NamespaceKind};

use crate::error::Result;
use crate::key::Key;
use crate::request::check::check_len;
use crate::snapshot::{FreezeOutcome, HeldLock, ReleasedClaim, WaitingClaim};
use crate::space::Space;

/// An operator's commands for one of a client's namespaces, from [`Client::operator`](crate::Client::operator).
///
/// The form of the keys that the commands take depends on the kind of the namespace: plain keys, names of pools or
/// buckets, keys of registrations, or path keys of a tree.
///
/// ```
/// # use waymaker_client::NamespaceKind;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
/// let pools = client.operator(NamespaceKind::Pool);
/// for permit in pools.list("batch/").await? {
///     pools.force_release(permit.id, "the batch was called off").await?;
/// }
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Operator {
    space: Arc<Space>,
    kind: NamespaceKind,
    /// Reason for a freeze and a thaw; empty without one.
    reason: Key,
}

impl Operator {
    pub(crate) fn new(space: Arc<Space>, kind: NamespaceKind) -> Self {
        Self { space, kind, reason: Key::default() }
    }

    /// Sets the reason for the freezes and thaws of this handle, at most 256 bytes. The server writes it to its audit
    /// log. An empty reason counts as none. A [forced release](Operator::force_release) has a reason of its own.
    ///
    /// ```
    /// # use waymaker_client::NamespaceKind;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
    /// let keys = client.operator(NamespaceKind::Flat);
    /// keys.clone().reason("the region moves").freeze("eu/").await?;
    /// keys.reason("the region has moved").thaw("eu/").await?;
    /// # Ok(())
    /// # });
    /// ```
    #[must_use]
    pub fn reason(mut self, reason: impl AsRef<[u8]>) -> Self {
        self.reason = reason.as_ref().into();
        self
    }

    /// Returns all holds whose keys begin with `prefix` and that this client may list, as [`Client::list`] does for
    /// plain keys. In a tree, `prefix` is a path key, and the result has the holds on paths at or below this path.
    ///
    /// # Errors
    ///
    /// As [`Client::list`].
    ///
    /// [`Client::list`]: crate::Client::list
    pub async fn list(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<HeldLock>> {
        check_len("prefix", prefix.as_ref(), 0, PATH_KEY_LEN_MAX)?;
        self.space.handle(self.kind)?.list(prefix.as_ref().into()).await
    }

    /// Returns all claims that wait for keys that begin with `prefix` and that this client may list, as
    /// [`Client::list_waiting`] does for plain keys. In a tree, `prefix` is a path key, and the result has the claims
    /// that wait for paths at or below this path.
    ///
    /// # Errors
    ///
    /// As [`Client::list_waiting`].
    ///
    /// [`Client::list_waiting`]: crate::Client::list_waiting
    pub async fn list_waiting(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<WaitingClaim>> {
        check_len("prefix", prefix.as_ref(), 0, PATH_KEY_LEN_MAX)?;
        self.space.handle(self.kind)?.list_waiting(prefix.as_ref().into()).await
    }

    /// Ends the claim with this id, regardless of its owner and its key. The reason has at most 256 bytes. A holder
    /// gets it as [`Lock::loss_message`](crate::Lock::loss_message); a waiter gets
    /// [`Error::Cancelled`](crate::Error::Cancelled) without it. The server writes the reason to its audit log.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`](crate::Error::Refused) for a reason that is too long, and with `not_found` if there is no
    /// such claim; [`Error::Unavailable`](crate::Error::Unavailable), [`Error::Uncertain`](crate::Error::Uncertain) and
    /// [`Error::Closed`](crate::Error::Closed).
    pub async fn force_release(&self, id: LockId, reason: impl AsRef<[u8]>) -> Result<ReleasedClaim> {
        check_len("reason", reason.as_ref(), 0, REASON_LEN_MAX)?;
        self.space.handle(self.kind)?.force_release(id, reason.as_ref().into()).await
    }

    /// Stops new grants of all keys that begin with `prefix`, until the prefix is thawed. Holds stay held and can be
    /// renewed. A tree is frozen as a whole, by the empty prefix.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`](crate::Error::Refused) if the prefix or the reason is too long. Also with `bad_input` and the
    /// field `reason` if this handle has a [reason](Operator::reason), but the server is older and lacks
    /// [`Capabilities::REASON`](crate::Capabilities); nothing is frozen then.
    /// [`Error::Unavailable`](crate::Error::Unavailable), for example if too many prefixes are frozen,
    /// [`Error::Uncertain`](crate::Error::Uncertain) and [`Error::Closed`](crate::Error::Closed).
    pub async fn freeze(&self, prefix: impl AsRef<[u8]>) -> Result<FreezeOutcome> {
        self.set_frozen(prefix.as_ref(), false).await
    }

    /// Ends an [`Operator::freeze`] of exactly this prefix.
    ///
    /// # Errors
    ///
    /// As [`Operator::freeze`].
    pub async fn thaw(&self, prefix: impl AsRef<[u8]>) -> Result<FreezeOutcome> {
        self.set_frozen(prefix.as_ref(), true).await
    }

    async fn set_frozen(&self, prefix: &[u8], thaw: bool) -> Result<FreezeOutcome> {
        check_len("prefix", prefix, 0, PATH_KEY_LEN_MAX)?;
        check_len("reason", &self.reason, 0, REASON_LEN_MAX)?;
        self.space.handle(self.kind)?.freeze(prefix.into(), thaw, self.reason.clone()).await
    }
}
