//! Protocols of the measured systems: one file per system, all behind [`Codec`], so that one client code path
//! drives them all. Systems that are called over gRPC are separate: see [`crate::grpc`].
//!
//! To add a system: implement [`Codec`] in its own file, add its name to `system.rs`, and add a line to
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

/// Claim of one acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Claim {
    /// Key of the claim.
    pub key: KeyIndex,
    /// Whether the claim is shared with other readers; otherwise exclusive.
    pub shared: bool,
}

/// One response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<Hold> {
    /// The key is held.
    Granted {
        /// Number of the request.
        number: u32,
        /// Data that the release must send.
        hold: Hold,
        /// Fence of the grant; 0 if the system has no fences ([`Codec::HAS_FENCES`]).
        fence: u64,
    },
    /// The hold was released.
    Released {
        /// Number of the request.
        number: u32,
    },
    /// One of several holds was released; the others follow under the same number.
    ReleasedInPart,
    /// The limiter's decision.
    Throttled {
        /// Number of the request.
        number: u32,
        /// Whether the tokens were taken.
        allowed: bool,
    },
    /// The lease was renewed to its full length.
    Renewed {
        /// Number of the request.
        number: u32,
    },
    /// Another client holds the key.
    Busy {
        /// Number of the request.
        number: u32,
    },
    /// The system can never grant this plan's requests, so the load ends.
    Impossible {
        /// Reason and remedy.
        message: String,
    },
    /// Any other response: an error in the words of the system. `number` is the number of the request, if known.
    Refused {
        /// Number of the request.
        number: Option<u32>,
        /// Error text of the system.
        message: String,
    },
}

/// The first response of a buffer and its length in bytes; `None` if it is incomplete.
pub type Parsed<Hold> = Option<(Answer<Hold>, usize)>;

/// The response stream is invalid; the connection is lost.
#[derive(Debug)]
pub struct Broken(pub String);

/// Encodes the requests and decodes the responses of one connection to one system. Owns no socket.
///
/// Requests are appended to a buffer of the caller, and responses are parsed in the receive buffer; a request
/// allocates nothing. The caller chooses the request numbers, which are never 0 and unique among the requests in
/// flight.
pub trait Codec: Sized + Send {
    /// Data that a release must send.
    type Hold: Copy + Default + Send + std::fmt::Debug;
    /// Whether grants carry a fence that rises with each grant of a key.
    const HAS_FENCES: bool;
    /// Whether an acquire waits at the server until the key is free. If false, the server responds busy and the
    /// client polls.
    const WAITS: bool;

    /// Performs the handshake on a new blocking connection.
    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self>;

    /// Appends an acquire.
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>);

    /// Appends the release of a hold.
    fn put_release(&mut self, number: u32, claim: Claim, hold: &Self::Hold, out: &mut Vec<u8>);

    /// Appends a request that cleans up what `open` created, if necessary. It is the last request, and its
    /// response is ignored.
    fn put_close(&mut self, _out: &mut Vec<u8>) {}

    /// Returns the first response in `bytes`.
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<Self::Hold>, Broken>;
}

/// Creates an error of the handshake.
fn refused(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}
