//! TLS over a socket, which may block or not.
//!
//! Neither direction waits for the other: a read never fails because the socket takes nothing, so two sides that are both
//! full go on as soon as one of them reads.

use std::io::{self, Read, Write};

use rustls::ClientConnection;

/// A socket and the state of its encryption.
#[derive(Debug)]
pub struct TlsStream<S> {
    socket: S,
    connection: Box<ClientConnection>,
    is_drained: bool,
}

impl<S: Read + Write> TlsStream<S> {
    /// Shakes hands over a socket that blocks.
    pub(crate) fn shake_hands(mut connection: ClientConnection, mut socket: S) -> io::Result<Self> {
        connection.complete_io(&mut socket)?;
        Ok(Self { socket, connection: Box::new(connection), is_drained: false })
    }

    /// Sends what is encrypted. `WouldBlock` if the socket does not take all of it.
    fn send(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut self.socket)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Sends what the socket takes; the rest goes with the next write or flush.
    fn try_send(&mut self) -> io::Result<()> {
        match self.send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent,
        }
    }

    /// Reads the socket once and decrypts what is whole.
    fn receive(&mut self) -> io::Result<()> {
        let mut receiving = Receiving { socket: &mut self.socket, is_drained: &mut self.is_drained };
        self.connection.read_tls(&mut receiving)?;
        if let Err(error) = self.connection.process_new_packets() {
            // The alert that says why, if the socket takes it.
            let _ = self.send();
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        self.try_send()
    }
}

impl<S> TlsStream<S> {
    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    pub(crate) fn socket_mut(&mut self) -> &mut S {
        &mut self.socket
    }

    pub(crate) fn map_socket<T>(self, map: impl FnOnce(S) -> T) -> TlsStream<T> {
        TlsStream { socket: map(self.socket), connection: self.connection, is_drained: self.is_drained }
    }

    /// The last read has emptied the socket.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.is_drained = false;
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.receive()?,
                // A server that is gone says no goodbye.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
        }
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    /// Encrypts some of it and sends as much as the socket takes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Without this the buffer of TLS could be full, and take nothing.
        self.send()?;
        let len = self.connection.writer().write(bytes)?;
        self.try_send()?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

/// The socket as TLS reads it.
struct Receiving<'a, S> {
    socket: &'a mut S,
    is_drained: &'a mut bool,
}

impl<S: Read> Read for Receiving<'_, S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let len = self.socket.read(bytes)?;
        *self.is_drained = len < bytes.len();
        Ok(len)
    }
}
