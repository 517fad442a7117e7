//! Locket's runners: two instances of a service, of which only one may be active. Start a server (`waymaker-server`),
//! then this example. The first instance is active until it is stopped, then the second becomes active.
//!
//! ```sh
//! cargo run -p waymaker-dialects --example coming_from_locket -- http://127.0.0.1:7421
//! ```

use std::error::Error;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use waymaker_dialects::locket::{LockRunner, Locket};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:7421".to_owned());
    let locket = Locket::connect(&address).await?;
    let start = |owner: &'static str| {
        let runner = LockRunner::new(locket.clone(), "examples/auctioneer", owner)
            .value(format!("{owner}.example:9016"))
            // A real service keeps the default of 5 seconds. This example shows the change sooner.
            .retry_interval(Duration::from_secs(1));
        let (signal, (ready, is_ready)) = (CancellationToken::new(), oneshot::channel());
        (signal.clone(), is_ready, tokio::spawn(runner.run(signal, ready)))
    };

    let (stop_first, first_is_ready, first) = start("auctioneer-0");
    first_is_ready.await?;
    let (stop_second, second_is_ready, second) = start("auctioneer-1");
    let found = locket.fetch("examples/auctioneer").await?;
    println!("{} is active at {}", found.owner, found.value);

    stop_first.cancel();
    first.await??;
    second_is_ready.await?;
    let found = locket.fetch("examples/auctioneer").await?;
    println!("{} is active at {}", found.owner, found.value);

    stop_second.cancel();
    second.await??;
    println!("nobody is active");
    Ok(())
}
