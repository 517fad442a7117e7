//! What the log says, one fact in each record.

use crate::effect::ClaimId;
use std::fmt;

/// One fact. Records are written in the order in which they became true in their shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A server begins to write: whatever follows is by it.
    Started(Started),
    /// A namespace exists.
    Namespace {
        /// By which other records name it.
        number: u16,
        /// As the edge numbers kinds.
        kind: u8,
        /// Its name.
        name: &'a [u8],
    },
    /// A claim is held, and its fence is the counter of its key.
    Held(Hold<'a>),
    /// The lease of a hold ends at another instant.
    LeaseMoved {
        /// The hold.
        id: ClaimId,
        /// The new end, in milliseconds of boot time.
        deadline_ms: u64,
        /// The length of the lease from when it was moved.
        lease_ms: u32,
    },
    /// A hold is over.
    Ended {
        /// The hold.
        id: ClaimId,
    },
    /// The counter of a key that nobody holds.
    Counter {
        /// Of the key.
        namespace: u16,
        /// It outlives a crash; otherwise only the next start.
        durable: bool,
        /// The fence of its newest grant.
        fence: u64,
        /// The key.
        key: &'a [u8],
    },
    /// The counter of an idle key was folded into the floor.
    Folded {
        /// Of the key.
        namespace: u16,
        /// The key.
        key: &'a [u8],
    },
    /// No unknown key begins below this.
    Floor {
        /// The fence.
        fence: u64,
    },
    /// No key, known or unknown, goes on below this: something was lost.
    BeginAbove {
        /// The fence.
        fence: u64,
    },
    /// So many records that follow count only if all of them are there.
    Group {
        /// How many.
        count: u32,
    },
    /// An operator set how many permits a pool has.
    PoolSet {
        /// Of the pool.
        namespace: u16,
        /// How many.
        capacity: u64,
        /// Its waiters stand in the order of their timestamps.
        by_timestamp: bool,
        /// Its name.
        name: &'a [u8],
    },
    /// An operator froze, or thawed, the keys that begin with a prefix.
    Frozen {
        /// Of the keys.
        namespace: u16,
        /// Or thawed.
        frozen: bool,
        /// The prefix.
        prefix: &'a [u8],
    },
    /// The server stopped in order: all that it held was written before this.
    Stopped,
}

/// Who writes from here on, and how its clocks stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Started {
    /// Names the boot of the machine: boot time counts from there.
    pub boot_id: [u8; 16],
    /// Boot time.
    pub now_ms: u64,
    /// Milliseconds since 1970.
    pub unix_ms: i64,
}

/// The part of a session that a hold hangs on, so that its client finds both again after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SessionTag {
    /// The id of the session.
    pub place: u64,
    /// And its secret.
    pub secret: u64,
    /// Its lease.
    pub lease_ms: u32,
    /// The number of the lane in the session.
    pub lane: u16,
}

/// What is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A flat key.
    Key(&'a [u8]),
    /// Permits of a pool.
    Permits {
        /// How many.
        permits: u64,
        /// How many the pool has.
        capacity: u64,
        /// Its waiters stand in the order of their timestamps.
        by_timestamp: bool,
        /// The pool.
        name: &'a [u8],
    },
    /// Paths of a tree, and whether each is held exclusively.
    Paths(Vec<(&'a [u8], bool)>),
    /// A key of a registry. The value is the metadata of the hold.
    Registration {
        /// The key.
        key: &'a [u8],
        /// As given.
        type_name: &'a [u8],
        /// The end of the lease, in milliseconds of boot time; it may lie before zero.
        end_ms: i64,
        /// Nothing happens at the end of the lease.
        lazy: bool,
    },
}

/// One hold, with all that its client, or an operator, may ask about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold<'a> {
    /// Its id.
    pub id: ClaimId,
    /// Of its key.
    pub namespace: u16,
    /// It outlives a crash; otherwise only the next start.
    pub durable: bool,
    /// Shared with other readers.
    pub shared: bool,
    /// It lasts as long as its session.
    pub session_lease: bool,
    /// It has no lease.
    pub endless: bool,
    /// More was asked for than is allowed.
    pub clamped: bool,
    /// The counter of its key.
    pub fence: u64,
    /// When it was granted, in milliseconds of boot time.
    pub since_ms: u64,
    /// When its lease ends, in milliseconds of boot time; `None`: so long after this record is durable.
    pub deadline_ms: Option<u64>,
    /// The length of its lease.
    pub lease_ms: u32,
    /// How long after the loss of its connection it ends.
    pub release_after_ms: Option<u32>,
    /// As asked for.
    pub priority: u32,
    /// The number of its acquire.
    pub number: u32,
    /// The session of its lane.
    pub session: Option<SessionTag>,
    /// Whose it is.
    pub owner: &'a [u8],
    /// As given.
    pub request_id: Option<&'a [u8]>,
    /// As given.
    pub metadata: Option<&'a [u8]>,
    /// Names the set of keys or paths that were asked for together.
    pub set_hash: Option<u64>,
    /// What is held.
    pub item: Item<'a>,
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord(&'static str);

impl fmt::Display for BadRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "not a record of this version: {}", self.0)
    }
}

impl std::error::Error for BadRecord {}

mod tag {
    pub(super) const STARTED: u8 = 1;
    pub(super) const NAMESPACE: u8 = 2;
    pub(super) const HELD: u8 = 3;
    pub(super) const LEASE_MOVED: u8 = 4;
    pub(super) const ENDED: u8 = 5;
    pub(super) const COUNTER: u8 = 6;
    pub(super) const FOLDED: u8 = 7;
    pub(super) const FLOOR: u8 = 8;
    pub(super) const POOL_SET: u8 = 9;
    pub(super) const FROZEN: u8 = 10;
    pub(super) const STOPPED: u8 = 11;
    pub(super) const BEGIN_ABOVE: u8 = 12;
    pub(super) const GROUP: u8 = 13;
}

/// Bits of a hold.
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
    pub(super) const ALL: u16 = (1 << 12) - 1;
}

/// What kind of item a hold has.
mod item {
    pub(super) const KEY: u8 = 0;
    pub(super) const PERMITS: u8 = 1;
    pub(super) const PATHS: u8 = 2;
    pub(super) const REGISTRATION: u8 = 3;
}

/// Stands where there is no deadline yet.
const NO_DEADLINE: u64 = u64::MAX;

impl<'a> Record<'a> {
    /// Appends the record to `out`, behind its length in four bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&[0; 4]);
        let mut put = Put(out);
        match self {
            Self::Started(started) => {
                put.u8(tag::STARTED);
                put.0.extend_from_slice(&started.boot_id);
                put.u64(started.now_ms);
                put.u64(started.unix_ms as u64);
            }
            Self::Namespace { number, kind, name } => {
                put.u8(tag::NAMESPACE);
                put.u16(*number);
                put.u8(*kind);
                put.bytes(name);
            }
            Self::Held(hold) => put.hold(hold),
            Self::LeaseMoved { id, deadline_ms, lease_ms } => {
                put.u8(tag::LEASE_MOVED);
                put.id(*id);
                put.u64(*deadline_ms);
                put.u32(*lease_ms);
            }
            Self::Ended { id } => {
                put.u8(tag::ENDED);
                put.id(*id);
            }
            Self::Counter { namespace, durable, fence, key } => {
                put.u8(tag::COUNTER);
                put.u16(*namespace);
                put.u8(u8::from(*durable));
                put.u64(*fence);
                put.bytes(key);
            }
            Self::Folded { namespace, key } => {
                put.u8(tag::FOLDED);
                put.u16(*namespace);
                put.bytes(key);
            }
            Self::Floor { fence } => {
                put.u8(tag::FLOOR);
                put.u64(*fence);
            }
            Self::BeginAbove { fence } => {
                put.u8(tag::BEGIN_ABOVE);
                put.u64(*fence);
            }
            Self::Group { count } => {
                put.u8(tag::GROUP);
                put.u32(*count);
            }
            Self::PoolSet { namespace, capacity, by_timestamp, name } => {
                put.u8(tag::POOL_SET);
                put.u16(*namespace);
                put.u64(*capacity);
                put.u8(u8::from(*by_timestamp));
                put.bytes(name);
            }
            Self::Frozen { namespace, frozen, prefix } => {
                put.u8(tag::FROZEN);
                put.u16(*namespace);
                put.u8(u8::from(*frozen));
                put.bytes(prefix);
            }
            Self::Stopped => put.u8(tag::STOPPED),
        }
        let len = (out.len() - begin - 4) as u32;
        out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Reads one record, which is all of `bytes`, without its length.
    ///
    /// # Errors
    /// If it is none, or one of a later version.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, BadRecord> {
        let mut take = Take(bytes);
        let record = match take.u8()? {
            tag::STARTED => Self::Started(Started {
                boot_id: take.array()?,
                now_ms: take.u64()?,
                unix_ms: take.u64()? as i64,
            }),
            tag::NAMESPACE => Self::Namespace { number: take.u16()?, kind: take.u8()?, name: take.bytes()? },
            tag::HELD => Self::Held(take.hold()?),
            tag::LEASE_MOVED => {
                Self::LeaseMoved { id: take.id()?, deadline_ms: take.u64()?, lease_ms: take.u32()? }
            }
            tag::ENDED => Self::Ended { id: take.id()? },
            tag::COUNTER => Self::Counter {
                namespace: take.u16()?,
                durable: take.flag()?,
                fence: take.u64()?,
                key: take.bytes()?,
            },
            tag::FOLDED => Self::Folded { namespace: take.u16()?, key: take.bytes()? },
            tag::FLOOR => Self::Floor { fence: take.u64()? },
            tag::BEGIN_ABOVE => Self::BeginAbove { fence: take.u64()? },
            tag::GROUP => Self::Group { count: take.u32()? },
            tag::POOL_SET => Self::PoolSet {
                namespace: take.u16()?,
                capacity: take.u64()?,
                by_timestamp: take.flag()?,
                name: take.bytes()?,
            },
            tag::FROZEN => {
                Self::Frozen { namespace: take.u16()?, frozen: take.flag()?, prefix: take.bytes()? }
            }
            tag::STOPPED => Self::Stopped,
            _ => return Err(BadRecord("an unknown kind")),
        };
        if take.0.is_empty() { Ok(record) } else { Err(BadRecord("bytes behind its end")) }
    }
}

/// The records in `bytes`, each behind its length.
pub fn each(mut bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], BadRecord>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let mut take = Take(bytes);
        let record = take.u32().and_then(|len| take.slice(len as usize));
        bytes = if record.is_ok() { take.0 } else { &[] };
        Some(record)
    })
}

/// Writes fields.
struct Put<'a>(&'a mut Vec<u8>);

impl Put<'_> {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn id(&mut self, id: ClaimId) {
        self.u64(id.place);
        self.u64(id.secret);
    }

    /// The limits of all names and values are far below what the length can say.
    fn bytes(&mut self, bytes: &[u8]) {
        self.u16(bytes.len() as u16);
        self.0.extend_from_slice(bytes);
    }

    fn hold(&mut self, hold: &Hold<'_>) {
        let bit = |is: bool, bit: u16| if is { bit } else { 0 };
        let mut bits = bit(hold.durable, bit::DURABLE)
            | bit(hold.shared, bit::SHARED)
            | bit(hold.session_lease, bit::SESSION_LEASE)
            | bit(hold.endless, bit::ENDLESS)
            | bit(hold.clamped, bit::CLAMPED)
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
        self.u8(tag::HELD);
        self.id(hold.id);
        self.u16(hold.namespace);
        self.u16(bits);
        self.u8(kind);
        self.u64(hold.fence);
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

/// Reads fields.
struct Take<'a>(&'a [u8]);

impl<'a> Take<'a> {
    fn slice(&mut self, len: usize) -> Result<&'a [u8], BadRecord> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(BadRecord("it is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], BadRecord> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BadRecord("it is cut off"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, BadRecord> {
        self.array().map(u8::from_le_bytes)
    }

    fn flag(&mut self) -> Result<bool, BadRecord> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadRecord("a flag that is neither 0 nor 1")),
        }
    }

    fn u16(&mut self) -> Result<u16, BadRecord> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, BadRecord> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, BadRecord> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Result<&'a [u8], BadRecord> {
        let len = self.u16()?;
        self.slice(usize::from(len))
    }

    fn id(&mut self) -> Result<ClaimId, BadRecord> {
        Ok(ClaimId { place: self.u64()?, secret: self.u64()? })
    }

    fn hold(&mut self) -> Result<Hold<'a>, BadRecord> {
        let id = self.id()?;
        let namespace = self.u16()?;
        let bits = self.u16()?;
        if bits & !bit::ALL != 0 {
            return Err(BadRecord("an unknown bit of a hold"));
        }
        let has = |bit: u16| bits & bit != 0;
        let kind = self.u8()?;
        let (fence, since_ms, deadline_ms) = (self.u64()?, self.u64()?, self.u64()?);
        let (lease_ms, priority, number) = (self.u32()?, self.u32()?, self.u32()?);
        let release_after_ms = if has(bit::RELEASE_AFTER) { Some(self.u32()?) } else { None };
        let session = if has(bit::SESSION) {
            let (place, secret) = (self.u64()?, self.u64()?);
            Some(SessionTag { place, secret, lease_ms: self.u32()?, lane: self.u16()? })
        } else {
            None
        };
        let owner = self.bytes()?;
        let request_id = if has(bit::REQUEST_ID) { Some(self.bytes()?) } else { None };
        let metadata = if has(bit::METADATA) { Some(self.bytes()?) } else { None };
        let set_hash = if has(bit::SET_HASH) { Some(self.u64()?) } else { None };
        let item = match kind {
            item::KEY => Item::Key(self.bytes()?),
            item::PERMITS => Item::Permits {
                permits: self.u64()?,
                capacity: self.u64()?,
                by_timestamp: has(bit::BY_TIMESTAMP),
                name: self.bytes()?,
            },
            item::PATHS => {
                let count = self.u16()?;
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
            durable: has(bit::DURABLE),
            shared: has(bit::SHARED),
            session_lease: has(bit::SESSION_LEASE),
            endless: has(bit::ENDLESS),
            clamped: has(bit::CLAMPED),
            fence,
            since_ms,
            deadline_ms: (deadline_ms != NO_DEADLINE).then_some(deadline_ms),
            lease_ms,
            release_after_ms,
            priority,
            number,
            session,
            owner,
            request_id,
            metadata,
            set_hash,
            item,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(item: Item<'_>) -> Hold<'_> {
        Hold {
            id: ClaimId { place: 1, secret: 2 },
            namespace: 3,
            durable: true,
            shared: false,
            session_lease: true,
            endless: false,
            clamped: true,
            fence: 4,
            since_ms: 5,
            deadline_ms: Some(6),
            lease_ms: 7,
            release_after_ms: Some(8),
            priority: 9,
            number: 10,
            session: Some(SessionTag { place: 11, secret: 12, lease_ms: 13, lane: 14 }),
            owner: b"owner",
            request_id: Some(b"request"),
            metadata: Some(b"metadata"),
            set_hash: Some(15),
            item,
        }
    }

    fn samples() -> Vec<Record<'static>> {
        let bare = Hold {
            session: None,
            release_after_ms: None,
            request_id: None,
            metadata: None,
            set_hash: None,
            deadline_ms: None,
            durable: false,
            ..hold(Item::Key(b""))
        };
        let permits = Item::Permits { permits: 1, capacity: 2, by_timestamp: true, name: b"pool" };
        let registration = Item::Registration { key: b"key", type_name: b"type", end_ms: -1, lazy: true };
        vec![
            Record::Started(Started { boot_id: [7; 16], now_ms: 1, unix_ms: -2 }),
            Record::Namespace { number: 1, kind: 2, name: b"name" },
            Record::Held(hold(Item::Key(b"key"))),
            Record::Held(bare),
            Record::Held(hold(permits)),
            Record::Held(hold(Item::Paths(vec![(b"a", true), (b"", false)]))),
            Record::Held(hold(registration)),
            Record::LeaseMoved { id: ClaimId { place: 1, secret: 2 }, deadline_ms: 3, lease_ms: 4 },
            Record::Ended { id: ClaimId { place: 1, secret: 2 } },
            Record::Counter { namespace: 1, durable: true, fence: 2, key: b"key" },
            Record::Folded { namespace: 1, key: b"key" },
            Record::Floor { fence: 1 },
            Record::BeginAbove { fence: 1 },
            Record::Group { count: 2 },
            Record::PoolSet { namespace: 1, capacity: 2, by_timestamp: false, name: b"pool" },
            Record::Frozen { namespace: 1, frozen: true, prefix: b"prefix" },
            Record::Stopped,
        ]
    }

    #[test]
    fn what_was_written_is_read() {
        let mut bytes = Vec::new();
        samples().iter().for_each(|record| record.encode(&mut bytes));
        let read: Vec<_> = each(&bytes).map(|record| Record::decode(record.unwrap()).unwrap()).collect();
        assert_eq!(read, samples());
    }

    #[test]
    fn every_truncation_and_every_longer_record_is_refused() {
        for record in samples() {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            for len in 4..bytes.len() {
                assert!(Record::decode(&bytes[4..len]).is_err(), "{record:?} cut to {len}");
                assert!(each(&bytes[..len]).next().unwrap().is_err());
            }
            bytes.push(0);
            assert!(Record::decode(&bytes[4..]).is_err(), "{record:?} with a byte more");
        }
    }

    #[test]
    fn a_hold_of_a_short_key_is_short() {
        let mut bytes = Vec::new();
        let bare = &samples()[3];
        bare.encode(&mut bytes);
        assert!(bytes.len() <= 80, "{}", bytes.len());
    }
}
