//! The TCP connection of a dialect that speaks the protocol of another system.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::tls::Connector;

/// A TCP connection, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects to this host, and finishes the TLS handshake if there is a connector.
pub(super) async fn open(host: &str, port: u16, tls: Option<&Connector>) -> io::Result<Box<dyn Stream>> {
    let socket = TcpStream::connect((host, port)).await?;
    socket.set_nodelay(true)?;
    Ok(match tls {
        None => Box::new(socket),
        Some(tls) => Box::new(tls.connect(socket).await?),
    })
}
