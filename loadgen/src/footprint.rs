//! Memory of many items in a server: the difference of its resident memory with and without them.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::faults::Faults;
use crate::process::Process;

/// Time for the allocator to settle.
const SETTLE_TIME: Duration = Duration::from_millis(300);

/// Memory that a number of items uses.
#[derive(Clone, Debug, Serialize)]
pub struct Footprint {
    /// Number of items.
    pub count: u32,
    /// Resident memory before.
    pub before_bytes: u64,
    /// Resident memory with all items.
    pub after_bytes: u64,
    /// Difference per item.
    pub bytes_each: f64,
    /// Faults during the measurement.
    pub faults: Faults,
}

impl Footprint {
    /// Measures the items that `make` creates, and returns them. Create shared prerequisites before the call, so
    /// that they are not counted.
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
        "the memory of the server is unknown; the server must be a process of this machine that this user may \
         inspect",
    )
}

/// Formats bytes as MiB.
pub fn show_mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
