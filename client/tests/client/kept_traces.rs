//! Traces of the client, kept as text.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, Once};

use tracing_subscriber::Registry;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

type Bytes = Arc<Mutex<Vec<u8>>>;

thread_local! {
    static HERE: RefCell<Option<Bytes>> = const { RefCell::new(None) };
}

/// Spans and events of the client on the thread of one test, until this is dropped.
///
/// All tests share one subscriber of the process. A subscriber for one thread would miss events that a thread without
/// a subscriber met first.
pub(crate) struct KeptTraces(Bytes);

impl KeptTraces {
    pub(crate) fn begin() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let bytes = Bytes::default();
        HERE.set(Some(Arc::clone(&bytes)));
        Self(bytes)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the number of lines that contain these words.
    #[allow(dead_code, reason = "the tests of the dialects share this file and need it")]
    pub(crate) fn count(&self, words: &str) -> usize {
        self.text().lines().filter(|line| line.contains(words)).count()
    }
}

impl Drop for KeptTraces {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

fn install() {
    let is_kept = |metadata: &tracing::Metadata<'_>, _: &Context<'_, Registry>| {
        let is_ours = metadata.target().starts_with("waymaker") && *metadata.level() <= tracing::Level::DEBUG;
        is_ours && HERE.with_borrow(Option::is_some)
    };
    let layer = tracing_subscriber::fmt::layer()
        .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(|| Here)
        .with_filter(dynamic_filter_fn(is_kept));
    tracing::subscriber::set_global_default(Registry::default().with(layer)).unwrap();
}

/// Appends to the kept traces of the current thread.
struct Here;

impl io::Write for Here {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        HERE.with_borrow(|here| {
            if let Some(kept) = here {
                kept.lock().unwrap().extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
