//! The memory limit of the server.
//!
//! Every buffer of a connection has its own bound. But there may be many connections, sessions and claims, so the
//! server also limits its total memory. At the limit it refuses requests that need more, such as new claims,
//! registrations, watches and sessions. At 105 % of the limit it also refuses new connections. Open connections can
//! always renew, release and read.

mod allocator;

pub(crate) use allocator::collect;

use procfs::FromRead;
use procfs::process::StatM;
use std::fs::read_to_string;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Assumed maximum growth of memory use, in bytes per millisecond. It determines the time until the next measurement.
const GROWTH_PER_MS: u64 = 2_000_000;
/// Shortest and longest time between two measurements of memory use, in milliseconds.
const LOOK_MS: (u64, u64) = (5, 200);
/// Share of the limit below which new claims are allowed again, in percent.
const RESUME_PERCENT: u64 = 95;
/// Share of the limit from which connections are refused, in percent.
const EXCEEDED_PERCENT: u64 = 105;
/// Default limit, as a share of the memory of the control group or machine, in percent.
const DEFAULT_PERCENT: u64 = 75;

/// The value of `--memory-limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// No limit.
    None,
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the memory of the control group, or of the machine.
    Percent(u64),
}

impl Default for MemoryLimit {
    fn default() -> Self {
        Self::Percent(DEFAULT_PERCENT)
    }
}

/// A text is not a valid value of `--memory-limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use bytes such as 512MiB, a percentage from 1% to 100%, or none")]
pub struct BadMemoryLimit;

impl FromStr for MemoryLimit {
    type Err = BadMemoryLimit;

    fn from_str(text: &str) -> Result<Self, BadMemoryLimit> {
        if text == "none" {
            return Ok(Self::None);
        }
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..end].parse().map_err(|_| BadMemoryLimit)?;
        let unit = match text[end..].trim() {
            "%" if (1..=100).contains(&number) => return Ok(Self::Percent(number)),
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return Err(BadMemoryLimit),
        };
        number.checked_mul(unit).filter(|bytes| *bytes > 0).map(Self::Bytes).ok_or(BadMemoryLimit)
    }
}

impl MemoryLimit {
    /// Returns the limit in bytes. `None` means no limit: it was set so, or the system does not report the memory of
    /// the machine.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Percent(percent) => Some(available()? / 100 * percent),
        }
    }
}

/// The memory use of the server, and its limit.
#[derive(Debug, Default)]
pub struct MemoryUse {
    /// Limit in bytes; 0 without a limit.
    limit: u64,
    used: AtomicU64,
    is_full: AtomicBool,
}

impl MemoryUse {
    /// Returns a memory use of zero with this limit in bytes.
    pub fn new(limit: Option<u64>) -> Self {
        Self { limit: limit.unwrap_or(0), ..Self::default() }
    }

    /// Returns whether the server refuses new claims: memory use has reached the limit, and has not fallen below 95 %
    /// of it since.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Returns whether memory use is 5 % or more above the limit, so that connections are refused too. Below this
    /// bound, clients that lost their connection can reconnect to renew and release.
    pub fn is_exceeded(&self) -> bool {
        self.is_full() && self.used() >= self.limit / 100 * EXCEEDED_PERCENT
    }

    /// Returns the limit in bytes if [`Self::is_full`]; `None` otherwise.
    #[inline]
    pub fn full(&self) -> Option<u64> {
        self.is_full().then_some(self.limit)
    }

    /// Returns the limit in bytes, if there is one.
    pub fn limit(&self) -> Option<u64> {
        Some(self.limit).filter(|limit| *limit > 0)
    }

    /// Returns the memory use at the last measurement, in bytes.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the current memory use in bytes, or `None` if the system does not report it.
    pub(crate) fn used_now(&self) -> Option<u64> {
        used()
    }

    /// Sets the measured memory use in bytes. Returns whether the server is full now if this has changed, and `None`
    /// otherwise.
    pub fn note(&self, used: u64) -> Option<bool> {
        self.used.store(used, Ordering::Relaxed);
        let was_full = self.is_full();
        // Allow claims again only well below the limit. Otherwise each freed claim would admit another, and the server
        // would alternate between full and not full.
        let bound = if was_full { self.limit / 100 * RESUME_PERCENT } else { self.limit };
        let is_full = self.limit > 0 && used >= bound;
        self.is_full.store(is_full, Ordering::Relaxed);
        (is_full != was_full).then_some(is_full)
    }
}

/// Name of the limit in refusals.
pub const LIMIT_NAME: &str = "bytes of memory";

/// Returns the message of a refusal because of this limit.
pub fn refusal(limit: u64) -> String {
    format!("the server has reached its memory limit of {limit} bytes (--memory-limit)")
}

/// Starts a thread that measures the memory use of this process, until the process ends or the system does not report
/// it. The thread logs when memory use reaches the limit and when claims are served again. Does nothing without a
/// limit.
///
/// # Errors
/// Returns an error if the thread cannot be started.
pub fn watch(memory: Arc<MemoryUse>) -> std::io::Result<()> {
    let Some(limit) = memory.limit() else { return Ok(()) };
    std::thread::Builder::new().name("memory".to_owned()).spawn(move || {
        loop {
            let Some(used) = used() else {
                tracing::warn!("cannot read /proc/self/statm; the memory limit is not enforced");
                return;
            };
            match memory.note(used) {
                Some(true) => {
                    tracing::warn!(used, limit, "reached the memory limit; new claims are refused");
                }
                Some(false) => {
                    tracing::info!(used, limit, "memory use is below the limit; new claims are served");
                }
                None => {}
            }
            let reached_ms = limit.saturating_sub(used) / GROWTH_PER_MS;
            std::thread::sleep(Duration::from_millis(reached_ms.clamp(LOOK_MS.0, LOOK_MS.1)));
        }
    })?;
    Ok(())
}

/// Returns the resident memory without shared pages, in bytes. Mapped files therefore do not count.
fn used() -> Option<u64> {
    let page_len = rustix::param::page_size() as u64;
    StatM::from_file("/proc/self/statm").ok().map(|pages| used_pages(&pages) * page_len)
}

fn used_pages(pages: &StatM) -> u64 {
    pages.resident.saturating_sub(pages.shared)
}

/// Returns the memory available to this process, in bytes: the smaller of the machine's memory and the limit of its
/// control group (version 2).
fn available() -> Option<u64> {
    let machine = machine_len(&read_to_string("/proc/meminfo").ok()?)?;
    let group = read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|groups| group_limit(&groups, &|path| read_to_string(path).ok()));
    Some(group.map_or(machine, |group| group.min(machine)))
}

fn machine_len(meminfo: &str) -> Option<u64> {
    // Parse the text here: `procfs::Meminfo` requires fields that gVisor does not report.
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Returns the lowest limit of the control group and its ancestors, in bytes.
fn group_limit(groups: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let root = Path::new("/sys/fs/cgroup");
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = root.join(group.trim_end());
    let limits = group.ancestors().take_while(|path| path.starts_with(root)).filter_map(|path| {
        // The text "max" means no limit.
        read(&path.join("memory.max"))?.trim().parse::<u64>().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_limit_is_bytes_a_percentage_or_none() {
        for (text, limit) in [
            ("none", Ok(MemoryLimit::None)),
            ("1073741824", Ok(MemoryLimit::Bytes(1 << 30))),
            ("512MiB", Ok(MemoryLimit::Bytes(512 << 20))),
            ("2 GB", Ok(MemoryLimit::Bytes(2_000_000_000))),
            ("75%", Ok(MemoryLimit::Percent(75))),
            ("0", Err(BadMemoryLimit)),
            ("0%", Err(BadMemoryLimit)),
            ("101%", Err(BadMemoryLimit)),
            ("", Err(BadMemoryLimit)),
            ("much", Err(BadMemoryLimit)),
            ("99999999999999999999", Err(BadMemoryLimit)),
            ("99999999999GiB", Err(BadMemoryLimit)),
        ] {
            assert_eq!(text.parse(), limit, "{text}");
        }
    }

    #[test]
    fn claims_are_refused_at_the_memory_limit_until_enough_is_free() {
        let memory = MemoryUse::new(Some(1_000));
        assert_eq!((memory.note(999), memory.is_full()), (None, false));
        assert_eq!((memory.note(1_000), memory.is_full()), (Some(true), true));
        assert_eq!((memory.note(951), memory.is_full()), (None, true));
        assert_eq!((memory.note(949), memory.is_full()), (Some(false), false));
        assert_eq!(MemoryUse::new(None).note(u64::MAX), None);
    }

    #[test]
    fn mapped_files_do_not_count_as_used_memory() {
        let pages = StatM::from_read(&b"9000 700 300 1 0 2 0\n"[..]).expect("valid");
        assert_eq!(used_pages(&pages), 400);
        let filled = vec![1_u8; 32 << 20];
        let used = used();
        assert!(used.is_some_and(|used| used > filled.len() as u64 / 2), "{used:?} bytes");
    }

    #[test]
    fn the_lowest_limit_of_all_parent_cgroups_applies() {
        assert_eq!(machine_len("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16 << 10));
        let read = |path: &Path| match path.to_str() {
            Some("/sys/fs/cgroup/a/memory.max") => Some("4096\n".to_owned()),
            Some("/sys/fs/cgroup/a/b/memory.max") => Some("max\n".to_owned()),
            _ => None,
        };
        assert_eq!(group_limit("0::/a/b\n", &read), Some(4096));
        assert_eq!(group_limit("0::/\n", &read), None);
        assert_eq!(group_limit("3:memory:/old\n", &read), None);
    }
}
