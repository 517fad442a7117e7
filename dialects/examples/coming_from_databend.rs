//! Databend's semaphore on a Waymaker server: five queries, of which two may run at a time. Start a server
//! (`waymaker-server`), then this example.
//!
//! ```sh
//! cargo run -p waymaker-dialects --example coming_from_databend -- waymaker://127.0.0.1:7420
//! ```

use std::time::Duration;

use waymaker_client::Client;
use waymaker_dialects::databend::{AcquireError, Semaphore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "waymaker://127.0.0.1:7420".to_owned());
    let client = Client::connect(&url).await?;
    let queries: Vec<_> = (1..=5).map(|number| tokio::spawn(query(client.clone(), number))).collect();
    for query in queries {
        query.await??;
    }
    Ok(client.close().await?)
}

async fn query(client: Client, number: u32) -> Result<(), AcquireError> {
    let lease = Duration::from_secs(30);
    let mut permit =
        Semaphore::new_acquired(client, "queries/running", 2, format!("query-{number}"), lease).await?;
    println!("query {number} runs, fence {}", permit.fence());
    tokio::select! {
        () = run() => println!("query {number} is done"),
        removed = &mut permit => println!("query {number} is stopped: {removed:?}"),
    }
    // The drop of the permit lets the next query run.
    Ok(())
}

/// Works for a fifth of a second.
async fn run() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}
