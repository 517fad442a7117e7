//! Description of the machine.

use std::fs;
use std::time::SystemTime;

use procfs::Current;
use serde::{Deserialize, Serialize};

/// Machine and time of a measurement, for reports.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu_model: String,
    /// Number of cores of the machine.
    pub core_count: usize,
    /// Version of the kernel.
    pub kernel: String,
    /// Date and time, UTC.
    pub date: String,
    /// Version of this program.
    pub loadgen_version: String,
}

impl Machine {
    /// Describes this machine, now.
    pub fn this() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let cpus = procfs::CpuInfo::current().ok();
        let cpu_model = cpus.as_ref().and_then(|cpus| cpus.model_name(0)).unwrap_or("unknown").to_owned();
        Self {
            cpu_model,
            core_count: cpus.map_or(0, |cpus| cpus.num_cores()),
            kernel,
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            loadgen_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Formats the description in one line.
    pub fn describe(&self) -> String {
        format!("{}, {} cores, Linux {}, {}", self.cpu_model, self.core_count, self.kernel, self.date)
    }
}
