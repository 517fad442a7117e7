//! Guards of the Rust client library that stay held: their cost for client and server while nothing else happens.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use waymaker_client::{Client, Lock};

use super::Findings;
use crate::cpu::{CpuSample, CpuShares};
use crate::faults::{FaultKind, Faults};
use crate::guard::{connect, runtime};
use crate::key::KeyIndex;
use crate::plan::Plan;
use crate::process::Process;
use crate::system::System;
use crate::units::show_percent;

/// The guards of a client are taken in this number of steps, evenly over the time between two renewals, so that
/// guards taken together are not renewed together.
const STEP_COUNT: u32 = 500;

/// Cost of holding the guards.
#[derive(Debug, Serialize)]
pub(super) struct HeldGuards {
    guard_count: u32,
    /// Whether the guards use the lease of their session instead of their own leases.
    on_session: bool,
    measured_seconds: f64,
    cpu: CpuShares,
    faults: Faults,
}

impl Findings for HeldGuards {
    fn describe(&self) -> Vec<String> {
        let kept = if self.on_session { "on the leases of their sessions" } else { "each renewed by itself" };
        let share = |share: Option<f64>| {
            share.map_or("unknown".to_owned(), |share| format!("{:.2} %", share * 100.0))
        };
        vec![
            format!("held        {} guards for {:.1} s, {kept}", self.guard_count, self.measured_seconds),
            format!(
                "CPU         server {}, client {} of one core (other processes {})",
                share(self.cpu.server),
                share(Some(self.cpu.load)),
                self.cpu.other.map_or("-".to_owned(), show_percent)
            ),
        ]
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// Takes all guards, waits for the warm-up, measures, checks that all guards are still held, and releases them.
pub(super) fn run(plan: &Plan, server: Option<Process>) -> Result<HeldGuards> {
    if plan.system != System::Waymaker || plan.tls.is_some() {
        bail!("the workload held-guards supports waymaker://HOST:PORT only");
    }
    if let Some(core) = plan.pin.first() {
        crate::pin::pin_current_thread(*core)?;
    }
    runtime()?.block_on(hold(plan, server))
}

async fn hold(plan: &Plan, server: Option<Process>) -> Result<HeldGuards> {
    let on_session = plan.shape.has_sessions;
    let mut taking = JoinSet::new();
    for index in 0..plan.connections {
        taking.spawn(take(connect(plan).await?, plan.clone(), index));
    }
    let mut held = Vec::new();
    while let Some(taken) = taking.join_next().await {
        held.push(taken.context("a client panicked")??);
    }
    sleep(plan.warmup).await;
    let (start, before) = (Instant::now(), CpuSample::take(server));
    sleep(plan.duration).await;
    let cpu = before.shares_until(&CpuSample::take(server));
    let measured_seconds = start.elapsed().as_secs_f64();
    let mut faults = Faults::default();
    let guards = held.iter().flat_map(|(_, guards)| guards);
    for reason in guards.filter_map(Lock::loss_reason) {
        faults.add(FaultKind::UnexpectedError, || format!("a guard was lost: {reason}"));
    }
    for (client, _guards) in held {
        client.close().await?;
    }
    Ok(HeldGuards { guard_count: plan.key_count, on_session, measured_seconds, cpu, faults })
}

/// Takes every `plan.connections`-th key.
async fn take(client: Client, plan: Plan, index: u32) -> Result<(Client, Vec<Lock>)> {
    let lease = Duration::from_millis(u64::from(plan.lease_ms));
    let keys: Vec<u32> = (index..plan.key_count).step_by(plan.connections as usize).collect();
    let start = Instant::now();
    let mut guards = Vec::with_capacity(keys.len());
    for (step, keys) in (0..).zip(keys.chunks(keys.len().div_ceil(STEP_COUNT as usize))) {
        if !plan.shape.has_sessions {
            sleep_until(start + lease / 3 * step / STEP_COUNT).await;
        }
        let mut acquiring = JoinSet::new();
        for key in keys {
            let acquire = client.write(KeyIndex(*key).key(usize::from(plan.key_size))).try_();
            let acquire =
                if plan.shape.has_sessions { acquire.session_lease() } else { acquire.lease(lease) };
            acquiring.spawn(acquire.into_future());
        }
        while let Some(acquired) = acquiring.join_next().await {
            guards.push(acquired.context("an acquire panicked")?.context("a lock was not granted")?);
        }
    }
    Ok((client, guards))
}
