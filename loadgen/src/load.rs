//! Runs one plan: chooses the codec and the workload, and connects.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};

use crate::codec::{
    Codec, Consul, ConsulRenewals, Echo, Locktopus, Postgres, Redis, RedisRenewals, Slock, Waymaker,
    WaymakerKeys, WaymakerLimiter, WaymakerPermits, WaymakerRenewals, WaymakerSets, WebSocketEcho,
};
use crate::connection::Connection;
use crate::grpc;
use crate::guard;
use crate::options::WorkloadName;
use crate::plan::Plan;
use crate::process::Process;
use crate::schedule::Schedule;
use crate::system::System;
use crate::threads::{Job, Outcome, Watcher, run_threads};
use crate::worker::{Timetable, Worker};
use crate::workload::{
    Buckets, Hot, HotLedger, Pair, PairLedger, PermitLedger, Permits, ReadWrite, ReadWriteLedger, Renewals,
    Throttled, Workload,
};

/// Runs a plan.
pub fn run(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
) -> Result<Outcome> {
    plan.check()?;
    match (plan.system, plan.workload) {
        (_, workload) if workload.is_scenario() => {
            bail!(
                "the workload {} consists of several phases and cannot run as a single load",
                workload.name()
            )
        }
        (System::Waymaker, WorkloadName::Tree) => run_codec::<WaymakerSets>(plan, server, stop, watcher),
        (System::Waymaker, WorkloadName::Multi) => run_codec::<WaymakerKeys>(plan, server, stop, watcher),
        (System::Waymaker, WorkloadName::Semaphore) => {
            run_codec::<WaymakerPermits>(plan, server, stop, watcher)
        }
        (System::Waymaker, WorkloadName::Throttle) => {
            run_codec::<WaymakerLimiter>(plan, server, stop, watcher)
        }
        (System::Waymaker, WorkloadName::Renew) => run_codec::<WaymakerRenewals>(plan, server, stop, watcher),
        (System::Waymaker, WorkloadName::Guard) => guard::run(plan, server, stop, watcher),
        (System::Waymaker, _) => run_codec::<Waymaker>(plan, server, stop, watcher),
        (System::Redis, WorkloadName::Renew) => run_codec::<RedisRenewals>(plan, server, stop, watcher),
        (System::Redis, _) => run_codec::<Redis>(plan, server, stop, watcher),
        (System::Consul, WorkloadName::Renew) => run_codec::<ConsulRenewals>(plan, server, stop, watcher),
        (System::Consul, _) => run_codec::<Consul>(plan, server, stop, watcher),
        (System::Postgres, _) => run_codec::<Postgres>(plan, server, stop, watcher),
        (System::Slock, _) => run_codec::<Slock>(plan, server, stop, watcher),
        (System::Locktopus, _) => run_codec::<Locktopus>(plan, server, stop, watcher),
        (System::Echo, _) => run_codec::<Echo>(plan, server, stop, watcher),
        (System::WebSocketEcho, _) => run_codec::<WebSocketEcho>(plan, server, stop, watcher),
        (System::Grpc | System::GrpcEcho | System::Etcd, _) => grpc::run(plan, server, stop, watcher),
    }
}

fn run_codec<C: Codec + 'static>(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
) -> Result<Outcome> {
    match plan.workload {
        WorkloadName::Hot => {
            let ledger = Arc::new(HotLedger::default());
            run_workload::<C, _>(plan, server, stop, watcher, |_| Hot::new(Arc::clone(&ledger)))
        }
        WorkloadName::Renew => run_workload::<C, _>(plan, server, stop, watcher, |_| Renewals),
        WorkloadName::Rw | WorkloadName::Tree | WorkloadName::Multi => {
            let ledger = Arc::new(ReadWriteLedger::new(plan));
            run_workload::<C, _>(plan, server, stop, watcher, |thread| {
                ReadWrite::new(Arc::clone(&ledger), plan, plan.thread_seed(thread))
            })
        }
        WorkloadName::Semaphore => {
            let ledger = Arc::new(PermitLedger::new(plan));
            run_workload::<C, _>(plan, server, stop, watcher, |thread| {
                Permits::new(Arc::clone(&ledger), plan, plan.thread_seed(thread))
            })
        }
        WorkloadName::Throttle => {
            let buckets = Arc::new(Buckets::new(plan.key_count));
            let mut outcome = run_workload::<C, _>(plan, server, stop, watcher, |thread| {
                Throttled::new(Arc::clone(&buckets), plan.thread_seed(thread))
            })?;
            let lasted_ns = outcome.clock.now_ns();
            outcome.allowed = Some(buckets.judge(&plan.shape, lasted_ns, &mut outcome.faults));
            Ok(outcome)
        }
        _ => {
            let ledger = Arc::new(PairLedger::new(plan, C::HAS_FENCES));
            run_workload::<C, _>(plan, server, stop, watcher, |thread| {
                Pair::new(Arc::clone(&ledger), plan.thread_seed(thread))
            })
        }
    }
}

fn run_workload<C: Codec + 'static, W: Workload + 'static>(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
    workload: impl Fn(u32) -> W,
) -> Result<Outcome> {
    let mut parts: Vec<Vec<Connection<C>>> = (0..plan.threads).map(|_| Vec::new()).collect();
    for (index, connection) in Connection::<C>::open_all(plan)?.into_iter().enumerate() {
        parts[index % plan.threads as usize].push(connection);
    }
    let timetable = Timetable::of(plan);
    let jobs = parts.into_iter().enumerate().map(|(thread, connections)| -> Job {
        let schedule = plan
            .rate
            .map(|rate| Schedule::new(rate, thread as u64, u64::from(plan.threads), connections.len()));
        let worker = Worker::new(connections, workload(thread as u32), plan, schedule, timetable);
        Box::new(move |signals| worker.run(signals))
    });
    run_threads(plan, server, stop, watcher, timetable, jobs.collect())
}
