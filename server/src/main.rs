//! The program `waymaker-server`; its `--help` describes the options.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use waymaker_server::options::{Configuration, LogFormat, Options, OptionsError, unknown_variables};
use waymaker_server::server::{self, AddressUnavailable};

/// Exit code, from sysexits, if the server cannot listen on an address. This failure may disappear without a change of
/// options.
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

/// Prints an error. A configuration file may have several, one per line.
fn fail(error: &anyhow::Error) -> ExitCode {
    for line in format!("{error:#}").lines() {
        eprintln!("waymaker-server: {line}");
    }
    if error.is::<AddressUnavailable>() { EXIT_UNAVAILABLE.into() } else { ExitCode::FAILURE }
}

/// Prints every error in the options and in the files that they name.
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
    // Use colours only on a terminal: their escape sequences would clutter files and journals.
    let is_coloured =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let layer = tracing_subscriber::fmt::layer().with_ansi(is_coloured).with_writer(std::io::stderr);
    let layer = match options.log_format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().with_ansi(false).flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(options.log.clone())).init();
}

/// Aborts the process after a panic. Otherwise the runtime would catch a panic in a task. A server that still responds
/// but has lost a shard is worse than a stopped one. Release builds abort anyway.
fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        std::process::abort();
    }));
}
