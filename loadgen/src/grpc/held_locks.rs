//! Locks held under one lease of etcd: the memory of the server for each.

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use super::etcd::Etcd;
use super::load;
use crate::footprint::Footprint;
use crate::key::KeyIndex;
use crate::plan::Plan;
use crate::process::Process;

/// Number of calls in flight while the locks are taken.
const BATCH: u32 = 64;

/// Takes a lock of each key of the plan.
pub(crate) fn measure(plan: &Plan, server: Option<Process>) -> Result<Footprint> {
    let runtime = load::runtime()?;
    let etcd: Etcd = runtime.block_on(load::open(plan, 0))?;
    // The first lock pays for one-time allocations of the server, so it is not measured.
    let first = KeyIndex(plan.key_count).text(usize::from(plan.key_size));
    runtime.block_on(etcd.clone().hold(first)).context("the first lock was not granted")?;
    let key_size = usize::from(plan.key_size);
    let hold_all = async {
        for first in (0..plan.key_count).step_by(BATCH as usize) {
            let mut calls = JoinSet::new();
            for key in first..plan.key_count.min(first + BATCH) {
                let mut etcd = etcd.clone();
                calls.spawn(async move { etcd.hold(KeyIndex(key).text(key_size)).await });
            }
            while let Some(call) = calls.join_next().await {
                call.context("a call panicked")?.context("a lock was not granted")?;
            }
        }
        anyhow::Ok(())
    };
    let ((), footprint) = Footprint::measure(server, plan.key_count, || runtime.block_on(hold_all))?;
    Ok(footprint)
}
