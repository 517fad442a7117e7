//! `waymaker-server`: see `--help`.

use clap::Parser;
use std::process::ExitCode;
use waymaker_server::options::Flags;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WAYMAKER_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    abort_on_panic();
    let run = Flags::parse().resolve().map_err(anyhow::Error::from);
    match run.and_then(|options| waymaker_server::server::run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("waymaker-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The runtime would catch the panic of a task, and a server that lost one shard but still answers is worse than a dead
/// one. Release builds abort anyway; this does so in all.
fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        std::process::abort();
    }));
}
