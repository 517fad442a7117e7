//! Notices to the supervisor that started the server, such as systemd, about the state of the server (protocol
//! `sd_notify`).
//!
//! A separate thread sends the notices, because a supervisor that does not read would block the sender. The task
//! [`watch`] runs on the thread of the acceptors. If that thread hangs, or a worker does not respond, the supervisor's
//! watchdog gets no more notices. The supervisor, if it has a watchdog, then ends the process.

mod notice;
mod pulse;

use crate::driver::WorkerHandles;
use crate::limits::{SUPERVISOR_LOOK_MS, SUPERVISOR_NOTICES_MAX};
use crate::mail::Mail;
use crate::node::Node;
use crate::readiness::Readiness;
use crossbeam_channel::{Receiver, Sender, bounded};
use notice::{Notice, Phase, status_text};
use pulse::Pulse;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// The connection to the supervisor. Without a supervisor all notices are dropped.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    sender: Option<Sender<Notice>>,
    /// Time after which the supervisor ends the server process if the server sends no watchdog notice; `None` without a
    /// watchdog.
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// Returns the supervisor that the environment names (`NOTIFY_SOCKET`, `WATCHDOG_USEC`). If it names none, all
    /// notices are dropped.
    ///
    /// # Errors
    /// Returns an error if the thread that sends notices cannot be started.
    pub fn from_environment() -> std::io::Result<Self> {
        if std::env::var_os("NOTIFY_SOCKET").is_none_or(|path| path.is_empty()) {
            return Ok(Self::default());
        }
        let (sender, notices) = bounded(SUPERVISOR_NOTICES_MAX);
        std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || send_all(&notices))?;
        Ok(Self {
            sender: Some(sender),
            watchdog: sd_notify::watchdog_enabled().filter(|watchdog| !watchdog.is_zero()),
        })
    }

    /// Reports that the server serves clients at these addresses.
    pub fn note_ready(&self, readiness: &Readiness, addresses: &str) {
        self.send(Notice::Ready(status_text(readiness, addresses)));
    }

    /// Reports that the server is draining.
    pub fn note_stopping(&self) {
        self.send(Notice::Stopping);
    }

    /// Reports that the server starts to read its files again.
    pub fn note_reloading(&self) {
        self.send(Notice::reloading());
    }

    /// Reports that the server has read its files again.
    pub fn note_reloaded(&self) {
        self.send(Notice::Reloaded);
    }

    /// Queues a notice for the thread that sends notices. Returns false and drops the notice if there is no supervisor,
    /// or if the queue is full because the supervisor does not read.
    fn send(&self, notice: Notice) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.try_send(notice).is_ok())
    }
}

/// Sends notices until the server ends.
fn send_all(notices: &Receiver<Notice>) {
    let mut phase = Phase::default();
    let mut has_failed = false;
    for notice in notices {
        let Some(states) = notice.states(&mut phase) else { continue };
        let result = sd_notify::notify(&states);
        if let Err(error) = &result
            && !has_failed
        {
            tracing::warn!(%error, "cannot notify the supervisor at NOTIFY_SOCKET");
        }
        has_failed = result.is_err();
    }
}

/// Reports readiness and its changes, and notifies the watchdog, if there is one, while the workers respond. Runs for
/// ever, but returns at once without a supervisor.
pub async fn watch(supervisor: Supervisor, node: Arc<Node>, workers: WorkerHandles, addresses: String) {
    if supervisor.sender.is_none() {
        return;
    }
    let look = Duration::from_millis(SUPERVISOR_LOOK_MS);
    // The task sends a watchdog notice once per interval, if the workers respond. The interval is at most a quarter of
    // the time after which the supervisor ends the process. So the process survives if two notices in a row are not
    // sent.
    let look =
        supervisor.watchdog.map_or(look, |watchdog| look.min(watchdog / 4).max(Duration::from_millis(1)));
    let mut interval = tokio::time::interval(look);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pulse = Pulse::default();
    let mut last_status = None;
    loop {
        interval.tick().await;
        let status = status_text(&Readiness::of(&node), &addresses);
        if last_status.as_ref() != Some(&status) && supervisor.send(Notice::Status(status.clone())) {
            last_status = Some(status);
        }
        if supervisor.watchdog.is_none() {
            continue;
        }
        let beat = pulse.look(node.drained(), node.clock.moment().passed);
        if beat.is_alive {
            supervisor.send(Notice::Alive);
        }
        if let Some(due) = beat.ask {
            for (worker, handle) in workers.iter().enumerate() {
                node.mailboxes[worker].post(Mail::Drain { asker: worker as u16, due });
                handle.wake();
            }
        }
    }
}
