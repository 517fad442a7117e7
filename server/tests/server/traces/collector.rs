//! A collector of OpenTelemetry, built on the contract that OpenTelemetry publishes.

use crate::harness::{own_host, wait_for};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use std::future::pending;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, panicking, spawn};
use tokio::sync::oneshot;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// A running collector. It ends when this is dropped.
pub(super) struct Collector {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || panicking(), "the collector failed");
    }
}

#[derive(Default)]
struct State {
    requests: Mutex<Vec<ExportTraceServiceRequest>>,
    is_stalled: bool,
}

/// The service.
struct Service(Arc<State>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.requests.lock().unwrap().push(request.into_inner());
        if self.0.is_stalled {
            pending::<()>().await;
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub(super) fn start() -> Self {
        Self::start_at(free_address(), false)
    }

    /// A collector that never answers.
    pub(super) fn start_stalled() -> Self {
        Self::start_at(free_address(), true)
    }

    pub(super) fn start_at(address: SocketAddr, is_stalled: bool) -> Self {
        let state = Arc::new(State { is_stalled, ..State::default() });
        let service = TraceServiceServer::new(Service(Arc::clone(&state)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (stop, stopped) = oneshot::channel();
        let thread = spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    served = Server::builder().add_service(service).serve(address) => {
                        served.expect("the collector listens");
                    }
                    _ = stopped => {}
                }
            });
        });
        Self { address, state, stop: Some(stop), thread: Some(thread) }
    }

    /// Returns the value of `--otlp-endpoint` for this collector.
    pub(super) fn url(&self) -> String {
        url(self.address)
    }

    /// Returns the requests so far.
    pub(super) fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Returns the spans so far.
    pub(super) fn spans(&self) -> Vec<Span> {
        let resources = self.requests().into_iter().flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    /// Waits for this number of spans.
    pub(super) fn wait_for_spans(&self, count: usize) -> Vec<Span> {
        wait_for(&format!("{count} spans"), || Some(self.spans()).filter(|spans| spans.len() >= count))
    }
}

pub(super) fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// Returns a free address. No other test uses it.
pub(super) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((own_host(), 0)).expect("a free port");
    listener.local_addr().expect("an address")
}

/// Returns the attributes as text, in the form `name=value`.
pub(super) fn texts(attributes: &[KeyValue]) -> Vec<String> {
    let text = |attribute: &KeyValue| {
        let value = match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(Value::StringValue(text)) => text.clone(),
            Some(Value::IntValue(number)) => number.to_string(),
            other => panic!("{other:?}"),
        };
        format!("{}={value}", attribute.key)
    };
    attributes.iter().map(text).collect()
}
