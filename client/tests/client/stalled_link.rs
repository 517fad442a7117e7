//! Links that stall.

use std::time::Duration;

use tokio::task::{JoinSet, LocalSet};
use waymaker_client::Client;

use crate::connected::connect;
use crate::cut_everywhere::{Work, whole};
use crate::real::server;
use crate::relay::{Fault, Relay, Toward};

/// Number of positions in the exchange at which a link stalls, in each direction.
const PLACE_COUNT: u64 = 20;
/// Step of the client's clock while its link is stalled. After a few steps the client doubts the connection.
const STEP: Duration = Duration::from_secs(2);

/// The link resumes before any time has passed for the client, so the client keeps its connection.
async fn stall_briefly(url: &str, other: &Client, fault: Fault) {
    let (work, relay) = (Work::new(), Relay::with(url, fault).await);
    let resume = async {
        relay.stalled().await;
        relay.resume();
    };
    tokio::join!(work.run(&relay, other, fault), resume);
    assert_eq!(relay.connection_count(), 1, "{fault:?}");
    work.assert_over(other, fault).await;
}

/// The client takes the connection for dead and resumes its session on another connection. The delayed frames arrive
/// after the client has finished.
async fn stall_for_long(url: &str, other: &Client, fault: Fault) {
    let (work, relay) = (Work::new(), Relay::with(url, fault).await);
    let doubt = async {
        relay.stalled().await;
        work.clock.advance_until(STEP, async || relay.connection_count() > 1).await;
    };
    tokio::join!(work.run(&relay, other, fault), doubt);
    relay.resume();
    relay.drained().await;
    work.assert_over(other, fault).await;
}

#[tokio::test]
async fn a_stalled_connection_loses_nothing_and_late_frames_grant_nothing() {
    let server = server!();
    let other = connect(&server, "").await;
    let whole = whole(server.url(), &other).await;
    let (here, mut clients) = (LocalSet::new(), JoinSet::new());
    for (toward, count) in [Toward::Server, Toward::Client].into_iter().zip(whole) {
        for place in 0..PLACE_COUNT {
            let fault = Fault::Stall { toward, after: count * place / PLACE_COUNT };
            let (url, other) = (server.url().to_owned(), other.clone());
            let work = async move {
                stall_briefly(&url, &other, fault).await;
                stall_for_long(&url, &other, fault).await;
            };
            clients.spawn_local_on(work, &here);
        }
    }
    here.run_until(clients.join_all()).await;
}
