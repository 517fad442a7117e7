//! A load that runs beside the measured load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::load;
use crate::plan::Plan;
use crate::threads::Outcome;

/// Longer than any slice.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

/// A load on its own thread.
#[derive(Debug)]
pub struct OtherLoad {
    thread: JoinHandle<Result<Outcome>>,
    stop: Arc<AtomicBool>,
}

impl OtherLoad {
    /// Starts the load, and returns after its first response or after this time. The load runs until `end`
    /// and ignores the duration of its plan.
    pub fn start(plan: Plan, answer_time_max: Duration) -> Result<Self> {
        let plan = Plan { warmup: Duration::ZERO, duration: DURATION_MAX, ..plan };
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&stop);
        let (sender, answered) = mpsc::channel();
        let thread = thread::Builder::new().name("other load".into()).spawn(move || {
            load::run(&plan, None, &of_thread, &move |_, answer_count| {
                if answer_count > 0 {
                    // The receiver waits only for the first message.
                    let _ = sender.send(());
                }
            })
        })?;
        // Continues even if the load has ended or gets no response; `end` reports the reason.
        let _ = answered.recv_timeout(answer_time_max);
        Ok(Self { thread, stop })
    }

    /// Ends the load and returns its results.
    pub fn end(self) -> Result<Outcome> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the load beside the measured one panicked"))?
    }
}
