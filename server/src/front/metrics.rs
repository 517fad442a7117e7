//! `/metrics`: what there is to count, as Prometheus reads it.

use super::locket::{self, LocketMetrics};
use crate::driver::{Local, REFUSAL_LABELS};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// The media type of the text.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The limit because of which a connection was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabel {
    limit: &'static str,
}

/// The metrics of one server.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    pub(super) locket: Arc<LocketMetrics>,
    active_locks: Gauge,
    active_presences: Gauge,
    locks_expired: Counter,
    presence_expired: Counter,
    log_compaction_failures: Counter,
    /// One for each of [`REFUSAL_LABELS`].
    refused_connections: [Counter; REFUSAL_LABELS.len()],
    failed_logins: Counter,
    refused_logins: Counter,
    audit_dropped_lines: Counter,
    audit_write_failures: Counter,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::default();
        let locket = Arc::new(LocketMetrics::new(&mut registry));
        let mut gauge = |name, help| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let active_locks = gauge("locket_active_locks", "Locks that are held");
        let active_presences = gauge("locket_active_presences", "Presences that are registered");
        let mut counter = |name, help| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let locks_expired = counter("locket_locks_expired", "Locks whose lease expired");
        let presence_expired = counter("locket_presence_expired", "Presences whose lease expired");
        let log_compaction_failures =
            counter("waymaker_log_compaction_failures", "Failed compactions of the durable log");
        let failed_logins = counter("waymaker_failed_logins", "Credentials that were not valid");
        let refused_logins = counter(
            "waymaker_refused_logins",
            "Credentials that were not looked at, because too many logins of their address had failed",
        );
        let audit_dropped_lines =
            counter("waymaker_audit_dropped_lines", "Lines that are missing in the audit log");
        let audit_write_failures = counter("waymaker_audit_write_failures", "Failed writes of the audit log");
        let refused = Family::<RefusalLabel, Counter>::default();
        let help = "Connections that were refused because of a limit";
        registry.register("waymaker_refused_connections", help, refused.clone());
        let refused_connections =
            REFUSAL_LABELS.map(|limit| refused.get_or_create(&RefusalLabel { limit }).clone());
        Self {
            registry,
            locket,
            active_locks,
            active_presences,
            locks_expired,
            presence_expired,
            log_compaction_failures,
            refused_connections,
            failed_logins,
            refused_logins,
            audit_dropped_lines,
            audit_write_failures,
        }
    }

    /// Counts a refused connection, by the place of its label in [`REFUSAL_LABELS`].
    pub(super) fn note_refused(&self, label_index: usize) {
        self.refused_connections[label_index].inc();
    }

    /// All of it as text. What is not counted as it happens is counted now.
    pub(super) async fn render(&self) -> String {
        self.locket.refresh();
        for (gauge, expired, type_name) in [
            (&self.active_locks, &self.locks_expired, "lock"),
            (&self.active_presences, &self.presence_expired, "presence"),
        ] {
            gauge.set(locket::active_count(type_name).await);
            expired.inc_by(expired_count(type_name).saturating_sub(expired.get()));
        }
        let (compaction_failures, access, audit) = Local::with(|local| {
            let node = &local.node;
            let failures = node.log.as_ref().map_or(0, |log| log.status().compaction_failures());
            (failures, Arc::clone(&node.access), node.audit.clone())
        });
        for (counter, count) in [
            (&self.log_compaction_failures, compaction_failures),
            (&self.failed_logins, access.failed_login_count()),
            (&self.refused_logins, access.refused_login_count()),
            (&self.audit_dropped_lines, audit.dropped_count()),
            (&self.audit_write_failures, audit.write_failure_count()),
        ] {
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string cannot fail");
        text
    }
}

/// How many resources of this type ended because they were not renewed.
fn expired_count(type_name: &str) -> u64 {
    Local::with(|local| {
        let Some((namespace, _)) = local.node.find_namespace(locket::NAMESPACE) else { return 0 };
        let counts = local.node.expiries.read();
        let of_type = counts
            .iter()
            .find(|count| count.namespace == namespace && *count.type_name == *type_name.as_bytes());
        of_type.map_or(0, |count| count.count)
    })
}
