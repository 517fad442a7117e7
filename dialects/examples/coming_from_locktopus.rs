//! Two clients of Locktopus lock the same order of a shop. Start a server (`waymaker-server`), then this example:
//!
//! ```sh
//! cargo run -p waymaker-dialects --example coming_from_locktopus -- ws://127.0.0.1:7422
//! ```

use waymaker_dialects::locktopus::{LocktopusClient, Resource, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "ws://127.0.0.1:7422".to_owned());
    let url = format!("{address}/v1?namespace=shop");
    let clerk = LocktopusClient::connect(&url).await?;
    let mut packer = LocktopusClient::connect(&url).await?;

    let order = [Resource::write(["orders", "17"]), Resource::read(["customers"])];
    if !clerk.lock(&order).await? {
        println!("the clerk waits for somebody who has the order");
        clerk.acquire().await?;
    }
    println!("the clerk has the order, as lock {}", clerk.lock_id().unwrap_or_default());

    let (released, packed) = tokio::join!(clerk.release(), packer.hold(&order));
    released?;
    let lock = packed?;
    println!("the clerk is done, the packer has the order, as lock {}", lock.id());
    lock.release().await?;

    packer.close().await;
    clerk.close().await;
    println!("both are gone");
    Ok(())
}
