//! Spans and events of a client.

use std::future::IntoFuture;

use crate::connected::connect;
use crate::kept_traces::KeptTraces;
use crate::patience::soon;
use crate::real::server;

#[tokio::test]
async fn acquires_and_holds_are_spans_and_a_loss_is_logged() {
    let kept = KeptTraces::begin();
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
        ("lost a lock", "key=k fence=1 reason=an operator released it note=\"maintenance\""),
        ("connected", "resumed=false"),
    ] {
        let is_there = text.lines().any(|told| told.contains(line) && told.contains(part));
        assert!(is_there, "{line} {part} in {text}");
    }
}
