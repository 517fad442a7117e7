//! The audit log: lines about acts of operators, acts on claims of other identities, refused credentials and rights,
//! and changes of the configuration. [`Act`] lists all kinds of lines.
//!
//! A worker describes an act as an [`AuditEvent`] and passes it to [`Audit`], which never waits for the output. The
//! `queue` holds a bounded number of encoded lines for one thread, and counts the lines that do not fit. The thread
//! writes the lines to the [`AuditTarget`]. Neither a slow disk nor a flood of refusals therefore delays a request.
//!
//! ```text
//! worker -> AuditEvent -> Audit -> queue -> thread -> log | stdout | stderr | file
//! ```

mod event;
mod options;
mod queue;
mod thread;
mod writer;

pub use event::{Act, AuditEvent, Caller, Detail, Outcome};
pub use options::AuditTarget;
pub use thread::{AuditError, AuditThread};

use crate::clock::{BootClock, Clock};
use queue::{Queue, QueuedWork};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The sending end of the audit log. The default discards all events.
#[derive(Clone, Debug, Default)]
pub struct Audit(Option<Arc<Shared>>);

/// The state shared by the threads that record events, such as the workers, and the thread that writes the audit log.
#[derive(Debug)]
struct Shared {
    encoding: Encoding,
    queue: Mutex<Queue>,
    /// Wakes the thread that writes the audit log when there is work: a queued or dropped line, a request to reopen the
    /// file, or the stop.
    is_filled: Condvar,
    write_failure_count: AtomicU64,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// A JSON object.
    Json,
    /// Text for people. It contains no time, because the server's log adds the time to each line.
    Words,
}

impl Audit {
    fn new(encoding: Encoding) -> Self {
        Self(Some(Arc::new(Shared {
            encoding,
            queue: Mutex::default(),
            is_filled: Condvar::new(),
            write_failure_count: AtomicU64::new(0),
        })))
    }

    /// Passes an event to the thread that writes the audit log. If the queue is full, or if the act has too many events
    /// in the current second, the event is dropped and counted.
    pub fn record(&self, event: &AuditEvent) {
        let Some(shared) = &self.0 else { return };
        let now_ms = now_ms();
        if shared.queue().admit(event.act, now_ms) {
            let line = shared.encoding.line(event, now_ms);
            shared.queue().push(line);
        }
        shared.is_filled.notify_one();
    }

    /// Returns the number of lines that were dropped or belonged to a failed write. A part of the latter may be in the
    /// audit log.
    pub fn dropped_count(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.queue().dropped_count())
    }

    /// Returns the number of failed writes.
    pub fn write_failure_count(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.write_failure_count.load(Ordering::Relaxed))
    }

    /// Makes the thread reopen the file of the audit log before the next line, even if the path still names the same
    /// file. No effect on other targets.
    pub fn reopen(&self) {
        if let Some(shared) = &self.0 {
            shared.queue().wants_reopen = true;
            shared.is_filled.notify_one();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for work and returns it.
    fn take(&self) -> QueuedWork {
        let mut queue = self.queue();
        loop {
            let taken = queue.take(now_ms());
            if !taken.is_nothing() {
                return taken;
            }
            queue = match queue.report_in_ms(now_ms()) {
                None => self.is_filled.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(ms) => {
                    let waited = self.is_filled.wait_timeout(queue, Duration::from_millis(ms));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Encoding {
    fn line(self, event: &AuditEvent, now_ms: u64) -> String {
        match self {
            Self::Json => event.json(now_ms),
            Self::Words => event.to_string(),
        }
    }
}

/// Returns the time of day in milliseconds since 1970.
fn now_ms() -> u64 {
    u64::try_from(BootClock.unix_micros() / 1000).unwrap_or(0)
}
