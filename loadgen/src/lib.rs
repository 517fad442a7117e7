//! waymaker-loadgen: load generator and benchmark for Waymaker and other lock servers.
//!
//! ```text
//! options -> plan -> load -> worker (one per thread) -> connections -> codec
//!                      |        '-> player -> workload -> ledgers (fences, holds)
//!                      '-> outcome -> report
//! compare -> rows x rounds x targets -> load; ping-pong of the cores around each
//! ```
//!
//! One client code path drives all systems ([`system::System`]), except gRPC systems ([`grpc`]) and the Rust client
//! library (`guard`). [`worker::Worker`] (sockets) and [`player::Player`] (requests) are generic over
//! [`codec::Codec`] (encodes requests, decodes responses) and [`workload::Workload`] (chooses the requests and checks
//! the grants).

pub mod address;
mod bare_server;
pub mod clock;
pub mod codec;
pub mod command_line;
pub mod compare;
pub mod connection;
pub mod contest;
pub mod cpu;
pub mod credentials;
pub mod echo_server;
pub mod faults;
pub mod footprint;
pub mod grpc;
mod guard;
pub mod item_set;
pub mod key;
pub mod latencies;
pub mod ledger;
pub mod load;
pub mod machine;
pub mod options;
mod output_file;
pub mod pin;
pub mod pinned;
pub mod plan;
pub mod player;
pub mod process;
pub mod programs;
pub mod report;
pub mod run;
pub mod scenario;
pub mod schedule;
pub mod scope;
pub mod shape;
pub mod slots;
pub mod stream;
pub mod sync_file;
pub mod system;
pub mod threads;
pub mod tls;
mod tls_stream;
pub mod units;
pub mod websocket_echo_server;
pub mod worker;
pub mod workload;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::command_line::{Command, Options};

/// Runs the program.
pub fn main() -> ExitCode {
    let options = Options::parse();
    match dispatch(&options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("waymaker-loadgen: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(options: &Options) -> Result<ExitCode> {
    match &options.command {
        None => run::run(&options.run, &stop_on_signal()?),
        Some(Command::Run(options)) => run::run(options, &stop_on_signal()?),
        Some(Command::Compare(options)) if contest::is_asked_for(options) => {
            contest::run(options, &stop_on_signal()?)
        }
        Some(Command::Compare(options)) => compare::run(options, &stop_on_signal()?),
        Some(Command::EchoServer(options)) => echo_server::run(options).map(|()| ExitCode::SUCCESS),
        Some(Command::GrpcEchoServer(options)) => grpc::echo_server::run(options).map(|()| ExitCode::SUCCESS),
        Some(Command::WebsocketEchoServer(options)) => {
            websocket_echo_server::run(options).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::Obtain(options)) => programs::obtain_all(options).map(|()| ExitCode::SUCCESS),
        Some(Command::Pinned(options)) => pinned::run(options).map(|()| ExitCode::SUCCESS),
    }
}

/// Returns a flag that the first signal sets; the second signal ends the program.
fn stop_on_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot handle signals")?;
    }
    Ok(stop)
}
