//! Traces of acquires, exported by the OpenTelemetry Protocol (OTLP).
//!
//! A client may name the span of its caller in an acquire. If the server has a collector (`--otlp-endpoint`) and the
//! trace is sampled, the worker keeps an open span from the request to its response (`worker/spans`), up to a maximum
//! number of spans. It passes the ended span to [`Traces`], which never waits. A bounded queue holds the spans for one
//! thread; spans that do not fit are dropped and counted. The thread sends the spans in batches. A slow or missing
//! collector therefore delays no request and takes no memory beyond this queue and the batch that is being sent.
//!
//! ```text
//!   worker -> AcquireSpan -> Traces -> queue -> thread -> collector
//! ```

mod encode;
mod endpoint;
mod span;
mod thread;

pub use endpoint::{OtlpOptionError, collector_of};
pub(crate) use span::AcquireSpan;
pub use thread::TraceThread;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc::Sender;

/// Receiver of ended spans. The default exports nothing.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Exporter>);

#[derive(Clone, Debug)]
struct Exporter {
    queue: Sender<AcquireSpan>,
    counts: Arc<SpanCounts>,
}

/// Numbers of the spans that the collector accepted, and of dropped spans.
#[derive(Debug, Default)]
struct SpanCounts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl SpanCounts {
    fn note_exported(&self, count: usize) {
        self.exported.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn note_dropped(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl Traces {
    /// Returns whether a collector is configured.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Queues an ended span for the thread that sends spans to the collector. If the queue is full, the span is dropped
    /// and counted.
    pub(crate) fn export(&self, span: AcquireSpan) {
        if let Some(Exporter { queue, counts }) = &self.0
            && queue.try_send(span).is_err()
        {
            counts.note_dropped(1);
        }
    }

    /// Counts a span that was not started because too many spans are open.
    pub(crate) fn note_dropped(&self) {
        if let Some(exporting) = &self.0 {
            exporting.counts.note_dropped(1);
        }
    }

    /// Returns the numbers of spans that the collector accepted and of dropped spans.
    pub(crate) fn exported_and_dropped(&self) -> [u64; 2] {
        self.0.as_ref().map_or([0; 2], |Exporter { counts, .. }| {
            [&counts.exported, &counts.dropped].map(|count| count.load(Ordering::Relaxed))
        })
    }
}

#[cfg(test)]
impl Traces {
    /// Creates traces that drop and count each ended span.
    pub(crate) fn without_thread() -> Self {
        let (queue, _) = tokio::sync::mpsc::channel(1);
        Self(Some(Exporter { queue, counts: Arc::default() }))
    }
}
