//! The channel to a gRPC server, encrypted if its address is `https://`.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tonic::codegen::{BoxFuture, Service};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use waymaker_client::internal::Protocol;
use waymaker_client::{Credentials, Tls, TlsError};

use crate::bearer::bearer;
use crate::checked::{Checked, Greeting, problem};
use crate::stream::{self, Stream};

/// Port of an address without a port.
const DEFAULT_PORT: u16 = 7421;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const EXPECTED: &str = "gRPC";

/// Reason why a gRPC server cannot be called.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not valid.
    #[error(
        "{address:?} is not a server address: {problem} (expected http://HOST:PORT or https://HOST:PORT)"
    )]
    Address {
        /// The address.
        address: String,
        /// Description of the mistake.
        problem: &'static str,
    },
    /// The TLS settings cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// The credentials cannot be sent.
    #[error("the credentials have a byte that the header `authorization` cannot have")]
    Credentials,
    /// No gRPC server responds at the address.
    #[error("cannot reach {address}: {problem}")]
    Unreachable {
        /// The address.
        address: String,
        /// Description of the error.
        problem: String,
    },
}

/// A server and how to connect to it. A channel whose connection broke connects again when it is next used.
pub(crate) struct Target {
    address: String,
    endpoint: Endpoint,
    connector: Connector,
}

impl Target {
    /// Parses the address and reads the files of the TLS settings. Opens no connection.
    pub(crate) fn new(address: &str, tls: &Tls) -> Result<Self, ConnectError> {
        let error = |problem| ConnectError::Address { address: address.to_owned(), problem };
        let origin: Uri = address.parse().map_err(|_| error("the address is malformed"))?;
        let is_encrypted = match origin.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(error("the scheme is missing or unknown")),
        };
        if origin.path_and_query().is_some_and(|path| path != "/") {
            return Err(error("only a host and a port may follow the scheme"));
        }
        let host = origin.host().ok_or_else(|| error("the host is missing"))?;
        let port = match origin.authority().and_then(|authority| authority.as_str().strip_prefix(host)) {
            Some("") => DEFAULT_PORT,
            Some(_) => origin.port_u16().ok_or_else(|| error("the port is not a number up to 65535"))?,
            None => return Err(error("only a host and a port may follow the scheme")),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let connector = Connector {
            host: host.into(),
            port,
            greeting: watch::Sender::new(Greeting::Awaited),
            tls: if is_encrypted { Some(stream::Connector::new(tls, host, b"h2")?) } else { None },
        };
        // The connector knows where to go and whether to encrypt; calls name the origin.
        let endpoint = Endpoint::from_static("http://server").origin(origin).connect_timeout(CONNECT_TIMEOUT);
        Ok(Self { address: address.to_owned(), endpoint, connector })
    }

    /// Sends a ping in each period, also without calls. A server that leaves a ping unanswered for a period counts as lost.
    pub(crate) fn ping_every(mut self, period: Duration) -> Self {
        self.endpoint = (self.endpoint.http2_keep_alive_interval(period))
            .keep_alive_timeout(period)
            .keep_alive_while_idle(true);
        self
    }

    /// Connects, and waits for the first HTTP/2 frame of the server. `tonic` alone would only send its own greeting.
    pub(crate) async fn connect(self) -> Result<Channel, ConnectError> {
        let Self { address, endpoint, connector } = self;
        let unreachable = |problem| ConnectError::Unreachable { address, problem };
        let mut greeting = connector.greeting.subscribe();
        let probe = connector.clone();
        let channel = match endpoint.connect_with_connector(connector).await {
            Ok(channel) => channel,
            Err(error) => return Err(unreachable(explain(&error))),
        };
        let greeted = greeting.wait_for(|greeting| *greeting != Greeting::Awaited);
        let greeting = tokio::time::timeout(CONNECT_TIMEOUT, greeted).await;
        match greeting.map(|greeting| greeting.map(|greeting| *greeting)) {
            Ok(Ok(Greeting::Other(found))) => Err(unreachable(problem(found, EXPECTED))),
            Ok(Ok(Greeting::End)) => Err(unreachable(match probe.found().await {
                Some(found) if found != Protocol::Http2 => problem(found, EXPECTED),
                _ => "the server closed the connection".to_owned(),
            })),
            Ok(Ok(Greeting::Awaited | Greeting::Expected)) => Ok(channel),
            Ok(Err(_)) => Err(unreachable("the connection was closed".to_owned())),
            Err(_) => Err(unreachable("no response in time".to_owned())),
        }
    }

    /// Returns a channel that connects when the first call is made. Must be called inside a runtime.
    pub(crate) fn connect_lazily(self) -> Channel {
        self.endpoint.connect_with_connector_lazy(self.connector)
    }
}

/// A channel whose calls prove the identity of the client.
pub(crate) type Authorized = InterceptedService<Channel, Authorization>;

/// Adds the header `authorization` to each call, if the client has credentials.
#[derive(Clone)]
pub(crate) struct Authorization(Option<MetadataValue<Ascii>>);

impl Authorization {
    pub(crate) fn new(credentials: &Credentials) -> Result<Self, ConnectError> {
        let value = bearer(credentials).map(|value| MetadataValue::try_from(value.as_slice())).transpose();
        let mut value = value.map_err(|_| ConnectError::Credentials)?;
        if let Some(value) = &mut value {
            // HTTP/2 then keeps it out of its tables, and `Debug` does not show it.
            value.set_sensitive(true);
        }
        Ok(Self(value))
    }

    /// Returns a channel that adds this header to each call.
    pub(crate) fn over(self, channel: Channel) -> Authorized {
        InterceptedService::new(channel, self)
    }
}

impl Interceptor for Authorization {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// Formats an error with its sources: errors of `tonic` alone name only the step that failed.
fn explain(error: &(dyn Error + 'static)) -> String {
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

/// Opens the connections of a channel, because the connector of `tonic` cannot use the TLS settings of the client.
#[derive(Clone)]
struct Connector {
    host: Arc<str>,
    port: u16,
    tls: Option<stream::Connector>,
    /// Greeting of the server of the newest connection.
    greeting: watch::Sender<Greeting>,
}

impl Connector {
    /// Detects the protocol of a server that closed an HTTP/2 connection: sends a request of HTTP/1, which HTTP servers answer.
    async fn found(&self) -> Option<Protocol> {
        let asked = async {
            let mut socket = TcpStream::connect((&*self.host, self.port)).await.ok()?;
            socket.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.ok()?;
            let mut answer = [0; 64];
            let count = socket.read(&mut answer).await.ok()?;
            Protocol::of(&answer[..count])
        };
        tokio::time::timeout(CONNECT_TIMEOUT, asked).await.ok().flatten()
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Checked<Box<dyn Stream>>>;
    type Error = io::Error;
    type Future = BoxFuture<Self::Response, io::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { host, port, tls, greeting } = self.clone();
        Box::pin(async move {
            let stream = stream::open(&host, port, tls.as_ref()).await?;
            Ok(TokioIo::new(Checked::new(stream, Protocol::Http2, EXPECTED, greeting)))
        })
    }
}
