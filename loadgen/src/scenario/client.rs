//! One connection that sends requests and waits for the responses.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{
    Acquire, ErrorAnswer, Frame, Granted, Hello, LockId, NamespaceKind, Namespaces, NamespacesListed,
    Release, Released, Response, Welcome, next_frame,
};

use crate::codec::greeting::{greet, hello};
use crate::plan::Plan;
use crate::stream::Stream;
use crate::tls::explain;

/// Time limit for a response.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
/// Size of one receive call.
const CHUNK_LEN: usize = 64 << 10;
/// Number of requests in flight while many requests are sent that the server answers at once.
pub(super) const BATCH: usize = 256;

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    /// Blocking, unless the client is part of a crowd.
    pub(super) stream: Stream<TcpStream>,
    /// The WELCOME of the server.
    pub(super) welcome: Welcome,
    /// Requests that are not sent yet.
    pub(super) outgoing: Vec<u8>,
    /// Bytes of an incomplete frame.
    received: Vec<u8>,
}

/// Counters of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Claims held now.
    pub(super) held: u64,
    /// Claims that wait now.
    pub(super) waiting: u64,
    /// Holds whose lease expired, since the server started.
    pub(super) expired: u64,
}

impl Client {
    /// Connects to a namespace of kind flat.
    pub(super) fn open(plan: &Plan, namespace: &[u8]) -> Result<Self> {
        Self::open_with(plan, &hello(plan, namespace, NamespaceKind::Flat))
    }

    /// Connects with this HELLO.
    pub(super) fn open_with(plan: &Plan, hello: &Hello<'_>) -> Result<Self> {
        let address = plan.address();
        let connect = || {
            let mut stream = Stream::connect(plan, ANSWER_TIME_MAX)?;
            let welcome = greet(&mut stream, hello)?;
            Ok(Self { stream, welcome, outgoing: Vec::new(), received: Vec::new() })
        };
        connect().map_err(|error: std::io::Error| match error.kind() {
            ErrorKind::ConnectionRefused => anyhow!(
                "no server listens at {address}; start one with: {}",
                address.start_command(plan.socket_address.port())
            ),
            _ => anyhow!("cannot open a connection to {address}: {}", explain(&error)),
        })
    }

    /// Sends the pending requests.
    pub(super) fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.outgoing).context("the connection was lost")?;
        self.outgoing.clear();
        Ok(())
    }

    /// Receives once and passes on every complete frame. Returns `None` if there is nothing to receive now.
    pub(super) fn receive(
        &mut self,
        handle: &mut dyn FnMut(Frame<'_>) -> Result<()>,
    ) -> Result<Option<usize>> {
        let start = self.received.len();
        self.received.resize(start + CHUNK_LEN, 0);
        let received = self.stream.read(&mut self.received[start..]);
        self.received.truncate(start + received.as_ref().map_or(0, |count| *count));
        match received {
            Ok(0) => bail!("the server closed the connection"),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Some(0)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).context("the connection was lost"),
        }
        let (mut offset, mut count) = (0, 0);
        while let Some(frame) = next_frame(&self.received[offset..], FRAME_LEN_MAX)? {
            handle(frame)?;
            offset += frame.len();
            count += 1;
        }
        self.received.drain(..offset);
        Ok(Some(count))
    }

    /// Sends the pending requests and waits for this number of responses.
    pub(super) fn exchange(
        &mut self,
        answer_count: usize,
        handle: &mut dyn FnMut(Frame<'_>) -> Result<()>,
    ) -> Result<()> {
        self.send()?;
        let mut left = answer_count;
        while left > 0 {
            let Some(count) = self.receive(handle)? else {
                bail!("no response within {ANSWER_TIME_MAX:?}");
            };
            left = left.saturating_sub(count);
        }
        Ok(())
    }

    /// Sends one acquire and waits for the grant.
    pub(super) fn acquire(&mut self, acquire: &Acquire<'_>) -> Result<Granted> {
        let mut granted = None;
        acquire.encode(2, &mut self.outgoing);
        self.exchange(1, &mut |frame| {
            granted = Some(grant_in(frame)?);
            Ok(())
        })?;
        granted.context("no grant arrived")
    }

    /// Lets these acquires wait, one batch after the other. An acquire is in flight until the server confirms that
    /// it waits, and the number in flight is limited. Each acquire asks for that confirmation.
    pub(super) fn queue<'a>(&mut self, acquires: impl IntoIterator<Item = (u32, Acquire<'a>)>) -> Result<()> {
        let mut acquires = acquires.into_iter().peekable();
        while acquires.peek().is_some() {
            let mut count = 0;
            for (number, acquire) in acquires.by_ref().take(BATCH) {
                acquire.with_terms(|terms| terms.notify_queued = true).encode(number, &mut self.outgoing);
                count += 1;
            }
            self.exchange(count, &mut |frame| match frame.opcode() {
                opcode::QUEUED => Ok(()),
                _ => bail!("unexpected response to an acquire that should wait: {}", in_words(frame)),
            })?;
        }
        Ok(())
    }

    /// Releases all these holds.
    pub(super) fn release_all(&mut self, holds: &[LockId]) -> Result<()> {
        for batch in holds.chunks(BATCH) {
            for (number, hold) in (1..).zip(batch) {
                Release { id: *hold, key: None, own: false }.encode(number, &mut self.outgoing);
            }
            self.exchange(batch.len(), &mut |frame| match Released::decode(frame) {
                Ok(_) if frame.opcode() == waymaker_protocol::message::release::RELEASED => Ok(()),
                _ => bail!("unexpected response to RELEASE: {}", in_words(frame)),
            })?;
        }
        Ok(())
    }

    /// Returns the server's counters of this namespace.
    pub(super) fn counters(&mut self, namespace: &[u8]) -> Result<Counters> {
        let mut counters = Counters::default();
        let mut cursor = 0;
        loop {
            Namespaces { cursor, count_max: 0 }.encode(3, &mut self.outgoing);
            self.exchange(1, &mut |frame| {
                let page = match Response::decode(frame)? {
                    Response::NamespacesListed(page) => page,
                    other => bail!("unexpected response to the list of namespaces: {other:?}"),
                };
                let NamespacesListed { next, namespaces } = page;
                if let Some(found) = namespaces.iter().find(|listed| listed.name == namespace) {
                    counters = Counters { held: found.held, waiting: found.waiting, expired: found.expired };
                }
                cursor = next;
                Ok(())
            })?;
            if cursor == 0 {
                return Ok(counters);
            }
        }
    }
}

/// Decodes the grant in this frame.
pub(super) fn grant_in(frame: Frame<'_>) -> Result<Granted> {
    if frame.opcode() == waymaker_protocol::message::acquire::GRANTED {
        Ok(Granted::decode(frame)?)
    } else {
        bail!("unexpected response to ACQUIRE: {}", in_words(frame))
    }
}

/// Formats an unexpected frame.
pub(super) fn in_words(frame: Frame<'_>) -> String {
    match Response::decode(frame) {
        Ok(Response::Error(ErrorAnswer { code, detail })) => ErrorAnswer { code, detail }.to_string(),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}
