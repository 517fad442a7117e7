//! Lanes without sockets, through which front ends send requests to the worker of their thread.

mod bench;
mod pending;

pub use self::bench::BenchInlet;
pub(crate) use self::pending::{ReplyFuture, ReplyStream};
pub(crate) use crate::edge::inlet::Reply;

use self::pending::Pending;
use super::Local;
use crate::edge::inlet::{InletState, Listener};
use crate::mail::ConnectionKey;
use crate::worker::Client;
use waymaker_protocol::limits::ANY_WORKER;
use waymaker_protocol::{Hello, NamespaceKind, SessionRequest, VERSION};

/// Client of this thread's worker in the binary protocol, on a lane without a socket.
///
/// Every front end translates requests of its own protocol into frames of ours, and response frames into its own
/// responses. All clients therefore reach the worker in the same way, with the same limits, errors and rules. The
/// worker serves a request at once in this thread, and most responses exist before the call returns. A later reply
/// wakes the waiting caller.
///
/// ```text
///   gRPC, WebSocket -> handler -> ReplyFuture/ReplyStream -> Inlet -> frame -> Worker
///                      handler <- Reply          <- InletState <- output of the lane
/// ```
///
/// Dropping the inlet has the effects of a lost connection: waiters leave their queues, and holds stay as long as their
/// acquires specified.
#[derive(Debug)]
pub(crate) struct Inlet {
    key: ConnectionKey,
}

/// Error of a closed lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClosedLane {
    /// The `ERROR` message of the worker, if the client lost its identity or a right. `None` if the lane closed for
    /// another reason, such as the stop of the server.
    pub(crate) denial: Option<Reply>,
}

impl Inlet {
    /// Opens a lane in this namespace for the requests of this client. `owner` is the default owner of its acquires.
    ///
    /// # Errors
    /// Returns the worker's ERROR if it refuses the lane.
    pub(crate) fn open(
        kind: NamespaceKind,
        namespace: &[u8],
        owner: &[u8],
        client: Client,
    ) -> Result<Self, Reply> {
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            kind,
            session: SessionRequest::None,
            worker: ANY_WORKER,
            namespace,
            owner,
            credentials: b"",
            attempt: None,
            notify_taken_up: true,
            capabilities: None,
        };
        let opened = Local::with(|local| local.open_inlet(&hello, client));
        opened.map(|key| Self { key }).map_err(Reply::from)
    }

    /// Returns whether the worker has closed the lane.
    pub(crate) fn is_closed(&self) -> bool {
        Local::with(|local| local.with_inlet(self.key, |inlet, _| inlet.is_closed())).unwrap_or(true)
    }

    /// Sends a request that has a single response.
    pub(crate) fn ask(&self, encode: impl FnOnce(u32, &mut Vec<u8>)) -> ReplyFuture {
        ReplyFuture(self.request(InletState::begin_asked, None, encode))
    }

    /// Sends a request for holds that only the waiting caller can use. If the future is dropped before it has returned
    /// the response, the wait is cancelled, and holds that the response grants for the first time are released. A
    /// `CANCEL` of the request names the key `cancel_key`.
    pub(crate) fn ask_for_holds(
        &self,
        cancel_key: &[u8],
        encode: impl FnOnce(u32, &mut Vec<u8>),
    ) -> ReplyFuture {
        ReplyFuture(self.request(InletState::begin_asked, Some(cancel_key), encode))
    }

    /// Sends an acquire or a WATCH, and returns the stream of its response and of the events before and after it.
    /// Dropping the stream keeps granted holds, but cancels an acquire that still waits. The CANCEL names the key
    /// `cancel_key`. A watch is not cancelled: it lasts as long as its lane, so it should have a lane of its own. Its
    /// `cancel_key` is empty.
    pub(crate) fn follow(&self, cancel_key: &[u8], encode: impl FnOnce(u32, &mut Vec<u8>)) -> ReplyStream {
        ReplyStream(self.request(InletState::begin_followed, Some(cancel_key), encode))
    }

    fn request(
        &self,
        begin: fn(&mut InletState) -> u32,
        cancel_key: Option<&[u8]>,
        encode: impl FnOnce(u32, &mut Vec<u8>),
    ) -> Pending {
        let sent = Local::with(|local| local.ask(self.key, begin, encode));
        Pending { key: self.key, listener: Listener::new(sent, cancel_key) }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        Local::with(|local| local.close_inlet(self.key));
    }
}
