//! A load that goes on beside the one that is measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::load::{self, Outcome};
use crate::plan::Plan;

/// Longer than any slice.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

/// It has a thread of its own.
#[derive(Debug)]
pub struct OtherLoad {
    thread: JoinHandle<Result<Outcome>>,
    stop: Arc<AtomicBool>,
}

impl OtherLoad {
    /// Begins, and returns once it is answered, or after so long. It lasts until it is ended, whatever the plan says.
    pub fn start(plan: Plan, answer_time_max: Duration) -> Result<Self> {
        let plan = Plan { warmup: Duration::ZERO, duration: DURATION_MAX, ..plan };
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&stop);
        let (sender, answered) = mpsc::channel();
        let thread = thread::Builder::new().name("other load".into()).spawn(move || {
            load::run(&plan, None, &of_thread, &move |_, answer_count| {
                if answer_count > 0 {
                    // Only the first is waited for.
                    let _ = sender.send(());
                }
            })
        })?;
        // It also goes on where the load ended by itself or is not answered; why is known at its end.
        let _ = answered.recv_timeout(answer_time_max);
        Ok(Self { thread, stop })
    }

    /// Ends; says what it saw.
    pub fn end(self) -> Result<Outcome> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the load beside the measured one panicked"))?
    }
}
