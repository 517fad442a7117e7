//! What a held lock occupies: a fresh server, many keys, its resident memory before and after.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::row::slice_plan;
use super::session::{Contestant, Session};
use crate::address::System;
use crate::key::KeyIndex;
use crate::plan::Plan;
use crate::target::{Answer, Claim, Redis, Target, Waymaker};

/// Requests in flight while it is filled.
const BATCH: u32 = 256;
/// Long enough that nothing expires while it is measured.
const LEASE_MS: u32 = 600_000;
/// Until the allocator has settled.
const SETTLE_TIME: Duration = Duration::from_millis(300);
/// Longest time for one batch.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);

/// Memory of one target.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Which target.
    pub system: &'static str,
    /// Locks held.
    pub held_count: u32,
    /// Resident before.
    pub before_bytes: u64,
    /// Resident with all of them held.
    pub after_bytes: u64,
    /// The difference for each.
    pub bytes_per_lock: f64,
}

/// Fills a fresh server of this system.
pub fn measure(session: &Session<'_>, system: System) -> Result<Memory> {
    let contestant = session.start(system, false)?;
    let mut plan = slice_plan(&contestant.address, session.options, session.seed)?;
    (plan.depth, plan.lease_ms) = (BATCH, LEASE_MS);
    let memory = match system {
        System::Waymaker => fill::<Waymaker>(&contestant, &plan),
        System::Redis => fill::<Redis>(&contestant, &plan),
        System::Etcd | System::Echo => bail!("the memory of {} is not measured", system.name()),
    };
    session.bar.inc(1);
    memory.with_context(|| format!("filling {}", contestant.address))
}

fn fill<T: Target>(contestant: &Contestant, plan: &Plan) -> Result<Memory> {
    let resident = || {
        std::thread::sleep(SETTLE_TIME);
        contestant
            .process
            .and_then(crate::process::Process::resident_bytes)
            .context("its memory is not known")
    };
    let mut stream = TcpStream::connect(plan.socket_address)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    let mut target = T::open(plan, &mut stream)?;
    let before_bytes = resident()?;
    let mut requests = Vec::new();
    let mut answers = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let held_count = plan.key_count;
    for first in (0..held_count).step_by(BATCH as usize) {
        requests.clear();
        let batch = first..held_count.min(first + BATCH);
        for key in batch.clone() {
            target.put_acquire(key - first + 1, Claim { key: KeyIndex(key), shared: false }, &mut requests);
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
                target.next_answer(&answers[offset..]).map_err(|broken| anyhow::anyhow!(broken.0))?
            {
                let Answer::Granted { .. } = answer else { bail!("no grant: {answer:?}") };
                offset += len;
                granted_count += 1;
            }
            answers.drain(..offset);
        }
    }
    let after_bytes = resident()?;
    let bytes_per_lock = after_bytes.saturating_sub(before_bytes) as f64 / f64::from(held_count);
    Ok(Memory { system: contestant.system.name(), held_count, before_bytes, after_bytes, bytes_per_lock })
}
