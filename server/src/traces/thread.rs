//! Thread that sends spans to the collector.

use super::encode::{Anchor, request};
use super::span::AcquireSpan;
use super::{Exporter, SpanCounts, Traces};
use crate::chars::truncate;
use crate::clock::Clock;
use crate::limits::{
    SPAN_BATCH_COUNT_MAX, SPAN_EXPORT_MS, SPAN_PAUSE_MS, SPAN_PROBLEM_CHARS_MAX, SPAN_QUEUE_COUNT_MAX,
    SPAN_RETRY_MAX_MS, SPAN_RETRY_MIN_MS, SPAN_STOP_MS,
};
use crate::peer::{Channel, Endpoint};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::Status;
use waymaker_engine::Nanos;
use waymaker_protocol::Quoted;

/// Running thread. When this value is dropped, the thread tries for at most [`SPAN_STOP_MS`] to send the last spans,
/// and ends.
#[derive(Debug)]
pub struct TraceThread {
    is_stopping: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl TraceThread {
    /// Starts the thread for this collector. Returns the sending side of its queue. The thread connects when there is a
    /// span.
    ///
    /// # Errors
    /// Fails if the runtime or the thread cannot be created.
    pub fn start(collector: Endpoint, server_id: u64, clock: Arc<dyn Clock>) -> io::Result<(Traces, Self)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (queue, spans) = channel(SPAN_QUEUE_COUNT_MAX);
        let (is_stopping, stopping) = watch::channel(false);
        let counts = Arc::<SpanCounts>::default();
        let run = Run {
            collector,
            server_id,
            clock,
            spans,
            counts: Arc::clone(&counts),
            stopping,
            channel: None,
            retry_ms: 0,
            in_flight_count: 0,
        };
        let thread = Builder::new().name("otlp".to_owned()).spawn(move || {
            runtime.block_on(run.run_until_stopped());
            // The server has stopped this thread. End it without waiting for tasks of its runtime that are still
            // running, such as a lookup in a name service that does not respond.
            runtime.shutdown_background();
        })?;
        Ok((Traces(Some(Exporter { queue, counts })), Self { is_stopping, thread: Some(thread) }))
    }
}

impl Drop for TraceThread {
    fn drop(&mut self) {
        self.is_stopping.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // `join` fails only if the thread panicked, but a panic aborts the process. So the result needs no check.
            let _ = thread.join();
        }
    }
}

struct Run {
    collector: Endpoint,
    server_id: u64,
    clock: Arc<dyn Clock>,
    spans: Receiver<AcquireSpan>,
    counts: Arc<SpanCounts>,
    stopping: watch::Receiver<bool>,
    /// Connection to the collector; `None` if there is none or the last request failed.
    channel: Option<Channel>,
    /// Pause after the last failure in milliseconds; 0 if the last batch was accepted, or before the first.
    retry_ms: u64,
    /// Number of spans in the batch that is being sent.
    in_flight_count: usize,
}

impl Run {
    async fn run_until_stopped(mut self) {
        let mut stopping = self.stopping.clone();
        let too_long = async {
            let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
            sleep(Duration::from_millis(SPAN_STOP_MS)).await;
        };
        tokio::select! {
            () = self.run() => {}
            () = too_long => {}
        }
        self.counts.note_dropped(self.in_flight_count + self.spans.len());
    }

    /// Sends batches until the server stops. Then it sends what is left in the queue, up to the first batch that fails.
    ///
    /// After a check that found the queue empty, and after a failure, the thread sleeps for some time. So no worker has
    /// to wake it.
    async fn run(&mut self) {
        loop {
            // Read `stopping` before the queue. Then all spans that were queued before the stop are still in the queue
            // when the loop reads it, and are sent.
            let is_stopping = *self.stopping.borrow();
            let mut batch = Vec::new();
            while let Ok(span) = self.spans.try_recv() {
                batch.push(span);
                if batch.len() >= SPAN_BATCH_COUNT_MAX {
                    break;
                }
            }
            if !batch.is_empty() {
                self.send(batch).await;
                if self.retry_ms == 0 {
                    continue;
                }
            }
            if is_stopping {
                return;
            }
            let pause = Duration::from_millis(self.retry_ms.max(SPAN_PAUSE_MS));
            let _ = timeout(pause, self.stopping.wait_for(|is_stopping| *is_stopping)).await;
        }
    }

    /// Sends a batch. A batch that fails is dropped, because a kept batch would need memory in addition to the queue of
    /// newer spans.
    async fn send(&mut self, batch: Vec<AcquireSpan>) {
        let count = batch.len();
        self.in_flight_count = count;
        let sent = timeout(Duration::from_millis(SPAN_EXPORT_MS), self.try_send(batch)).await;
        self.in_flight_count = 0;
        let problem = match sent {
            Ok(Ok(rejected_count)) => {
                self.counts.note_dropped(rejected_count);
                self.counts.note_exported(count - rejected_count);
                if self.retry_ms > 0 {
                    tracing::info!(collector = %self.collector, "spans are exported again");
                }
                self.retry_ms = 0;
                return;
            }
            Ok(Err(problem)) => problem,
            Err(_) => format!("no response within {SPAN_EXPORT_MS} ms"),
        };
        self.counts.note_dropped(count);
        self.channel = None;
        if self.retry_ms == 0 {
            tracing::warn!(
                collector = %self.collector, problem = %Quoted(problem.as_bytes()),
                "could not export spans (--otlp-endpoint): they were dropped, and further ones may be"
            );
        }
        self.retry_ms = (self.retry_ms * 2).clamp(SPAN_RETRY_MIN_MS, SPAN_RETRY_MAX_MS);
    }

    /// Sends a batch. Returns the number of spans that the collector rejected.
    async fn try_send(&mut self, batch: Vec<AcquireSpan>) -> Result<usize, String> {
        let count = batch.len();
        let anchor = Anchor {
            nanos: Nanos::new(self.clock.nanos()),
            unix_nanos: u64::try_from(self.clock.unix_micros()).unwrap_or(0).saturating_mul(1_000),
        };
        let request = request(batch, self.server_id, anchor, rand::random);
        let response = match self.channel.take() {
            // A collector may close a connection after any response, so retry on a new one. Spans have ids, so
            // duplicates are detectable.
            Some(channel) => match self.export(&channel, request.clone()).await {
                Err(_) if channel.is_closed() => self.export_anew(request).await?,
                sent => sent.map_err(|status| shown(&status))?,
            },
            None => self.export_anew(request).await?,
        };
        let Some(rejected) = response.partial_success else { return Ok(0) };
        let rejected_count = usize::try_from(rejected.rejected_spans).unwrap_or(0).min(count);
        if rejected_count > 0 {
            let reason = start_of(rejected.error_message);
            tracing::debug!(count = rejected_count, reason = %Quoted(reason.as_bytes()), "rejected spans");
        }
        Ok(rejected_count)
    }

    async fn export_anew(
        &mut self,
        request: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, String> {
        let (channel, _) = Channel::open(&self.collector).await.map_err(|error| error.to_string())?;
        self.export(&channel, request).await.map_err(|status| shown(&status))
    }

    /// Sends a request with spans to the collector over `channel`, a connection. If the collector accepts the request,
    /// keeps the channel in `self.channel` for the next request. After an error `self.channel` stays empty.
    async fn export(
        &mut self,
        channel: &Channel,
        request: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, Status> {
        let mut client = TraceServiceClient::with_origin(channel.clone(), channel.origin());
        let response = client.export(request).await?;
        self.channel = Some(channel.clone());
        Ok(response.into_inner())
    }
}

/// Formats a status for the log.
fn shown(status: &Status) -> String {
    format!("{}: {}", status.code(), start_of(status.message().to_owned()))
}

/// Truncates a text for the log, because the collector determines its length.
fn start_of(mut text: String) -> String {
    truncate(&mut text, SPAN_PROBLEM_CHARS_MAX);
    text
}
