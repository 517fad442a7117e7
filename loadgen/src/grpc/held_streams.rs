//! Held locks, each with an open stream: the memory of the server for each.

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tonic::{Status, Streaming};
use waymaker_proto::waymaker::LockEvent;

use super::load;
use super::waymaker::{Service, end_of, text_of};
use crate::faults::FaultKind;
use crate::footprint::Footprint;
use crate::key::KeyIndex;
use crate::plan::Plan;
use crate::process::Process;

/// One connection and its locks.
#[derive(Debug)]
struct Holder {
    service: Service,
    held: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    key: String,
    id: String,
    events: Streaming<LockEvent>,
}

/// Takes all locks, and releases them again.
pub(crate) fn measure(plan: &Plan, server: Option<Process>) -> Result<Footprint> {
    crate::process::raise_open_files_limit(u64::from(plan.connections))
        .context("--connections: too many open files")?;
    let runtime = load::runtime()?;
    let services: Vec<Service> = (0..plan.connections)
        .map(|index| runtime.block_on(load::open(plan, index)))
        .collect::<Result<_>>()?;
    let count = plan.shape.stream_count;
    let key_of = |key| text_of(KeyIndex(key).text(usize::from(plan.key_size)));
    // The first lock pays for one-time allocations of the server, so it is not measured.
    let first = services.iter().take(1).map(|service| Holder::lock(service.clone(), vec![key_of(count)]));
    let first = runtime.block_on(all(first)).context("the first lock was not granted")?;
    runtime
        .block_on(all(first.into_iter().map(Holder::unlock)))
        .context("the first lock was not released")?;
    let (holders, mut footprint) = Footprint::measure(server, count, || {
        let locking = services.into_iter().zip(0..).map(|(service, index)| {
            let keys: Vec<String> = (index..count).step_by(plan.connections as usize).map(key_of).collect();
            Holder::lock(service, keys)
        });
        runtime.block_on(all(locking)).context("a lock was not granted")
    })?;
    if let Err(status) = runtime.block_on(all(holders.into_iter().map(Holder::unlock))) {
        footprint.faults.add(FaultKind::UnexpectedError, || format!("release of a held lock: {status}"));
    }
    Ok(footprint)
}

/// Runs all futures concurrently and returns their results.
async fn all<T, F>(parts: impl Iterator<Item = F>) -> Result<Vec<T>, Status>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Status>> + Send + 'static,
{
    let parts: JoinSet<_> = parts.collect();
    parts.join_all().await.into_iter().collect()
}

impl Holder {
    /// Takes one lock after the other.
    async fn lock(mut service: Service, keys: Vec<String>) -> Result<Self, Status> {
        let mut held = Vec::with_capacity(keys.len());
        for key in keys {
            let (events, event) = service.lock(key.clone()).await?;
            held.push(Held { key, id: event.id, events });
        }
        Ok(Self { service, held })
    }

    /// Releases one lock after the other; each stream must end with its lock.
    async fn unlock(self) -> Result<(), Status> {
        let Self { mut service, held } = self;
        for Held { key, id, events } in held {
            service.unlock(key, id).await?;
            end_of(events).await?;
        }
        Ok(())
    }
}
