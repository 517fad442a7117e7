//! Readiness of the server, with all reasons against it.
//!
//! Two reasons prevent service: the server is stopping, or it refuses grants because holds may have been lost. Clients
//! should then wait or use another server. Other reasons only degrade it: the server may refuse new claims, but holders
//! still need it to renew and release. A load balancer must keep a degraded server in service.

use crate::log::LogPort;
use crate::memory;
use crate::node::Node;
use serde::Serialize;
use std::fmt;
use waymaker_engine::{LogState, QuorumState};

/// The facts that determine readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether the server is draining.
    pub is_stopping: bool,
    /// Time until grants resume if they are refused because holds may have been lost, in milliseconds; otherwise 0.
    pub refused_ms: u64,
    /// State of the durable log.
    pub log: LogState,
    /// Reason why old log segments cannot be compacted into a snapshot; `None` if they can, or if the disk is full.
    pub compaction_failure: Option<String>,
    /// Memory limit in bytes, if memory use has reached it.
    pub full_memory: Option<u64>,
    /// State of the etcd cluster.
    pub quorum: QuorumState,
}

impl Facts {
    /// Returns the current facts about a node.
    pub fn of(node: &Node) -> Self {
        let log = node.log.as_ref().map(LogPort::status);
        Self {
            is_stopping: node.is_stopping(),
            refused_ms: node.grants_refused_ms(),
            log: log.map_or(LogState::Absent, |log| log.state(node.clock.now())),
            compaction_failure: log.and_then(|log| log.compaction_failure()),
            full_memory: node.memory.full(),
            quorum: node.quorum.as_ref().map_or(QuorumState::Absent, |quorum| quorum.status().state()),
        }
    }
}

/// Code of a reason. Programs may depend on its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    /// The server is draining.
    Stopping,
    /// Grants are refused because holds may have been lost.
    Recovering,
    /// The disk of the log is full.
    DiskFull,
    /// A write to the log takes too long.
    LogStalled,
    /// Old log segments cannot be compacted into a snapshot.
    CompactionFailing,
    /// Memory use has reached its limit.
    MemoryFull,
    /// The etcd cluster is unavailable.
    QuorumDown,
}

impl ReasonCode {
    /// All codes, in the order in which reasons are reported.
    pub const ALL: [Self; 7] = [
        Self::Stopping,
        Self::Recovering,
        Self::DiskFull,
        Self::LogStalled,
        Self::CompactionFailing,
        Self::MemoryFull,
        Self::QuorumDown,
    ];

    /// Returns the name of the code.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::Recovering => "recovering",
            Self::DiskFull => "disk_full",
            Self::LogStalled => "log_stalled",
            Self::CompactionFailing => "compaction_failing",
            Self::MemoryFull => "memory_full",
            Self::QuorumDown => "quorum_down",
        }
    }

    /// Returns whether this reason makes the server not ready.
    pub fn prevents_service(self) -> bool {
        matches!(self, Self::Stopping | Self::Recovering)
    }
}

/// A reason why the server is degraded or not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Code for programs.
    pub code: ReasonCode,
    /// Sentence for people.
    pub message: String,
    /// Time until the reason ends, in milliseconds; `None` if the server does not know it.
    pub remaining_ms: Option<u64>,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code.name(), self.message)
    }
}

/// Summary of readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyStatus {
    /// The server serves all requests.
    Ready,
    /// The server serves all requests except those that its reasons name, such as claims of one scope. The reason
    /// [`ReasonCode::CompactionFailing`] names none.
    Degraded,
    /// The server refuses all new claims.
    NotReady,
}

/// Readiness of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// Summary of readiness.
    pub status: ReadyStatus,
    /// All reasons, those that prevent service first.
    pub reasons: Vec<Reason>,
}

impl Readiness {
    /// Returns the current readiness of a node.
    pub fn of(node: &Node) -> Self {
        Self::from_facts(&Facts::of(node))
    }

    /// Returns the readiness that follows from these facts.
    pub fn from_facts(facts: &Facts) -> Self {
        let reasons: Vec<_> = ReasonCode::ALL.into_iter().filter_map(|code| reason(code, facts)).collect();
        let status = match &*reasons {
            [] => ReadyStatus::Ready,
            reasons if reasons.iter().any(|reason| reason.code.prevents_service()) => ReadyStatus::NotReady,
            _ => ReadyStatus::Degraded,
        };
        Self { status, reasons }
    }

    /// Returns the time until no reason prevents service, in milliseconds. Returns `None` if no reason does so now, or
    /// if the server does not know the time.
    pub fn remaining_ms(&self) -> Option<u64> {
        let preventing = self.reasons.iter().filter(|reason| reason.code.prevents_service());
        preventing.map(|reason| reason.remaining_ms).max_by_key(|ms| ms.unwrap_or(u64::MAX)).flatten()
    }

    /// Returns whether the server is ready or degraded, so that clients should stay with it.
    pub fn is_ready(&self) -> bool {
        self.status != ReadyStatus::NotReady
    }
}

impl fmt::Display for Readiness {
    /// Writes `ok`, or the status and one line for each reason.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.status {
            ReadyStatus::Ready => "ok",
            ReadyStatus::Degraded => "degraded",
            ReadyStatus::NotReady => "not ready",
        })?;
        self.reasons.iter().try_for_each(|reason| write!(formatter, "\n{reason}"))
    }
}

/// Returns the reason with this code if it applies to these facts.
fn reason(code: ReasonCode, facts: &Facts) -> Option<Reason> {
    let mut remaining_ms = None;
    let message = match code {
        ReasonCode::Stopping if facts.is_stopping => {
            "new claims are refused; the server ends soon".to_owned()
        }
        ReasonCode::Recovering if facts.refused_ms > 0 => {
            remaining_ms = Some(facts.refused_ms);
            let seconds = facts.refused_ms.div_ceil(1_000);
            format!("holds may have been lost; grants resume in {seconds} s")
        }
        ReasonCode::DiskFull if facts.log == LogState::NoSpace => {
            "the disk of the log is full; local grants are refused".to_owned()
        }
        ReasonCode::LogStalled if facts.log == LogState::Slow => {
            "a write to the disk of the log takes too long; local grants are refused".to_owned()
        }
        ReasonCode::CompactionFailing => {
            let failure = facts.compaction_failure.as_ref()?;
            format!("the log grows, and the next start may refuse it: {failure}")
        }
        ReasonCode::MemoryFull => format!("{}; new claims are refused", memory::refusal(facts.full_memory?)),
        ReasonCode::QuorumDown if facts.quorum == QuorumState::Unavailable => {
            "the etcd cluster does not respond; quorum grants are refused".to_owned()
        }
        _ => return None,
    };
    Some(Reason { code, message, remaining_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTHY: Facts = Facts {
        is_stopping: false,
        refused_ms: 0,
        log: LogState::Ready,
        compaction_failure: None,
        full_memory: None,
        quorum: QuorumState::Ready,
    };

    fn codes(readiness: &Readiness) -> Vec<&'static str> {
        readiness.reasons.iter().map(|reason| reason.code.name()).collect()
    }

    #[test]
    fn a_server_without_reasons_is_ready_also_without_log_and_cluster() {
        let bare = Facts { log: LogState::Absent, quorum: QuorumState::Absent, ..HEALTHY };
        for facts in [HEALTHY, bare] {
            let readiness = Readiness::from_facts(&facts);
            assert_eq!((readiness.status, readiness.is_ready()), (ReadyStatus::Ready, true));
            assert_eq!(readiness.to_string(), "ok");
        }
    }

    #[test]
    fn a_server_that_stops_or_recovers_is_not_ready() {
        let facts = Facts { is_stopping: true, refused_ms: 1_001, ..HEALTHY };
        let readiness = Readiness::from_facts(&facts);
        assert_eq!((readiness.status, readiness.is_ready()), (ReadyStatus::NotReady, false));
        assert_eq!(codes(&readiness), ["stopping", "recovering"]);
        assert_eq!(readiness.reasons[1].remaining_ms, Some(1_001));
        assert!(
            readiness.to_string().ends_with("\nrecovering: holds may have been lost; grants resume in 2 s")
        );
        assert_eq!(readiness.remaining_ms(), None, "nobody knows when it is back");
        let recovering = Readiness::from_facts(&Facts { refused_ms: 7, ..HEALTHY });
        assert_eq!((recovering.status, recovering.remaining_ms()), (ReadyStatus::NotReady, Some(7)));
    }

    /// Holders still renew and release at a degraded server, so it must keep its clients.
    #[test]
    fn a_server_that_refuses_some_claims_is_degraded_and_ready() {
        for (facts, code) in [
            (Facts { log: LogState::NoSpace, ..HEALTHY }, "disk_full"),
            (Facts { log: LogState::Slow, ..HEALTHY }, "log_stalled"),
            (Facts { compaction_failure: Some("bad".to_owned()), ..HEALTHY }, "compaction_failing"),
            (Facts { full_memory: Some(5), ..HEALTHY }, "memory_full"),
            (Facts { quorum: QuorumState::Unavailable, ..HEALTHY }, "quorum_down"),
        ] {
            let readiness = Readiness::from_facts(&facts);
            assert_eq!((readiness.status, readiness.is_ready()), (ReadyStatus::Degraded, true), "{code}");
            assert_eq!((codes(&readiness), readiness.remaining_ms()), (vec![code], None));
            assert!(readiness.to_string().starts_with(&format!("degraded\n{code}: ")), "{readiness}");
            let stopping = Readiness::from_facts(&Facts { is_stopping: true, ..facts });
            assert_eq!((stopping.status, codes(&stopping)), (ReadyStatus::NotReady, vec!["stopping", code]));
        }
    }

    #[test]
    fn the_json_of_readiness_has_the_names_of_its_codes() {
        for code in ReasonCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
        }
        let readiness = Readiness::from_facts(&Facts { refused_ms: 1_500, ..HEALTHY });
        let message = "holds may have been lost; grants resume in 2 s";
        assert_eq!(
            serde_json::to_value(&readiness).unwrap(),
            serde_json::json!({
                "status": "not_ready",
                "reasons": [{"code": "recovering", "message": message, "remaining_ms": 1_500}],
            })
        );
    }
}
