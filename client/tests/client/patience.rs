//! Time limits of tests. Tests wait for events; a limit only turns a hang into a failure.

use std::time::Duration;

use waymaker_client::{Client, ClientBuilder};

/// Maximum wait for an event.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// A lease that outlasts every wait for an event, for tests that let several such leases pass on a [`ManualClock`]. A
/// client sends a keep-alive every five seconds, so with an hour these tests would be slow.
///
/// [`ManualClock`]: crate::manual_clock::ManualClock
pub(crate) const LEASE: Duration = Duration::from_secs(120);
/// A lease that is longer than any test.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// Waits for the future. Fails the test instead of letting it hang.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("it happens soon")
}

/// Polls the condition until it holds.
pub(crate) async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    soon(async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Settings of a client that keeps its session and its callers waiting while the test or the server is not scheduled.
pub(crate) fn patient() -> ClientBuilder {
    Client::builder().session_lease(HOUR).connect_timeout(SOON)
}
