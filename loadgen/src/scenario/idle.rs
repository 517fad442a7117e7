//! Idle connections: the memory of the server for each.

use anyhow::{Result, bail};

use crate::address::System;
use crate::connection::Connection;
use crate::faults::FaultKind;
use crate::footprint::Footprint;
use crate::plan::Plan;
use crate::process::Process;
use crate::target::{Consul, Echo, Locktopus, Postgres, Redis, Slock, Target, Waymaker, WebSocketEcho};

/// Size of one receive call; the server may send a few bytes.
const CHUNK_LEN: usize = 4 << 10;

/// Opens all connections, and closes them again.
pub(crate) fn measure(plan: &Plan, server: Option<Process>) -> Result<Footprint> {
    match plan.system {
        System::Waymaker => measure_target::<Waymaker>(plan, server),
        System::Redis => measure_target::<Redis>(plan, server),
        System::Locktopus => measure_target::<Locktopus>(plan, server),
        System::Consul => measure_target::<Consul>(plan, server),
        System::Postgres => measure_target::<Postgres>(plan, server),
        System::Slock => measure_target::<Slock>(plan, server),
        System::Echo => measure_target::<Echo>(plan, server),
        System::WebSocketEcho => measure_target::<WebSocketEcho>(plan, server),
        System::Grpc | System::GrpcEcho | System::Etcd => {
            bail!("the workload idle does not support {}", plan.system.name())
        }
    }
}

fn measure_target<T: Target>(plan: &Plan, server: Option<Process>) -> Result<Footprint> {
    // The first connection pays for one-time allocations of the server, so it is not measured.
    let _first = Connection::<T>::open(plan, 0)?;
    let (mut connections, mut footprint) =
        Footprint::measure(server, plan.connections, || Connection::<T>::open_all(plan))?;
    let mut chunk = [0; CHUNK_LEN];
    for connection in &mut connections {
        if let Err(error) = connection.receive(&mut chunk) {
            footprint.faults.add(FaultKind::ConnectionLost, || error.to_string());
        }
    }
    Ok(footprint)
}
