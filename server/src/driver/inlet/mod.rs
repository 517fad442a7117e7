//! A lane without a socket: how front ends ask the worker of their thread.

mod asked;
mod bench;

pub(crate) use self::asked::{Asked, Followed};
pub use self::bench::BenchInlet;
pub(crate) use crate::edge::inlet::Reply;

use self::asked::Pending;
use super::Local;
use crate::edge::inlet::{InletState, Listener};
use crate::front::FrontCaller;
use crate::worker::ConnectionKey;
use waymaker_protocol::limits::ANY_WORKER;
use waymaker_protocol::{Hello, NamespaceKind, SessionRequest, VERSION};

/// A client of the worker of this thread, in the binary protocol, over a lane that no socket belongs to.
///
/// Every front end translates: a request of its own contract becomes frames of ours, and the frames that come back become
/// its answer. So there is one way into the worker, with one set of limits, errors and rules, however a client came in.
/// What is asked is served at once, in this thread, and mostly answered before the call returns; what is not wakes whoever
/// waits for it.
///
/// ```text
///   gRPC, WebSocket -> handler -> Asked/Followed -> Inlet -> frame -> Worker
///                      handler <- Reply          <- InletState <- output of the lane
/// ```
///
/// Dropping it is the loss of a connection: waiters leave, and holds stay as long as their acquires said.
#[derive(Debug)]
pub(crate) struct Inlet {
    key: ConnectionKey,
}

/// The lane is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// The ERROR of the worker, if the client has lost its identity or a right. Otherwise the server is stopping.
    pub(crate) denial: Option<Reply>,
}

impl Inlet {
    /// Opens a lane in this namespace, for this owner unless an acquire names another. It is for the
    /// requests of this caller.
    ///
    /// # Errors
    /// What the worker said instead of a welcome, an ERROR.
    pub(crate) fn open(
        kind: NamespaceKind,
        namespace: &[u8],
        owner: &[u8],
        caller: &FrontCaller,
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
        let opened = Local::with(|local| local.open_inlet(&hello, caller.lane_client()));
        opened.map(|key| Self { key }).map_err(Reply::from)
    }

    /// Returns whether the worker has ended the lane.
    pub(crate) fn is_closed(&self) -> bool {
        Local::with(|local| local.with_inlet(self.key, |inlet, _| inlet.is_closed())).unwrap_or(true)
    }

    /// Asks what is answered once.
    pub(crate) fn ask(&self, encode: impl FnOnce(u32, &mut Vec<u8>)) -> Asked {
        Asked(self.request(InletState::begin_asked, None, encode))
    }

    /// Asks for holds that are worth nothing to anybody but whoever waits for the answer: if that is dropped before it was
    /// read, the wait is cancelled, and what was granted is released. `cancel_key` is what a CANCEL of it has to name.
    pub(crate) fn ask_for_holds(&self, cancel_key: &[u8], encode: impl FnOnce(u32, &mut Vec<u8>)) -> Asked {
        Asked(self.request(InletState::begin_asked, Some(cancel_key), encode))
    }

    /// Asks for holds, or for a watch, and listens to everything the worker says about them from then on. If it is dropped
    /// while it waits, the wait is cancelled; holds stay, and a watch does as long as the lane, so it should have its own.
    /// `cancel_key` is what a CANCEL of it has to name.
    pub(crate) fn follow(&self, cancel_key: &[u8], encode: impl FnOnce(u32, &mut Vec<u8>)) -> Followed {
        Followed(self.request(InletState::begin_followed, Some(cancel_key), encode))
    }

    fn request(
        &self,
        begin: fn(&mut InletState) -> u32,
        cancel_key: Option<&[u8]>,
        encode: impl FnOnce(u32, &mut Vec<u8>),
    ) -> Pending {
        let begun = Local::with(|local| local.ask(self.key, begin, encode));
        Pending { key: self.key, listener: Listener::new(begun, cancel_key) }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        Local::with(|local| local.close_inlet(self.key));
    }
}
