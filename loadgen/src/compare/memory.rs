//! Memory of a held lock, or of the items of a front end: starts a new server and creates many items.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::front::Front;
use super::row::slice_plan;
use super::session::{Contestant, Session};
use crate::codec::{Answer, Claim, Codec, Redis, Waymaker};
use crate::footprint::Footprint;
use crate::grpc::held_streams;
use crate::key::KeyIndex;
use crate::options::WorkloadName;
use crate::plan::Plan;
use crate::scenario::idle;
use crate::system::System;

/// Number of requests in flight while the server is filled.
const BATCH: u32 = 256;
/// Long enough that no lease expires during the measurement.
pub(crate) const LEASE_MS: u32 = 600_000;
/// Number of idle connections, for front ends with WebSockets.
const SOCKET_COUNT: u32 = 18_000;
const SOCKET_COUNT_QUICK: u32 = 100;
/// Number of connections, and of streams over all connections, for front ends with streams.
const STREAM_COUNTS: (u32, u32) = (250, 100_000);
const STREAM_COUNTS_QUICK: (u32, u32) = (10, 500);
/// Time limit for one batch.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);

/// Memory of one system.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Name of the system.
    pub system: &'static str,
    /// Kind of the items.
    pub what: &'static str,
    /// Result.
    #[serde(flatten)]
    pub footprint: Footprint,
}

/// Fills a new server of this system with locks, or with the items of the front end.
pub fn measure(session: &Session<'_>, system: System) -> Result<Memory> {
    let contestant = session.start(system, false, None)?;
    let options = session.options;
    let mut plan = slice_plan(&contestant.address, options, session.seed)?;
    plan.lease_ms = LEASE_MS;
    let (what, footprint) = match (options.front.and_then(Front::footprint), system) {
        (Some(WorkloadName::Idle), _) => {
            plan.connections = if options.quick { SOCKET_COUNT_QUICK } else { SOCKET_COUNT };
            ("idle connection", idle::measure(&plan, contestant.process))
        }
        (Some(_), _) => {
            (plan.connections, plan.shape.stream_count) =
                if options.quick { STREAM_COUNTS_QUICK } else { STREAM_COUNTS };
            ("held stream", held_streams::measure(&plan, contestant.process))
        }
        (None, System::Waymaker) => ("held lock", fill::<Waymaker>(&contestant, &batched(plan))),
        (None, System::Redis) => ("held lock", fill::<Redis>(&contestant, &batched(plan))),
        (None, _) => bail!("the memory of {} is not measured", system.name()),
    };
    session.bar.inc(1);
    let footprint = footprint.with_context(|| format!("filling {}", contestant.address))?;
    Ok(Memory { system: contestant.identity.system.name(), what, footprint })
}

/// Returns the plan with enough requests in flight to fill a server quickly.
pub(crate) fn batched(plan: Plan) -> Plan {
    Plan { depth: BATCH, ..plan }
}

/// Holds each key of the plan, with the plan's number of requests in flight.
pub(crate) fn fill<C: Codec>(contestant: &Contestant, plan: &Plan) -> Result<Footprint> {
    let mut stream = TcpStream::connect(plan.socket_address)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    let mut codec = C::open(plan, &mut stream)?;
    let held_count = plan.key_count;
    let filled =
        Footprint::measure(contestant.process, held_count, || hold_all(plan, &mut codec, &mut stream));
    filled.map(|((), footprint)| footprint)
}

/// Acquires each key once.
fn hold_all<C: Codec>(plan: &Plan, codec: &mut C, stream: &mut TcpStream) -> Result<()> {
    let mut requests = Vec::new();
    let mut answers = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let held_count = plan.key_count;
    for first in (0..held_count).step_by(plan.depth as usize) {
        requests.clear();
        let batch = first..held_count.min(first + plan.depth);
        for key in batch.clone() {
            codec.put_acquire(key - first + 1, Claim { key: KeyIndex(key), shared: false }, &mut requests);
        }
        stream.write_all(&requests)?;
        let mut granted_count = 0;
        while granted_count < batch.len() {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                bail!("the server closed the connection");
            }
            answers.extend_from_slice(&buffer[..count]);
            let mut offset = 0;
            while let Some((answer, len)) =
                codec.next_answer(&answers[offset..]).map_err(|broken| anyhow::anyhow!(broken.0))?
            {
                let Answer::Granted { .. } = answer else {
                    bail!("unexpected response to an acquire: {answer:?}")
                };
                offset += len;
                granted_count += 1;
            }
            answers.drain(..offset);
        }
    }
    Ok(())
}
