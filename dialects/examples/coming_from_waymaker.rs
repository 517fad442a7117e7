//! Two workers acquire the same key with the gRPC contract `waymaker.WaymakerService`. Start a server
//! (`waymaker-server`), then this example. The second worker waits, and gets the key with the next fence token.
//!
//! ```sh
//! cargo run -p waymaker-dialects --example coming_from_waymaker -- http://127.0.0.1:7421
//! ```

use std::error::Error;
use std::time::Duration;

use waymaker_dialects::waymaker::{LockEvent, LockRequest, Waymaker};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:7421".to_owned());
    let waymaker = Waymaker::connect(&address).await?;
    let request = |who: &str| {
        LockRequest::new("examples/report")
            .max_wait_period(Duration::from_secs(60))
            .max_lease_period(Duration::from_secs(30))
            .requester_application("coming_from_waymaker")
            .requester_info(who)
    };

    // The first worker uses a guard.
    let held = waymaker.acquire(request("the first")).await?;
    println!("the first works, fence token {}", held.fence_token());

    // The second worker reads the events itself.
    let mut events = waymaker.lock(request("the second"));
    let mut first = Some(held);
    while let Some(event) = events.next().await {
        match event? {
            LockEvent::Waiting { id, .. } => {
                println!("the second waits as {id}");
                for lock in waymaker.list_acquired_locks("examples/").await? {
                    println!("held: {} by {}", lock.key, lock.requester_info);
                }
                if let Some(held) = first.take() {
                    held.unlock().await?;
                    println!("the first is done");
                }
            }
            LockEvent::Acquired { id, fence_token, .. } => {
                println!("the second works, fence token {fence_token}");
                waymaker.unlock(events.key(), &id).await?;
            }
            event => println!("the second hears {event:?}"),
        }
    }
    println!("the second is done");
    Ok(())
}
