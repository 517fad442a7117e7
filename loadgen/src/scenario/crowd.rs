//! Many connections that receive events without sending requests.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mio::{Events, Interest, Poll, Token};
use waymaker_protocol::Frame;

use super::client::Client;

/// Longest time between two checks of the clock.
const POLL_TIME_MAX: Duration = Duration::from_millis(20);

/// Clients whose events are received together.
#[derive(Debug)]
pub(super) struct Crowd {
    clients: Vec<Client>,
    /// The same sockets again, as registered with the poll.
    registered: Vec<mio::net::TcpStream>,
    poll: Poll,
}

impl Crowd {
    /// Combines the clients. They must have no partly sent requests.
    pub(super) fn gather(clients: Vec<Client>) -> Result<Self> {
        let poll = Poll::new()?;
        let mut registered = Vec::new();
        for (index, client) in clients.iter().enumerate() {
            let socket = client.stream.socket();
            socket.set_nonblocking(true)?;
            let mut stream = mio::net::TcpStream::from_std(socket.try_clone()?);
            poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
            registered.push(stream);
        }
        Ok(Self { clients, registered, poll })
    }

    /// Passes on the frames that arrive, with the number of their client, until the time limit or until
    /// `is_enough` returns true after reading from a client. Returns the time of that.
    pub(super) fn listen(
        &mut self,
        until: Instant,
        mut handle: impl FnMut(usize, Frame<'_>) -> Result<()>,
        mut is_enough: impl FnMut(Instant) -> bool,
    ) -> Result<()> {
        let mut events = Events::with_capacity(self.clients.len().max(1));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            match self.poll.poll(&mut events, Some(left.min(POLL_TIME_MAX))) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            let mut is_over = events.is_empty() && is_enough(Instant::now());
            for event in &events {
                let index = event.token().0;
                let mut handle = |frame: Frame<'_>| handle(index, frame);
                while self.clients[index].receive(&mut handle)?.is_some() {
                    is_over |= is_enough(Instant::now());
                    // The bystanders may run on the same core.
                    std::thread::yield_now();
                }
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// Separates the clients again.
    pub(super) fn dissolve(mut self) -> Result<Vec<Client>> {
        for (client, stream) in self.clients.iter().zip(&mut self.registered) {
            self.poll.registry().deregister(stream)?;
            client.stream.socket().set_nonblocking(false).context("cannot make a socket blocking again")?;
        }
        Ok(self.clients)
    }
}
