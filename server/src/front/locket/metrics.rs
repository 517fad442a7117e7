//! Metrics of the Locket contract.

use super::fault::Fault;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// Report interval of the original Locket server. The metric of the longest latency covers at least this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestType {
    request_type: &'static str,
}

/// Counters of one server for each request type, shared by its workers.
#[derive(Debug)]
pub(crate) struct LocketMetrics {
    pub(super) lock: CallMetrics,
    pub(super) release: CallMetrics,
    pub(super) fetch: CallMetrics,
    pub(super) fetch_all: CallMetrics,
}

impl LocketMetrics {
    /// Registers the metrics under the names that the original Locket server uses, converted to snake case.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let mut counter = |name, help| {
            let family = Family::<RequestType, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };
        let started = counter("locket_requests_started", "Requests that started");
        let succeeded = counter(
            "locket_requests_succeeded",
            "Requests that succeeded, including those answered with a collision",
        );
        let failed = counter("locket_requests_failed", "Requests that failed");
        let cancelled = counter("locket_requests_cancelled", "Requests that their clients cancelled");
        let in_flight = Family::<RequestType, Gauge>::default();
        registry.register("locket_requests_in_flight", "Requests in flight", in_flight.clone());
        let longest = Family::<RequestType, Gauge<f64, AtomicU64>>::default();
        let (name, help) =
            ("locket_request_latency_max", "Longest request latency; covers at least the last minute");
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

    /// Updates the time-dependent metrics. Call this before a scrape.
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
    /// Counts the start of a request. If the returned call is dropped before [`Call::end`] and before the client's
    /// deadline, it counts as cancelled.
    pub(super) fn begin<T>(&self, request: &Request<T>) -> Call<'_> {
        self.started.inc();
        self.in_flight.inc();
        Call { metrics: self, begun: Instant::now(), limit: time_limit(request.metadata()), is_over: false }
    }
}

/// One request in progress.
#[derive(Debug)]
pub(super) struct Call<'a> {
    metrics: &'a CallMetrics,
    begun: Instant,
    /// Time limit that the client has set, from the start of the call.
    limit: Option<Duration>,
    is_over: bool,
}

impl Call<'_> {
    /// Counts the end of the request and converts the result. A collision (another owner has the key) counts as
    /// success, because it is a valid answer.
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
        let latency = self.begun.elapsed();
        self.metrics.in_flight.dec();
        self.metrics.latency_max.note(latency);
        if !self.is_over && self.limit.is_none_or(|limit| latency < limit) {
            self.metrics.cancelled.inc();
        }
    }
}

/// Parses the time limit of a client in the header `grpc-timeout`: digits and a unit. Returns `None` if the header is
/// missing or malformed.
fn time_limit(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => count.checked_mul(3600).map(Duration::from_secs),
        "M" => count.checked_mul(60).map(Duration::from_secs),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// Longest latency of the current report interval and the previous one.
#[derive(Debug)]
struct LatencyMax {
    shown: Gauge<f64, AtomicU64>,
    running_ns: AtomicU64,
    before: Mutex<EarlierMaximum>,
}

#[derive(Debug)]
struct EarlierMaximum {
    max_ns: u64,
    /// End of the previous interval over which the longest latency was measured, and start of the current one.
    /// `LatencyMax::refresh` ends an interval at the first scrape after [`REPORT_INTERVAL`].
    until: Instant,
}

impl LatencyMax {
    fn new(shown: Gauge<f64, AtomicU64>) -> Self {
        let before = Mutex::new(EarlierMaximum { max_ns: 0, until: Instant::now() });
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
            *before = EarlierMaximum { max_ns, until: Instant::now() };
        }
        let max_ns = before.max_ns.max(self.running_ns.load(Ordering::Relaxed));
        self.shown.set(Duration::from_nanos(max_ns).as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> LocketMetrics {
        LocketMetrics::new(&mut Registry::default())
    }

    fn limited(text: &str) -> Request<()> {
        let mut request = Request::new(());
        request.metadata_mut().insert("grpc-timeout", text.parse().unwrap());
        request
    }

    #[test]
    fn a_collision_counts_as_served_and_any_other_error_as_failed() {
        let lock = metrics().lock;
        let _ = lock.begin(&Request::new(())).end(Err::<(), _>(Fault::Collision));
        let _ = lock.begin(&Request::new(())).end(Err::<(), _>(Fault::NotFound));
        assert_eq!((lock.started.get(), lock.succeeded.get(), lock.failed.get()), (2, 1, 1));
    }

    #[test]
    fn a_request_counts_as_in_flight_until_it_ends() {
        let lock = metrics().lock;
        let call = lock.begin(&Request::new(()));
        assert_eq!(lock.in_flight.get(), 1);
        drop(call);
        assert_eq!(lock.in_flight.get(), 0);
    }

    #[test]
    fn a_dropped_request_counts_as_cancelled_unless_its_deadline_passed() {
        let lock = metrics().lock;
        drop(lock.begin(&Request::new(())));
        drop(lock.begin(&limited("1H")));
        assert_eq!(lock.cancelled.get(), 2);
        drop(lock.begin(&limited("0n")));
        assert_eq!(lock.cancelled.get(), 2);
    }

    #[test]
    fn a_time_limit_is_a_number_and_a_unit() {
        let limit = |text| time_limit(limited(text).metadata());
        assert_eq!(limit("2M"), Some(Duration::from_secs(120)));
        assert_eq!(limit("15m"), Some(Duration::from_millis(15)));
        assert_eq!([limit("m"), limit(""), limit("5"), limit("1x")], [None; 4]);
    }
}
