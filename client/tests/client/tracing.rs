//! What a client tells those who trace it.

use std::future::IntoFuture;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing_subscriber::Registry;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::against_server::connect;
use crate::fake::soon;
use crate::real::server;

/// Keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Kept {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[tokio::test]
async fn waiting_and_holding_are_spans_and_a_loss_is_told() {
    let kept = Kept::default();
    let writer = kept.clone();
    // For the whole process, and of it this thread: one that is only this thread's misses what others came by first.
    let here = std::thread::current().id();
    let is_ours = move |metadata: &::tracing::Metadata<'_>, _: &Context<'_, Registry>| {
        std::thread::current().id() == here && *metadata.level() <= ::tracing::Level::DEBUG
    };
    let told = tracing_subscriber::fmt::layer()
        .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .with_filter(dynamic_filter_fn(is_ours));
    ::tracing::subscriber::set_global_default(Registry::default().with(told)).unwrap();
    let server = server!();
    let (client, operator) = (connect(&server, "").await, connect(&server, "").await);
    let lock = soon(client.write("k").into_future()).await.unwrap();
    soon(client.write("k").try_().into_future()).await.unwrap_err();
    soon(operator.force_release(lock.id(), "maintenance")).await.unwrap();
    soon(lock.lost()).await;
    drop(lock);
    let text = kept.text();
    for (line, part) in [
        ("acquire{key=k wait=Forever fence=1}", "close"),
        ("acquire{key=k wait=Try error=busy: held by", "close"),
        ("hold{key=k fence=1}", "new"),
        ("hold{key=k fence=1}", "close"),
        ("a lock is lost", "key=k fence=1 reason=an operator released it note=\"maintenance\""),
        ("connected", "resumed=false"),
    ] {
        let is_there = text.lines().any(|told| told.contains(line) && told.contains(part));
        assert!(is_there, "{line} {part} in {text}");
    }
}
