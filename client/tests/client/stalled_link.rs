//! Links that stand still for a while.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::against_server::connect;
use crate::cut_everywhere::{whole, work};
use crate::real::server;
use crate::relay::{Fault, Toward};

/// So many places of the exchange, in each direction.
const PLACE_COUNT: u64 = 20;
/// Nobody notices.
const SHORT: Duration = Duration::from_millis(30);
/// The client takes the connection for dead and comes back on another one, long before its session ends. What it had sent
/// arrives after that.
const LONG: Duration = Duration::from_millis(3_500);
const SESSION_LEASE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_stalls_anywhere_loses_nothing_and_what_arrives_late_grants_nothing() {
    let server = server!();
    let other = connect(&server, "").await;
    let whole = whole(server.url(), &other).await;
    let mut clients = JoinSet::new();
    for (toward, count) in [Toward::Server, Toward::Client].into_iter().zip(whole) {
        for place in 0..PLACE_COUNT {
            for pause in [SHORT, LONG] {
                let after = count * place / PLACE_COUNT;
                let (url, other) = (server.url().to_owned(), other.clone());
                clients.spawn(async move {
                    let fault = Fault::Stall { toward, after, pause };
                    let passed = work(&url, &other, SESSION_LEASE, fault).await;
                    assert!(passed[toward as usize] >= after, "it stalled");
                });
            }
        }
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
}
