//! The command `waymaker-simulator`, which runs seeds; see `--help`.

use clap::Parser;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use waymaker_simulator::{Options, run};

const EXAMPLES: &str = "\
Examples:
  waymaker-simulator --seeds 2000               Run the seeds 0 to 1,999
  waymaker-simulator --seed 17                  Run seed 17
  waymaker-simulator --seed 17 --trace          Run seed 17 and print every event
  cargo run -p waymaker-simulator --bin defects -- --help
                                                Plant a defect that the seeds must find";

/// Run whole Waymaker servers in virtual time with faults, and check that they keep their promises.
///
/// A seed is a number that decides everything in a run: the settings, the requests of the clients, the faults
/// and the order of all events. The same seed always repeats the same run.
///
/// The program stops at the first seed that breaks a promise. It prints the last events of that run, the
/// broken rule, and the command that repeats the run.
#[derive(Debug, Parser)]
#[command(name = "waymaker-simulator", version, after_help = EXAMPLES)]
struct Arguments {
    /// Number of seeds to run
    #[arg(long, value_name = "COUNT", default_value_t = 500)]
    seeds: u64,
    /// First seed to run
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Run this seed alone
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Run all seeds, even after a failure
    #[arg(long, conflicts_with = "seed")]
    keep_going: bool,
    /// Print every event of the run
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run servers without a log, even if the seed chooses one
    #[arg(long)]
    without_log: bool,
    /// Run without the processes that use the Rust client library
    #[arg(long)]
    without_real_clients: bool,
    /// Number of operations that the clients start in each run; chosen by the seed by default
    #[arg(long, value_name = "COUNT")]
    operations: Option<u32>,
}

/// The seed that is running. A release build aborts on a panic, so the panic hook prints this seed first.
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
