//! State of the server as server-sent events, one per second.

use super::keys;
use super::operator::Operator;
use super::problem::Problem;
use crate::driver::Local;
use crate::driver::front_turn::poll_turn;
use crate::front::conversion::{cut, json_text, text};
use crate::front::metrics::{Metrics, count_acquires, rejected};
use crate::metrics::{
    AcquireResult, BUCKET_COUNT, Contended, FIRST_BOUND, Histogram, HistogramSum, ShardGauges, WorkerMetrics,
    bound,
};
use crate::node::Node;
use crate::readiness::{Readiness, Reason};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http_body::Frame;
use hyper::body::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant as Deadline, sleep_until};
use waymaker_engine::{Access, LogState, QuorumState, Rights};
use waymaker_protocol::Hex;

const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum age of a collected server state (metrics and contended keys) that is sent to another client too. An older
/// state is collected again.
const FRESH: Duration = Duration::from_millis(500);
/// Maximum number of characters sent of a key.
const SHOWN_CHARS_MAX: usize = 128;
/// Maximum number of contended keys in an event.
const CONTENDED_MAX: usize = 32;
/// Maximum total length in bytes of the namespaces and contended keys in an event.
const CONTENDED_LEN_MAX: usize = 12 << 10;
/// Factor that spreads the clients' events over a second: the multiples of this number modulo 1 are spread evenly.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;
/// Maximum number of clients that receive events at the same time.
const VIEWER_COUNT_MAX: usize = 256;

/// Collects the state of a server once for all clients.
#[derive(Debug)]
pub(super) struct Live {
    metrics: Arc<Metrics>,
    /// Latest state. Locked while a state is collected.
    newest: Arc<tokio::sync::Mutex<Option<LatestState>>>,
    /// One permit for each further client that may receive events.
    places: Arc<Semaphore>,
    /// Number of clients so far.
    viewer_count: AtomicU32,
}

/// Latest collected state of the server, with the time of its collection.
#[derive(Debug)]
struct LatestState {
    at: Instant,
    collected: Arc<ServerState>,
}

/// State of a server at one moment.
#[derive(Debug)]
struct ServerState {
    /// JSON of the event part that is the same for all operators, without the final brace.
    numbers: String,
    /// Contended keys, sorted by descending number of waits per second.
    contended: Vec<Contended>,
}

/// Event part that is the same for all operators.
#[derive(Serialize)]
struct Numbers {
    time_ms: i64,
    server: Server,
    ready: bool,
    reasons: Vec<Reason>,
    held: u64,
    waiting: u64,
    sessions: u64,
    connections: BTreeMap<&'static str, u64>,
    acquires: BTreeMap<&'static str, u64>,
    bounds_ns: Vec<u64>,
    durations: Durations,
    lost: BTreeMap<&'static str, u64>,
    rejected: BTreeMap<String, u64>,
    workers: Vec<f64>,
    memory: Memory,
    log: Option<Log>,
    quorum: Option<Quorum>,
}

#[derive(Serialize)]
struct Server {
    version: &'static str,
    id: String,
    uptime_ms: u64,
}

#[derive(Serialize)]
struct Durations {
    wait: Counts,
    hold: Counts,
    handover: Counts,
    renew_slack: Counts,
}

/// Histogram; the last bucket has no upper bound.
#[derive(Serialize)]
struct Counts {
    counts: Vec<u64>,
    sum_ns: u64,
}

#[derive(Serialize)]
struct Memory {
    used_bytes: u64,
    limit_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Log {
    state: &'static str,
    segments: u64,
    compaction_failures: u64,
    sync: Counts,
}

#[derive(Serialize)]
struct Quorum {
    state: &'static str,
    request: Counts,
}

/// Event part for one operator.
#[derive(Serialize)]
struct OwnPart<'a> {
    identity: Option<&'a str>,
    contention: Vec<ContendedRow>,
}

#[derive(Serialize)]
struct ContendedRow {
    namespace: String,
    /// Whether a request can name the namespace, which requires UTF-8.
    is_text: bool,
    kind: &'static str,
    key: String,
    key_hex: String,
    waits_per_s: f64,
    waiting: Option<u32>,
    oldest_wait_ms: Option<u64>,
}

impl Live {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            newest: Arc::default(),
            places: Arc::new(Semaphore::new(VIEWER_COUNT_MAX)),
            viewer_count: AtomicU32::new(0),
        }
    }

    /// Returns the state of the server, which may be up to [`FRESH`] old. A separate thread collects the state: a
    /// worker that did so would serve no client during this time.
    async fn collect(&self) -> Arc<ServerState> {
        // Hold the lock until the state is collected, even if the client disconnects. So at most one thread collects at
        // a time.
        let mut newest = Arc::clone(&self.newest).lock_owned().await;
        if let Some(LatestState { at, collected }) = &*newest
            && at.elapsed() < FRESH
        {
            return Arc::clone(collected);
        }
        let node = Local::with(|local| Arc::clone(&local.node));
        let metrics = Arc::clone(&self.metrics);
        let collecting = spawn_blocking(move || {
            let collected = Arc::new(ServerState::of(&node, &metrics));
            *newest = Some(LatestState { at: Instant::now(), collected: Arc::clone(&collected) });
            collected
        });
        collecting.await.expect("the thread does not panic")
    }
}

impl ServerState {
    fn of(node: &Node, metrics: &Metrics) -> Self {
        let mut contended = Vec::new();
        node.metrics.shards.iter().for_each(|shard| shard.add_contended(&mut contended));
        contended.sort_by(|one, other| other.waits_per_s.total_cmp(&one.waits_per_s));
        let mut numbers = json_text(&Numbers::of(node, metrics));
        numbers.pop();
        Self { numbers, contended }
    }
}

impl Numbers {
    fn of(node: &Node, metrics: &Metrics) -> Self {
        let readiness = Readiness::of(node);
        let now = node.clock.now();
        let counts =
            |histogram: fn(&WorkerMetrics) -> &Histogram| Counts::of(node.metrics.workers().map(histogram));
        let shards: Vec<_> = node.metrics.shards.iter().map(ShardGauges::get).collect();
        let acquires = count_acquires(node, &metrics.labels);
        Self {
            time_ms: node.unix_time.unix_ms(now.as_millis()),
            server: Server {
                version: env!("CARGO_PKG_VERSION"),
                id: format!("{:016x}", node.server_id),
                uptime_ms: now.ms_since(node.start),
            },
            ready: readiness.is_ready(),
            reasons: readiness.reasons,
            held: shards.iter().map(|shard| shard.held).sum(),
            waiting: shards.iter().map(|shard| shard.waiting).sum(),
            sessions: node.metrics.session_count(),
            connections: node.metrics.connections().map(|(port, count)| (port.name(), count)).collect(),
            acquires: AcquireResult::ALL
                .iter()
                .map(|result| (result.name(), acquires[*result as usize]))
                .collect(),
            bounds_ns: (0..BUCKET_COUNT).map(|bucket| (bound(bucket) * FIRST_BOUND as f64) as u64).collect(),
            durations: Durations {
                wait: counts(|worker| &worker.waits),
                hold: counts(|worker| &worker.holds),
                handover: counts(|worker| &worker.handovers),
                renew_slack: counts(|worker| &worker.renewal_slacks),
            },
            lost: node.metrics.lost().into_iter().map(|(reason, count)| (reason.name(), count)).collect(),
            rejected: rejected(node),
            workers: node.metrics.workers().map(WorkerMetrics::busy_ratio).collect(),
            memory: Memory {
                used_bytes: node.memory.used_now().unwrap_or_else(|| node.memory.used()),
                limit_bytes: node.memory.limit(),
            },
            log: Log::of(node),
            quorum: Quorum::of(node),
        }
    }
}

impl Counts {
    fn of<'a>(histograms: impl IntoIterator<Item = &'a Histogram>) -> Self {
        let merged = HistogramSum::of(histograms);
        Self { counts: merged.counts.to_vec(), sum_ns: merged.sum }
    }
}

impl Log {
    fn of(node: &Node) -> Option<Self> {
        let status = node.log.as_ref()?.status();
        Some(Self {
            state: match status.state(node.clock.now()) {
                LogState::Absent | LogState::Ready => "ready",
                LogState::NoSpace => "no_space",
                LogState::Slow => "stalled",
            },
            segments: node.metrics.log_segment_count.load(Ordering::Relaxed),
            compaction_failures: status.compaction_failures(),
            sync: Counts::of([&node.metrics.log_syncs]),
        })
    }
}

impl Quorum {
    fn of(node: &Node) -> Option<Self> {
        let status = node.quorum.as_ref()?.status();
        let state = if status.state() == QuorumState::Ready { "ready" } else { "unavailable" };
        Some(Self { state, request: Counts::of([&node.metrics.quorum_requests]) })
    }
}

/// Sends the state of the server every second, as long as the client may read it.
pub(super) async fn show(State(live): State<Arc<Live>>, operator: Operator) -> Result<Response, Problem> {
    let checked = operator.caller.check_metrics_right();
    checked.map_err(|message| Problem::unauthorized(message.to_owned()))?;
    let place = Arc::clone(&live.places).try_acquire_owned();
    let place = place.map_err(|_| Problem::overloaded("clients of the events", VIEWER_COUNT_MAX))?;
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(Events::new(Viewer { live, operator, _place: place }))).into_response())
}

/// One client that receives the events.
#[derive(Debug)]
struct Viewer {
    live: Arc<Live>,
    operator: Operator,
    _place: OwnedSemaphorePermit,
}

type Coming = Pin<Box<dyn Future<Output = Option<Bytes>> + Send>>;

impl Viewer {
    /// Waits until this time and returns the event with the state of the server, which may be up to [`FRESH`] old.
    /// Returns `None` if the client may not get further events or the server stops.
    async fn event(self: Arc<Self>, at: Deadline) -> Option<Bytes> {
        let mut finishing = Local::with(Local::finishing);
        tokio::select! {
            () = sleep_until(at) => {}
            _ = finishing.wait_for(|finishing| *finishing) => return None,
        }
        if !self.may_go_on() {
            return None;
        }
        let collected = self.live.collect().await;
        let contention = self.contention(&collected.contended).await;
        let identity = self.operator.caller.identity.as_ref();
        let own = json_text(&OwnPart { identity: identity.map(|identity| &*identity.name), contention });
        let own = own.strip_prefix('{').expect("an object begins with a brace");
        Some(format!("data: {},{own}\n\n", collected.numbers).into())
    }

    /// Returns whether the client may get further events: its identity is still valid and may still read the metrics.
    fn may_go_on(&self) -> bool {
        let Some(identity) = &self.operator.caller.identity else {
            // The client has no identity, because the server had no access rules when it connected. If the access file
            // has been reloaded with rules since, the client may get no further events.
            return Local::with(|local| !local.node.access.policy().has_rules());
        };
        Local::with(|local| {
            let policy = local.node.access.policy();
            policy.is_current(identity, local.node.unix_seconds()) && policy.may_read_metrics(Some(identity))
        })
    }

    /// Returns the keys with the most waits per second that the client may list, as many as an event may have.
    async fn contention(&self, contended: &[Contended]) -> Vec<ContendedRow> {
        // Computing the rights of the client in a namespace is expensive, and most of the contended keys are in few
        // namespaces. So `accesses` keeps the rights of each namespace until all keys are checked.
        let mut accesses: BTreeMap<&[u8], Option<Access>> = BTreeMap::new();
        let (mut rows, mut len) = (Vec::new(), 0);
        for Contended { namespace, kind, waits_per_s, key } in contended {
            poll_fn(|context| poll_turn(context)).await;
            let access =
                accesses.entry(namespace).or_insert_with(|| self.operator.caller.access(namespace, *kind));
            if access.as_ref().is_some_and(|access| !access.covers(Rights::LIST, &key.key)) {
                continue;
            }
            let row = ContendedRow {
                namespace: text(namespace),
                is_text: std::str::from_utf8(namespace).is_ok(),
                kind: kind.name(),
                key: cut(keys::shown(*kind, &key.key), SHOWN_CHARS_MAX),
                key_hex: Hex(&key.key).to_string(),
                waits_per_s: *waits_per_s,
                waiting: key.waiter_count,
                oldest_wait_ms: key.oldest_wait_ms,
            };
            len += row.namespace.len() + row.key.len() + row.key_hex.len();
            if rows.len() == CONTENDED_MAX || len > CONTENDED_LEN_MAX {
                break;
            }
            rows.push(row);
        }
        rows
    }
}

/// Server-sent events as the body of a response.
struct Events {
    viewer: Arc<Viewer>,
    /// Time at which the event in `coming` is due, from which the time of the event after it is computed. The first
    /// event is sent at once, so its value differs from the time of the first event by up to half a second.
    due: Deadline,
    coming: Coming,
}

impl Events {
    fn new(viewer: Viewer) -> Self {
        let (viewer, now) = (Arc::new(viewer), Deadline::now());
        let coming = Box::pin(Arc::clone(&viewer).event(now));
        // The second event follows 500 to 1,500 ms after the first. The delay differs for each client, so that clients
        // that connect at the same time are served at different times.
        let number = viewer.live.viewer_count.fetch_add(1, Ordering::Relaxed);
        let phase = INTERVAL.mul_f64(f64::from(number) * GOLDEN_RATIO % 1.0);
        Self { viewer, due: now + phase - INTERVAL / 2, coming }
    }
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(event) = ready!(self.coming.as_mut().poll(context)) else { return Poll::Ready(None) };
        self.due = due_after(self.due, Deadline::now());
        self.coming = Box::pin(Arc::clone(&self.viewer).event(self.due));
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}

/// Returns the time of the next event. A slow client misses events but keeps its offset within a second, so that
/// clients stay spread.
fn due_after(due: Deadline, now: Deadline) -> Deadline {
    let missed_count = now.saturating_duration_since(due).as_secs() as u32;
    due + INTERVAL * (missed_count + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_client_misses_events_and_keeps_its_place_within_a_second() {
        let due = Deadline::now();
        for (late_ms, next_ms) in [(0, 1_000), (999, 1_000), (1_000, 2_000), (3_400, 4_000)] {
            let now = due + Duration::from_millis(late_ms);
            assert_eq!(due_after(due, now), due + Duration::from_millis(next_ms), "{late_ms} ms late");
        }
        assert_eq!(due_after(due + INTERVAL / 2, due), due + INTERVAL * 3 / 2, "not due yet");
    }
}
