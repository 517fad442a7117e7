//! Entries that name their owner.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use waymaker_protocol as wire;
use waymaker_protocol::limits::{KEY_LEN_MAX, OWNER_LEN_MAX, TYPE_LEN_MAX, VALUE_LEN_MAX};
use waymaker_protocol::{LockId, NamespaceKind, Request, Response};

use crate::claim::{check_len, lease_milliseconds};
use crate::error::Result;
use crate::hold::Key;
use crate::space::{Shared, Space};

/// Entries that name the owner of a key, from [`Client::registry`](crate::Client::registry) or
/// [`Client::lazy`](crate::Client::lazy).
///
/// An entry hangs on no connection: it lasts as long as its lease, and its owner, whoever claims to be it, renews it by
/// registering again or by a heartbeat. Nobody waits for a key that has another owner. In a registry an entry ends with its
/// lease; a lazy one stays until somebody else takes the key, some time after its lease is over.
///
/// ```
/// # use std::time::Duration;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
/// use waymaker_client::Readable;
/// let lease = Duration::from_secs(30);
/// let printer = client.registry().entry("printer/2").owner("host-7").value("10.0.0.7:631").type_name("printer");
/// printer.register(lease).await?;
/// printer.heartbeat(lease).await?;
/// for entry in client.registry().list_type("printer").await? {
///     println!("{} is at {}", Readable(&entry.key), Readable(&entry.value));
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

/// One entry as its owner would have it. Without other settings its owner is the client's, and value and type are empty.
#[derive(Clone, Debug)]
pub struct Registration {
    registry: Registry,
    key: Key,
    owner: Key,
    value: Key,
    type_name: Key,
}

/// The entry is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Id of the entry, the same as long as its owner is.
    pub id: LockId,
    /// Rises by one with each new owner.
    pub fence: u64,
    /// What is left of the lease; `None` where the lease that was given is over already.
    pub remaining: Option<Duration>,
    /// For how long it has been over; `None` where it is not.
    pub overdue: Option<Duration>,
    /// The entry was this owner's already.
    pub renewed: bool,
}

/// One entry, as of when the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryEntry {
    /// Id of the entry, the same as long as its owner is.
    pub id: LockId,
    /// The fence of its owner.
    pub fence: u64,
    /// How long ago it was registered, or kept by a heartbeat.
    pub age: Duration,
    /// What is left of its lease; `None` where it is over and nobody took the key yet.
    pub remaining: Option<Duration>,
    /// For how long its lease has been over; `None` where it is not. Others may take the key after five seconds.
    pub overdue: Option<Duration>,
    /// Its key.
    pub key: Vec<u8>,
    /// Whose it is.
    pub owner: Vec<u8>,
    /// As given.
    pub value: Vec<u8>,
    /// As given.
    pub type_name: Vec<u8>,
}

/// How long an entry lasts.
#[derive(Clone, Copy)]
struct EntryLease {
    ms: i64,
    absolute: bool,
}

impl Registry {
    pub(crate) fn new(space: Arc<Space>, kind: NamespaceKind) -> Self {
        Self { space, kind }
    }

    /// The entry of this key, to be registered, kept or taken out.
    pub fn entry(&self, key: impl AsRef<[u8]>) -> Registration {
        Registration {
            registry: self.clone(),
            key: key.as_ref().into(),
            owner: self.space.owner().into(),
            value: Key::default(),
            type_name: Key::default(),
        }
    }

    /// The entry of this key, if it has one.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`](crate::Error::Refused) for a key that is too long,
    /// [`Error::Unavailable`](crate::Error::Unavailable),
    /// [`Error::Uncertain`](crate::Error::Uncertain) and [`Error::Closed`](crate::Error::Closed).
    pub async fn look_up(&self, key: impl AsRef<[u8]>) -> Result<Option<RegistryEntry>> {
        check_len("key", key.as_ref(), 0, KEY_LEN_MAX)?;
        let key = Key::from(key.as_ref());
        self.link()?
            .ask(
                move |number, out| Request::LookUp(wire::LookUp { key: &key }).encode(number, out),
                |response| match response {
                    Response::LookedUp(answer) => Some(answer.found.then(|| answer.entry.into())),
                    _ => None,
                },
            )
            .await
    }

    /// All entries, in no particular order, read page by page as [`Client::list`](crate::Client::list) does.
    ///
    /// # Errors
    ///
    /// As [`Registry::look_up`].
    pub async fn list(&self) -> Result<Vec<RegistryEntry>> {
        self.list_entries(None).await
    }

    /// All entries of just this type.
    ///
    /// # Errors
    ///
    /// As [`Registry::look_up`].
    pub async fn list_type(&self, type_name: impl AsRef<[u8]>) -> Result<Vec<RegistryEntry>> {
        check_len("type", type_name.as_ref(), 0, TYPE_LEN_MAX)?;
        self.list_entries(Some(type_name.as_ref().into())).await
    }

    async fn list_entries(&self, type_name: Option<Key>) -> Result<Vec<RegistryEntry>> {
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
        self.link()?.ask_all(encode, read).await
    }

    fn link(&self) -> Result<Arc<Shared>> {
        self.space.link(self.kind)
    }
}

impl Registration {
    /// Whose the entry is, 1 to 256 bytes.
    #[must_use]
    pub fn owner(mut self, owner: impl AsRef<[u8]>) -> Self {
        self.owner = owner.as_ref().into();
        self
    }

    /// Shown to whoever looks the entry up, at most 4096 bytes.
    #[must_use]
    pub fn value(mut self, value: impl AsRef<[u8]>) -> Self {
        self.value = value.as_ref().into();
        self
    }

    /// What kind of thing is registered, at most 256 bytes; entries can be listed by it.
    #[must_use]
    pub fn type_name(mut self, type_name: impl AsRef<[u8]>) -> Self {
        self.type_name = type_name.as_ref().into();
        self
    }

    /// Makes this owner the owner of the key for so long, unless it has another. The same owner renews its lease and
    /// overwrites what it said.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`](crate::Error::Busy) or [`Error::NotOwner`](crate::Error::NotOwner), which name the owner, if the key
    /// has another one;
    /// [`Error::Refused`](crate::Error::Refused) for fields beyond their limits,
    /// [`Error::Unavailable`](crate::Error::Unavailable),
    /// [`Error::Uncertain`](crate::Error::Uncertain) and [`Error::Closed`](crate::Error::Closed).
    pub async fn register(&self, lease: Duration) -> Result<Registered> {
        self.send(EntryLease::lasting(lease)?, false).await
    }

    /// The same with the end of the lease, by the wall clock of the server.
    ///
    /// # Errors
    ///
    /// As [`Registration::register`].
    pub async fn register_until(&self, end: SystemTime) -> Result<Registered> {
        self.send(EntryLease::until(end), false).await
    }

    /// Like [`Registration::register`], for an entry that there is.
    ///
    /// # Errors
    ///
    /// As [`Registration::register`], and [`Error::Refused`](crate::Error::Refused) with `not_found` if the key has no
    /// entry.
    pub async fn heartbeat(&self, lease: Duration) -> Result<Registered> {
        self.send(EntryLease::lasting(lease)?, true).await
    }

    /// The same with the end of the lease, by the wall clock of the server.
    ///
    /// # Errors
    ///
    /// As [`Registration::heartbeat`].
    pub async fn heartbeat_until(&self, end: SystemTime) -> Result<Registered> {
        self.send(EntryLease::until(end), true).await
    }

    /// Takes the entry out. True if it was somebody else's, whose time was long over.
    ///
    /// # Errors
    ///
    /// As [`Registration::heartbeat`].
    pub async fn unregister(&self) -> Result<bool> {
        self.check()?;
        let (key, owner) = (self.key.clone(), self.owner.clone());
        self.registry
            .link()?
            .ask(
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

    async fn send(&self, lease: EntryLease, is_heartbeat: bool) -> Result<Registered> {
        self.check()?;
        let Self { key, owner, value, type_name, .. } = self.clone();
        self.registry
            .link()?
            .ask(
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

impl EntryLease {
    fn lasting(lease: Duration) -> Result<Self> {
        lease_milliseconds(lease)?;
        // Longer than a lock may be held. What is no whole number of milliseconds is rounded up, as everywhere.
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

impl From<wire::Entry<'_>> for RegistryEntry {
    fn from(entry: wire::Entry<'_>) -> Self {
        Self {
            id: entry.id,
            fence: entry.fence,
            age: Duration::from_millis(entry.age_ms),
            remaining: left(entry.remaining_ms),
            overdue: overdue(entry.remaining_ms),
            key: entry.key.to_vec(),
            owner: entry.owner.to_vec(),
            value: entry.value.to_vec(),
            type_name: entry.type_name.to_vec(),
        }
    }
}

/// What is left of a lease, unless it is over.
fn left(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// For how long a lease has been over, if it is.
fn overdue(ms: i64) -> Option<Duration> {
    (ms <= 0).then(|| Duration::from_millis(ms.unsigned_abs()))
}
