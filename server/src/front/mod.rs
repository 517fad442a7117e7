//! What others speak: gRPC, HTTP and WebSocket, each translated into the binary protocol.
//!
//! A connection of a front end lives on a worker's thread, as every connection does. A library reads and writes it, the
//! files here say what its requests mean, and an `Inlet` asks the worker. So nothing here knows a
//! shard, and nothing in the worker knows a front end.

mod browser;
mod client;
mod closing;
mod console;
mod contracts;
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
mod rejection;
mod response;
mod served;
mod short_body;
mod shown;
mod socket;
mod streams;
mod timed_body;
mod trace_context;
mod trailers;
mod unserved;
mod untaken;
mod v1;
mod waymaker;

pub use browser::{AllowedHost, AllowedOrigin, BadHost, BadOrigin, BrowserConfig};
pub(crate) use client::FrontCaller;
#[cfg(feature = "fuzzing")]
pub(crate) use dynamodb::fuzzing as dynamodb_fuzzing;
pub(crate) use locket::{LOCKET_TYPES, NAMESPACE as LOCKET_NAMESPACE};
pub use locket::{LocketCompatibility, LocketConfig};
#[cfg(feature = "fuzzing")]
pub(crate) use locktopus::fuzzing as locktopus_fuzzing;

use crate::access::Evidence;
use crate::driver::front_turn::in_turns;
use crate::driver::{Admission, Intake, Local, Port, StdSocket, failed_handshake};
use crate::limits::{GRPC_GREETING_LEN, HTTP_GREETING_LEN, RESERVED_CONNECTION_MS};
use crate::options::Options;
use axum::Router;
use browser::guard;
use client::FrontClient;
use closing::Closing;
use health::Health;
use lists::Lists;
use locktopus::Locktopus;
use metrics::Metrics;
use socket::FrontSocket;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tonic::service::Routes;

/// What front ends are told.
#[derive(Clone, Debug)]
pub struct FrontConfig {
    locket: LocketConfig,
    metrics: Arc<Metrics>,
    closing: Arc<Closing>,
    lists: Arc<Lists>,
    health: Health,
    /// Services beside those of locks: health and reflection.
    side_services: Routes,
    /// What is served on the port for HTTP.
    http: Router,
    /// Paths of the port for HTTP while the server is full.
    reserved: Router,
    /// What is served on the port of Locktopus alone.
    locktopus: Router,
    /// The paths of the port for clients of DynamoDB.
    dynamodb: Router,
    dynamodb_tables: Arc<dynamodb::ServerTables>,
}

impl FrontConfig {
    /// For a server that is about to start.
    ///
    /// # Errors
    /// If a contract that was compiled in cannot be described.
    pub fn new(options: &Options) -> anyhow::Result<Self> {
        let locktopus = Arc::new(Locktopus::new(options.locktopus_abandon_timeout));
        let metrics = Arc::new(Metrics::new());
        let health = Health::new(grpc::SERVICES);
        let rule = |listen: &Option<String>| {
            browser::Rule::new(&options.browsers, listen.as_deref(), options.tls.cert.is_some())
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
            lists: Arc::new(Lists::new(options.limits.lists_memory as usize)),
        })
    }

    /// The same for another server, which knows no tables.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn of_another_server(&self) -> Self {
        Self { dynamodb_tables: Arc::default(), ..self.clone() }
    }

    /// Counts a refused connection, by the place of its label in `REFUSAL_LABELS`.
    pub(crate) fn note_refused(&self, label_index: usize) {
        self.metrics.note_refused(label_index);
    }

    /// Tells clients of gRPC whether new claims are served.
    pub fn set_ready(&self, is_ready: bool) {
        self.health.set_ready(is_ready);
    }

    /// Tells clients of gRPC that the server is about to stop.
    pub fn drain(&self) {
        self.health.stop();
    }

    /// Ends the connections of gRPC in such a way that clients make their next calls elsewhere. To be called before the workers
    /// finish, so that every call in progress is answered.
    pub async fn close(&self) {
        self.closing.close().await;
    }
}

/// Serves a connection of a front end to its end.
pub(crate) async fn serve(local: Rc<Local>, intake: Intake) {
    let Intake { port, socket, peer, mut evidence, reserved, mut admission, .. } = intake;
    local.note_front();
    if let Some(reserved) = reserved {
        // In a box, so that other connections do not have room for it.
        Box::pin(serve_reserved(&local, socket, peer, evidence, admission)).await;
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
                // In a box, so that connections of the others do not have room for it.
                Port::Grpc => {
                    Box::pin(grpc::serve(&local, socket, client)).await;
                    None
                }
                Port::Http => in_turns(http::serve(&local, socket, client, &local.fronts.http)).await,
                Port::Locktopus => {
                    in_turns(http::serve(&local, socket, client, &local.fronts.locktopus)).await
                }
                Port::Dynamodb => in_turns(http::serve(&local, socket, client, &local.fronts.dynamodb)).await,
                Port::Binary => None,
            }
        }
        Err(error) => {
            failed_handshake::note(&local.node, &error, &evidence, &peer, port);
            None
        }
    };
    match afterwards {
        // In a task of its own, so that nothing stays of what it was.
        Some(afterwards) => drop(tokio::task::spawn_local(async move {
            in_turns(afterwards).await;
            local.note_front_ended();
            drop(admission);
        })),
        None => local.note_front_ended(),
    }
}

/// Serves a connection of the port for HTTP that is beyond the limit, for a short time.
async fn serve_reserved(
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
                http::serve_reserved(socket, client, &local.fronts.reserved).await;
            }
            Err(error) => failed_handshake::note(&local.node, &error, &evidence, &peer, Port::Http),
        }
    };
    let serving = in_turns(serving);
    let _ = timeout(Duration::from_millis(RESERVED_CONNECTION_MS), serving).await;
}
