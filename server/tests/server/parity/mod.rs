//! The spec files of the engine, run again through each front end that can express them.
//!
//! `script` and `command` read a file, `pace` turns its time into real time, `heard` keeps what clients are told, and `judge`
//! compares that with the file. Each front end has a file that says how a command is done there, or why it cannot be said,
//! and what of each expected line its clients can hear. `files/` has the names of those that each runs: one that drops out
//! unnoticed is a failure.

mod barrier;
mod binary;
mod command;
mod contract_text;
mod counters;
mod grpc;
mod heard;
mod judge;
mod locktopus;
mod pace;
mod script;
mod v1;
mod waymaker;
#[path = "../../../../engine/tests/engine/spec_language/words.rs"]
#[allow(dead_code, reason = "the engine's tests say more with them")]
mod words;

use self::command::{Ask, Command};
use self::heard::Heard;
use self::pace::Pace;
use self::script::{Block, Said, Script};
use crate::harness::{Server, WATCHDOG, command as server_command};
use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};

/// How long to wait for an expected line in a run that may fail: a void one, or one of a file with a known difference.
const SHORT_PATIENCE: Duration = Duration::from_secs(3);
/// How many files are run at once.
const FILES_AT_ONCE: usize = 24;
/// How often a file is run, each time slower, if the machine was too slow for what was heard to mean anything.
const RUNS_MAX: u32 = 10;
/// Factor of the slowest run.
const SLOWNESS_MAX: u32 = 16;

/// A way to speak to a server.
trait FrontEnd: Sized {
    /// Whether clients hear everything on one connection, one after the other.
    const IN_ORDER: bool;

    /// Why a command cannot be said here.
    fn cannot(script: &Script, command: &Command) -> Option<&'static str>;

    /// Clients for one run. What they name begins with `scope`, which nobody else uses.
    fn open(server: &Rc<Server>, scope: String, heard: &Heard) -> Self;

    /// Does what a command says, and waits for its answer.
    async fn run(&mut self, command: &Command, pace: &Pace);

    /// What of an expected line is heard here.
    fn hears(&self, said: &Said) -> Vec<Said>;
}

/// Files in which several things happen at one instant. Real commands come one after the other.
const AT_ONE_INSTANT: [&str; 4] = [
    "counters_of_waits_that_end_together",
    "keys_whose_wait_ends_as_they_become_free",
    "order_within_an_instant",
    "waits_that_end_together_end_before_anyone_is_granted",
];

/// Why a file is not run by a front end.
fn reason_against<F: FrontEnd>(script: &Script) -> Option<String> {
    if AT_ONE_INSTANT.contains(&script.name.as_str()) {
        return Some("several things happen in it at one instant".to_owned());
    }
    for command in script.commands() {
        match &command.ask {
            Ask::Internal(verb) => return Some(format!("`{verb}` is about the inside of a server")),
            Ask::Nothing | Ask::Advance(_) => {}
            _ => {
                if let Some(reason) = F::cannot(script, command) {
                    return Some(reason.to_owned());
                }
            }
        }
    }
    Pace::of(script, 1).is_none().then(|| "its lengths of time are too far apart".to_owned())
}

/// What went wrong in a run, and whether the machine was too slow to blame anything else.
struct Failure {
    text: String,
    is_void: bool,
}

async fn run_block<F: FrontEnd>(
    front: &mut F,
    block: &Block,
    heard: &Heard,
    run: &mut Run<'_>,
) -> Result<(), Failure> {
    let (address, pace) = (run.address, &mut run.pace);
    for command in &block.commands {
        match command.ask {
            Ask::Advance(0) | Ask::Nothing => {}
            Ask::Advance(_) => pace.advance(barrier::pass(address)).await,
            Ask::Close { .. } => {
                // The client has read all events before it closes, and the server has noticed the end before the file goes on.
                barrier::settle(address).await;
                front.run(command, pace).await;
                barrier::settle(address).await;
            }
            _ => front.run(command, pace).await,
        }
    }
    pace.end_block();
    let expected: Vec<Said> = block.expected.iter().flat_map(|said| front.hears(said)).collect();
    let is_same = |said: &[Said]| judge::is_same(&expected, said, F::IN_ORDER, pace);
    // What is missing for long is no fault of the machine.
    let is_void = pace.is_void();
    heard.until(if is_void { SHORT_PATIENCE } else { run.patience }, is_same).await;
    let said = heard.take();
    if is_same(&said) {
        return Ok(());
    }
    let text = format!("block at line {}\n{}", block.line, judge::difference(&expected, &said));
    Err(Failure { text, is_void })
}

/// One run of a file.
struct Run<'a> {
    /// Where the server speaks the binary protocol.
    address: &'a str,
    pace: Pace,
    /// How long to wait for an expected line.
    patience: Duration,
}

async fn run_script<F: FrontEnd>(
    server: &Rc<Server>,
    script: &Script,
    number: u32,
    patience: Duration,
) -> Result<(), Failure> {
    let heard = Heard::default();
    let slowness = SLOWNESS_MAX.min(1 << number);
    let pace = Pace::of(script, slowness).expect("it was asked before");
    let mut run = Run { address: server.address("binary"), pace, patience };
    let mut front = F::open(server, format!("{}/{number}", script.name), &heard);
    for block in &script.blocks {
        run_block(&mut front, block, &heard, &mut run).await?;
    }
    Ok(())
}

/// Runs a file, more than once if the machine is slow.
async fn judge_script<F: FrontEnd>(
    server: Rc<Server>,
    script: &Script,
    patience: Duration,
) -> Result<(), String> {
    let mut number = 0;
    loop {
        match run_script::<F>(&server, script, number, patience).await {
            Ok(()) => return Ok(()),
            Err(failure) if failure.is_void && number + 1 < RUNS_MAX => number += 1,
            Err(failure) => return Err(format!("{}.spec, {}", script.name, failure.text)),
        }
    }
}

/// Runs all files that can be said against one server, and asserts that they are those of `names`.
fn judge_all<F: FrontEnd + 'static>(front_end: &str, names: &str, server: Server) {
    let scripts = script::all();
    let count = scripts.len();
    let (mut failures, mut said) = (String::new(), Vec::new());
    let listed: Vec<(&str, Option<&str>)> = names
        .lines()
        .map(|line| line.split_once(" ! ").map_or((line, None), |(name, why)| (name, Some(why))))
        .collect();
    let differs = |name: &str| listed.iter().any(|(listed, why)| *listed == name && why.is_some());
    let expected: Vec<&str> = listed.iter().map(|(name, _)| *name).collect();
    for script in scripts {
        match reason_against::<F>(&script) {
            None => said.push(script),
            Some(reason) if expected.contains(&script.name.as_str()) => {
                let _ = writeln!(failures, "{}.spec is run no longer: {reason}", script.name);
            }
            Some(_) => {}
        }
    }
    for script in &said {
        if !expected.contains(&script.name.as_str()) {
            let _ = writeln!(failures, "{}.spec can be said and is not in the list", script.name);
        }
    }
    println!("{front_end}: {} of {count} spec files", said.len());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let results = LocalSet::new().block_on(&runtime, async {
        let (server, room) = (Rc::new(server), Rc::new(Semaphore::new(FILES_AT_ONCE)));
        let mut runs = JoinSet::new();
        for script in said {
            let (server, room) = (Rc::clone(&server), Rc::clone(&room));
            let differs = differs(&script.name);
            runs.spawn_local(async move {
                let _room = room.acquire().await.expect("it is never closed");
                let patience = if differs { SHORT_PATIENCE } else { WATCHDOG };
                match judge_script::<F>(server, &script, patience).await {
                    Ok(()) if differs => Err(format!("{}.spec differs no longer", script.name)),
                    Err(_) if differs => Ok(()),
                    result => result,
                }
            });
        }
        runs.join_all().await
    });
    for failure in results.into_iter().filter_map(Result::err) {
        let _ = writeln!(failures, "{failure}");
    }
    assert!(failures.is_empty(), "\n{failures}");
}

fn server(workers: &str) -> Server {
    let arguments = ["--workers", workers, "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let mut command = server_command(&arguments);
    for option in ["WAYMAKER_GRPC_LISTEN", "WAYMAKER_HTTP_LISTEN"] {
        command.env_remove(option);
    }
    Server::start_with(&mut command, None)
}

#[test]
fn waymaker_service_matches_the_spec_files() {
    judge_all::<waymaker::Waymaker>(
        "waymaker.WaymakerService",
        include_str!("files/waymaker.txt"),
        server("2"),
    );
}

#[test]
fn the_v1_contract_matches_the_spec_files() {
    judge_all::<v1::V1>("waymaker.v1", include_str!("files/v1.txt"), server("2"));
}

#[test]
fn the_binary_protocol_matches_the_spec_files() {
    judge_all::<binary::Binary>("the binary protocol", include_str!("files/binary.txt"), server("2"));
}

/// With one worker, so that a lock is said to be acquired before its next release is read.
#[test]
fn locktopus_matches_the_spec_files() {
    judge_all::<locktopus::Locktopus>("Locktopus", include_str!("files/locktopus.txt"), server("1"));
}
