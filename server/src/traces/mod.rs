//! Traces of acquires, exported by the OpenTelemetry Protocol (OTLP).
//!
//! A client may name the span of its caller in an acquire. If the server has a collector (`--otlp-endpoint`) and the trace is sampled, the
//! worker keeps an open span from the request to its response (`worker/spans`). It hands the ended span to [`Traces`], which never waits: a
//! queue holds a bounded number of spans for one thread, and counts dropped spans. The thread sends them in batches. So neither a
//! slow nor a missing collector delays a request or needs more memory.
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

/// Takes ended spans. The default exports nothing.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Exporting>);

#[derive(Clone, Debug)]
struct Exporting {
    queue: Sender<AcquireSpan>,
    counts: Arc<SpanCounts>,
}

/// What became of ended spans.
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
    /// Returns whether there is a collector.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Leaves a span for the thread, or drops and counts it if the queue is full.
    pub(crate) fn export(&self, span: AcquireSpan) {
        if let Some(Exporting { queue, counts }) = &self.0
            && queue.try_send(span).is_err()
        {
            counts.note_dropped(1);
        }
    }

    /// Counts a span that was not begun because too many are open.
    pub(crate) fn note_dropped(&self) {
        if let Some(exporting) = &self.0 {
            exporting.counts.note_dropped(1);
        }
    }

    /// Returns the number of spans that the collector accepted, and of dropped spans.
    pub(crate) fn exported_and_dropped(&self) -> [u64; 2] {
        self.0.as_ref().map_or([0; 2], |Exporting { counts, .. }| {
            [&counts.exported, &counts.dropped].map(|count| count.load(Ordering::Relaxed))
        })
    }
}

#[cfg(test)]
impl Traces {
    /// Returns traces that count, and drop each ended span.
    pub(crate) fn without_thread() -> Self {
        let (queue, _) = tokio::sync::mpsc::channel(1);
        Self(Some(Exporting { queue, counts: Arc::default() }))
    }
}
