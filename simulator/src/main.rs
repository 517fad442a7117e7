//! waymaker-simulator: see `--help`.

use clap::Parser;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use waymaker_simulator::{Options, run};

/// Runs whole Waymaker nodes in virtual time, with faults, and checks what they promise.
///
/// A seed decides everything about a run. One that fails is printed with its last events; `--seed N --trace` shows all
/// of them.
#[derive(Debug, Parser)]
#[command(name = "waymaker-simulator", version)]
struct Arguments {
    /// How many seeds to run
    #[arg(long, value_name = "COUNT", default_value_t = 500)]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Run this seed alone
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Run all seeds, also after a failure
    #[arg(long, conflicts_with = "seed")]
    keep_going: bool,
    /// Print every event
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run servers without a log, whatever the seed says
    #[arg(long)]
    without_log: bool,
    /// Run adversarial clients alone
    #[arg(long)]
    without_real_clients: bool,
    /// Operations of each run, instead of what the seed says
    #[arg(long, value_name = "COUNT")]
    operations: Option<u32>,
}

/// The seed that runs. A panic of a release build aborts the process, and names the seed first.
static RUNNING_SEED: AtomicU64 = AtomicU64::new(0);

fn name_seed_at_panic() {
    let print_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print_panic(panic);
        eprintln!("seed {}: panic", RUNNING_SEED.load(Ordering::Relaxed));
    }));
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    name_seed_at_panic();
    let options = Options {
        operation_count: arguments.operations,
        prints: arguments.trace,
        is_without_log: arguments.without_log,
        is_without_real_clients: arguments.without_real_clients,
        ..Options::default()
    };
    let (from, count) = arguments.seed.map_or((arguments.from, arguments.seeds), |seed| (seed, 1));
    let (mut event_count, mut grant_count) = (0, 0);
    let mut failed = Vec::new();
    for seed in from..from + count {
        RUNNING_SEED.store(seed, Ordering::Relaxed);
        let outcome = run(seed, &options);
        event_count += outcome.event_count;
        grant_count += outcome.grant_count;
        if arguments.seed.is_some() || outcome.failure.is_some() {
            println!("{outcome}");
        }
        if outcome.failure.is_some() {
            failed.push(seed);
            if !arguments.keep_going {
                return ExitCode::FAILURE;
            }
        }
    }
    if failed.is_empty() {
        println!("{count} seeds from {from}: {event_count} events, {grant_count} grants, no promise broken");
        ExitCode::SUCCESS
    } else {
        println!("{count} seeds from {from}: {} failed: {failed:?}", failed.len());
        ExitCode::FAILURE
    }
}
