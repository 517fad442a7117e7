//! Clever's `lock` on a Waymaker server: two hosts try to run the same import. Start a server (`waymaker-server`), then
//! this example.
//!
//! ```sh
//! cargo run -p waymaker-dialects --example coming_from_clever -- waymaker://127.0.0.1:7420
//! ```

use std::time::Duration;

use waymaker_dialects::clever::{AcquireLockInput, Error, Locker};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "waymaker://127.0.0.1:7420".to_owned());
    let locker = Locker::connect(&url, "imports").await?;
    let lease = Duration::from_secs(30);
    let wanted = |owner: &str| AcquireLockInput {
        key: "customers".to_owned(),
        owner: owner.to_owned(),
        lease_duration: Some(lease),
        ..AcquireLockInput::default()
    };

    let lock = locker.acquire_lock(wanted("host-1")).await?;
    println!("{} imports the {}, fence {}", lock.owner, lock.key, lock.fence);
    match locker.acquire_lock(wanted("host-2")).await {
        Err(error @ Error::Unavailable(_)) => println!("host-2 does not: {error}"),
        other => println!("host-2 should not have it: {other:?}"),
    }

    // Heartbeats keep the lock until the import has finished.
    let mut heartbeats = locker.start_background_heartbeats(&lock, lease / 300, lease)?;
    tokio::select! {
        () = import() => heartbeats.stop(),
        Some(error) = heartbeats.error() => return Err(error),
    }
    locker.release_lock(&heartbeats.lock()).await?;
    println!("host-1 is done");

    let lock = locker.acquire_lock(wanted("host-2")).await?;
    println!("{} imports the {}, fence {}", lock.owner, lock.key, lock.fence);
    locker.release_lock(&lock).await?;
    locker.close().await
}

/// Works for half a second.
async fn import() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}
