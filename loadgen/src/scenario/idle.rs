//! Idle connections: the memory of the server for each.

use anyhow::{Result, bail};

use crate::codec::{Codec, Consul, Echo, Locktopus, Postgres, Redis, Slock, Waymaker, WebSocketEcho};
use crate::connection::Connection;
use crate::faults::FaultKind;
use crate::footprint::Footprint;
use crate::plan::Plan;
use crate::process::Process;
use crate::system::System;

/// Size of one receive call; the server may send a few bytes.
const CHUNK_LEN: usize = 4 << 10;

/// Opens all connections, and closes them again.
pub(crate) fn measure(plan: &Plan, server: Option<Process>) -> Result<Footprint> {
    match plan.system {
        System::Waymaker => measure_codec::<Waymaker>(plan, server),
        System::Redis => measure_codec::<Redis>(plan, server),
        System::Locktopus => measure_codec::<Locktopus>(plan, server),
        System::Consul => measure_codec::<Consul>(plan, server),
        System::Postgres => measure_codec::<Postgres>(plan, server),
        System::Slock => measure_codec::<Slock>(plan, server),
        System::Echo => measure_codec::<Echo>(plan, server),
        System::WebSocketEcho => measure_codec::<WebSocketEcho>(plan, server),
        System::Grpc | System::GrpcEcho | System::Etcd => {
            bail!("the workload idle does not support {}", plan.system.name())
        }
    }
}

fn measure_codec<C: Codec>(plan: &Plan, server: Option<Process>) -> Result<Footprint> {
    // The first connection pays for one-time allocations of the server, so it is not measured.
    let _first = Connection::<C>::open(plan, 0)?;
    let (mut connections, mut footprint) =
        Footprint::measure(server, plan.connections, || Connection::<C>::open_all(plan))?;
    let mut chunk = [0; CHUNK_LEN];
    for connection in &mut connections {
        if let Err(error) = connection.receive(&mut chunk) {
            footprint.faults.add(FaultKind::ConnectionLost, || error.to_string());
        }
    }
    Ok(footprint)
}
