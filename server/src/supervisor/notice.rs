//! Notices that the server sends to its supervisor, such as systemd. A server that is starting or stopping sends no
//! notice of a reload.

use crate::readiness::{Readiness, ReadyStatus};
use sd_notify::NotifyState;

/// A notice for the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The server serves clients, with its status as text.
    Ready(String),
    /// The server starts to read its files again, at this time of the monotonic clock in microseconds; `None` if the
    /// clock cannot be read.
    Reloading { monotonic_us: Option<i128> },
    /// The server has read its files again.
    Reloaded,
    /// The server is draining.
    Stopping,
    /// The status as text.
    Status(String),
    /// The workers respond.
    Alive,
}

/// The phase of the server, as the supervisor knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Starting,
    Serving,
    Stopping,
}

impl Notice {
    /// Returns the notice of a reload that starts now.
    pub(super) fn reloading() -> Self {
        let monotonic_us = match NotifyState::monotonic_usec_now() {
            Ok(NotifyState::MonotonicUsec(us)) => Some(us),
            _ => None,
        };
        Self::Reloading { monotonic_us }
    }

    /// Returns the states to send, or `None` if the notice would be wrong in this phase. For example, the end of a
    /// reload sends `READY=1`, which a starting server must not send. `Ready` and `Stopping` set the phase.
    pub(super) fn states(&self, phase: &mut Phase) -> Option<Vec<NotifyState<'_>>> {
        match self {
            Self::Ready(status) => {
                *phase = Phase::Serving;
                Some(vec![NotifyState::Ready, NotifyState::Status(status)])
            }
            Self::Reloading { monotonic_us } => {
                let time = monotonic_us.map(NotifyState::MonotonicUsec);
                (*phase == Phase::Serving).then(|| [NotifyState::Reloading].into_iter().chain(time).collect())
            }
            Self::Reloaded => (*phase == Phase::Serving).then(|| vec![NotifyState::Ready]),
            Self::Stopping => {
                *phase = Phase::Stopping;
                Some(vec![NotifyState::Stopping])
            }
            Self::Status(status) => Some(vec![NotifyState::Status(status)]),
            Self::Alive => Some(vec![NotifyState::Watchdog]),
        }
    }
}

/// Returns the status as one line: readiness, the codes of all reasons for which the server is not fully ready, and the
/// addresses at which it serves clients.
pub(super) fn status_text(readiness: &Readiness, addresses: &str) -> String {
    let word = match readiness.status {
        ReadyStatus::Ready => "ready",
        ReadyStatus::Degraded => "degraded",
        ReadyStatus::NotReady => "not ready",
    };
    let codes: Vec<_> = readiness.reasons.iter().map(|reason| reason.code.name()).collect();
    let reasons = if codes.is_empty() { String::new() } else { format!(" ({})", codes.join(", ")) };
    format!("{word}{reasons}: {addresses}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::Facts;
    use waymaker_engine::{LogState, QuorumState};

    fn sent(notice: &Notice, phase: &mut Phase) -> Option<String> {
        let states = notice.states(phase)?;
        Some(states.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_reload_is_reported_only_between_ready_and_stopping() {
        let mut phase = Phase::default();
        let reloading = Notice::Reloading { monotonic_us: Some(7) };
        assert_eq!(sent(&reloading, &mut phase), None);
        assert_eq!(sent(&Notice::Reloaded, &mut phase), None);
        let ready = Notice::Ready("up".to_owned());
        assert_eq!(sent(&ready, &mut phase).as_deref(), Some("READY=1 STATUS=up"));
        assert_eq!(sent(&reloading, &mut phase).as_deref(), Some("RELOADING=1 MONOTONIC_USEC=7"));
        assert_eq!(sent(&Notice::Reloaded, &mut phase).as_deref(), Some("READY=1"));
        assert_eq!(sent(&Notice::Stopping, &mut phase).as_deref(), Some("STOPPING=1"));
        assert_eq!(sent(&reloading, &mut phase), None);
        assert_eq!(sent(&Notice::Reloaded, &mut phase), None);
        assert_eq!(sent(&Notice::Alive, &mut phase).as_deref(), Some("WATCHDOG=1"), "a drain may take long");
    }

    #[test]
    fn the_status_is_one_line_with_readiness_and_addresses() {
        let facts = Facts {
            is_stopping: false,
            refused_ms: 0,
            log: LogState::NoSpace,
            compaction_failure: Some("several\nlines".to_owned()),
            full_memory: None,
            quorum: QuorumState::Absent,
        };
        let text = status_text(&Readiness::from_facts(&facts), "binary=127.0.0.1:1");
        assert_eq!(text, "degraded (disk_full, compaction_failing): binary=127.0.0.1:1");
        let facts = Facts { log: LogState::Ready, compaction_failure: None, ..facts };
        assert_eq!(status_text(&Readiness::from_facts(&facts), "binary=unix:/a"), "ready: binary=unix:/a");
    }
}
