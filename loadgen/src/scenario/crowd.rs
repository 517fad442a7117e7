//! Many connections to which things happen that they did not ask for just now.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mio::{Events, Interest, Poll, Token};
use waymaker_protocol::Frame;

use super::client::Client;

/// Longest time between two looks at the clock.
const POLL_TIME_MAX: Duration = Duration::from_millis(20);

/// Clients that are all listened to at once.
#[derive(Debug)]
pub(super) struct Crowd {
    clients: Vec<Client>,
    /// The same sockets again, as the poll knows them.
    registered: Vec<mio::net::TcpStream>,
    poll: Poll,
}

impl Crowd {
    /// Brings them together. Nothing of theirs may be half sent.
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

    /// Hands on what comes, with the number of its client, until the time is over or `is_enough` says so after a look
    /// at one client. Says when that was.
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
                    // Who measures what others notice may have the same core.
                    std::thread::yield_now();
                }
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// Lets each go its own way again.
    pub(super) fn dissolve(mut self) -> Result<Vec<Client>> {
        for (client, stream) in self.clients.iter().zip(&mut self.registered) {
            self.poll.registry().deregister(stream)?;
            client.stream.socket().set_nonblocking(false).context("a socket of a crowd")?;
        }
        Ok(self.clients)
    }
}
