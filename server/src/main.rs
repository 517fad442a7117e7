//! `waymaker-server`: see `--help`.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use waymaker_server::options::{Configuration, LogFormat, Options, OptionsError, unknown_variables};
use waymaker_server::server::{self, AddressUnavailable};

/// The exit code of a server that may start later without a change of its options, from sysexits.
const EXIT_UNAVAILABLE: u8 = 69;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let configuration = match Configuration::read(std::env::args_os()) {
        Ok(configuration) => configuration,
        Err(OptionsError::CommandLine(error)) => error.exit(),
        Err(error) => return fail(&error.into()),
    };
    let options = &configuration.options;
    start_log(options);
    abort_on_panic();
    for warning in unknown_variables() {
        tracing::warn!("{warning}");
    }
    if options.print_config {
        print!("{configuration}");
        return ExitCode::SUCCESS;
    }
    if options.check_config {
        return check(options);
    }
    server::run(options).map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS)
}

/// Prints an error, or all errors of a file.
fn fail(error: &anyhow::Error) -> ExitCode {
    for line in format!("{error:#}").lines() {
        eprintln!("waymaker-server: {line}");
    }
    if error.is::<AddressUnavailable>() { EXIT_UNAVAILABLE.into() } else { ExitCode::FAILURE }
}

/// Prints what would keep the server from starting.
fn check(options: &Options) -> ExitCode {
    let errors = server::errors(options);
    if errors.is_empty() {
        println!("configuration is valid");
        return ExitCode::SUCCESS;
    }
    for error in &errors {
        fail(error);
    }
    ExitCode::FAILURE
}

fn start_log(options: &Options) {
    // Colours in a file or a journal are noise.
    let is_coloured =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let layer = tracing_subscriber::fmt::layer().with_ansi(is_coloured).with_writer(std::io::stderr);
    let layer = match options.log_format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().with_ansi(false).flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(options.log.clone())).init();
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
