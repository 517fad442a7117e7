//! `/metrics`: state and counters of the server in the format of Prometheus.
//!
//! `docs/reference/metrics.md` describes every metric; a test compares it with this file.

use super::locket::LocketMetrics;
use crate::driver::Local;
use crate::metrics::{
    AcquireResult, BUCKET_COUNT, FIRST_BOUND, Histogram, HistogramSum, NamespaceLabels, NewAcquires,
    ResultCounts, ShardGauges, WorkerMetrics, add, bound,
};
use crate::namespaces::{LOCKET_NAMESPACE, LOCKET_TYPES};
use crate::node::Node;
use crate::readiness::{Readiness, ReasonCode};
use hyper::body::Bytes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::task::spawn_blocking;
use waymaker_engine::{LogState, QuorumState, TableMemory};
use waymaker_protocol::Readable;

/// Media type of the metrics text.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Label for the namespaces without a label of their own.
const OTHER: &str = "other";

/// Metrics of one server.
#[derive(Debug)]
pub(super) struct Metrics {
    locket_registry: Arc<Registry>,
    pub(super) locket: Arc<LocketMetrics>,
    pub(super) labels: Arc<Mutex<NamespaceLabels>>,
    /// Latest text. Locked while a text is written, so that frequent scrapes use at most one processor.
    newest: Arc<tokio::sync::Mutex<LatestText>>,
}

/// Latest metrics text.
#[derive(Debug, Default)]
struct LatestText {
    /// Time at which the text was begun.
    begun: Option<Instant>,
    text: Bytes,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut locket_registry = Registry::default();
        let locket = Arc::new(LocketMetrics::new(&mut locket_registry));
        Self {
            locket_registry: Arc::new(locket_registry),
            locket,
            labels: Arc::default(),
            newest: Arc::default(),
        }
    }

    /// Returns all metrics as text. A separate thread writes the text: a worker that did so would serve no client
    /// during this time. If another call has meanwhile completed a text that was begun after this call, this call
    /// returns that text.
    pub(super) async fn render(&self) -> Bytes {
        let asked = Instant::now();
        // Hold the lock until the text is written, even if the client disconnects. So at most one thread writes at a
        // time.
        let mut newest = Arc::clone(&self.newest).lock_owned().await;
        if newest.begun.is_some_and(|begun| begun >= asked) {
            return newest.text.clone();
        }
        let begun = Instant::now();
        self.locket.refresh();
        let node = Local::with(|local| Arc::clone(&local.node));
        let (labels, locket_registry) = (Arc::clone(&self.labels), Arc::clone(&self.locket_registry));
        let written = spawn_blocking(move || {
            let rejected = rejected(&node);
            let mut registry = Registry::default();
            registry.register_collector(Box::new(Scrape { node, labels, rejected }));
            let mut text = String::new();
            encode_registry(&mut text, &registry)
                .and_then(|()| encode_registry(&mut text, &locket_registry))
                .and_then(|()| encode_eof(&mut text))
                .expect("writing to a string cannot fail");
            *newest = LatestText { begun: Some(begun), text: text.into() };
            newest.text.clone()
        });
        written.await.expect("the thread does not panic")
    }
}

/// Returns the number of answered acquires of a node by result.
pub(super) fn count_acquires(node: &Node, labels: &Mutex<NamespaceLabels>) -> ResultCounts {
    let labels = note_acquires(node, labels);
    let labelled = labels.labelled().map(|(_, counts)| counts);
    let mut sum = ResultCounts::default();
    labelled.chain(labels.other().map(|(_, counts)| counts)).for_each(|counts| add(&mut sum, *counts));
    sum
}

/// Adds the acquires that all workers have counted since the last call to `labels`, and returns the locked labels.
fn note_acquires<'a>(node: &Node, labels: &'a Mutex<NamespaceLabels>) -> MutexGuard<'a, NamespaceLabels> {
    let mut new = NewAcquires::default();
    node.metrics.workers.iter().for_each(|worker| worker.acquires.take(&mut new));
    let mut labels = labels.lock().unwrap_or_else(PoisonError::into_inner);
    labels.note(new, node.clock.now());
    labels
}

/// Returns the number of rejections by limit.
pub(super) fn rejected(node: &Node) -> BTreeMap<String, u64> {
    let mut requests = BTreeMap::new();
    node.metrics.workers.iter().for_each(|worker| worker.add_rejected(&mut requests));
    let mut rejected: BTreeMap<String, u64> = BTreeMap::new();
    for (limit, count) in requests.into_iter().chain(node.metrics.refused()) {
        *rejected.entry(limit.replace(' ', "_")).or_default() += count;
    }
    rejected
}

/// One scrape of all metrics except the Locket calls, which have a registry of their own.
#[derive(Debug)]
struct Scrape {
    node: Arc<Node>,
    labels: Arc<Mutex<NamespaceLabels>>,
    rejected: BTreeMap<String, u64>,
}

impl fmt::Debug for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Node").field("server_id", &self.server_id).finish_non_exhaustive()
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut page = Page(encoder);
        page.gauge(
            "waymaker_build_info",
            "Version of the server; always 1",
            None,
            [([("version", env!("CARGO_PKG_VERSION"))], 1.0)],
        )?;
        self.encode_readiness(&mut page)?;
        self.encode_acquires(&mut page)?;
        self.encode_durations(&mut page)?;
        self.encode_state(&mut page)?;
        self.encode_log(&mut page)?;
        self.encode_quorum(&mut page)?;
        self.encode_rejections(&mut page)?;
        self.encode_locket(&mut page)
    }
}

impl Scrape {
    fn workers(&self) -> impl Iterator<Item = &WorkerMetrics> {
        self.node.metrics.workers()
    }

    fn encode_readiness(&self, page: &mut Page<'_>) -> fmt::Result {
        let readiness = Readiness::of(&self.node);
        page.number("waymaker_ready", "1 while new claims are served", u64::from(readiness.is_ready()))?;
        let rows = ReasonCode::ALL.map(|code| {
            let is_given = readiness.reasons.iter().any(|reason| reason.code == code);
            ([("code", code.name())], f64::from(u8::from(is_given)))
        });
        let help = "1 while the server is degraded or not ready for this reason";
        page.gauge("waymaker_readiness_reason", help, None, rows)
    }

    fn encode_acquires(&self, page: &mut Page<'_>) -> fmt::Result {
        let labels = note_acquires(&self.node, &self.labels);
        let labelled = labels.labelled().map(|(key, counts)| {
            (Readable(&key.namespace).to_string(), key.kind.name(), key.front_end, counts)
        });
        let other = labels.other().map(|(front, counts)| (OTHER.to_owned(), OTHER, front, counts));
        // Different namespace names may have the same readable form, so add their counts.
        let mut series: BTreeMap<_, ResultCounts> = BTreeMap::new();
        for (namespace, kind, front, counts) in labelled.chain(other) {
            add(series.entry((namespace, kind, front)).or_default(), *counts);
        }
        let mut rows = Vec::new();
        for ((namespace, kind, front), counts) in series {
            for result in AcquireResult::ALL {
                let labels = [
                    ("namespace", namespace.clone()),
                    ("kind", kind.to_owned()),
                    ("front", front.to_owned()),
                    ("result", result.name().to_owned()),
                ];
                rows.push((labels, counts[result as usize]));
            }
        }
        page.counter("waymaker_acquire", "Acquires that were answered", rows)
    }

    fn encode_durations(&self, page: &mut Page<'_>) -> fmt::Result {
        let seconds = [
            (
                "waymaker_wait",
                "Time for which acquires waited that were granted",
                (|worker| &worker.waits) as fn(&WorkerMetrics) -> &Histogram,
            ),
            ("waymaker_hold", "Time for which holds lasted that ended", |worker| &worker.holds),
            (
                "waymaker_handover",
                "Time from the moment a key became free until its next waiter was granted",
                |worker| &worker.handovers,
            ),
            ("waymaker_renew_slack", "Remaining lease when a lease was renewed", |worker| {
                &worker.renewal_slacks
            }),
        ];
        for (name, help, histogram) in seconds {
            page.seconds(name, help, self.workers().map(histogram))?;
        }
        let depths = HistogramSum::of(self.workers().map(|worker| &worker.queue_depths));
        let help = "Number of waiters of a key when another one came, that one included";
        page.histogram("waymaker_queue_depth", help, None, &depths, FIRST_BOUND as f64)?;
        let lost = self.node.metrics.lost();
        let rows = lost.into_iter().map(|(reason, count)| ([("reason", reason.name())], count));
        page.counter("waymaker_lost", "Holds that ended without a release by their holder", rows)
    }

    fn encode_state(&self, page: &mut Page<'_>) -> fmt::Result {
        let node = &self.node;
        let shards: Vec<_> = node.metrics.shards.iter().map(ShardGauges::get).collect();
        let sum = |count: fn(&waymaker_engine::ShardState) -> u64| shards.iter().map(count).sum::<u64>();
        page.number("waymaker_held", "Claims that are held", sum(|shard| shard.held))?;
        page.number("waymaker_waiting", "Acquires that wait", sum(|shard| shard.waiting))?;
        page.number("waymaker_sessions", "Sessions of clients", node.metrics.session_count())?;
        let connections = node.metrics.connections();
        let rows = connections.map(|(port, count)| ([("front", port.name())], count as f64));
        page.gauge("waymaker_connections", "Open connections", None, rows)?;
        let busy = self.workers().enumerate();
        let rows = busy.map(|(number, worker)| ([("worker", number.to_string())], worker.busy_ratio()));
        let help = "Share of the last second in which the thread of a worker ran";
        page.gauge("waymaker_worker_busy_ratio", help, None, rows)?;
        let now = node.clock.now();
        let lag_ms = self.workers().map(|worker| now.ms_since(worker.oldest_due())).max().unwrap_or(0);
        let help = "Time for which the oldest lease has been due that waits until all requests before its end are served";
        page.gauge("waymaker_drained_lag", help, Some(&Unit::Seconds), [(EMPTY, lag_ms as f64 / 1e3)])?;
        let tables = TableMemory::PARTS
            .iter()
            .enumerate()
            .map(|(part, name)| (*name, shards.iter().map(|shard| shard.memory.bytes[part]).sum::<u64>()));
        let process = node.memory.used_now().map(|used| ("resident", used));
        let rows = process.into_iter().chain(tables).map(|(part, bytes)| ([("part", part)], bytes as f64));
        page.gauge("waymaker_memory", "Memory in use", Some(&Unit::Bytes), rows)?;
        let limit = node.memory.limit().into_iter().map(|limit| (EMPTY, limit as f64));
        page.gauge("waymaker_memory_limit", "Memory limit of the server", Some(&Unit::Bytes), limit)
    }

    fn encode_log(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(log) = &self.node.log else { return Ok(()) };
        let (metrics, status) = (&self.node.metrics, log.status());
        page.seconds("waymaker_log_sync", "Time that syncs of the durable log took", [&metrics.log_syncs])?;
        let segments = metrics.log_segment_count.load(Ordering::Relaxed);
        page.number("waymaker_log_segments", "Log segments that are in no snapshot yet", segments)?;
        let failures = [(EMPTY, status.compaction_failures())];
        page.counter("waymaker_compaction_failures", "Failed compactions of the durable log", failures)?;
        let state = status.state(self.node.clock.now());
        let help = "1 while new durable grants are refused because the disk is full";
        page.number("waymaker_disk_full", help, u64::from(state == LogState::NoSpace))?;
        let help = "1 while new durable grants are refused because the log is slow";
        page.number("waymaker_log_stalled", help, u64::from(state == LogState::Slow))
    }

    fn encode_quorum(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(quorum) = &self.node.quorum else { return Ok(()) };
        let requests = [&self.node.metrics.quorum_requests];
        page.seconds("waymaker_quorum_request", "Time that requests to the etcd cluster took", requests)?;
        let is_up = quorum.status().state() == QuorumState::Ready;
        page.number("waymaker_quorum_up", "1 while the etcd cluster answers", u64::from(is_up))
    }

    fn encode_rejections(&self, page: &mut Page<'_>) -> fmt::Result {
        let rows = self.rejected.iter().map(|(limit, count)| ([("limit", limit.as_str())], *count));
        let help = "Requests, sessions and connections that were rejected because of a limit";
        page.counter("waymaker_rejected", help, rows)?;
        let (access, audit) = (&self.node.access, &self.node.audit);
        let refused_help =
            "Credentials that were not looked at, because too many logins of their address had failed";
        for (name, help, count) in [
            ("waymaker_failed_logins", "Credentials that were not valid", access.failed_login_count()),
            ("waymaker_refused_logins", refused_help, access.refused_login_count()),
            (
                "waymaker_audit_dropped_lines",
                "Lines that are missing in the audit log",
                audit.dropped_count(),
            ),
            ("waymaker_audit_write_failures", "Failed writes of the audit log", audit.write_failure_count()),
        ] {
            page.counter(name, help, [(EMPTY, count)])?;
        }
        let spans = ["exported", "dropped"].into_iter().zip(self.node.traces.exported_and_dropped());
        let rows = spans.map(|(outcome, count)| ([("outcome", outcome)], count));
        page.counter("waymaker_trace_spans", "Spans of traced acquires by what became of them", rows)
    }

    fn encode_locket(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut active = [0; LOCKET_TYPES.len()];
        for shard in &self.node.metrics.shards {
            active.iter_mut().zip(shard.locket()).for_each(|(sum, count)| *sum += count);
        }
        // These metric names have the order of `LOCKET_TYPES`: locks, then presences.
        let names = [
            ("locket_active_locks", "Locks that are held"),
            ("locket_active_presences", "Presences that are registered"),
        ];
        for ((name, help), count) in names.into_iter().zip(active) {
            page.number(name, help, count)?;
        }
        let names = [
            ("locket_locks_expired", "Locks whose lease expired"),
            ("locket_presence_expired", "Presences whose lease expired"),
        ];
        for ((name, help), type_name) in names.into_iter().zip(LOCKET_TYPES) {
            page.counter(name, help, [(EMPTY, expired_count(&self.node, type_name))])?;
        }
        Ok(())
    }
}

/// Labels of a series without labels.
const EMPTY: [(&str, &str); 0] = [];

/// Output of a scrape.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn rows<V, K: AsRef<str>, const N: usize>(
        &mut self,
        (name, help, unit, metric_type): (&str, &str, Option<&Unit>, MetricType),
        rows: impl IntoIterator<Item = ([(&'static str, K); N], V)>,
        put: impl Fn(&mut MetricEncoder<'_>, &V) -> fmt::Result,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, unit, metric_type)?;
        for (labels, value) in rows {
            let labels: Vec<(&str, String)> =
                labels.iter().map(|(name, value)| (*name, escaped(value.as_ref()))).collect();
            if labels.is_empty() {
                put(&mut encoder, &value)?;
            } else {
                put(&mut encoder.encode_family(&labels.as_slice())?, &value)?;
            }
        }
        Ok(())
    }

    fn counter<K: AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = ([(&'static str, K); N], u64)>,
    ) -> fmt::Result {
        self.rows((name, help, None, MetricType::Counter), rows, |encoder, count| {
            encoder.encode_counter::<NoLabelSet, _, u64>(count, None)
        })
    }

    fn gauge<K: AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        rows: impl IntoIterator<Item = ([(&'static str, K); N], f64)>,
    ) -> fmt::Result {
        self.rows((name, help, unit, MetricType::Gauge), rows, |encoder, value: &f64| {
            encoder.encode_gauge(value)
        })
    }

    /// Writes a gauge with one whole number.
    fn number(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.gauge(name, help, None, [(EMPTY, value as f64)])
    }

    /// Writes a histogram of durations.
    fn seconds<'a>(
        &mut self,
        name: &str,
        help: &str,
        histograms: impl IntoIterator<Item = &'a Histogram>,
    ) -> fmt::Result {
        self.histogram(name, help, Some(&Unit::Seconds), &HistogramSum::of(histograms), 1e9)
    }

    /// Writes a histogram. Values are divided by `scale`.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        merged: &HistogramSum,
        scale: f64,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        let first = FIRST_BOUND as f64 / scale;
        let bounds = (0..BUCKET_COUNT).map(|bucket| bound(bucket) * first).chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(merged.counts).collect();
        let count = merged.counts.iter().sum();
        encoder.encode_histogram::<NoLabelSet>(merged.sum as f64 / scale, count, &buckets, None)
    }
}

/// Escapes a label value, because the library writes label values unescaped.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Returns the number of Locket resources of this type whose lease expired.
fn expired_count(node: &Node, type_name: &str) -> u64 {
    let Some((namespace, _)) = node.find_namespace(LOCKET_NAMESPACE) else { return 0 };
    let counts = node.expiries.read();
    let of_type =
        counts.iter().find(|count| count.namespace == namespace && *count.type_name == *type_name.as_bytes());
    of_type.map_or(0, |count| count.count)
}
