//! What many of one thing occupy in a server: its resident memory with all of them and without.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::faults::Faults;
use crate::process::Process;

/// Until the allocator has settled.
const SETTLE_TIME: Duration = Duration::from_millis(300);

/// What so many of one thing occupy.
#[derive(Clone, Debug, Serialize)]
pub struct Footprint {
    /// How many there are.
    pub count: u32,
    /// Resident before.
    pub before_bytes: u64,
    /// Resident with all of them.
    pub after_bytes: u64,
    /// The difference for each.
    pub bytes_each: f64,
    /// What was wrong on the way.
    pub faults: Faults,
}

impl Footprint {
    /// Measures what `make` makes, and hands it back. What it needs of which there is one only should be there before.
    pub fn measure<T>(
        server: Option<Process>,
        count: u32,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Self)> {
        let before_bytes = resident_bytes(server)?;
        let made = make()?;
        let after_bytes = resident_bytes(server)?;
        let bytes_each = after_bytes.saturating_sub(before_bytes) as f64 / f64::from(count);
        Ok((made, Self { count, before_bytes, after_bytes, bytes_each, faults: Faults::default() }))
    }
}

fn resident_bytes(server: Option<Process>) -> Result<u64> {
    std::thread::sleep(SETTLE_TIME);
    server.and_then(Process::resident_bytes).context(
        "the memory of the server is not known: it is no process of this machine that may be looked at",
    )
}

/// Bytes as people read them.
pub fn show_mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
