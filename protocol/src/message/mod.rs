//! The messages. Most files have a request, its response and their encoding, or several related requests. `error` and
//! `event` have messages that only the server sends, and `acquire_terms` has the fields that all acquires share.

pub mod acquire;
pub mod acquire_keys;
pub mod acquire_permits;
pub mod acquire_set;
pub mod acquire_terms;
pub mod cancel;
pub mod entries;
pub mod error;
pub mod event;
pub mod extend;
pub mod force_release;
pub mod freeze;
pub mod goodbye;
pub mod hello;
pub mod holds;
pub mod inspect;
pub mod keep_alive;
pub mod list;
pub mod list_pools;
pub mod namespaces;
pub mod pong;
pub mod pool;
pub mod registry;
pub mod release;
pub mod remove_namespace;
pub mod server_status;
pub mod status;
pub mod throttle;
pub mod tree_statistics;
pub mod verify;
pub mod watch;

use crate::LockId;
use crate::decode_error::DecodeError;
use crate::frame::Frame;

/// The opcodes. A response has the opcode of its request with the top bit set; some requests share the response of an
/// earlier request. Opcodes from 0xe0 on are events and errors.
pub mod opcode {
    #![expect(missing_docs, reason = "each is documented at its message")]
    pub const HELLO: u8 = 0x01;
    pub const KEEP_ALIVE: u8 = 0x02;
    pub const GOODBYE: u8 = 0x03;
    pub const PONG: u8 = 0x04;
    pub const ACQUIRE: u8 = 0x10;
    pub const RELEASE: u8 = 0x11;
    pub const EXTEND: u8 = 0x12;
    pub const CANCEL: u8 = 0x13;
    pub const STATUS: u8 = 0x14;
    pub const INSPECT: u8 = 0x15;
    pub const LIST: u8 = 0x16;
    pub const HOLDS: u8 = 0x17;
    pub const WATCH: u8 = 0x18;
    pub const UNWATCH: u8 = 0x19;
    pub const VERIFY: u8 = 0x1a;
    pub const FORCE_RELEASE: u8 = 0x1b;
    pub const FREEZE: u8 = 0x1c;
    pub const NAMESPACES: u8 = 0x1d;
    pub const REMOVE_NAMESPACE: u8 = 0x1e;
    pub const SERVER_STATUS: u8 = 0x1f;
    pub const ACQUIRE_SET: u8 = 0x20;
    pub const ACQUIRE_KEYS: u8 = 0x21;
    pub const TREE_STATISTICS: u8 = 0x22;
    pub const ACQUIRE_PERMITS: u8 = 0x30;
    pub const DESCRIBE_POOL: u8 = 0x31;
    pub const SET_CAPACITY: u8 = 0x32;
    pub const LIST_POOLS: u8 = 0x33;
    pub const THROTTLE: u8 = 0x40;
    pub const THROTTLE_ALL: u8 = 0x41;
    pub const REGISTER: u8 = 0x50;
    pub const HEARTBEAT: u8 = 0x51;
    pub const UNREGISTER: u8 = 0x52;
    pub const LOOK_UP: u8 = 0x53;
    pub const LIST_ENTRIES: u8 = 0x54;

    /// Bit that is set in the opcode of a response, and in the opcode of every other message from the server.
    pub const ANSWER: u8 = 0x80;

    pub const QUEUED: u8 = 0xe0;
    pub const EXPIRED: u8 = 0xe1;
    pub const REVOKED: u8 = 0xe2;
    pub const SESSION_EXPIRED: u8 = 0xe3;
    pub const LEASE_MOVED: u8 = 0xe4;
    pub const KEY_HELD: u8 = 0xe5;
    pub const KEY_FREED: u8 = 0xe6;
    pub const OVERRUN: u8 = 0xe7;
    pub const TAKEN_UP: u8 = 0xe8;
    pub const PING: u8 = 0xe9;
    pub const ERROR: u8 = 0xff;
}

/// A message from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is its message")]
pub enum Request<'a> {
    Hello(hello::Hello<'a>),
    KeepAlive(keep_alive::KeepAlive),
    Goodbye(goodbye::Goodbye),
    Pong(pong::Pong),
    Acquire(acquire::Acquire<'a>),
    Release(release::Release<'a>),
    Extend(extend::Extend<'a>),
    Cancel(cancel::Cancel<'a>),
    Status(status::Status<'a>),
    Inspect(inspect::Inspect<'a>),
    List(list::List<'a>),
    AcquireSet(acquire_set::AcquireSet<'a>),
    AcquireKeys(acquire_keys::AcquireKeys<'a>),
    TreeStatistics(tree_statistics::TreeStatistics),
    AcquirePermits(acquire_permits::AcquirePermits<'a>),
    DescribePool(pool::DescribePool<'a>),
    SetCapacity(pool::SetCapacity<'a>),
    ListPools(list_pools::ListPools<'a>),
    Throttle(throttle::Throttle<'a>),
    ThrottleAll(throttle::ThrottleAll<'a>),
    Register(registry::Register<'a>),
    Heartbeat(registry::Heartbeat<'a>),
    Unregister(registry::Unregister<'a>),
    LookUp(entries::LookUp<'a>),
    ListEntries(entries::ListEntries<'a>),
    Holds(holds::Holds),
    Watch(watch::Watch<'a>),
    Unwatch(watch::Unwatch<'a>),
    Verify(verify::Verify<'a>),
    ForceRelease(force_release::ForceRelease<'a>),
    Freeze(freeze::Freeze<'a>),
    Namespaces(namespaces::Namespaces),
    RemoveNamespace(remove_namespace::RemoveNamespace<'a>),
    ServerStatus(server_status::ServerStatus),
}

impl<'a> Request<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the opcode is unknown or the body is malformed.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        match frame.opcode() {
            opcode::ACQUIRE => acquire::Acquire::decode(frame).map(Self::Acquire),
            opcode::RELEASE => release::Release::decode(frame).map(Self::Release),
            opcode::EXTEND => extend::Extend::decode(frame).map(Self::Extend),
            opcode::THROTTLE => throttle::Throttle::decode(frame).map(Self::Throttle),
            _ => Self::decode_rare(frame),
        }
    }

    /// Parses the requests that `decode` does not parse itself. Not inlined, to keep the code small where frequent
    /// requests are decoded.
    #[inline(never)]
    fn decode_rare(frame: Frame<'a>) -> Result<Self, DecodeError> {
        match frame.opcode() {
            opcode::CANCEL => cancel::Cancel::decode(frame).map(Self::Cancel),
            opcode::STATUS => status::Status::decode(frame).map(Self::Status),
            opcode::INSPECT => inspect::Inspect::decode(frame).map(Self::Inspect),
            opcode::LIST => list::List::decode(frame).map(Self::List),
            opcode::HELLO => hello::Hello::decode(frame).map(Self::Hello),
            opcode::KEEP_ALIVE => keep_alive::KeepAlive::decode(frame).map(Self::KeepAlive),
            opcode::GOODBYE => goodbye::Goodbye::decode(frame).map(Self::Goodbye),
            opcode::PONG => pong::Pong::decode(frame).map(Self::Pong),
            opcode::ACQUIRE_SET => acquire_set::AcquireSet::decode(frame).map(Self::AcquireSet),
            opcode::ACQUIRE_KEYS => acquire_keys::AcquireKeys::decode(frame).map(Self::AcquireKeys),
            opcode::TREE_STATISTICS => {
                tree_statistics::TreeStatistics::decode(frame).map(Self::TreeStatistics)
            }
            opcode::ACQUIRE_PERMITS => {
                acquire_permits::AcquirePermits::decode(frame).map(Self::AcquirePermits)
            }
            opcode::DESCRIBE_POOL => pool::DescribePool::decode(frame).map(Self::DescribePool),
            opcode::SET_CAPACITY => pool::SetCapacity::decode(frame).map(Self::SetCapacity),
            opcode::LIST_POOLS => list_pools::ListPools::decode(frame).map(Self::ListPools),
            opcode::THROTTLE_ALL => throttle::ThrottleAll::decode(frame).map(Self::ThrottleAll),
            opcode::REGISTER => registry::Register::decode(frame).map(Self::Register),
            opcode::HEARTBEAT => registry::Heartbeat::decode(frame).map(Self::Heartbeat),
            opcode::UNREGISTER => registry::Unregister::decode(frame).map(Self::Unregister),
            opcode::LOOK_UP => entries::LookUp::decode(frame).map(Self::LookUp),
            opcode::LIST_ENTRIES => entries::ListEntries::decode(frame).map(Self::ListEntries),
            opcode::HOLDS => holds::Holds::decode(frame).map(Self::Holds),
            opcode::WATCH => watch::Watch::decode(frame).map(Self::Watch),
            opcode::UNWATCH => watch::Unwatch::decode(frame).map(Self::Unwatch),
            opcode::VERIFY => verify::Verify::decode(frame).map(Self::Verify),
            opcode::FORCE_RELEASE => force_release::ForceRelease::decode(frame).map(Self::ForceRelease),
            opcode::FREEZE => freeze::Freeze::decode(frame).map(Self::Freeze),
            opcode::NAMESPACES => namespaces::Namespaces::decode(frame).map(Self::Namespaces),
            opcode::REMOVE_NAMESPACE => {
                remove_namespace::RemoveNamespace::decode(frame).map(Self::RemoveNamespace)
            }
            opcode::SERVER_STATUS => server_status::ServerStatus::decode(frame).map(Self::ServerStatus),
            opcode => Err(DecodeError::UnknownOpcode { opcode }),
        }
    }

    /// Appends the request as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Hello(message) => message.encode(number, out),
            Self::KeepAlive(message) => message.encode(number, out),
            Self::Goodbye(message) => message.encode(number, out),
            Self::Pong(message) => message.encode(number, out),
            Self::Acquire(message) => message.encode(number, out),
            Self::Release(message) => message.encode(number, out),
            Self::Extend(message) => message.encode(number, out),
            Self::Cancel(message) => message.encode(number, out),
            Self::Status(message) => message.encode(number, out),
            Self::Inspect(message) => message.encode(number, out),
            Self::List(message) => message.encode(number, out),
            Self::AcquireSet(message) => message.encode(number, out),
            Self::AcquireKeys(message) => message.encode(number, out),
            Self::TreeStatistics(message) => message.encode(number, out),
            Self::AcquirePermits(message) => message.encode(number, out),
            Self::DescribePool(message) => message.encode(number, out),
            Self::SetCapacity(message) => message.encode(number, out),
            Self::ListPools(message) => message.encode(number, out),
            Self::Throttle(message) => message.encode(number, out),
            Self::ThrottleAll(message) => message.encode(number, out),
            Self::Register(message) => message.encode(number, out),
            Self::Heartbeat(message) => message.encode(number, out),
            Self::Unregister(message) => message.encode(number, out),
            Self::LookUp(message) => message.encode(number, out),
            Self::ListEntries(message) => message.encode(number, out),
            Self::Holds(message) => message.encode(number, out),
            Self::Watch(message) => message.encode(number, out),
            Self::Unwatch(message) => message.encode(number, out),
            Self::Verify(message) => message.encode(number, out),
            Self::ForceRelease(message) => message.encode(number, out),
            Self::Freeze(message) => message.encode(number, out),
            Self::Namespaces(message) => message.encode(number, out),
            Self::RemoveNamespace(message) => message.encode(number, out),
            Self::ServerStatus(message) => message.encode(number, out),
        }
    }
}

/// A message from the server: a response or an error with the number of its request, an event, or an error about the
/// connection with the number 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is its message")]
pub enum Response<'a> {
    Welcome(hello::Welcome),
    KeptAlive(keep_alive::KeptAlive),
    Farewell(goodbye::Farewell),
    Granted(acquire::Granted),
    Released(release::Released),
    Extended(extend::Extended),
    Cancelled(cancel::Cancelled),
    Status(status::StatusAnswer<'a>),
    Inspected(inspect::Inspected<'a>),
    Listed(list::Listed<'a>),
    GrantedKeys(acquire_keys::GrantedKeys<'a>),
    TreeStatistics(tree_statistics::TreeStatisticsAnswer),
    PoolDescribed(pool::PoolDescribed<'a>),
    CapacitySet(pool::CapacitySet),
    PoolsListed(list_pools::PoolsListed<'a>),
    Throttled(throttle::Throttled),
    Registered(registry::Registered),
    Unregistered(registry::Unregistered),
    LookedUp(entries::LookedUp<'a>),
    EntriesListed(entries::EntriesListed<'a>),
    Watching(watch::Watching),
    Unwatched(watch::Unwatched),
    Verified(verify::Verified),
    ForceReleased(force_release::ForceReleased<'a>),
    Frozen(freeze::Frozen),
    NamespacesListed(namespaces::NamespacesListed<'a>),
    NamespaceRemoved(remove_namespace::NamespaceRemoved),
    ServerStatus(server_status::ServerStatusAnswer<'a>),
    Event(event::Event<'a>),
    Error(error::ErrorAnswer<'a>),
}

impl<'a> Response<'a> {
    /// Parses the message from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the opcode is unknown or the body is malformed.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        match frame.opcode() {
            acquire::GRANTED => acquire::Granted::decode(frame).map(Self::Granted),
            release::RELEASED => release::Released::decode(frame).map(Self::Released),
            extend::EXTENDED => extend::Extended::decode(frame).map(Self::Extended),
            throttle::THROTTLED => throttle::Throttled::decode(frame).map(Self::Throttled),
            _ => Self::decode_rare(frame),
        }
    }

    /// Parses the messages that `decode` does not parse itself. Not inlined, to keep the code small where frequent
    /// messages are decoded.
    #[inline(never)]
    fn decode_rare(frame: Frame<'a>) -> Result<Self, DecodeError> {
        match frame.opcode() {
            cancel::CANCELLED => cancel::Cancelled::decode(frame).map(Self::Cancelled),
            status::STATUS_ANSWER => status::StatusAnswer::decode(frame).map(Self::Status),
            inspect::INSPECTED => inspect::Inspected::decode(frame).map(Self::Inspected),
            list::LISTED => list::Listed::decode(frame).map(Self::Listed),
            hello::WELCOME => hello::Welcome::decode(frame).map(Self::Welcome),
            keep_alive::KEPT_ALIVE => keep_alive::KeptAlive::decode(frame).map(Self::KeptAlive),
            goodbye::FAREWELL => goodbye::Farewell::decode(frame).map(Self::Farewell),
            acquire_keys::GRANTED_KEYS => acquire_keys::GrantedKeys::decode(frame).map(Self::GrantedKeys),
            tree_statistics::TREE_STATISTICS_ANSWER => {
                tree_statistics::TreeStatisticsAnswer::decode(frame).map(Self::TreeStatistics)
            }
            pool::POOL_DESCRIBED => pool::PoolDescribed::decode(frame).map(Self::PoolDescribed),
            pool::CAPACITY_SET => pool::CapacitySet::decode(frame).map(Self::CapacitySet),
            list_pools::POOLS_LISTED => list_pools::PoolsListed::decode(frame).map(Self::PoolsListed),
            registry::REGISTERED => registry::Registered::decode(frame).map(Self::Registered),
            registry::UNREGISTERED => registry::Unregistered::decode(frame).map(Self::Unregistered),
            entries::LOOKED_UP => entries::LookedUp::decode(frame).map(Self::LookedUp),
            entries::ENTRIES_LISTED => entries::EntriesListed::decode(frame).map(Self::EntriesListed),
            watch::WATCHING => watch::Watching::decode(frame).map(Self::Watching),
            watch::UNWATCHED => watch::Unwatched::decode(frame).map(Self::Unwatched),
            verify::VERIFIED => verify::Verified::decode(frame).map(Self::Verified),
            force_release::FORCE_RELEASED => {
                force_release::ForceReleased::decode(frame).map(Self::ForceReleased)
            }
            freeze::FROZEN => freeze::Frozen::decode(frame).map(Self::Frozen),
            namespaces::NAMESPACES_LISTED => {
                namespaces::NamespacesListed::decode(frame).map(Self::NamespacesListed)
            }
            remove_namespace::NAMESPACE_REMOVED => {
                remove_namespace::NamespaceRemoved::decode(frame).map(Self::NamespaceRemoved)
            }
            server_status::SERVER_STATUS_ANSWER => {
                server_status::ServerStatusAnswer::decode(frame).map(Self::ServerStatus)
            }
            opcode::ERROR => error::ErrorAnswer::decode(frame).map(Self::Error),
            opcode::QUEUED..=opcode::PING => event::Event::decode(frame).map(Self::Event),
            opcode => Err(DecodeError::UnknownOpcode { opcode }),
        }
    }

    /// Appends the message as a frame. [`event::Event::encode`] documents the number of an event.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Welcome(message) => message.encode(number, out),
            Self::KeptAlive(message) => message.encode(number, out),
            Self::Farewell(message) => message.encode(number, out),
            Self::Granted(message) => message.encode(number, out),
            Self::Released(message) => message.encode(number, out),
            Self::Extended(message) => message.encode(number, out),
            Self::Cancelled(message) => message.encode(number, out),
            Self::Status(message) => message.encode(number, out),
            Self::Inspected(message) => message.encode(number, out),
            Self::Listed(message) => message.encode(number, out),
            Self::GrantedKeys(message) => message.encode(number, out),
            Self::TreeStatistics(message) => message.encode(number, out),
            Self::PoolDescribed(message) => message.encode(number, out),
            Self::CapacitySet(message) => message.encode(number, out),
            Self::PoolsListed(message) => message.encode(number, out),
            Self::Throttled(message) => message.encode(number, out),
            Self::Registered(message) => message.encode(number, out),
            Self::Unregistered(message) => message.encode(number, out),
            Self::LookedUp(message) => message.encode(number, out),
            Self::EntriesListed(message) => message.encode(number, out),
            Self::Watching(message) => message.encode(number, out),
            Self::Unwatched(message) => message.encode(number, out),
            Self::Verified(message) => message.encode(number, out),
            Self::ForceReleased(message) => message.encode(number, out),
            Self::Frozen(message) => message.encode(number, out),
            Self::NamespacesListed(message) => message.encode(number, out),
            Self::NamespaceRemoved(message) => message.encode(number, out),
            Self::ServerStatus(message) => message.encode(number, out),
            Self::Event(message) => message.encode(number, out),
            Self::Error(message) => message.encode(number, out),
        }
    }
}

/// Part of the server that must serve a request, found without decoding the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// The shard of this key, or of this name of a pool or bucket. In a tree namespace, the one shard of the namespace.
    Key(&'a [u8]),
    /// The shard of the claim with this id. `place` in the id names the shard, unless an earlier process of the server
    /// issued the id.
    Claim(LockId),
    /// The shard that has the page of a list with this cursor.
    Cursor(u64),
    /// The shard of the whole namespace. The server refuses the request if it is not a tree namespace.
    Namespace,
    /// The shards of the several keys or buckets in the request.
    MultiKey,
    /// All shards: the server responds after each shard has served the request.
    Broadcast,
    /// No shard: the worker of the connection serves the request. It closes the lanes of a session in all shards after
    /// a `GOODBYE`.
    Connection,
    /// No part of the server: the frame is too short or its opcode is unknown. Decoding the frame returns the error.
    Malformed,
}

/// Returns the route of a frame. A frame with a route may still fail to decode.
#[inline]
pub fn route(frame: Frame<'_>) -> Route<'_> {
    let route = match frame.opcode() {
        opcode::ACQUIRE => key_at(frame, acquire::KEY_OFFSET).map(Route::Key),
        opcode::RELEASE | opcode::EXTEND => id_at(frame, crate::frame::HEADER_LEN).map(Route::Claim),
        opcode::THROTTLE => key_at(frame, throttle::NAME_OFFSET).map(Route::Key),
        _ => route_rare(frame),
    };
    route.unwrap_or(Route::Malformed)
}

/// Returns the route of a less frequent request, or `None` if the frame is too short or its opcode is unknown. A
/// separate function keeps the code of `route` small.
fn route_rare(frame: Frame<'_>) -> Option<Route<'_>> {
    match frame.opcode() {
        opcode::STATUS | opcode::FORCE_RELEASE => id_at(frame, crate::frame::HEADER_LEN).map(Route::Claim),
        opcode::CANCEL => key_at(frame, cancel::KEY_OFFSET).map(Route::Key),
        opcode::INSPECT => key_at(frame, inspect::KEY_OFFSET).map(Route::Key),
        opcode::LIST => u64_at(frame, crate::frame::HEADER_LEN).map(Route::Cursor),
        opcode::HELLO | opcode::KEEP_ALIVE | opcode::GOODBYE | opcode::PONG | opcode::SERVER_STATUS => {
            Some(Route::Connection)
        }
        opcode::ACQUIRE_PERMITS => key_at(frame, acquire_permits::NAME_OFFSET).map(Route::Key),
        opcode::DESCRIBE_POOL => key_at(frame, pool::DESCRIBE_NAME_OFFSET).map(Route::Key),
        opcode::SET_CAPACITY => key_at(frame, pool::SET_NAME_OFFSET).map(Route::Key),
        opcode::REGISTER | opcode::HEARTBEAT => key_at(frame, registry::KEY_OFFSET).map(Route::Key),
        opcode::UNREGISTER => key_at(frame, registry::UNREGISTER_KEY_OFFSET).map(Route::Key),
        opcode::LOOK_UP => key_at(frame, entries::KEY_OFFSET).map(Route::Key),
        opcode::WATCH => key_at(frame, watch::KEY_OFFSET).map(Route::Key),
        opcode::UNWATCH => key_at(frame, watch::UNWATCH_KEY_OFFSET).map(Route::Key),
        opcode::VERIFY => key_at(frame, verify::KEY_OFFSET).map(Route::Key),
        opcode::HOLDS | opcode::LIST_ENTRIES | opcode::LIST_POOLS => {
            u64_at(frame, crate::frame::HEADER_LEN).map(Route::Cursor)
        }
        opcode::ACQUIRE_SET | opcode::TREE_STATISTICS => Some(Route::Namespace),
        opcode::ACQUIRE_KEYS | opcode::THROTTLE_ALL => Some(Route::MultiKey),
        opcode::FREEZE | opcode::NAMESPACES | opcode::REMOVE_NAMESPACE => Some(Route::Broadcast),
        _ => None,
    }
}

#[inline]
fn id_at(frame: Frame<'_>, offset: usize) -> Option<LockId> {
    Some(LockId { place: u64_at(frame, offset)?, secret: u64_at(frame, offset + 8)? })
}

#[inline]
fn u64_at(frame: Frame<'_>, offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*frame.bytes().get(offset..)?.first_chunk()?))
}

#[inline]
fn key_at(frame: Frame<'_>, offset: usize) -> Option<&[u8]> {
    let len = u16::from_le_bytes(*frame.bytes().get(offset..)?.first_chunk()?);
    frame.bytes().get(offset + 2..)?.get(..usize::from(len))
}
