//! What the contract counts.

use super::fault::Fault;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tonic::{Response, Status};

/// How long the longest latency counts at least, as the original reports it.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestType {
    request_type: &'static str,
}

/// The counters of one server, one set for each request type, which its workers share.
#[derive(Debug)]
pub(crate) struct LocketMetrics {
    pub(super) lock: CallMetrics,
    pub(super) release: CallMetrics,
    pub(super) fetch: CallMetrics,
    pub(super) fetch_all: CallMetrics,
}

impl LocketMetrics {
    /// Registered there under the names of the original, in snake case.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let mut counter = |name, help| {
            let family = Family::<RequestType, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };
        let started = counter("locket_requests_started", "Requests that began");
        let succeeded = counter("locket_requests_succeeded", "Requests that were served; a collision is one");
        let failed = counter("locket_requests_failed", "Requests that were refused");
        let cancelled = counter("locket_requests_cancelled", "Requests that their clients gave up");
        let in_flight = Family::<RequestType, Gauge>::default();
        registry.register("locket_requests_in_flight", "Requests that are being served", in_flight.clone());
        let longest = Family::<RequestType, Gauge<f64, AtomicU64>>::default();
        let (name, help) = ("locket_request_latency_max", "Longest latency of the last minute, at least");
        registry.register_with_unit(name, help, Unit::Seconds, longest.clone());
        let of = |request_type| {
            let label = RequestType { request_type };
            CallMetrics {
                started: started.get_or_create(&label).clone(),
                succeeded: succeeded.get_or_create(&label).clone(),
                failed: failed.get_or_create(&label).clone(),
                cancelled: cancelled.get_or_create(&label).clone(),
                in_flight: in_flight.get_or_create(&label).clone(),
                latency_max: LatencyMax::new(longest.get_or_create(&label).clone()),
            }
        };
        Self { lock: of("Lock"), release: of("Release"), fetch: of("Fetch"), fetch_all: of("FetchAll") }
    }

    /// Brings up to date what changes by itself. To be called before it is read.
    pub(crate) fn refresh(&self) {
        for call in [&self.lock, &self.release, &self.fetch, &self.fetch_all] {
            call.latency_max.refresh();
        }
    }
}

/// The counters of one request type.
#[derive(Debug)]
pub(super) struct CallMetrics {
    started: Counter,
    succeeded: Counter,
    failed: Counter,
    cancelled: Counter,
    in_flight: Gauge,
    latency_max: LatencyMax,
}

impl CallMetrics {
    /// A request begins; it was cancelled if its call is dropped before its end.
    pub(super) fn begin(&self) -> Call<'_> {
        self.started.inc();
        self.in_flight.inc();
        Call { metrics: self, begun: Instant::now(), is_over: false }
    }
}

/// One request on its way.
#[derive(Debug)]
pub(super) struct Call<'a> {
    metrics: &'a CallMetrics,
    begun: Instant,
    is_over: bool,
}

impl Call<'_> {
    /// The answer. That somebody else has the lock is an answer as good as any.
    pub(super) fn end<T>(mut self, result: Result<T, Fault>) -> Result<Response<T>, Status> {
        self.is_over = true;
        match &result {
            Ok(_) | Err(Fault::Collision) => self.metrics.succeeded.inc(),
            Err(_) => self.metrics.failed.inc(),
        };
        Ok(Response::new(result?))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        self.metrics.latency_max.note(self.begun.elapsed());
        if !self.is_over {
            self.metrics.cancelled.inc();
        }
    }
}

/// The longest latency since a while ago: of the running interval and of the one before.
#[derive(Debug)]
struct LatencyMax {
    shown: Gauge<f64, AtomicU64>,
    running_ns: AtomicU64,
    before: Mutex<Before>,
}

#[derive(Debug)]
struct Before {
    max_ns: u64,
    /// When the running interval began.
    until: Instant,
}

impl LatencyMax {
    fn new(shown: Gauge<f64, AtomicU64>) -> Self {
        let before = Mutex::new(Before { max_ns: 0, until: Instant::now() });
        Self { shown, running_ns: AtomicU64::new(0), before }
    }

    fn note(&self, latency: Duration) {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.running_ns.fetch_max(latency_ns, Ordering::Relaxed);
    }

    fn refresh(&self) {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        if before.until.elapsed() >= REPORT_INTERVAL {
            let max_ns = self.running_ns.swap(0, Ordering::Relaxed);
            *before = Before { max_ns, until: Instant::now() };
        }
        let max_ns = before.max_ns.max(self.running_ns.load(Ordering::Relaxed));
        self.shown.set(Duration::from_nanos(max_ns).as_secs_f64());
    }
}
