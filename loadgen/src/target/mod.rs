//! What can be loaded. One file a system, all behind [`Target`], so that one client code path drives them all. Only those
//! that are called by gRPC are not among them: see [`crate::grpc`].
//!
//! To add a system: implement [`Target`] in a file of its own, give it a name in `address.rs`, and a line in
//! `load.rs`.

pub(crate) mod consul;
mod echo;
mod http;
mod locktopus;
pub(crate) mod postgres;
mod redis;
mod renewals;
mod slock;
mod waymaker;
mod websocket;

use std::io::{self, Read, Write};

pub use consul::Consul;
pub use echo::Echo;
pub use locktopus::{Locktopus, WebSocketEcho};
pub use postgres::Postgres;
pub use redis::Redis;
pub use renewals::{ConsulRenewals, RedisRenewals, WaymakerRenewals};
pub use slock::Slock;
pub use waymaker::{Waymaker, WaymakerKeys, WaymakerLimiter, WaymakerPermits, WaymakerSets, greeting};

use crate::key::KeyIndex;
use crate::plan::Plan;

/// What one acquire asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Claim {
    /// The key.
    pub key: KeyIndex,
    /// Shared with other readers; otherwise exclusive.
    pub shared: bool,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<Hold> {
    /// The key is held.
    Granted {
        /// Of the request.
        number: u32,
        /// What the release must show.
        hold: Hold,
        /// 0 where the system has none ([`Target::HAS_FENCES`]).
        fence: u64,
    },
    /// The hold is over.
    Released {
        /// Of the request.
        number: u32,
    },
    /// One hold of several is over; the others follow under the same number.
    ReleasedInPart,
    /// What the limiter says.
    Throttled {
        /// Of the request.
        number: u32,
        /// It gave what was asked for.
        allowed: bool,
    },
    /// The lease is as long again as it was.
    Renewed {
        /// Of the request.
        number: u32,
    },
    /// Somebody else holds the key.
    Busy {
        /// Of the request.
        number: u32,
    },
    /// The system never grants what this plan asks for, so there is nothing to measure.
    Impossible {
        /// Why, and what to do.
        message: String,
    },
    /// Everything else: an error, in the words of the system. `number` is that of the request, if there is one.
    Refused {
        /// Of the request.
        number: Option<u32>,
        /// What the system says.
        message: String,
    },
}

/// The first answer of a buffer and its length in bytes; `None` where its end has not arrived.
pub type Parsed<Hold> = Option<(Answer<Hold>, usize)>;

/// The stream of answers makes no sense any more; the connection is lost.
#[derive(Debug)]
pub struct Broken(pub String);

/// One connection to one system: writes requests, reads answers. Owns no socket.
///
/// Requests are appended to a buffer of the caller, answers are parsed where they were received; nothing allocates for
/// a request. Numbers are chosen by the caller, never 0, and no two requests in flight have the same.
pub trait Target: Sized + Send {
    /// What a release must show.
    type Hold: Copy + Default + Send + std::fmt::Debug;
    /// Grants carry a fence that rises with each grant of a key.
    const HAS_FENCES: bool;
    /// An acquire waits at the server until the key is free. Otherwise busy is an answer, and the client asks again.
    const WAITS: bool;

    /// Opens the conversation on a fresh blocking connection.
    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self>;

    /// Appends an acquire.
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>);

    /// Appends the release of a hold.
    fn put_release(&mut self, number: u32, claim: Claim, hold: &Self::Hold, out: &mut Vec<u8>);

    /// Appends what takes back what was opened, if there is such. It is the last that is sent; nobody waits for an answer.
    fn put_close(&mut self, _out: &mut Vec<u8>) {}

    /// The first answer in `bytes`.
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<Self::Hold>, Broken>;
}

/// An error of the handshake.
fn refused(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}
