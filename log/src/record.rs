//! Records of the log, with one fact each.

use super::fields::{Put, Take};
use super::hold::Hold;
use crate::ids::{ClaimId, Fence, Scope};
use std::fmt;

/// One fact that the log records. The records of a shard are written in the order in which their facts became true.
#[expect(clippy::large_enum_variant, reason = "a record is made, encoded and dropped at once, on the stack")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A server starts to write. That server wrote all records up to the next `Started`.
    Started(Started),
    /// A namespace exists.
    Namespace {
        /// Number by which other records name the namespace.
        number: u16,
        /// Number of the namespace's kind; the server assigns these numbers.
        kind: u8,
        /// Name of the namespace.
        name: &'a [u8],
    },
    /// A namespace was removed, together with its fence counters. The fence floor, above which new counters begin, is
    /// now at least the highest of their fences. The number of the namespace may be used again.
    NamespaceRemoved {
        /// Former number of the namespace.
        number: u16,
    },
    /// A claim is held, or is held once it is counted ([`Hold::awaits_count`]). The record also raises the fence
    /// counter of the held object to at least the fence of the hold.
    Held(Hold<'a>),
    /// The lease of a hold has a new end.
    LeaseMoved {
        /// Id of the hold.
        id: ClaimId,
        /// New end in milliseconds of boot time.
        deadline_ms: u64,
        /// Length of the new lease in milliseconds, from the time at which the server set the new end.
        lease_ms: u32,
    },
    /// A hold ended.
    Ended {
        /// Id of the hold.
        id: ClaimId,
    },
    /// The etcd cluster has counted a hold, or another hold of the same multi-key claim. The fence of the hold, and the
    /// fence counter of its key, rise to at least `fence`. If the hold was recorded with [`Hold::awaits_count`], it
    /// takes effect with this record, and its lease begins when this record is durable.
    Counted {
        /// Id of the hold.
        id: ClaimId,
        /// Fence of the hold.
        fence: Fence,
    },
    /// The fence counter of a key has at least this value. Clean stops and snapshots write this record. A grant does
    /// not need it, because its `Held` record has the fence.
    Counter {
        /// Namespace of the key.
        namespace: u16,
        /// Durability of the counter. An ephemeral counter survives only a clean restart; counters of the other scopes
        /// survive a crash.
        scope: Scope,
        /// Value of the counter: the fence of the newest grant, or a higher number.
        fence: Fence,
        /// Key of the counter.
        key: &'a [u8],
    },
    /// The fence counter of an idle key was removed. The fence floor, above which new counters begin, is now at least
    /// the value of the removed counter.
    Folded {
        /// Namespace of the key.
        namespace: u16,
        /// Key of the removed counter.
        key: &'a [u8],
    },
    /// The fence floor was raised: the first fence of a key that has no counter is greater than `fence`.
    Floor {
        /// New floor.
        fence: Fence,
    },
    /// Records may have been lost, so all later fences must be greater than `fence`, whether their key has a counter or
    /// not.
    BeginAbove {
        /// Bound that all later fences exceed.
        fence: Fence,
    },
    /// Group header: the next `count` records are applied only if the log contains all of them.
    Group {
        /// Number of records; a record that is stored in parts counts once.
        count: u32,
    },
    /// Part of a record that does not fit into one frame. The parts of a record are consecutive records.
    Part {
        /// Number of bytes of the record in later parts; 0 in the last part.
        left: u32,
        /// Bytes of the record, at least one.
        bytes: &'a [u8],
    },
    /// An operator set the capacity of a pool.
    PoolSet {
        /// Namespace of the pool.
        namespace: u16,
        /// Number of permits; 0 if an operator removed the pool.
        capacity: u64,
        /// Whether the pool serves its waiters by the timestamps in their acquires instead of by arrival.
        by_timestamp: bool,
        /// Name of the pool.
        name: &'a [u8],
    },
    /// An operator froze the keys that begin with a prefix, so that they are not granted, or ended that freeze.
    Frozen {
        /// Namespace of the keys.
        namespace: u16,
        /// Whether the keys were frozen; `false` if a freeze ended.
        frozen: bool,
        /// Prefix of the keys.
        prefix: &'a [u8],
    },
    /// The server stopped cleanly. It had recorded all state that a restart restores before this record.
    Stopped,
}

/// Start of the server that writes the following records: the boot of the machine, and the times on its clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Started {
    /// Id of the machine's boot. Boot times are comparable only within one boot.
    pub boot_id: [u8; 16],
    /// Boot time in milliseconds.
    pub now_ms: u64,
    /// Wall time in milliseconds since 1970.
    pub unix_ms: i64,
}

/// Reason why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord(pub(super) &'static str);

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
    pub(super) const COUNTED: u8 = 14;
    pub(super) const PART: u8 = 15;
    pub(super) const NAMESPACE_REMOVED: u8 = 16;
}

/// Number of bytes in a part of a record before the record's own bytes: the kind of the record (1) and the `left` field
/// (4).
pub(super) const PART_HEADER_LEN: usize = 5;

/// Form in which a frame stores a record. A record that does not fit into one frame is stored in parts. A header
/// precedes the records of a group, which are valid only together. A reader joins the parts and completes the groups,
/// and for a `Started` record it drops unfinished ones.
pub(super) enum Stored<'a> {
    /// The stored bytes are a whole record.
    Whole,
    /// The bytes in the frame are a whole [`Record::Started`], the first record of each server start. The reader drops
    /// all groups and records that an earlier server did not finish.
    Started,
    /// See [`Record::Group`].
    Group { count: u32 },
    /// See [`Record::Part`].
    Part { left: u32, bytes: &'a [u8] },
}

impl<'a> Stored<'a> {
    /// Returns the form of a record as a frame stores it. Decodes only the parts of long records and the headers of
    /// groups (records that are valid only together). The first byte shows all other forms.
    pub(super) fn of(bytes: &'a [u8]) -> Result<Self, BadRecord> {
        Ok(match bytes.first() {
            Some(&tag::STARTED) => Self::Started,
            Some(&(tag::GROUP | tag::PART)) => match Record::decode(bytes)? {
                Record::Group { count } => Self::Group { count },
                Record::Part { left, bytes } => Self::Part { left, bytes },
                _ => Self::Whole,
            },
            _ => Self::Whole,
        })
    }
}

impl<'a> Record<'a> {
    /// Appends the record to `out`: its length in four bytes, then its bytes.
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
            Self::NamespaceRemoved { number } => {
                put.u8(tag::NAMESPACE_REMOVED);
                put.u16(*number);
            }
            Self::Held(hold) => {
                put.u8(tag::HELD);
                put.hold(hold);
            }
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
            Self::Counted { id, fence } => {
                put.u8(tag::COUNTED);
                put.id(*id);
                put.u64(fence.get());
            }
            Self::Counter { namespace, scope, fence, key } => {
                put.u8(tag::COUNTER);
                put.u16(*namespace);
                put.u8(match scope {
                    Scope::Ephemeral => 0,
                    Scope::Local => 1,
                    Scope::Quorum => 2,
                });
                put.u64(fence.get());
                put.bytes(key);
            }
            Self::Folded { namespace, key } => {
                put.u8(tag::FOLDED);
                put.u16(*namespace);
                put.bytes(key);
            }
            Self::Floor { fence } => {
                put.u8(tag::FLOOR);
                put.u64(fence.get());
            }
            Self::BeginAbove { fence } => {
                put.u8(tag::BEGIN_ABOVE);
                put.u64(fence.get());
            }
            Self::Group { count } => {
                put.u8(tag::GROUP);
                put.u32(*count);
            }
            Self::Part { left, bytes } => {
                put.u8(tag::PART);
                put.u32(*left);
                put.0.extend_from_slice(bytes);
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

    /// Decodes one record. `bytes` must be exactly this record, without its length field.
    ///
    /// # Errors
    /// Returns an error if the bytes are malformed, or a record of a later version.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, BadRecord> {
        let mut take = Take(bytes);
        let record = match take.u8()? {
            tag::STARTED => Self::Started(Started {
                boot_id: take.array()?,
                now_ms: take.u64()?,
                unix_ms: take.u64()? as i64,
            }),
            tag::NAMESPACE => Self::Namespace { number: take.u16()?, kind: take.u8()?, name: take.bytes()? },
            tag::NAMESPACE_REMOVED => Self::NamespaceRemoved { number: take.u16()? },
            tag::HELD => Self::Held(take.hold()?),
            tag::LEASE_MOVED => {
                Self::LeaseMoved { id: take.id()?, deadline_ms: take.u64()?, lease_ms: take.u32()? }
            }
            tag::ENDED => Self::Ended { id: take.id()? },
            tag::COUNTED => Self::Counted { id: take.id()?, fence: Fence::new(take.granted_fence()?) },
            tag::COUNTER => Self::Counter {
                namespace: take.u16()?,
                scope: match take.u8()? {
                    0 => Scope::Ephemeral,
                    1 => Scope::Local,
                    2 => Scope::Quorum,
                    _ => return Err(BadRecord("an unknown scope")),
                },
                fence: Fence::new(take.fence()?),
                key: take.bytes()?,
            },
            tag::FOLDED => Self::Folded { namespace: take.u16()?, key: take.bytes()? },
            tag::FLOOR => Self::Floor { fence: Fence::new(take.fence()?) },
            tag::BEGIN_ABOVE => Self::BeginAbove { fence: Fence::new(take.fence()?) },
            tag::GROUP => Self::Group { count: take.u32()? },
            tag::PART => {
                let left = take.u32()?;
                match std::mem::take(&mut take.0) {
                    [] => return Err(BadRecord("a part without bytes")),
                    bytes => Self::Part { left, bytes },
                }
            }
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
        if take.0.is_empty() { Ok(record) } else { Err(BadRecord("bytes after the end of the record")) }
    }
}

/// Returns the records in `bytes`, each of which is preceded by its length. If a record is cut off, the iterator
/// returns an error and ends.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Item, SessionTag};

    fn hold(item: Item<'_>) -> Hold<'_> {
        Hold {
            id: ClaimId { place: 1, secret: 2 },
            namespace: 3,
            scope: Scope::Local,
            shared: false,
            session_lease: true,
            endless: false,
            clamped: true,
            waited: true,
            repeated: true,
            fence: Fence::new(4),
            begins_counted: false,
            awaits_count: false,
            since_ms: 5,
            deadline_ms: Some(6),
            lease_ms: 7,
            release_after_ms: Some(8),
            priority: 9,
            number: 10,
            session: Some(SessionTag { place: 11, secret: 12, lease_ms: 13, lane: 14 }),
            owner: b"owner",
            identity: None,
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
            scope: Scope::Ephemeral,
            ..hold(Item::Key(b""))
        };
        let permits = Item::Permits { permits: 1, capacity: 2, by_timestamp: true, name: b"pool" };
        let registration = Item::Registration { key: b"key", type_name: b"type", end_ms: -1, lazy: true };
        vec![
            Record::Started(Started { boot_id: [7; 16], now_ms: 1, unix_ms: -2 }),
            Record::Namespace { number: 1, kind: 2, name: b"name" },
            Record::Held(hold(Item::Key(b"key"))),
            Record::Held(bare),
            Record::Held(Hold { scope: Scope::Quorum, begins_counted: true, ..hold(permits) }),
            Record::Held(hold(Item::Paths(vec![(b"a", true), (b"", false)]))),
            Record::Held(hold(registration)),
            Record::LeaseMoved { id: ClaimId { place: 1, secret: 2 }, deadline_ms: 3, lease_ms: 4 },
            Record::Ended { id: ClaimId { place: 1, secret: 2 } },
            Record::Counted { id: ClaimId { place: 1, secret: 2 }, fence: Fence::new(5) },
            Record::Counter { namespace: 1, scope: Scope::Local, fence: Fence::new(2), key: b"key" },
            Record::Counter { namespace: 1, scope: Scope::Quorum, fence: Fence::new(2), key: b"key" },
            Record::Folded { namespace: 1, key: b"key" },
            Record::Floor { fence: Fence::new(1) },
            Record::BeginAbove { fence: Fence::new(1) },
            Record::Group { count: 2 },
            Record::Part { left: 2, bytes: b"beginning" },
            Record::PoolSet { namespace: 1, capacity: 2, by_timestamp: false, name: b"pool" },
            Record::Frozen { namespace: 1, frozen: true, prefix: b"prefix" },
            Record::NamespaceRemoved { number: 1 },
            Record::Stopped,
        ]
    }

    #[test]
    fn records_are_decoded_as_encoded() {
        let mut bytes = Vec::new();
        samples().iter().for_each(|record| record.encode(&mut bytes));
        let read: Vec<_> = each(&bytes).map(|record| Record::decode(record.unwrap()).unwrap()).collect();
        assert_eq!(read, samples());
    }

    #[test]
    fn truncated_and_overlong_records_are_rejected() {
        for record in samples() {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            for len in 4..bytes.len() {
                assert!(each(&bytes[..len]).next().unwrap().is_err());
            }
            // A cut part still decodes, because a part has no length of its own for its bytes. The missing bytes are
            // detected only when the parts are joined.
            let is_part = matches!(record, Record::Part { .. });
            let complete_len = if is_part { 4 + PART_HEADER_LEN + 1 } else { bytes.len() };
            for len in 4..complete_len {
                assert!(Record::decode(&bytes[4..len]).is_err(), "{record:?} cut to {len}");
            }
            bytes.push(0);
            assert!(is_part || Record::decode(&bytes[4..]).is_err(), "{record:?} with a byte more");
        }
    }

    #[test]
    fn a_grant_without_a_fence_is_rejected() {
        for record in [
            Record::Held(Hold { fence: Fence::NONE, ..hold(Item::Key(b"key")) }),
            Record::Counted { id: ClaimId { place: 1, secret: 2 }, fence: Fence::NONE },
        ] {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(Record::decode(&bytes[4..]), Err(BadRecord("a grant without a fence")));
        }
        let mut floor = Vec::new();
        Record::Floor { fence: Fence::NONE }.encode(&mut floor);
        Record::decode(&floor[4..]).unwrap();
    }

    #[test]
    fn a_hold_of_nothing_is_rejected() {
        let no_permits = Item::Permits { permits: 0, capacity: 2, by_timestamp: false, name: b"pool" };
        for item in [no_permits, Item::Paths(Vec::new())] {
            let mut bytes = Vec::new();
            Record::Held(hold(item)).encode(&mut bytes);
            assert_eq!(Record::decode(&bytes[4..]), Err(BadRecord("a hold of nothing")));
        }
    }

    #[test]
    fn a_hold_of_a_short_key_encodes_to_at_most_80_bytes() {
        let mut bytes = Vec::new();
        let bare = &samples()[3];
        bare.encode(&mut bytes);
        assert!(bytes.len() <= 80, "{}", bytes.len());
    }
}
