//! Registrations of keys with owners.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use waymaker_protocol as wire;
use waymaker_protocol::limits::{KEY_LEN_MAX, OWNER_LEN_MAX, TYPE_LEN_MAX, VALUE_LEN_MAX};
use waymaker_protocol::{LockId, NamespaceKind, Request, Response};

use crate::error::Result;
use crate::handle::Handle;
use crate::key::Key;
use crate::request::check::{check_len, lease_milliseconds};
use crate::space::Space;

/// Registrations that name the owner of a key, from [`Client::registry`](crate::Client::registry) or
/// [`Client::lazy`](crate::Client::lazy).
///
/// A registration depends on its lease, not on a connection. Its owner renews it by registering again or by a
/// heartbeat. Any client may use any owner name, but with access rules, another identity needs a right to renew or
/// remove the registration, unless it is lazy and has been expired for more than five seconds. Callers never wait for a
/// key that has another owner.
///
/// In a registry, a registration ends when its lease expires. A lazy registration survives its lease: another owner may
/// take the key five seconds after the lease expired, and the server removes the registration 48 hours after it.
///
/// ```
/// # use std::time::Duration;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
/// use waymaker_client::Readable;
/// let lease = Duration::from_secs(30);
/// let printer =
///     client.registry().registration("printer/2").owner("host-7").value("10.0.0.7:631").type_name("printer");
/// printer.register(lease).await?;
/// printer.heartbeat(lease).await?;
/// for found in client.registry().list_type("printer").await? {
///     println!("{} is at {}", Readable(&found.key), Readable(&found.value));
/// }
/// printer.unregister().await?;
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Registry {
    space: Arc<Space>,
    kind: NamespaceKind,
}

/// Handle for the registration of one key, from [`Registry::registration`]. By default the owner is the client's owner,
/// and the value and the type are empty.
#[derive(Clone, Debug)]
pub struct Registration {
    registry: Registry,
    key: Key,
    owner: Key,
    value: Key,
    type_name: Key,
}

/// Confirmation that the registration belongs to the owner of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Id of the registration. Renewals by its owner keep the id; a new registration of the key has another id.
    pub id: LockId,
    /// Fence of the registration. It rises whenever the key is registered anew, and stays the same when the owner
    /// renews.
    pub fence: u64,
    /// Remaining lease; `None` if a lazy registration has expired.
    pub remaining: Option<Duration>,
    /// Time since the lease of a lazy registration expired; `None` if it has not expired.
    pub overdue: Option<Duration>,
    /// Whether the registration already belonged to this owner.
    pub renewed: bool,
}

/// State of one registration, at the time of the server's response. If this client may not inspect the registration,
/// `id` is zero, and `owner` and `value` are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationStatus {
    /// Id of the registration. Renewals by its owner keep the id; a new registration of the key has another id.
    pub id: LockId,
    /// Fence of the registration.
    pub fence: u64,
    /// Time since the last registration or heartbeat.
    pub age: Duration,
    /// Remaining lease; `None` if it has expired: in a lazy registry, or just before the server removes the
    /// registration.
    pub remaining: Option<Duration>,
    /// Time since the lease expired; `None` if it has not expired. In a lazy registry, other owners may take the key
    /// five seconds after the lease expired.
    pub overdue: Option<Duration>,
    /// Registered key.
    pub key: Vec<u8>,
    /// Owner of the registration.
    pub owner: Vec<u8>,
    /// Value that the owner set.
    pub value: Vec<u8>,
    /// Type that the owner set.
    pub type_name: Vec<u8>,
}

/// Lease that a request sets for a registration: its length or, if `absolute` is set, its end. The server accepts an
/// end in the past only in a lazy registry.
#[derive(Clone, Copy)]
struct RegistrationLease {
    /// Length in milliseconds, or the end in milliseconds since 1970 if `absolute`.
    ms: i64,
    absolute: bool,
}

impl Registry {
    pub(crate) fn new(space: Arc<Space>, kind: NamespaceKind) -> Self {
        Self { space, kind }
    }

    /// Returns a handle for the registration of this key, to make, renew or remove it.
    pub fn registration(&self, key: impl AsRef<[u8]>) -> Registration {
        Registration {
            registry: self.clone(),
            key: key.as_ref().into(),
            owner: self.space.owner().into(),
            value: Key::default(),
            type_name: Key::default(),
        }
    }

    /// Returns the registration of this key, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`](crate::Error::Refused) for a key that is too long,
    /// [`Error::Unavailable`](crate::Error::Unavailable),
    /// [`Error::Uncertain`](crate::Error::Uncertain) and [`Error::Closed`](crate::Error::Closed).
    pub async fn look_up(&self, key: impl AsRef<[u8]>) -> Result<Option<RegistrationStatus>> {
        check_len("key", key.as_ref(), 0, KEY_LEN_MAX)?;
        let key = Key::from(key.as_ref());
        self.handle()?
            .ask(
                move |number, out| Request::LookUp(wire::LookUp { key: &key }).encode(number, out),
                |response| match response {
                    Response::LookedUp(answer) => Some(answer.found.then(|| answer.entry.into())),
                    _ => None,
                },
            )
            .await
    }

    /// Returns all registrations that this client may list, in no particular order. The client reads them page by page,
    /// as [`Client::list`](crate::Client::list) does.
    ///
    /// # Errors
    ///
    /// As [`Registry::look_up`].
    pub async fn list(&self) -> Result<Vec<RegistrationStatus>> {
        self.list_registrations(None).await
    }

    /// Returns all registrations of exactly this type that this client may list.
    ///
    /// # Errors
    ///
    /// Fails as [`Registry::look_up`] does, and with [`Error::Refused`](crate::Error::Refused) if the type is too long.
    pub async fn list_type(&self, type_name: impl AsRef<[u8]>) -> Result<Vec<RegistrationStatus>> {
        check_len("type", type_name.as_ref(), 0, TYPE_LEN_MAX)?;
        self.list_registrations(Some(type_name.as_ref().into())).await
    }

    async fn list_registrations(&self, type_name: Option<Key>) -> Result<Vec<RegistrationStatus>> {
        let encode = move |cursor, number, out: &mut Vec<u8>| {
            let list = wire::ListEntries {
                cursor,
                count_max: 0,
                any_type: type_name.is_none(),
                type_name: type_name.as_deref().unwrap_or_default(),
            };
            Request::ListEntries(list).encode(number, out);
        };
        let read = |response: Response<'_>| match response {
            Response::EntriesListed(listed) => {
                Some((listed.next, listed.entries.into_iter().map(Into::into).collect()))
            }
            _ => None,
        };
        self.handle()?.ask_all(encode, read).await
    }

    fn handle(&self) -> Result<Arc<Handle>> {
        self.space.handle(self.kind)
    }
}

impl Registration {
    /// Sets the owner of the registration, 1 to 256 bytes.
    #[must_use]
    pub fn owner(mut self, owner: impl AsRef<[u8]>) -> Self {
        self.owner = owner.as_ref().into();
        self
    }

    /// Sets the value that look-ups return, at most 4096 bytes.
    #[must_use]
    pub fn value(mut self, value: impl AsRef<[u8]>) -> Self {
        self.value = value.as_ref().into();
        self
    }

    /// Sets the type of the registered thing, at most 256 bytes. Registrations can be listed by type.
    #[must_use]
    pub fn type_name(mut self, type_name: impl AsRef<[u8]>) -> Self {
        self.type_name = type_name.as_ref().into();
        self
    }

    /// Registers this owner for the key, unless the key has another owner. The lease has this length; the server cuts a
    /// longer one to ten years. If the key already has this owner, renews the lease and overwrites the value and the
    /// type. In a lazy registry, replaces another owner whose lease expired more than five seconds ago.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`](crate::Error::Busy) if the key has another owner, which the error names if this client may see
    /// it; [`Error::Frozen`](crate::Error::Frozen) if an operator froze the key,
    /// [`Error::Refused`](crate::Error::Refused) for fields beyond their limits,
    /// [`Error::Unavailable`](crate::Error::Unavailable), [`Error::Uncertain`](crate::Error::Uncertain) and
    /// [`Error::Closed`](crate::Error::Closed).
    pub async fn register(&self, lease: Duration) -> Result<Registered> {
        self.send(RegistrationLease::lasting(lease)?, false).await
    }

    /// Registers this owner like [`Registration::register`], with a lease until `end`, by the wall clock of the server.
    ///
    /// # Errors
    ///
    /// As [`Registration::register`].
    pub async fn register_until(&self, end: SystemTime) -> Result<Registered> {
        self.send(RegistrationLease::until(end), false).await
    }

    /// Renews an existing registration of this owner, and overwrites its value and type.
    ///
    /// # Errors
    ///
    /// [`Error::NotOwner`](crate::Error::NotOwner) if the key has another owner, which the error names if this client
    /// may see it; [`Error::Refused`](crate::Error::Refused) for fields beyond their limits, and with `not_found` if
    /// the key has no registration; [`Error::Unavailable`](crate::Error::Unavailable),
    /// [`Error::Uncertain`](crate::Error::Uncertain) and [`Error::Closed`](crate::Error::Closed).
    pub async fn heartbeat(&self, lease: Duration) -> Result<Registered> {
        self.send(RegistrationLease::lasting(lease)?, true).await
    }

    /// Renews an existing registration like [`Registration::heartbeat`], with a lease until `end`, by the wall clock of
    /// the server.
    ///
    /// # Errors
    ///
    /// As [`Registration::heartbeat`].
    pub async fn heartbeat_until(&self, end: SystemTime) -> Result<Registered> {
        self.send(RegistrationLease::until(end), true).await
    }

    /// Removes the registration of this owner. In a lazy registry, also removes a registration of another owner whose
    /// lease expired more than five seconds ago, and only then returns `true`.
    ///
    /// # Errors
    ///
    /// As [`Registration::heartbeat`].
    pub async fn unregister(&self) -> Result<bool> {
        self.check()?;
        let (key, owner) = (self.key.clone(), self.owner.clone());
        self.registry
            .handle()?
            .change(
                None,
                move |number, out| {
                    Request::Unregister(wire::Unregister { key: &key, owner: &owner }).encode(number, out);
                },
                |response| match response {
                    Response::Unregistered(unregistered) => Some(unregistered.was_expired),
                    _ => None,
                },
            )
            .await
    }

    async fn send(&self, lease: RegistrationLease, is_heartbeat: bool) -> Result<Registered> {
        self.check()?;
        let Self { key, owner, value, type_name, .. } = self.clone();
        self.registry
            .handle()?
            .change(
                None,
                move |number, out| {
                    let register = wire::Register {
                        lease_ms: lease.ms,
                        absolute: lease.absolute,
                        ephemeral: false,
                        key: &key,
                        owner: &owner,
                        value: &value,
                        type_name: &type_name,
                        traceparent: None,
                    };
                    let request = match is_heartbeat {
                        true => Request::Heartbeat(wire::Heartbeat(register)),
                        false => Request::Register(register),
                    };
                    request.encode(number, out);
                },
                |response| match response {
                    Response::Registered(registered) => Some(registered.into()),
                    _ => None,
                },
            )
            .await
    }

    fn check(&self) -> Result<()> {
        check_len("key", &self.key, 0, KEY_LEN_MAX)?;
        check_len("owner", &self.owner, 1, OWNER_LEN_MAX)?;
        check_len("value", &self.value, 0, VALUE_LEN_MAX)?;
        check_len("type", &self.type_name, 0, TYPE_LEN_MAX)
    }
}

impl RegistrationLease {
    fn lasting(lease: Duration) -> Result<Self> {
        lease_milliseconds(lease)?;
        // Do not use `lease_milliseconds` for the value: a registration may last longer than a lock, whose lease has 32
        // bits. A fraction of a millisecond is rounded up.
        let ms = lease.as_nanos().div_ceil(1_000_000);
        Ok(Self { ms: i64::try_from(ms).unwrap_or(i64::MAX), absolute: false })
    }

    fn until(end: SystemTime) -> Self {
        let ms = match end.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        };
        Self { ms, absolute: true }
    }
}

impl From<wire::Registered> for Registered {
    fn from(registered: wire::Registered) -> Self {
        let wire::Registered { id, fence, remaining_ms, renewed, .. } = registered;
        Self { id, fence, remaining: left(remaining_ms), overdue: overdue(remaining_ms), renewed }
    }
}

impl From<wire::Entry<'_>> for RegistrationStatus {
    fn from(found: wire::Entry<'_>) -> Self {
        Self {
            id: found.id,
            fence: found.fence,
            age: Duration::from_millis(found.age_ms),
            remaining: left(found.remaining_ms),
            overdue: overdue(found.remaining_ms),
            key: found.key.to_vec(),
            owner: found.owner.to_vec(),
            value: found.value.to_vec(),
            type_name: found.type_name.to_vec(),
        }
    }
}

/// Returns the remaining lease of `ms` milliseconds, unless it has expired.
fn left(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// Returns the time since a lease with `ms` remaining milliseconds expired, if it has expired.
fn overdue(ms: i64) -> Option<Duration> {
    (ms <= 0).then(|| Duration::from_millis(ms.unsigned_abs()))
}
