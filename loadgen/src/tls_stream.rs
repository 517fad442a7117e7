//! TLS over a socket, blocking or non-blocking.
//!
//! Reads and writes do not wait for each other: a read never fails because the socket accepts no data. If the
//! buffers of both sides are full, both continue as soon as one of them reads.

use std::io::{self, Read, Write};

use rustls::ClientConnection;

/// A socket and its TLS state.
#[derive(Debug)]
pub struct TlsStream<S> {
    socket: S,
    connection: Box<ClientConnection>,
    is_drained: bool,
}

impl<S: Read + Write> TlsStream<S> {
    /// Performs the handshake over a blocking socket.
    pub(crate) fn shake_hands(mut connection: ClientConnection, mut socket: S) -> io::Result<Self> {
        connection.complete_io(&mut socket)?;
        Ok(Self { socket, connection: Box::new(connection), is_drained: false })
    }

    /// Sends the encrypted bytes. Returns `WouldBlock` if the socket does not accept all of them.
    fn send(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut self.socket)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Sends as many bytes as the socket accepts; the rest goes with the next write or flush.
    fn try_send(&mut self) -> io::Result<()> {
        match self.send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent,
        }
    }

    /// Reads the socket once and decrypts all complete records.
    fn receive(&mut self) -> io::Result<()> {
        let mut receiving = Receiving { socket: &mut self.socket, is_drained: &mut self.is_drained };
        self.connection.read_tls(&mut receiving)?;
        if let Err(error) = self.connection.process_new_packets() {
            // Sends the TLS alert with the reason, if the socket accepts it.
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

    /// Whether the last read emptied the socket.
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
                // A server that was killed sends no close message.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
        }
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    /// Encrypts some of the bytes and sends as much as the socket accepts.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Without this, the TLS buffer could be full and accept no bytes.
        self.send()?;
        let len = self.connection.writer().write(bytes)?;
        self.try_send()?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

/// Reader that TLS uses to read the socket.
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
