//! `waymaker-server`: see `--help`.

use clap::Parser;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use waymaker_server::options::Flags;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Colours in a file or a journal are noise.
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    tracing_subscriber::registry().with(layer.with_filter(log_filter())).init();
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

/// Returns the levels that `WAYMAKER_LOG` names, such as `warn` or `info,waymaker_server::log=debug`; `info` without it.
fn log_filter() -> Targets {
    // The library of HTTP/2 warns of each reset stream, so a client could fill the log.
    let info = || Targets::new().with_default(LevelFilter::INFO).with_target("h2", LevelFilter::ERROR);
    let Some(text) = std::env::var("WAYMAKER_LOG").ok().filter(|text| !text.is_empty()) else {
        return info();
    };
    text.parse().unwrap_or_else(|error| {
        eprintln!("waymaker-server: WAYMAKER_LOG={text:?} is not a list of TARGET=LEVEL ({error}); logging at level info");
        info()
    })
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
