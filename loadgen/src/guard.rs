//! Acquire and release pairs through the Rust client library: each lock is a guard that renews itself and is
//! released and awaited.
//!
//! Counts as for the raw connection: a pair is two requests, each with its latency. The difference to the raw
//! connection is the cost of the library for a program that uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use waymaker_client::{Client, Error, Lock};
use waymaker_protocol::NamespaceKind;

use crate::clock::Clock;
use crate::codec::greeting::namespace;
use crate::faults::FaultKind;
use crate::plan::Plan;
use crate::player::WorkerResult;
use crate::process::Process;
use crate::threads::{Job, Outcome, Watcher, merge, run_threads};
use crate::worker::{Signals, Timetable};
use crate::workload::{Grant, Lane, Pair, PairLedger, Workload};

/// Runs a plan of pairs.
pub(crate) fn run(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
) -> Result<Outcome> {
    crate::process::raise_open_files_limit(u64::from(plan.connections))
        .context("--connections: too many open files")?;
    let ledger = Arc::new(PairLedger::new(plan, true));
    let threads: Vec<GuardThread> =
        (0..plan.threads).map(|thread| GuardThread::connect(plan, thread, &ledger)).collect::<Result<_>>()?;
    let timetable = Timetable::of(plan);
    let jobs = threads
        .into_iter()
        .map(|thread| -> Job { Box::new(move |signals| thread.run(timetable, signals)) })
        .collect();
    run_threads(plan, server, stop, watcher, timetable, jobs)
}

/// Creates the runtime of one load thread.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Connects one client to the target of a plan.
pub(crate) async fn connect(plan: &Plan) -> Result<Client> {
    let url = format!("waymaker://{}", plan.socket_address);
    let builder = Client::builder().namespace(namespace(NamespaceKind::Flat)).owner("waymaker-loadgen");
    let builder = builder.connection_per_worker(plan.shape.per_worker).credentials(&plan.credentials);
    builder.connect(&url).await.with_context(|| format!("cannot open a connection to {url}"))
}

/// One load thread: its runtime and its clients.
#[derive(Debug)]
struct GuardThread {
    runtime: Runtime,
    clients: Vec<Client>,
    players: Vec<Player>,
}

/// One lane of a client, with one request at a time.
#[derive(Debug)]
struct Player {
    client: Client,
    lane: Lane,
    keys: Pair,
    key_size: usize,
    lease: Duration,
    result: WorkerResult,
}

impl GuardThread {
    /// Opens the connections of this thread: every `plan.threads`-th connection.
    fn connect(plan: &Plan, thread: u32, ledger: &Arc<PairLedger>) -> Result<Self> {
        let runtime = runtime()?;
        let (mut clients, mut players) = (Vec::new(), Vec::new());
        for index in (thread..plan.connections).step_by(plan.threads as usize) {
            let client = runtime.block_on(connect(plan))?;
            players.extend((0..plan.depth).map(|place| {
                let lane = index * plan.depth + place;
                Player {
                    client: client.clone(),
                    lane: Lane(lane),
                    keys: Pair::new(Arc::clone(ledger), plan.thread_seed(lane)),
                    key_size: usize::from(plan.key_size),
                    lease: Duration::from_millis(u64::from(plan.lease_ms)),
                    result: WorkerResult::default(),
                }
            }));
            clients.push(client);
        }
        Ok(Self { runtime, clients, players })
    }

    /// Runs the load until the timetable ends or the load is stopped. The library has its own timeout for servers
    /// that do not answer.
    fn run(self, timetable: Timetable, signals: &Arc<Signals>) -> Result<WorkerResult> {
        let Self { runtime, clients, players } = self;
        runtime.block_on(async {
            let mut playing = JoinSet::new();
            for player in players {
                playing.spawn(player.play(timetable, Arc::clone(signals)));
            }
            let mut sum = WorkerResult::default();
            while let Some(played) = playing.join_next().await {
                merge(&mut sum, played.context("a lane of the load panicked")?);
            }
            for client in clients {
                client.close().await?;
            }
            Ok(sum)
        })
    }
}

impl Player {
    /// Plays one pair after the other until the load ends or a response is an error. After an error all later
    /// responses on this lane would be wrong too.
    async fn play(mut self, timetable: Timetable, signals: Arc<Signals>) -> WorkerResult {
        let Timetable { clock, measure_until_ns, .. } = timetable;
        let mut now_ns = clock.now_ns();
        while now_ns < measure_until_ns && !signals.stop.load(Ordering::Relaxed) {
            if let Err(error) = self.pair(&mut now_ns, clock, timetable).await {
                self.result.faults.add(FaultKind::UnexpectedError, || error.to_string());
                break;
            }
            signals.answer_count.fetch_add(2, Ordering::Relaxed);
        }
        self.result
    }

    async fn pair(&mut self, now_ns: &mut u64, clock: Clock, timetable: Timetable) -> Result<(), Error> {
        let claim = self.keys.choose(self.lane);
        let key = claim.key.key(self.key_size);
        let lock: Lock = self.client.write(key).lease(self.lease).try_().await?;
        self.count(now_ns, clock, timetable);
        let is_measured = timetable.is_measured(*now_ns);
        let grant = Grant { claim, fence: Some(lock.fence()), fence_floor: 0, now_ns: *now_ns, is_measured };
        if let Err(wrong) = self.keys.granted(grant) {
            self.result.faults.add(wrong.kind, || wrong.message);
        }
        self.keys.releasing(claim, *now_ns);
        lock.release().await?;
        self.count(now_ns, clock, timetable);
        Ok(())
    }

    /// Counts a response that arrived now, to a request sent at `now_ns`.
    fn count(&mut self, now_ns: &mut u64, clock: Clock, timetable: Timetable) {
        let sent_at_ns = std::mem::replace(now_ns, clock.now_ns());
        if timetable.is_measured(*now_ns) {
            self.result.request_count += 1;
            self.result.latency.record(*now_ns - sent_at_ns, 1);
        }
    }
}
