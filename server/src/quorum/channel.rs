//! One HTTP/2 connection that questions go through.
//!
//! Unlike the library's own channel it never connects again by itself, and of a question that was lost it says whether it had
//! been sent. It sends no pings: etcd lets nobody ping who asks nothing, and whoever asks something has a time-out.

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

/// The sending end of a connection. It is over once all of them are dropped.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    sender: SendRequest<Body>,
    origin: Uri,
}

impl Channel {
    /// Connects and begins TLS and HTTP/2; no word of the other side was heard of the latter. Beside it, how it will end.
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

    /// What questions are addressed to.
    pub(crate) fn origin(&self) -> Uri {
        self.origin.clone()
    }

    /// Nothing can be sent any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Begins HTTP/2.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> hyper::Result<(SendRequest<Body>, Ending)> {
    let (sender, connection) =
        http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await?;
    Ok((sender, Ending(tokio::spawn(connection))))
}

/// How a connection ends. The questions that were in flight say less of it.
#[derive(Debug)]
pub(crate) struct Ending(JoinHandle<hyper::Result<()>>);

impl Ending {
    /// What went wrong, if something did. Waits for the end.
    pub(crate) async fn problem(self) -> Option<String> {
        self.0.await.ok()?.err().map(|error| explain(&error))
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = Lost;
    type Future = BoxFuture<Self::Response, Lost>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        self.sender.poll_ready(context).map_err(|error| Lost { was_sent: false, problem: explain(&error) })
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.sender.try_send_request(request);
        Box::pin(async {
            answer.await.map_err(|mut error| {
                // What the connection never took is handed back.
                let was_sent = error.take_message().is_none();
                Lost { was_sent, problem: explain(error.error()) }
            })
        })
    }
}

/// The connection was lost before an answer began.
#[derive(Debug, thiserror::Error)]
#[error("the connection was lost: {problem}")]
pub(crate) struct Lost {
    /// The other side may have heard the question.
    pub(crate) was_sent: bool,
    problem: String,
}

/// An error with all that led to it; the library says of itself no more than where it was.
pub(super) fn explain(error: &(dyn Error + 'static)) -> String {
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
