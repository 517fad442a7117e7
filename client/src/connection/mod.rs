//! The task that owns the socket of a connection: it passes frames to the lane and sends the lane's bytes.
//!
//! Only this task reads and writes the socket, and passes the time to the lane. Commands that arrive while it writes
//! are collected for the next write. After a read, it handles all whole frames before it writes. The task alternates
//! between two methods: `serve` while connected, `reconnect` while not.
//!
//! `link` is the open socket with its handshake, `codec` cuts its bytes into frames, and `server_protocol` detects a
//! server of another protocol. `guarded_lane` is the lane with the state of its guards.

mod alarm;
pub(crate) mod backoff;
pub(crate) mod codec;
pub(crate) mod guarded_lane;
pub(crate) mod link;
pub(crate) mod server_protocol;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::mpsc;
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::{Welcome, next_frame};

use crate::clock::{BootTime, Clock};
use crate::error::{Error, Result};
use crate::handle::{Command, Handle};
use crate::lane::SessionOptions;
use crate::session::Session;
use alarm::Alarm;
use backoff::{Backoff, FIRST_PAUSE};
use guarded_lane::GuardedLane;
use link::{Greeted, Link, Target};

/// After a connection that broke within this time after it opened, the task pauses before it connects again. Otherwise
/// it would reconnect without a pause to a server that welcomes it and closes each connection at once.
const SHORT_LIFE: Duration = Duration::from_millis(100);
/// Number of reads after which the task also serves timers and callers. Otherwise a server that never stops sending
/// would block both.
const READS_IN_A_ROW_MAX: u32 = 16;

/// Connects, and then spawns a task that serves the connection. Returns the server's welcome. Fails if an endpoint
/// rejects the client, for example its credentials, or if none can serve it.
pub(crate) async fn open(
    target: Target,
    options: SessionOptions,
    session: &Arc<Session>,
    handle: &Arc<Handle>,
    commands: mpsc::UnboundedReceiver<Command>,
) -> Result<Welcome> {
    let mut task = Task::new(target, options, session, handle, commands)?;
    let link = task.first_attempts().await?;
    let welcome = task.lane.welcome();
    tokio::spawn(task.run(Some(link)));
    Ok(welcome)
}

/// Spawns a task that connects when the lane needs a connection, and serves the connection. Must be called in a
/// runtime.
pub(crate) fn start(
    target: Target,
    options: SessionOptions,
    session: &Arc<Session>,
    handle: &Arc<Handle>,
    commands: mpsc::UnboundedReceiver<Command>,
) -> Result<()> {
    tokio::spawn(Task::new(target, options, session, handle, commands)?.run(None));
    Ok(())
}

/// Returns the error for a server that did not answer within the time limit.
fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no response in time")
}

/// The task of one connection.
struct Task {
    target: Target,
    session: Arc<Session>,
    clock: Arc<dyn Clock>,
    alarm: Alarm,
    commands: mpsc::UnboundedReceiver<Command>,
    /// Whether all handles and guards were dropped, so that no command can arrive any more.
    deserted: bool,
    /// Number of attempts of this task to open a socket and send a HELLO.
    attempts: u32,
    lane: GuardedLane,
    /// The connection that `serve` uses; `None` at other times.
    link: Option<Link>,
}

impl Task {
    fn new(
        target: Target,
        options: SessionOptions,
        session: &Arc<Session>,
        handle: &Arc<Handle>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<Self> {
        let clock = Arc::clone(&handle.clock);
        let timer = clock.timer().map_err(Error::no_timer)?;
        let lane = GuardedLane::new(options, Arc::clone(session), Arc::downgrade(handle), clock.now());
        let session = Arc::clone(session);
        Ok(Self {
            target,
            session,
            clock,
            alarm: Alarm::new(timer),
            commands,
            deserted: false,
            attempts: 0,
            lane,
            link: None,
        })
    }

    /// Serves one connection after the other, beginning with `link` if it is already open. Ends when the lane has shut
    /// down, or when all handles and guards were dropped and no connection is needed.
    async fn run(mut self, mut link: Option<Link>) {
        loop {
            if link.is_some() {
                self.link = link;
                let connected = self.clock.now();
                let cause = self.serve().await;
                self.link = None;
                match &cause {
                    Error::Closed => tracing::debug!("the connection is closed"),
                    cause => tracing::warn!(%cause, "the connection is lost"),
                }
                let now = self.clock.now();
                self.lane.handle_disconnected(cause, now);
                if now.since(connected) < SHORT_LIFE {
                    self.wait_until(now.after(FIRST_PAUSE)).await;
                }
            }
            link = self.reconnect().await;
            if link.is_none() {
                return;
            }
        }
    }

    /// Serves the connection until it ends, and returns the cause.
    async fn serve(&mut self) -> Error {
        let Self { link: Some(Link { reader, writer }), lane, alarm, commands, clock, deserted, .. } = self
        else {
            return Error::Closed;
        };
        let mut reads = 0;
        loop {
            if lane.wants_to_transmit() {
                lane.transmit(clock.now());
            }
            if lane.is_finished() {
                return Error::Closed;
            }
            if let Some(doubt) = lane.doubt() {
                return Error::disconnected(doubt);
            }
            let timeout = lane.next_timeout();
            // Try to send before waiting for input: the socket nearly always accepts the bytes at once.
            let sent = poll_fn(|context| Poll::Ready(writer.poll_send(context, lane.out()))).await;
            if let Poll::Ready(Err(error)) = sent {
                return Error::disconnected(error.to_string());
            }
            tokio::select! {
                biased;
                // Read responses before timers: they may move a deadline that is due only because this task was late.
                filled = reader.fill() => {
                    if let Err(error) = filled {
                        return Error::disconnected(error.to_string());
                    }
                    let now = clock.now();
                    loop {
                        match reader.next() {
                            Ok(None) => break,
                            Ok(Some(bytes)) => {
                                let frame = next_frame(&bytes, FRAME_LEN_MAX).ok().flatten();
                                let frame = frame.expect("the codec hands out whole frames");
                                if let Err(error) = lane.handle_frame(frame, now) {
                                    return error;
                                }
                            }
                            Err(error) => return error.into(),
                        }
                    }
                    reads += 1;
                    if reads == READS_IN_A_ROW_MAX {
                        reads = 0;
                        lane.handle_timers(now);
                        match commands.try_recv() {
                            Ok(command) => take_commands(lane, commands, deserted, &**clock, Some(command)),
                            Err(mpsc::error::TryRecvError::Disconnected) if !*deserted => {
                                take_commands(lane, commands, deserted, &**clock, None);
                            }
                            Err(_) => {}
                        }
                    }
                }
                () = alarm.reach(timeout) => lane.handle_timers(clock.now()),
                sent = poll_fn(|context| writer.poll_send(context, lane.out())), if sent.is_pending() => {
                    if let Err(error) = sent {
                        return Error::disconnected(error.to_string());
                    }
                }
                command = commands.recv(), if !*deserted => take_commands(lane, commands, deserted, &**clock, command),
            }
        }
    }

    /// Connects again as soon as the lane needs a connection. Returns `None` if it never will: the lane has shut down,
    /// or all handles and guards were dropped and no connection is needed.
    async fn reconnect(&mut self) -> Option<Link> {
        let mut backoff = Backoff::default();
        let mut failures = 0;
        loop {
            if self.lane.is_finished() {
                return None;
            }
            if !self.lane.wants_connection(self.clock.now()) {
                if self.deserted {
                    return None;
                }
                let timeout = self.lane.next_timeout();
                tokio::select! {
                    biased;
                    () = self.alarm.reach(timeout) => self.lane.handle_timers(self.clock.now()),
                    command = self.commands.recv() => {
                        self.take_commands(command);
                        self.lane.begin_outage(self.clock.now());
                    }
                }
                backoff = Backoff::default();
                continue;
            }
            match self.attempt().await {
                Ok(link) => return Some(link),
                Err(error) => {
                    tracing::debug!(%error, "an attempt to connect failed");
                    if !self.lane.handle_attempt_failed(error) {
                        failures += 1;
                    }
                    // Pause after one failure for each endpoint.
                    if failures == self.target.endpoints.len() {
                        failures = 0;
                        let now = self.clock.now();
                        self.wait_until(now.after(backoff.next(now))).await;
                    }
                }
            }
        }
    }

    /// Tries each endpoint once, until a connection is open or a server rejects this client.
    async fn first_attempts(&mut self) -> Result<Link> {
        for _ in 1..self.target.endpoints.len() {
            let endpoint = self.session.endpoint();
            let link = self.attempt().await;
            // `attempt` moves the client on to the next endpoint if the server did not respond, cannot serve now, or
            // does not speak the protocol. After any other error, the endpoint stays the same: the server rejected this
            // client, for example its credentials. The other endpoints would too, so return that error.
            if link.is_ok() || self.session.endpoint() == endpoint {
                return link;
            }
            self.lane.handle_attempt_failed(link.err().expect("just looked"));
        }
        self.attempt().await
    }

    /// Makes one attempt at the current endpoint, with up to three HELLOs. If no server serves the client at this
    /// endpoint, all connections of the session move to the next endpoint.
    async fn attempt(&mut self) -> Result<Link> {
        let endpoint = self.session.endpoint();
        let index = endpoint % self.target.endpoints.len();
        let give_up = self.clock.now().after(self.target.timeout / self.target.endpoints.len() as u32);
        let link = loop {
            match self.attempt_at(index, give_up).await {
                Err(error) if self.adapts_to(index, &error) => {}
                link => break link,
            }
        };
        if let Err(Error::Unavailable(_) | Error::Protocol(_)) = &link {
            self.session.leave_endpoint(endpoint);
        }
        link
    }

    /// Adapts the next HELLO to a server that refused one. Returns whether there is another HELLO to try; `attempt`
    /// sends at most two more.
    fn adapts_to(&mut self, endpoint: usize, error: &Error) -> bool {
        if self.lane.handle_hello_refused(endpoint, error) {
            tracing::debug!("the server supports only protocol version 1; reconnecting without capabilities");
            return true;
        }
        match error {
            // The server has no worker with this number, for example after a restart with fewer workers. So ask for any
            // worker.
            Error::Refused { field, .. } if field == "worker" && self.target.worker != ANY_WORKER => {
                self.target.worker = ANY_WORKER;
                self.lane.withdraw_request();
                true
            }
            _ => false,
        }
    }

    /// Makes one attempt to connect and to complete the handshake, and serves callers and timers until it ends.
    async fn attempt_at(&mut self, index: usize, give_up: BootTime) -> Result<Link> {
        let endpoint = &self.target.endpoints.clone()[index];
        let request = loop {
            match self.lane.request() {
                Some(request) => break request,
                None if self.lane.is_finished() => return Err(Error::Closed),
                // Another connection of this client is opening the session. Check again after a pause whether it is
                // open.
                None => self.wait_until(self.clock.now().after(FIRST_PAUSE)).await,
            }
        };
        self.attempts += 1;
        let (offer, attempt) = (self.lane.offer(index), self.attempts);
        let mut greeting = pin!(link::open(&self.target, endpoint, offer, request, attempt, &*self.clock));
        loop {
            let timeout = self.lane.next_timeout().min(give_up);
            tokio::select! {
                biased;
                greeted = &mut greeting => {
                    let Greeted { link, welcome, sent } = greeted?;
                    let (address, resumed) = (&endpoint.address, welcome.resumed);
                    tracing::debug!(%address, worker = welcome.worker, resumed, "connected");
                    self.lane.handle_welcome(welcome, sent, self.clock.now());
                    return Ok(link);
                }
                () = self.alarm.reach(timeout) => {
                    let now = self.clock.now();
                    self.lane.handle_timers(now);
                    if give_up <= now {
                        return Err(Error::connect(endpoint.address.to_string(), no_answer()));
                    }
                }
                command = self.commands.recv(), if !self.deserted => {
                    take_commands(&mut self.lane, &mut self.commands, &mut self.deserted, &*self.clock, command);
                }
            }
            if self.lane.is_finished() {
                return Err(Error::Closed);
            }
        }
    }

    /// Waits until `at`, or until the lane has shut down. Serves callers and timers while it waits.
    async fn wait_until(&mut self, at: BootTime) {
        while self.clock.now() < at && !self.lane.is_finished() {
            let timeout = self.lane.next_timeout().min(at);
            tokio::select! {
                biased;
                () = self.alarm.reach(timeout) => self.lane.handle_timers(self.clock.now()),
                command = self.commands.recv(), if !self.deserted => self.take_commands(command),
            }
        }
    }

    fn take_commands(&mut self, first: Option<Command>) {
        take_commands(&mut self.lane, &mut self.commands, &mut self.deserted, &*self.clock, first);
    }
}

impl Drop for Task {
    /// Sends the requests that are still queued when the runtime shuts down while connected. Examples are releases of
    /// guards that are dropped at the end of `main`: other clients then need not wait for the leases to expire. Sends
    /// only as much as the socket accepts without waiting.
    fn drop(&mut self) {
        let Some(Link { writer, .. }) = &mut self.link else { return };
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
        self.lane.transmit(now);
        let mut context = Context::from_waker(Waker::noop());
        // The task ends, so no caller can get this error; ignore it.
        let _ = writer.poll_send(&mut context, self.lane.out());
    }
}

/// Passes the command `first` and up to 1,024 queued commands to the lane. `first` is `None` after all handles and
/// guards were dropped; the lane then closes.
fn take_commands(
    lane: &mut GuardedLane,
    commands: &mut mpsc::UnboundedReceiver<Command>,
    deserted: &mut bool,
    clock: &dyn Clock,
    first: Option<Command>,
) {
    let now = clock.now();
    let Some(first) = first else {
        *deserted = true;
        return lane.handle_deserted();
    };
    lane.handle_command(first, now);
    // The number is limited, because the task must also read responses.
    for _ in 0..1024 {
        match commands.try_recv() {
            Ok(command) => lane.handle_command(command, now),
            Err(_) => break,
        }
    }
}
