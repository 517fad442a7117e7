//! Leader election. Start a server (`waymaker-server`), then start this example in several terminals. One process
//! leads, and the others wait. If you stop the leader, another process leads. If the server stops, the leader loses the
//! lead, but all processes continue and try again.
//!
//! ```sh
//! cargo run -p waymaker-client --example leader -- waymaker://127.0.0.1:7420 alice
//! ```

use std::time::Duration;

use waymaker_client::{Client, Error};

const PAUSE: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> waymaker_client::Result<()> {
    let mut words = std::env::args().skip(1);
    let url = words.next().unwrap_or_else(|| "waymaker://127.0.0.1:7420".to_owned());
    let name = words.next().unwrap_or_else(|| format!("process {}", std::process::id()));
    loop {
        match campaign(&url, &name).await {
            // The server may be available again soon. The client of this campaign is dropped here, so a late grant is
            // released.
            Err(
                error @ (Error::Unavailable(_)
                | Error::Uncertain(_)
                | Error::Lost(_)
                | Error::Cancelled { .. }),
            ) => {
                println!("{name} tries again: {error}");
                tokio::time::sleep(PAUSE).await;
            }
            // A retry would fail in the same way.
            Err(error) => return Err(error),
            Ok(()) => {}
        }
    }
}

/// Connects, and then leads whenever the lock is free, until an error.
async fn campaign(url: &str, name: &str) -> waymaker_client::Result<()> {
    let client = Client::builder().owner(name).connect(url).await?;
    loop {
        println!("{name} stands by");
        let lock = client.write("leader").lease(Duration::from_secs(5)).await?;
        println!("{name} leads, fence {}", lock.fence());
        // A real leader works here and sends its fence with every write.
        let reason = lock.lost().await;
        println!("{name} leads no more: {reason}");
    }
}
