//! One connection: its socket, its slots, and incomplete messages.

use std::io::{self, Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::codec::Codec;
use crate::plan::Plan;
use crate::slots::Slots;
use crate::stream::Stream;
use crate::tls::explain;

/// Time limit for the handshake of a connection.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);

/// One connection. Receive and send buffers belong to the thread and are shared by its connections. The connection
/// keeps only bytes left over between two events, which is nearly always nothing.
#[derive(Debug)]
pub struct Connection<C: Codec> {
    /// Encodes its requests and decodes its responses.
    pub codec: C,
    /// Non-blocking socket, with or without TLS.
    pub stream: Stream<mio::net::TcpStream>,
    /// Its requests in flight.
    pub slots: Slots<C::Hold>,
    /// Slots with a request to send, in the order in which they became ready.
    pub ready: Vec<u32>,
    /// Slots whose acquire was answered busy and whose retry is not due yet.
    pub refused: Vec<u32>,
    /// Number of requests without a response.
    pub in_flight_count: u32,
    /// Lane of the first slot.
    pub first_lane: u32,
    /// Bytes of an incomplete response.
    partial: Vec<u8>,
    /// Bytes that the socket did not accept yet.
    unsent: Vec<u8>,
    /// Whether the connection was lost.
    pub is_lost: bool,
}

impl<C: Codec> Connection<C> {
    /// Connects and sends the greeting.
    pub fn open(plan: &Plan, index: u32) -> Result<Self> {
        let connect = || {
            let mut stream = Stream::connect(plan, HANDSHAKE_TIME_MAX)?;
            let codec = C::open(plan, &mut stream)?;
            Ok((codec, stream.into_mio()?))
        };
        let (codec, stream) = connect().map_err(|error| cannot_open(plan, index, error))?;
        Ok(Self {
            codec,
            stream,
            slots: Slots::new(plan.depth),
            ready: (0..plan.depth).collect(),
            refused: Vec::new(),
            in_flight_count: 0,
            first_lane: index * plan.depth,
            partial: Vec::new(),
            unsent: Vec::new(),
            is_lost: false,
        })
    }

    /// Opens all connections of a plan.
    pub fn open_all(plan: &Plan) -> Result<Vec<Self>> {
        crate::process::raise_open_files_limit(u64::from(plan.connections))
            .context("--connections: too many open files")?;
        (0..plan.connections).map(|index| Self::open(plan, index)).collect()
    }

    /// Sends the bytes; keeps the bytes that the socket does not accept now.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return self.send_rest();
        }
        match self.stream.write(bytes) {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(count) => {
                self.unsent.extend_from_slice(&bytes[count..]);
                self.send_rest()
            }
            Err(error) if is_transient(&error) => {
                self.unsent.extend_from_slice(bytes);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Sends kept bytes until they are all sent or the socket accepts no more.
    #[inline]
    pub fn send_rest(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_transient(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        match self.stream.flush() {
            Err(error) if is_transient(&error) => Ok(()),
            flushed => flushed,
        }
    }

    /// Receives into `buffer`, after the bytes kept from last time. Returns the filled length of the
    /// buffer, and true if the socket is now empty; `None` if there was nothing to receive.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<(usize, bool)>> {
        let kept = self.partial.len();
        buffer[..kept].copy_from_slice(&self.partial);
        match self.stream.read(&mut buffer[kept..]) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            Ok(count) => {
                let is_empty = kept + count < buffer.len() && self.stream.is_drained();
                Ok(Some((kept + count, is_empty)))
            }
            Err(error) if is_transient(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Drops all requests in flight.
    pub fn lose(&mut self) {
        self.is_lost = true;
        self.slots = Slots::new(0);
        self.ready.clear();
        self.refused.clear();
        self.in_flight_count = 0;
    }

    /// Keeps the beginning of a response for the next event.
    #[inline]
    pub fn keep(&mut self, rest: &[u8]) {
        self.partial.clear();
        self.partial.extend_from_slice(rest);
    }
}

/// Returns an error that explains why this connection cannot be opened, and the remedy.
pub fn cannot_open(plan: &Plan, index: u32, error: io::Error) -> anyhow::Error {
    let address = plan.address();
    match error.kind() {
        io::ErrorKind::ConnectionRefused => anyhow!(
            "no server listens at {address}; start one with: {}",
            address.start_command(plan.socket_address.port())
        ),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            anyhow!(
                "{address} did not answer within {HANDSHAKE_TIME_MAX:?}; check that the server is running and \
                 has this protocol"
            )
        }
        io::ErrorKind::InvalidData => anyhow!("{address}: {}", explain(&error)),
        _ => anyhow::Error::new(error).context(format!(
            "cannot open connection {} of {} to {address}",
            index + 1,
            plan.connections
        )),
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
