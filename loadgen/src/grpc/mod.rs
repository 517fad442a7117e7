//! Systems that are called over gRPC: Waymaker's gRPC front end, the bare server it is compared with, and etcd.
//!
//! They do not implement [`crate::codec::Codec`]: their framing is HTTP/2, so hyper owns the sockets, on one
//! runtime per thread.

mod channel;
pub mod echo_server;
mod etcd;
mod etcd_leases;
pub(crate) mod held_locks;
pub(crate) mod held_streams;
mod load;
mod waymaker;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;

use crate::options::WorkloadName;
use crate::plan::Plan;
use crate::process::Process;
use crate::system::System;
use crate::threads::{Outcome, Watcher};

/// Runs a plan for one of these systems.
pub fn run(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
) -> Result<Outcome> {
    match plan.system {
        System::Etcd if plan.workload == WorkloadName::Renew => {
            load::run::<etcd_leases::EtcdLeases>(plan, server, stop, watcher)
        }
        System::Etcd => load::run::<etcd::Etcd>(plan, server, stop, watcher),
        _ => load::run::<waymaker::Service>(plan, server, stop, watcher),
    }
}
