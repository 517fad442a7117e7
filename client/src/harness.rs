//! Lanes of a client without their tasks, for the simulator and the benches.
//!
//! Public only for `waymaker-simulator` and `waymaker-bench`, and hidden from the documentation. A [`Harness`] replaces
//! the task in `connection`. Its caller replaces the network, provides the clock, and must make the calls in the same
//! order as the task. The rest is the real client: futures, guards and the lane behind them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::mpsc;
use tokio_util::codec::Decoder;
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::{
    Frame, LockId, NamespaceKind, PoolOrder, Request, SessionRequest, Welcome, next_frame,
};

use crate::clock::{BootTime, Clock};
use crate::connection::codec::FrameCodec;
use crate::connection::guarded_lane::GuardedLane;
use crate::connection::link::{self, Target};
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::guards::{AcquireBuilder, Lock, MultiLock, Permit, TreeLock};
use crate::handle::{Command, Handle};
use crate::lane::{Offer, SessionOptions};
use crate::request::claim::{Wanted, WantedKey, WantedPermits};
use crate::request::reply::Reply;
use crate::session::Session;
use crate::watch::Watch;

/// One client: the session, the clock and the options that its lanes share.
pub struct Process {
    session: Arc<Session>,
    clock: Arc<dyn Clock>,
    options: SessionOptions,
    owner: Vec<u8>,
    in_flight_max: u32,
}

impl Process {
    /// Creates a client without a connection. A session lease of 0 selects the server's default. Callers wait for
    /// `patience` for a new connection or for a response.
    pub fn new(clock: Arc<dyn Clock>, owner: &[u8], session_lease_ms: u32, patience: Duration) -> Self {
        let options =
            SessionOptions { lease_ms: session_lease_ms, outage_max: patience, request_timeout: patience };
        Self { session: Arc::default(), clock, options, owner: owner.to_vec(), in_flight_max: u32::MAX }
    }

    /// Limits the number of requests in flight of each lane, if the server allows more.
    #[must_use]
    pub fn with_in_flight(self, in_flight_max: u32) -> Self {
        Self { in_flight_max, ..self }
    }

    /// Adds one lane to the session of this client.
    ///
    /// # Errors
    /// [`Error::Closed`] if the client was closed.
    pub fn lane(&self, kind: NamespaceKind, namespace: &[u8]) -> Result<Harness> {
        let (handle, commands) = Handle::new(Arc::clone(&self.clock));
        self.session.enter(handle.member())?;
        let session = Arc::clone(&self.session);
        let lane = GuardedLane::new(self.options, session, Arc::downgrade(&handle), self.clock.now());
        let target = Target {
            endpoints: Arc::default(),
            worker: ANY_WORKER,
            kind,
            namespace: namespace.to_vec(),
            owner: self.owner.clone(),
            credentials: Credentials::default(),
            timeout: self.options.outage_max,
        };
        Ok(Harness {
            handle: Some(handle),
            commands,
            clock: Arc::clone(&self.clock),
            lane,
            target,
            in_flight_max: self.in_flight_max,
            attempts: 0,
            codec: FrameCodec { frame_len_max: FRAME_LEN_MAX },
            read: BytesMut::new(),
        })
    }
}

/// One lane, with its handle, the queue of commands from the handle and guards, and the codec of its reader. In the
/// client, a task reads the socket and drives the lane. Here the simulator or bench does so: it passes byte buffers and
/// calls these methods.
pub struct Harness {
    /// The client's own handle; `None` after [`Harness::desert`].
    handle: Option<Arc<Handle>>,
    commands: mpsc::UnboundedReceiver<Command>,
    clock: Arc<dyn Clock>,
    lane: GuardedLane,
    target: Target,
    in_flight_max: u32,
    attempts: u32,
    codec: FrameCodec,
    read: BytesMut,
}

/// A HELLO without a response yet.
#[derive(Clone, Copy, Debug)]
pub struct Greeting {
    /// Session request in the HELLO.
    pub session: SessionRequest,
    /// Instant at which the HELLO was sent.
    sent: BootTime,
    offer: Offer,
}

impl Harness {
    /// Returns a lane that the server has just welcomed, for callers that simulate no lost connection.
    ///
    /// # Panics
    /// Never: a new session accepts its first connection.
    pub fn connected(clock: Arc<dyn Clock>, welcome: Welcome) -> Self {
        let now = clock.now();
        let process = Process::new(clock, b"", 0, Duration::from_secs(5));
        let mut harness = process.lane(NamespaceKind::Flat, b"").expect("a new session is open");
        harness.lane.request();
        harness.lane.handle_welcome(welcome, now, now);
        harness
    }

    /// Returns the builder of an acquire, as `client.write(key)` does.
    pub fn write(&self, key: &[u8]) -> AcquireBuilder<Lock> {
        self.key(key, false)
    }

    /// Returns the builder of an acquire, as `client.write(key)` or `client.read(key)` does.
    pub fn key(&self, key: &[u8], shared: bool) -> AcquireBuilder<Lock> {
        self.builder(Wanted::Key { key: key.into(), shared })
    }

    /// Returns the builder of an acquire, as `client.multi(keys)` does.
    pub fn keys<'a>(&self, keys: impl IntoIterator<Item = (&'a [u8], bool)>) -> AcquireBuilder<MultiLock> {
        let wanted = keys.into_iter().map(|(key, shared)| WantedKey { key: key.into(), shared });
        self.builder(Wanted::Keys(wanted.collect()))
    }

    /// Returns the builder of an acquire, as `client.tree()` does, without paths yet.
    pub fn paths(&self) -> AcquireBuilder<TreeLock> {
        self.builder(Wanted::Paths(Vec::new()))
    }

    /// Returns the builder of an acquire, as `client.semaphore(name, capacity)` does, or with `any_capacity` if there
    /// is no capacity. With a timestamp, it requests a pool that serves by timestamps.
    pub fn permits(
        &self,
        name: &[u8],
        capacity: Option<u64>,
        permits: u64,
        timestamp_us: Option<u64>,
    ) -> AcquireBuilder<Permit> {
        self.builder(Wanted::Permits(WantedPermits {
            name: name.into(),
            capacity: capacity.unwrap_or(0),
            any_capacity: capacity.is_none(),
            permits,
            order: if timestamp_us.is_some() { PoolOrder::Timestamp } else { PoolOrder::Arrival },
            timestamp_us: timestamp_us.unwrap_or(0),
        }))
    }

    /// Begins a watch, as `client.watch(key)` does.
    ///
    /// # Errors
    /// As `client.watch(key)`.
    pub fn watch(&self, key: &[u8]) -> impl Future<Output = Result<Watch>> + use<> {
        let (handle, key) = (self.handle.clone(), key.into());
        async move { Watch::begin(handle.ok_or(Error::Closed)?, key).await }
    }

    /// Ends a claim, as `client.release(id, key)` does.
    ///
    /// # Errors
    /// As `client.release(id, key)`.
    pub fn release(&self, id: LockId, key: &[u8]) -> impl Future<Output = Result<bool>> + use<> {
        let (handle, key) = (self.handle.clone(), Some(key.into()));
        async move { handle.ok_or(Error::Closed)?.release(id, key).await }
    }

    /// Closes the lane, as `client.close()` does for each connection. The future ends when the lane is closed or the
    /// time limit has passed; after `desert`, at once.
    pub fn close(&self) -> impl Future<Output = ()> + use<> {
        let (reply, answer) = Reply::channel();
        // After `desert`, the lane closes by itself.
        let _ = self.handle.as_ref().map(|handle| handle.command(Command::Close { reply }));
        async move { drop(answer.await) }
    }

    fn builder<G>(&self, wanted: Wanted) -> AcquireBuilder<G> {
        AcquireBuilder::new(self.handle.clone().ok_or(Error::Closed), wanted)
    }

    /// Drops the client's own handle, as if the program dropped the client. Guards and futures may still keep the
    /// handle alive.
    pub fn desert(&mut self) {
        self.handle = None;
    }

    /// Returns whether the lane needs a connection now.
    pub fn wants_connection(&self) -> bool {
        self.lane.wants_connection(self.clock.now())
    }

    /// Appends the HELLO of a new connection to `out`, as a frame with this number. `None` while another lane of the
    /// client opens the session.
    pub fn greet(&mut self, number: u32, out: &mut Vec<u8>) -> Option<Greeting> {
        let session = self.lane.request()?;
        self.attempts += 1;
        let (offer, sent) = (self.lane.offer(0), self.clock.now());
        Request::Hello(link::hello(&self.target, offer, session, self.attempts)).encode(number, out);
        self.codec = FrameCodec { frame_len_max: FRAME_LEN_MAX };
        self.read.clear();
        Some(Greeting { session, sent, offer })
    }

    /// Passes the response to the HELLO of `greeting` to the lane. Returns whether the server has accepted the
    /// connection.
    pub fn greeted(&mut self, greeting: Greeting, answer: Frame<'_>) -> bool {
        match link::welcome(answer, greeting.offer) {
            Ok(welcome) => {
                let in_flight_max = welcome.in_flight_max.min(self.in_flight_max);
                let welcome = Welcome { in_flight_max, ..welcome };
                self.lane.handle_welcome(welcome, greeting.sent, self.clock.now());
            }
            Err(error) => {
                self.lane.handle_attempt_failed(error);
                return false;
            }
        }
        true
    }

    /// Tells the lane that the connection broke before the response to its HELLO. This attempt to connect then counts
    /// as failed for `reason`.
    pub fn attempt_failed(&mut self, reason: &str) {
        self.lane.handle_attempt_failed(Error::disconnected(reason));
    }

    /// Notes that the connection broke.
    pub fn disconnected(&mut self, reason: &str) {
        self.lane.handle_disconnected(Error::disconnected(reason), self.clock.now());
    }

    /// Passes the queued commands of handles and guards to the lane. Closes the lane if all handles and guards were
    /// dropped.
    pub fn take_commands(&mut self) {
        let now = self.clock.now();
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.lane.handle_command(command, now),
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    self.lane.handle_deserted();
                    break;
                }
            }
        }
    }

    /// Passes the queued commands to the lane, and replaces the content of `sent` with the bytes that the lane sends.
    pub fn transmit(&mut self, sent: &mut Vec<u8>) {
        self.take_commands();
        if self.lane.wants_to_transmit() {
            self.lane.transmit(self.clock.now());
        }
        sent.clear();
        std::mem::swap(self.lane.out(), sent);
    }

    /// Passes bytes of the server to the lane, frame by frame.
    ///
    /// # Errors
    /// Any error means that the connection cannot be used any more.
    ///
    /// # Panics
    /// Never: the codec yields whole frames.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.read.extend_from_slice(bytes);
        let now = self.clock.now();
        while let Some(bytes) = self.codec.decode(&mut self.read)? {
            let frame = next_frame(&bytes, FRAME_LEN_MAX).ok().flatten();
            self.lane.handle_frame(frame.expect("the codec yields whole frames"), now)?;
        }
        std::hint::black_box(self.lane.next_timeout());
        Ok(())
    }

    /// Handles all timers that are due.
    pub fn handle_timers(&mut self) {
        self.lane.handle_timers(self.clock.now());
    }

    /// Returns the next instant at which to call [`Harness::handle_timers`].
    pub fn next_timeout(&self) -> BootTime {
        self.lane.next_timeout()
    }

    /// Returns why the connection counts as dead, so that the caller must close it. `None` while it is trusted.
    pub fn doubt(&self) -> Option<&'static str> {
        self.lane.doubt()
    }

    /// Returns whether nothing is left to do. No command may be queued. Every request must have its response, unless
    /// the lane is disconnected and wants no connection.
    pub fn is_at_rest(&self) -> bool {
        self.commands.is_empty()
            && (self.lane.is_idle() || !self.lane.is_connected() && !self.wants_connection())
    }

    /// Returns whether the lane has shut down and left the session.
    pub fn is_finished(&self) -> bool {
        self.lane.is_finished()
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Process").finish_non_exhaustive()
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Harness").finish_non_exhaustive()
    }
}
