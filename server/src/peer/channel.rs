//! One HTTP/2 connection to a peer.
//!
//! Unlike tonic's channel, [`Channel`] never reconnects. For a lost request it reports whether the request may have
//! been sent. It sends no pings: etcd closes connections that ping without open requests, and every request has a
//! timeout.

use super::endpoint::Endpoint;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};

/// The sending end of a connection. The connection closes when all clones are dropped and no request is open.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    sender: SendRequest<Body>,
    origin: Uri,
}

impl Channel {
    /// Connects, completes the TLS handshake if the endpoint uses TLS, and starts HTTP/2. Does not wait for the peer's
    /// HTTP/2 settings. The [`Ending`] reports how the connection ends.
    pub(crate) async fn open(endpoint: &Endpoint) -> io::Result<(Self, Ending)> {
        let socket = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
        socket.set_nodelay(true)?;
        let opened = match &endpoint.encryption {
            None => converse(socket).await,
            Some(encryption) => {
                let connector = TlsConnector::from(Arc::clone(&encryption.config));
                converse(connector.connect(encryption.name.clone(), socket).await?).await
            }
        };
        let (sender, ending) = opened.map_err(io::Error::other)?;
        Ok((Self { sender, origin: endpoint.origin.clone() }, ending))
    }

    /// Returns the origin that requests are addressed to.
    pub(crate) fn origin(&self) -> Uri {
        self.origin.clone()
    }

    /// Returns whether the connection can send no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Starts HTTP/2 on a stream.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> hyper::Result<(SendRequest<Body>, Ending)> {
    let (sender, connection) =
        http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await?;
    Ok((sender, Ending(tokio::spawn(connection))))
}

/// Handle of the end of a connection. The error of the connection explains its loss better than the errors of its
/// requests.
#[derive(Debug)]
pub(crate) struct Ending(JoinHandle<hyper::Result<()>>);

impl Ending {
    /// Waits for the end of the connection. Returns its error, if it ended with one.
    pub(crate) async fn problem(self) -> Option<String> {
        self.0.await.ok()?.err().map(|error| explain(&error))
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = LostConnection;
    type Future = BoxFuture<Self::Response, LostConnection>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LostConnection>> {
        self.sender
            .poll_ready(context)
            .map_err(|error| LostConnection { was_sent: false, problem: explain(&error) })
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.sender.try_send_request(request);
        Box::pin(async {
            answer.await.map_err(|mut error| {
                // hyper returns the message only if the connection never took it. So a message that is not returned may
                // have been sent.
                let was_sent = error.take_message().is_none();
                LostConnection { was_sent, problem: explain(error.error()) }
            })
        })
    }
}

/// The connection was lost before a response began.
#[derive(Debug, thiserror::Error)]
#[error("the connection was lost: {problem}")]
pub(crate) struct LostConnection {
    /// Whether the peer may have received the request.
    pub(crate) was_sent: bool,
    problem: String,
}

/// Returns the text of an error with all its sources. hyper's own errors only say which step failed.
pub(crate) fn explain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}
