//! Hold as the log stores it.

use super::fields::{Put, Take};
use super::record::BadRecord;
use crate::ids::{ClaimId, Fence, Scope};

/// Session and lane that a hold belongs to. The log stores them so that a client can resume its session and the hold
/// after a restart of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SessionTag {
    /// Public part of the session's id.
    pub place: u64,
    /// Secret part of the session's id.
    pub secret: u64,
    /// Lease of the session in milliseconds.
    pub lease_ms: u32,
    /// Number of the lane in the session.
    pub lane: u16,
}

/// Object of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// Flat key.
    Key(&'a [u8]),
    /// Permits of a pool.
    Permits {
        /// Number of held permits.
        permits: u64,
        /// Capacity of the pool.
        capacity: u64,
        /// Whether the pool serves its waiters by the timestamps in their acquires instead of by arrival.
        by_timestamp: bool,
        /// Name of the pool.
        name: &'a [u8],
    },
    /// Paths in a tree namespace, and for each path whether it is held exclusively.
    Paths(Vec<(&'a [u8], bool)>),
    /// Registration of a key. Its value is the metadata of the hold.
    Registration {
        /// Registered key.
        key: &'a [u8],
        /// Type of the registration.
        type_name: &'a [u8],
        /// End of the lease in milliseconds of boot time; negative if it is before the boot of the machine.
        end_ms: i64,
        /// Whether the registration is in a lazy namespace: it stays after the end of its lease, until another client
        /// takes its key or the server removes it.
        lazy: bool,
    },
}

impl<'a> Item<'a> {
    /// Returns the key whose counter, in the namespace of the hold, counts the fences of this item. For paths, the key
    /// is empty, because a tree namespace has one counter for all paths.
    pub fn counter_name(&self) -> &'a [u8] {
        match *self {
            Self::Key(key) | Self::Permits { name: key, .. } | Self::Registration { key, .. } => key,
            Self::Paths(_) => b"",
        }
    }
}

/// Hold with the data from which a restart of the server restores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold<'a> {
    /// Id of the hold.
    pub id: ClaimId,
    /// Namespace of the key.
    pub namespace: u16,
    /// Durability of the fence counter of the held object. An ephemeral counter survives only a clean restart; counters
    /// of the other scopes survive a crash.
    pub scope: Scope,
    /// Whether the hold is shared: other shared holds of the same key may exist at the same time.
    pub shared: bool,
    /// Whether the hold lasts as long as its session.
    pub session_lease: bool,
    /// Whether the hold has no lease, so it does not expire: it lasts until a client releases it, or the server does so
    /// after the loss of its connection.
    pub endless: bool,
    /// Whether the requested lease exceeded the maximum and was shortened. The response to the acquire says so, also if
    /// a client repeats the acquire after a restart of the server.
    pub clamped: bool,
    /// Whether the latest acquire of the claim had to wait, or took the claim over before it was held. The response to
    /// the acquire says so, also if a client repeats the acquire after a restart of the server.
    pub waited: bool,
    /// Whether the latest acquire of the claim found it by its request id when it was already held. The response to the
    /// acquire says so, also if a client repeats the acquire after a restart of the server.
    pub repeated: bool,
    /// Fence of the hold, from the counter of its key.
    pub fence: Fence,
    /// Whether the lease began when an etcd cluster counted this hold, or another hold of the same multi-key claim. The
    /// log does not contain the instant of that count. Only servers of format version 1 set this flag.
    pub begins_counted: bool,
    /// Whether this hold takes effect only with a later [`super::Record::Counted`]. When this record was written, the
    /// etcd cluster had not yet counted the hold, or another hold of the same multi-key claim.
    pub awaits_count: bool,
    /// Time of the grant, or of the latest renewal of a registration, in milliseconds of boot time.
    pub since_ms: u64,
    /// End of the lease in milliseconds of boot time. `None` if the hold has no lease of its own, or if its lease began
    /// with a count (`begins_counted`). Also `None` if the lease has not begun: it begins when this record is durable
    /// or, if the hold awaits an etcd cluster, when the record of the count is durable.
    pub deadline_ms: Option<u64>,
    /// Length of the lease in milliseconds, or its remaining time if the server did not know the length. Without
    /// meaning if the hold has no lease of its own. `u32::MAX` for a registration whose lease is too long for this
    /// field; `end_ms` of [`Item::Registration`] says when it ends.
    pub lease_ms: u32,
    /// Time from the loss of the client's connection until the server releases the hold, in milliseconds. `None` if the
    /// acquire set no such time.
    pub release_after_ms: Option<u32>,
    /// Priority of the acquire.
    pub priority: u32,
    /// Request number of the latest acquire of the claim.
    pub number: u32,
    /// Session of the lane that the hold belongs to; `None` without a session.
    pub session: Option<SessionTag>,
    /// Owner of the hold.
    pub owner: &'a [u8],
    /// Identity that acquired the hold, if known.
    pub identity: Option<&'a str>,
    /// Request id of the acquire.
    pub request_id: Option<&'a [u8]>,
    /// Metadata of the acquire, or value of the registration.
    pub metadata: Option<&'a [u8]>,
    /// Hash of all keys, without their modes, of the multi-key acquire that this hold belongs to; `None` for other
    /// holds.
    pub set_hash: Option<u64>,
    /// Held object.
    pub item: Item<'a>,
}

/// Bits of the `u16` in a stored hold that say which properties and optional fields it has.
mod bit {
    pub(super) const DURABLE: u16 = 1 << 0;
    pub(super) const SHARED: u16 = 1 << 1;
    pub(super) const SESSION_LEASE: u16 = 1 << 2;
    pub(super) const ENDLESS: u16 = 1 << 3;
    pub(super) const CLAMPED: u16 = 1 << 4;
    pub(super) const RELEASE_AFTER: u16 = 1 << 5;
    pub(super) const SESSION: u16 = 1 << 6;
    pub(super) const REQUEST_ID: u16 = 1 << 7;
    pub(super) const METADATA: u16 = 1 << 8;
    pub(super) const SET_HASH: u16 = 1 << 9;
    pub(super) const LAZY: u16 = 1 << 10;
    pub(super) const BY_TIMESTAMP: u16 = 1 << 11;
    pub(super) const QUORUM: u16 = 1 << 12;
    pub(super) const BEGINS_COUNTED: u16 = 1 << 13;
    pub(super) const WAITED: u16 = 1 << 14;
    pub(super) const REPEATED: u16 = 1 << 15;
}

/// Kinds of held objects. The byte with the kind has two flags as well.
mod item {
    /// Flag: [`Hold::awaits_count`](super::Hold::awaits_count).
    pub(super) const AWAITS_COUNT: u8 = 1 << 7;
    /// Flag: the field `identity` follows the owner.
    pub(super) const IDENTITY: u8 = 1 << 6;
    pub(super) const KEY: u8 = 0;
    pub(super) const PERMITS: u8 = 1;
    pub(super) const PATHS: u8 = 2;
    pub(super) const REGISTRATION: u8 = 3;
}

/// Stored value for a deadline that is `None`.
const NO_DEADLINE: u64 = u64::MAX;

impl Put<'_> {
    pub(super) fn hold(&mut self, hold: &Hold<'_>) {
        let bit = |is: bool, bit: u16| if is { bit } else { 0 };
        let mut bits = bit(hold.scope.is_durable(), bit::DURABLE)
            | bit(hold.scope == Scope::Quorum, bit::QUORUM)
            | bit(hold.begins_counted, bit::BEGINS_COUNTED)
            | bit(hold.shared, bit::SHARED)
            | bit(hold.session_lease, bit::SESSION_LEASE)
            | bit(hold.endless, bit::ENDLESS)
            | bit(hold.clamped, bit::CLAMPED)
            | bit(hold.waited, bit::WAITED)
            | bit(hold.repeated, bit::REPEATED)
            | bit(hold.release_after_ms.is_some(), bit::RELEASE_AFTER)
            | bit(hold.session.is_some(), bit::SESSION)
            | bit(hold.request_id.is_some(), bit::REQUEST_ID)
            | bit(hold.metadata.is_some(), bit::METADATA)
            | bit(hold.set_hash.is_some(), bit::SET_HASH);
        let kind = match hold.item {
            Item::Key(_) => item::KEY,
            Item::Permits { by_timestamp, .. } => {
                bits |= bit(by_timestamp, bit::BY_TIMESTAMP);
                item::PERMITS
            }
            Item::Paths(_) => item::PATHS,
            Item::Registration { lazy, .. } => {
                bits |= bit(lazy, bit::LAZY);
                item::REGISTRATION
            }
        };
        self.id(hold.id);
        self.u16(hold.namespace);
        self.u16(bits);
        let awaits_count = if hold.awaits_count { item::AWAITS_COUNT } else { 0 };
        let identity = if hold.identity.is_some() { item::IDENTITY } else { 0 };
        self.u8(kind | awaits_count | identity);
        self.u64(hold.fence.get());
        self.u64(hold.since_ms);
        self.u64(hold.deadline_ms.unwrap_or(NO_DEADLINE));
        self.u32(hold.lease_ms);
        self.u32(hold.priority);
        self.u32(hold.number);
        if let Some(release_after_ms) = hold.release_after_ms {
            self.u32(release_after_ms);
        }
        if let Some(SessionTag { place, secret, lease_ms, lane }) = hold.session {
            self.u64(place);
            self.u64(secret);
            self.u32(lease_ms);
            self.u16(lane);
        }
        self.bytes(hold.owner);
        if let Some(identity) = hold.identity {
            self.bytes(identity.as_bytes());
        }
        if let Some(request_id) = hold.request_id {
            self.bytes(request_id);
        }
        if let Some(metadata) = hold.metadata {
            self.bytes(metadata);
        }
        if let Some(set_hash) = hold.set_hash {
            self.u64(set_hash);
        }
        match &hold.item {
            Item::Key(key) => self.bytes(key),
            Item::Permits { permits, capacity, name, .. } => {
                self.u64(*permits);
                self.u64(*capacity);
                self.bytes(name);
            }
            Item::Paths(paths) => {
                self.u16(paths.len() as u16);
                for (path, write) in paths {
                    self.u8(u8::from(*write));
                    self.bytes(path);
                }
            }
            Item::Registration { key, type_name, end_ms, .. } => {
                self.bytes(key);
                self.bytes(type_name);
                self.u64(*end_ms as u64);
            }
        }
    }
}

/// Error for a stored hold without permits or paths. No server grants such a hold, so the record is malformed.
const HOLD_OF_NOTHING: BadRecord = BadRecord("a hold of nothing");

impl<'a> Take<'a> {
    pub(super) fn hold(&mut self) -> Result<Hold<'a>, BadRecord> {
        let id = self.id()?;
        let namespace = self.u16()?;
        let bits = self.u16()?;
        let has = |bit: u16| bits & bit != 0;
        let kind = self.u8()?;
        let (awaits_count, has_identity) = (kind & item::AWAITS_COUNT != 0, kind & item::IDENTITY != 0);
        let kind = kind & !(item::AWAITS_COUNT | item::IDENTITY);
        let (fence, since_ms, deadline_ms) = (self.granted_fence()?, self.u64()?, self.u64()?);
        let (lease_ms, priority, number) = (self.u32()?, self.u32()?, self.u32()?);
        let release_after_ms = if has(bit::RELEASE_AFTER) { Some(self.u32()?) } else { None };
        let session = if has(bit::SESSION) {
            let (place, secret) = (self.u64()?, self.u64()?);
            Some(SessionTag { place, secret, lease_ms: self.u32()?, lane: self.u16()? })
        } else {
            None
        };
        let owner = self.bytes()?;
        let identity = if has_identity { Some(self.text()?) } else { None };
        let request_id = if has(bit::REQUEST_ID) { Some(self.bytes()?) } else { None };
        let metadata = if has(bit::METADATA) { Some(self.bytes()?) } else { None };
        let set_hash = if has(bit::SET_HASH) { Some(self.u64()?) } else { None };
        let item = match kind {
            item::KEY => Item::Key(self.bytes()?),
            item::PERMITS => Item::Permits {
                permits: match self.u64()? {
                    0 => return Err(HOLD_OF_NOTHING),
                    permits => permits,
                },
                capacity: self.u64()?,
                by_timestamp: has(bit::BY_TIMESTAMP),
                name: self.bytes()?,
            },
            item::PATHS => {
                let count = self.u16()?;
                if count == 0 {
                    return Err(HOLD_OF_NOTHING);
                }
                let path = |_| {
                    let write = self.flag()?;
                    Ok((self.bytes()?, write))
                };
                Item::Paths((0..count).map(path).collect::<Result<_, BadRecord>>()?)
            }
            item::REGISTRATION => Item::Registration {
                key: self.bytes()?,
                type_name: self.bytes()?,
                end_ms: self.u64()? as i64,
                lazy: has(bit::LAZY),
            },
            _ => return Err(BadRecord("an unknown kind of hold")),
        };
        Ok(Hold {
            id,
            namespace,
            scope: match (has(bit::DURABLE), has(bit::QUORUM)) {
                (false, false) => Scope::Ephemeral,
                (true, false) => Scope::Local,
                (true, true) => Scope::Quorum,
                (false, true) => return Err(BadRecord("an unknown scope")),
            },
            shared: has(bit::SHARED),
            session_lease: has(bit::SESSION_LEASE),
            endless: has(bit::ENDLESS),
            clamped: has(bit::CLAMPED),
            waited: has(bit::WAITED),
            repeated: has(bit::REPEATED),
            fence: Fence::new(fence),
            begins_counted: has(bit::BEGINS_COUNTED),
            awaits_count,
            since_ms,
            deadline_ms: (deadline_ms != NO_DEADLINE).then_some(deadline_ms),
            lease_ms,
            release_after_ms,
            priority,
            number,
            session,
            owner,
            identity,
            request_id,
            metadata,
            set_hash,
            item,
        })
    }
}
