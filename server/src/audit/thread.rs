//! The thread that writes the audit log.

use super::event::AuditEvent;
use super::options::AuditTarget;
use super::queue::QueuedWork;
use super::writer::{AuditFile, write_stream};
use super::{Audit, Encoding, Shared, now_ms};
use crate::limits::AUDIT_STOP_MS;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::Duration;

/// The running thread that writes the audit log. When this value is dropped, the thread writes all queued lines and
/// ends. The drop waits for the thread for at most [`AUDIT_STOP_MS`].
#[derive(Debug)]
pub struct AuditThread {
    shared: Arc<Shared>,
    /// Channel that disconnects when the thread has ended.
    ended: Receiver<()>,
}

/// Reasons why the audit log cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("--audit: cannot open {path}: {error}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The thread cannot be started.
    #[error("--audit: cannot start a thread: {0}")]
    Thread(io::Error),
}

/// The destination of lines.
#[derive(Debug)]
enum Sink {
    Log,
    Stdout,
    Stderr,
    File(AuditFile),
}

impl AuditThread {
    /// Starts the thread that writes the audit log to this target. Returns the sending end of the log, and the thread.
    /// For [`AuditTarget::None`] there is no thread, and all events are discarded.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or the thread cannot be started.
    pub fn start(target: &AuditTarget) -> Result<(Audit, Option<Self>), AuditError> {
        let sink = match target {
            AuditTarget::None => return Ok((Audit::default(), None)),
            AuditTarget::Log => Sink::Log,
            AuditTarget::Stdout => Sink::Stdout,
            AuditTarget::Stderr => Sink::Stderr,
            AuditTarget::File(path) => {
                let file = AuditFile::open(path);
                Sink::File(file.map_err(|error| AuditError::File { path: path.clone(), error })?)
            }
        };
        let encoding = if matches!(sink, Sink::Log) { Encoding::Words } else { Encoding::Json };
        let audit = Audit::new(encoding);
        let Some(shared) = audit.0.clone() else { return Ok((audit, None)) };
        let (ends, ended) = channel();
        let run = Run { shared: Arc::clone(&shared), sink, is_failing: false };
        let thread = Builder::new().name("audit".to_owned()).spawn(move || {
            run.run();
            drop(ends);
        });
        thread.map_err(AuditError::Thread)?;
        Ok((audit, Some(Self { shared, ended })))
    }
}

impl Drop for AuditThread {
    fn drop(&mut self) {
        self.shared.queue().is_stopping = true;
        self.shared.is_filled.notify_one();
        // Limit the wait: the thread blocks if the reader of its output stream has stopped reading.
        let _ = self.ended.recv_timeout(Duration::from_millis(AUDIT_STOP_MS));
    }
}

struct Run {
    shared: Arc<Shared>,
    sink: Sink,
    /// Whether the last write failed.
    is_failing: bool,
}

impl Run {
    fn run(mut self) {
        loop {
            let QueuedWork { mut lines, dropped_count, wants_reopen, is_stopping } = self.shared.take();
            let line_count = lines.len() as u64;
            if dropped_count > 0 {
                lines.push(self.shared.encoding.line(&AuditEvent::dropped(dropped_count), now_ms()));
            }
            let written = self.write(&lines, wants_reopen);
            if written.is_err() {
                // Do not retry the lines of a failed write: some of them may already be in the file.
                self.shared.queue().note_lost(line_count, dropped_count);
            }
            self.note(&written);
            if is_stopping {
                return;
            }
        }
    }

    fn write(&mut self, lines: &[String], wants_reopen: bool) -> io::Result<()> {
        let joined = || lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>();
        match &mut self.sink {
            Sink::Log => lines.iter().for_each(|line| tracing::warn!(target: "audit", "{line}")),
            Sink::Stdout => write_stream(io::stdout().lock(), &joined())?,
            Sink::Stderr => write_stream(io::stderr().lock(), &joined())?,
            Sink::File(file) => file.write(&joined(), wants_reopen)?,
        }
        Ok(())
    }

    /// Counts a failed write. Logs the first failure after a success, and the first success after a failure.
    fn note(&mut self, written: &io::Result<()>) {
        if let Err(error) = written {
            self.shared.write_failure_count.fetch_add(1, Ordering::Relaxed);
            if !self.is_failing {
                tracing::error!(%error, "could not write the audit log (--audit); lines are missing until a write succeeds");
            }
        } else if self.is_failing {
            tracing::warn!("the audit log is written again");
        }
        self.is_failing = written.is_err();
    }
}
