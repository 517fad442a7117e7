//! Processor use of the worker threads, as reported by the system.

use super::WorkerMetrics;
use procfs::FromRead;
use procfs::process::Schedstat;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two measurements.
const LOOK: Duration = Duration::from_secs(1);

/// Starts a thread that measures once a second, until the process ends, for which share of the time each worker's
/// thread ran. The share is stored as `busy_ratio` in the metrics of the worker.
///
/// # Errors
/// Returns an error if the thread cannot be started.
pub(crate) fn watch_processors(workers: Vec<Arc<WorkerMetrics>>) -> std::io::Result<()> {
    std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        let mut seen = vec![0; workers.len()];
        let mut looked_at = Instant::now();
        loop {
            std::thread::sleep(LOOK);
            let elapsed = looked_at.elapsed();
            looked_at = Instant::now();
            for (worker, seen) in workers.iter().zip(&mut seen) {
                let thread_id = worker.thread_id.get();
                if let Ok(times) = Schedstat::from_file(format!("/proc/self/task/{thread_id}/schedstat")) {
                    let nanos = times.sum_exec_runtime;
                    let before = std::mem::replace(seen, nanos);
                    worker.set_busy_ratio(busy_ratio(before, nanos, elapsed));
                }
            }
        }
    })?;
    Ok(())
}

fn busy_ratio(before_nanos: u64, now_nanos: u64, elapsed: Duration) -> f64 {
    let ran = Duration::from_nanos(now_nanos.saturating_sub(before_nanos));
    (ran.as_secs_f64() / elapsed.as_secs_f64().max(f64::EPSILON)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_busy_for_the_share_of_the_time_that_it_ran() {
        let second = Duration::from_secs(1);
        assert_eq!(busy_ratio(1_000_000_000, 1_250_000_000, second), 0.25);
        assert_eq!(busy_ratio(0, 2_000_000_000, second), 1.0, "both readings take time");
        assert_eq!(busy_ratio(5, 1, second), 0.0, "the thread of another server");
    }
}
