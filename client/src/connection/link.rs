//! One connection to the server: its socket and its handshake.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::codec::Decoder;
use waymaker_protocol::limits::{FRAME_LEN_BEFORE_HELLO_MAX, FRAME_LEN_MAX};
use waymaker_protocol::{
    DecodeError, ErrorCode, Frame, Hello, NamespaceKind, Request, Response, SessionRequest, VERSION_MIN,
    Welcome, next_frame,
};
use zeroize::Zeroizing;

use super::codec::{CodecError, FrameCodec};
use super::server_protocol::Protocol;
use crate::clock::{BootTime, Clock};
use crate::credentials::Credentials;
use crate::error::{Error, Result, Unavailable};
use crate::lane::Offer;
use crate::tls::Connector;
use crate::url::ServerAddress;

/// Minimum free capacity of the buffer before each read, in bytes.
const READ_BUFFER_LEN: usize = 16 << 10;

/// One address at which the server may be reachable.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: ServerAddress,
    /// TLS settings for an address with TLS, otherwise `None`.
    pub(crate) tls: Option<Connector>,
}

/// Server, namespace and identity for a connection.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Addresses of the server, at least one.
    pub(crate) endpoints: Arc<[Endpoint]>,
    /// Number of the worker that should serve a new session, or [`ANY_WORKER`](waymaker_protocol::limits::ANY_WORKER).
    pub(crate) worker: u16,
    pub(crate) kind: NamespaceKind,
    pub(crate) namespace: Vec<u8>,
    pub(crate) owner: Vec<u8>,
    pub(crate) credentials: Credentials,
    /// Time limit for connecting and the handshake together. Each endpoint gets an equal part of it.
    pub(crate) timeout: std::time::Duration,
}

/// An open connection.
pub(crate) struct Link {
    pub(crate) reader: LinkReader,
    pub(crate) writer: LinkWriter,
}

/// Reading half of a connection, with the bytes that were read and not yet decoded.
pub(crate) struct LinkReader {
    socket: Box<dyn AsyncRead + Send + Unpin>,
    buffer: BytesMut,
    codec: FrameCodec,
}

impl LinkReader {
    /// Reads once from the socket. Fails if the server has closed the connection. Dropping the future loses no bytes.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        self.buffer.reserve(READ_BUFFER_LEN);
        match self.socket.read_buf(&mut self.buffer).await? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            _ => Ok(()),
        }
    }

    /// Returns the error for a server whose first bytes are not a frame of the binary protocol.
    fn other_protocol(&self, endpoint: &Endpoint) -> Error {
        match Protocol::of(&self.buffer) {
            Some(protocol) => other_protocol(endpoint.address.to_string(), protocol),
            None => Error::Protocol(DecodeError::BadMagic),
        }
    }

    /// Decodes the next frame from the bytes read so far.
    pub(crate) fn next(&mut self) -> std::result::Result<Option<BytesMut>, CodecError> {
        self.codec.decode(&mut self.buffer)
    }
}

/// Writing half of a connection.
pub(crate) struct LinkWriter {
    socket: Box<dyn AsyncWrite + Send + Unpin>,
    /// Number of bytes at the front of the caller's buffer that were already written.
    written: usize,
    /// Whether bytes are still to be written or flushed. TLS accepts bytes before the socket does.
    unsent: bool,
}

impl LinkWriter {
    /// Sends `bytes`, and clears the buffer when all are written. Returns ready when the socket has accepted all of
    /// them. Until then the caller may append more bytes and must call again.
    pub(crate) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        bytes: &mut Vec<u8>,
    ) -> Poll<io::Result<()>> {
        if bytes.is_empty() && !self.unsent {
            return Poll::Ready(Ok(()));
        }
        self.unsent = true;
        while self.written < bytes.len() {
            match ready!(Pin::new(&mut self.socket).poll_write(context, &bytes[self.written..]))? {
                0 => {
                    let message = "the socket takes no more bytes";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::WriteZero, message)));
                }
                count => self.written += count,
            }
        }
        bytes.clear();
        self.written = 0;
        ready!(Pin::new(&mut self.socket).poll_flush(context))?;
        self.unsent = false;
        Poll::Ready(Ok(()))
    }
}

/// Result of a handshake.
pub(crate) struct Greeted {
    pub(crate) link: Link,
    pub(crate) welcome: Welcome,
    /// Time just before the HELLO was sent.
    pub(crate) sent: BootTime,
}

/// Connects and performs the handshake. It has no time limit of its own: the caller drops the future when its timer
/// fires. `attempt` rises with each call for the same lane.
pub(crate) async fn open(
    target: &Target,
    endpoint: &Endpoint,
    offer: Offer,
    session: SessionRequest,
    attempt: u32,
    clock: &dyn Clock,
) -> Result<Greeted> {
    let failed = |error| Error::connect(endpoint.address.to_string(), error);
    let mut link = connect(endpoint).await.map_err(failed)?;
    // The buffer contains the credentials and is wiped on drop. It has room for any HELLO, so it is never reallocated.
    // A reallocation would leave an unwiped copy in memory.
    let mut out = Zeroizing::new(Vec::with_capacity(FRAME_LEN_BEFORE_HELLO_MAX));
    Request::Hello(hello(target, offer, session, attempt)).encode(0, &mut out);
    let sent = clock.now();
    poll_fn(|context| link.writer.poll_send(context, &mut out)).await.map_err(failed)?;
    let bytes = loop {
        match link.reader.next() {
            Ok(Some(bytes)) => break bytes,
            // The first bytes of another protocol may look like the start of a long frame. Check for such a protocol
            // now, because the rest of that frame would never arrive.
            Ok(None) if Protocol::of(&link.reader.buffer).is_some() => {
                return Err(link.reader.other_protocol(endpoint));
            }
            Ok(None) => link.reader.fill().await.map_err(failed)?,
            // The first bytes are not a valid frame length, so the server speaks another protocol.
            Err(CodecError::Frame(_)) => return Err(link.reader.other_protocol(endpoint)),
            Err(CodecError::Io(error)) => return Err(failed(error)),
        }
    };
    let frame = next_frame(&bytes, FRAME_LEN_MAX).ok().flatten().expect("the codec hands out whole frames");
    let welcome = welcome(frame, offer)?;
    Ok(Greeted { link, welcome, sent })
}

/// Returns the HELLO of a connection. `attempt` rises with each call for the same lane: the server refuses to resume a
/// lane with an older attempt than the newest.
pub(crate) fn hello(target: &Target, offer: Offer, session: SessionRequest, attempt: u32) -> Hello<'_> {
    Hello {
        version_min: VERSION_MIN,
        version_max: offer.version_max,
        kind: target.kind,
        session,
        worker: target.worker,
        namespace: &target.namespace,
        owner: &target.owner,
        credentials: target.credentials.as_ref(),
        attempt: matches!(session, SessionRequest::Resume { .. }).then_some(attempt),
        notify_taken_up: true,
        capabilities: offer.capabilities,
    }
}

/// Decodes the response to a HELLO that contained this offer.
///
/// # Errors
///
/// The error of a server that refused the HELLO, or a protocol error if its response does not fit a HELLO.
pub(crate) fn welcome(frame: Frame<'_>, offer: Offer) -> Result<Welcome> {
    match Response::decode(frame)? {
        Response::Welcome(Welcome { version, .. })
            if !(VERSION_MIN..=offer.version_max).contains(&version) =>
        {
            Err(Error::Protocol(DecodeError::BadValue { field: "version", value: u64::from(version) }))
        }
        Response::Welcome(welcome) => Ok(welcome),
        Response::Error(error) => Err(refusal(error.into())),
        _ => {
            Err(Error::Protocol(DecodeError::BadValue { field: "opcode", value: u64::from(frame.opcode()) }))
        }
    }
}

/// Names `credentials` as the field of a HELLO that was refused as `unauthorized`, if the server named no field.
fn refusal(error: Error) -> Error {
    match error {
        Error::Refused { code: ErrorCode::Unauthorized, field, message, value } if field.is_empty() => {
            Error::refused(ErrorCode::Unauthorized, "credentials", value, message)
        }
        error => error,
    }
}

/// Returns the error for a server that speaks another protocol.
fn other_protocol(address: String, protocol: Protocol) -> Error {
    let hint = match protocol {
        Protocol::Tls => "the address of a server with TLS begins with waymaker+tls://",
        _ => "7420 is the default port of the binary protocol, 7421 of gRPC and 7422 of HTTP",
    };
    let message = format!("the server there speaks {protocol}, not the binary protocol of Waymaker");
    let source = Arc::new(io::Error::new(io::ErrorKind::InvalidData, message));
    Unavailable::Unreachable { address, hint, source }.into()
}

/// Opens the socket, and TLS if the endpoint uses it.
async fn connect(endpoint: &Endpoint) -> io::Result<Link> {
    let (socket, writer): (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>) =
        match &endpoint.address {
            ServerAddress::Tcp { host, port } | ServerAddress::Tls { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                match &endpoint.tls {
                    None => {
                        let (reader, writer) = stream.into_split();
                        (Box::new(reader), Box::new(writer))
                    }
                    Some(tls) => {
                        let (reader, writer) = tokio::io::split(tls.connect(stream).await?);
                        (Box::new(reader), Box::new(writer))
                    }
                }
            }
            #[cfg(unix)]
            ServerAddress::Unix(path) => {
                let (reader, writer) = tokio::net::UnixStream::connect(path).await?.into_split();
                (Box::new(reader), Box::new(writer))
            }
            #[cfg(not(unix))]
            ServerAddress::Unix(path) => {
                let message =
                    format!("this system has no Unix sockets, so {} cannot be reached", path.display());
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
        };
    let codec = FrameCodec { frame_len_max: FRAME_LEN_MAX };
    let buffer = BytesMut::with_capacity(READ_BUFFER_LEN);
    let writer = LinkWriter { socket: writer, written: 0, unsent: false };
    Ok(Link { reader: LinkReader { socket, buffer, codec }, writer })
}
