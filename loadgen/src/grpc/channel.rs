//! One HTTP/2 connection for gRPC calls.
//!
//! The client of the gRPC library adds a queue, a reconnecting channel and more layers. Each of them costs the
//! load core as much as a short call. Here the stubs use the connection directly.

use std::io;
use std::net::TcpStream;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use http::header::{AUTHORIZATION, HeaderValue};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic::transport::Uri;

use crate::connection::{HANDSHAKE_TIME_MAX, cannot_open};
use crate::plan::Plan;

/// Sender of a connection. The connection closes when all clones are dropped.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    sender: SendRequest<Body>,
    origin: Uri,
    /// Value of the header `authorization`, if the clients have a token.
    authorization: Option<HeaderValue>,
}

impl Channel {
    /// Connects, on the current runtime.
    pub(super) async fn open(plan: &Plan, index: u32) -> Result<Self> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&plan.socket_address, HANDSHAKE_TIME_MAX)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            tokio::net::TcpStream::from_std(stream)
        };
        let cannot_open = |error| cannot_open(plan, index, error);
        let socket = connect().map_err(cannot_open)?;
        let (scheme, sender) = match &plan.tls {
            None => ("http", converse(socket).await?),
            Some(tls) => {
                let stream = timeout(HANDSHAKE_TIME_MAX, tls.connect(socket)).await.map_err(io::Error::from);
                ("https", converse(stream.flatten().map_err(cannot_open)?).await?)
            }
        };
        let origin = format!("{scheme}://{}", plan.socket_address).parse()?;
        Ok(Self { sender, origin, authorization: authorization(plan)? })
    }

    /// Returns the origin of the request URIs.
    pub(super) fn origin(&self) -> Uri {
        self.origin.clone()
    }
}

/// Returns the value of the header `authorization`.
fn authorization(plan: &Plan) -> Result<Option<HeaderValue>> {
    if plan.credentials.is_empty() {
        return Ok(None);
    }
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", plan.credentials.as_ref()].concat())
        .context("the token has a byte that the header `authorization` cannot have")?;
    // `Debug` does not show it then.
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Starts HTTP/2.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> hyper::Result<SendRequest<Body>> {
    let (sender, connection) =
        http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await?;
    // The calls in flight report how the connection ended.
    tokio::spawn(async { drop(connection.await) });
    Ok(sender)
}

impl Service<http::Request<Body>> for Channel {
    type Response = http::Response<Incoming>;
    type Error = Status;
    type Future = BoxFuture<Self::Response, Status>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.sender.poll_ready(context).map_err(lost)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let answer = self.sender.send_request(request);
        Box::pin(async { answer.await.map_err(lost) })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "errors are mapped")]
fn lost(error: hyper::Error) -> Status {
    Status::unavailable(format!("the connection was lost: {error}"))
}
