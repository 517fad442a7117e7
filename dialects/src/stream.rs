//! The TCP connection of a dialect that speaks the protocol of another system.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use waymaker_client::{Tls, TlsError};

/// A TCP connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Encrypts connections to one server.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    /// Name that the certificate of the server must contain.
    name: ServerName<'static>,
}

impl Connector {
    /// Reads the files of the TLS settings. The connector offers `protocol` to the server (ALPN): some servers speak a protocol only with
    /// clients that offer it.
    pub(crate) fn new(tls: &Tls, host: &str, protocol: &[u8]) -> Result<Self, TlsError> {
        let (mut config, name) = tls.for_rustls(host)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), name })
    }
}

/// Connects to this host. With a connector, also finishes the TLS handshake.
pub(crate) async fn open(host: &str, port: u16, tls: Option<&Connector>) -> io::Result<Box<dyn Stream>> {
    let socket = TcpStream::connect((host, port)).await?;
    socket.set_nodelay(true)?;
    Ok(match tls {
        None => Box::new(socket),
        Some(Connector { tls, name }) => Box::new(tls.connect(name.clone(), socket).await?),
    })
}
