//! Front ends: gRPC, HTTP and WebSocket protocols, each translated into the binary protocol.
//!
//! A front-end connection lives on a worker thread, like every other connection. A library reads and writes its socket,
//! the submodules of `front` interpret its requests, and an `Inlet` passes them to the worker. So no front end calls a
//! shard, and the worker calls no front end.

mod browser;
mod client;
mod closing;
mod console;
mod contracts;
mod conversion;
mod dynamodb;
mod grpc;
mod health;
mod http;
mod lazy_inlet;
mod lists;
mod locket;
mod locktopus;
mod long_answers;
mod long_text;
mod metrics;
mod operators;
mod probes;
mod refused_stream;
mod rejection;
mod response;
mod service_settings;
mod short_body;
mod socket;
mod streams;
mod timed_body;
mod trace_context;
mod trailers;
mod unread_responses;
mod v1;
mod waymaker;

pub use browser::{AllowedHost, AllowedOrigin, BadHost, BadOrigin, BrowserConfig};
pub(crate) use client::FrontCaller;
#[cfg(feature = "fuzzing")]
pub(crate) use dynamodb::fuzzing as dynamodb_fuzzing;
pub use locket::{LocketCompatibility, LocketConfig};
#[cfg(feature = "fuzzing")]
pub(crate) use locktopus::fuzzing as locktopus_fuzzing;

use crate::access::Evidence;
use crate::driver::front_turn::in_turns;
use crate::driver::{Admission, ConnectionHandler, Intake, Local, StdSocket, failed_handshake};
use crate::limits::{GRPC_GREETING_LEN, HTTP_GREETING_LEN, RESERVED_CONNECTION_MS};
use crate::port::Port;
use axum::Router;
use browser::guard;
use client::FrontClient;
use closing::Closing;
use health::Health;
use lists::Lists;
use locktopus::Locktopus;
use metrics::Metrics;
use socket::FrontSocket;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tonic::service::Routes;

thread_local! {
    /// The front ends of the server whose worker runs on this thread.
    static FRONTS: OnceCell<Arc<FrontConfig>> = const { OnceCell::new() };
}

/// Options of the front ends.
#[derive(Clone, Debug)]
pub struct FrontOptions {
    /// Hosts and web pages that may use the HTTP ports.
    pub browsers: BrowserConfig,
    /// Options of Locket's contract.
    pub locket: LocketConfig,
    /// Time for which a held Locktopus lock stays held after its connection has ended, unless the client has chosen
    /// another time.
    pub locktopus_abandon_timeout: Duration,
    /// Whether the TCP listeners are encrypted.
    pub is_encrypted: bool,
    /// Listen address of HTTP, if there is one.
    pub http_listen: Option<String>,
    /// Listen address that serves only Locktopus, if there is one.
    pub locktopus_listen: Option<String>,
    /// Listen address of the DynamoDB protocol, if there is one.
    pub dynamodb_listen: Option<String>,
    /// Maximum total length of all lists without pages that the server makes or sends, in bytes. Such a list is a whole
    /// list in one response, as in `ListAcquiredLocks`. At the maximum, the server drops the oldest lists that began
    /// more than `LIST_KEPT_MS` ago, or else rejects calls.
    pub lists_len_max: usize,
}

/// Configuration and shared state of all front ends.
#[derive(Clone, Debug)]
pub struct FrontConfig {
    locket: LocketConfig,
    metrics: Arc<Metrics>,
    closing: Arc<Closing>,
    lists: Arc<Lists>,
    health: Health,
    /// gRPC services that need no identity: health and reflection.
    side_services: Routes,
    /// Routes of the HTTP port.
    http: Router,
    /// Routes for connections that the HTTP port accepts although the server is full: health checks and metrics. A full
    /// server has its maximum of connections, or uses 105 % of its memory limit.
    reserved: Router,
    /// Routes of the port that serves Locktopus only.
    locktopus: Router,
    /// Routes of the DynamoDB port.
    dynamodb: Router,
    dynamodb_tables: Arc<dynamodb::ServerTables>,
}

impl FrontConfig {
    /// Creates the front ends of a server that is about to start.
    ///
    /// # Errors
    /// Fails if the description of a compiled-in contract is invalid.
    pub fn new(options: &FrontOptions) -> anyhow::Result<Self> {
        let locktopus = Arc::new(Locktopus::new(options.locktopus_abandon_timeout));
        let metrics = Arc::new(Metrics::new());
        let health = Health::new(grpc::SERVICES);
        let rule = |listen: &Option<String>| {
            browser::Rule::new(&options.browsers, listen.as_deref(), options.is_encrypted)
        };
        let (http_rule, locktopus_rule) = (rule(&options.http_listen), rule(&options.locktopus_listen));
        Ok(Self {
            locket: options.locket,
            side_services: grpc::side_services(&health)?,
            health,
            http: guard(http::router(&locktopus, &metrics), http_rule.clone()),
            reserved: guard(http::reserved_router(&metrics), http_rule),
            locktopus: guard(locktopus::router(&locktopus), locktopus_rule),
            dynamodb: guard(dynamodb::router(), rule(&options.dynamodb_listen)),
            dynamodb_tables: Arc::default(),
            metrics,
            closing: Arc::default(),
            lists: Arc::new(Lists::new(options.lists_len_max)),
        })
    }

    /// Runs a function with the front ends of the current thread.
    fn with<T>(act: impl FnOnce(&Self) -> T) -> T {
        FRONTS.with(|own| act(own.get().expect("front ends run on the threads of workers")))
    }

    /// Returns the same configuration for another server, without the DynamoDB tables of this one.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn of_another_server(&self) -> Self {
        Self { dynamodb_tables: Arc::default(), ..self.clone() }
    }

    /// Sets whether the gRPC health service reports that new claims are served.
    pub fn set_ready(&self, is_ready: bool) {
        self.health.set_ready(is_ready);
    }

    /// Makes the gRPC health service report from now on that no service accepts claims.
    pub fn drain(&self) {
        self.health.stop();
    }

    /// Closes the gRPC connections gracefully, so that clients make their next calls on another server. Call this
    /// before the workers finish, so that calls in progress are answered if they end in time.
    pub async fn close(&self) {
        self.closing.close().await;
    }
}

impl ConnectionHandler for FrontConfig {
    fn enter(self: &Arc<Self>) {
        FRONTS.with(|own| own.set(Arc::clone(self)).expect("a thread runs one worker"));
    }

    fn serve(self: Arc<Self>, local: Rc<Local>, intake: Intake) -> impl Future<Output = ()> + 'static {
        serve(self, local, intake)
    }
}

/// Serves a front-end connection until it closes.
async fn serve(fronts: Arc<FrontConfig>, local: Rc<Local>, intake: Intake) {
    let Intake { port, socket, peer, mut evidence, reserved, mut admission, .. } = intake;
    local.note_front();
    if let Some(reserved) = reserved {
        // The HTTP port accepts a reserved connection although the server has its maximum of connections, or uses 105 %
        // of its memory limit. Box its future, so that the futures of other connections do not contain memory for it.
        Box::pin(serve_reserved(&fronts, &local, socket, peer, evidence, admission)).await;
        local.note_front_ended();
        return drop(reserved);
    }
    let greeting_len = if port == Port::Grpc { GRPC_GREETING_LEN } else { HTTP_GREETING_LEN };
    let begun = FrontSocket::begin(socket, greeting_len).await;
    admission.end_handshake();
    let afterwards = match begun {
        Ok(socket) => {
            evidence.certificate_names = socket.certificate_names();
            let client = FrontClient::new(port, peer, evidence);
            match port {
                // Box the future of a gRPC connection, so that connections of other front ends do not reserve memory
                // for it.
                Port::Grpc => {
                    Box::pin(grpc::serve(&fronts, &local, socket, client)).await;
                    None
                }
                Port::Http => in_turns(http::serve(&local, socket, client, &fronts.http)).await,
                Port::Locktopus => in_turns(http::serve(&local, socket, client, &fronts.locktopus)).await,
                Port::Dynamodb => in_turns(http::serve(&local, socket, client, &fronts.dynamodb)).await,
                Port::Binary => None,
            }
        }
        Err(error) => {
            failed_handshake::note(&local.node, &error, &evidence, &peer, port);
            None
        }
    };
    match afterwards {
        // Run `afterwards`, the protocol to which the client has upgraded its HTTP connection, in a new task. The
        // present task then ends, which frees the memory of the HTTP connection.
        Some(afterwards) => drop(tokio::task::spawn_local(async move {
            in_turns(afterwards).await;
            local.note_front_ended();
            drop(admission);
        })),
        None => local.note_front_ended(),
    }
}

/// Serves a connection of the HTTP port that was accepted although the server is full, for at most
/// [`RESERVED_CONNECTION_MS`]. A full server has its maximum of connections, or uses 105 % of its memory limit.
async fn serve_reserved(
    fronts: &FrontConfig,
    local: &Local,
    socket: StdSocket,
    peer: String,
    mut evidence: Evidence,
    mut admission: Admission,
) {
    let serving = async {
        let begun = FrontSocket::begin(socket, HTTP_GREETING_LEN).await;
        admission.end_handshake();
        match begun {
            Ok(socket) => {
                evidence.certificate_names = socket.certificate_names();
                let client = FrontClient::new(Port::Http, peer, evidence);
                http::serve_reserved(socket, client, &fronts.reserved).await;
            }
            Err(error) => failed_handshake::note(&local.node, &error, &evidence, &peer, Port::Http),
        }
    };
    let serving = in_turns(serving);
    let _ = timeout(Duration::from_millis(RESERVED_CONNECTION_MS), serving).await;
}
