//! `server`: the state of the server.

use std::time::{Duration, Instant};

use clap::Subcommand;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{Capabilities, NamespaceStatus, Readiness, Result, ServerReason};

use crate::connection::{Connection, connect};
use crate::exit::{self, Exit, Use};
use crate::kind::Kind;
use crate::output::{complain_of, show};
use crate::text;

pub(crate) const HELP: &str = "\
Examples:
  Check whether the server responds:
      waymaker-ctl server status
  Check in a script or a container whether the server serves new claims:
      waymaker-ctl server status >/dev/null
  Wait up to a minute for a server that is starting:
      waymaker-ctl server status --connect-timeout 1m";

const STATUS_HELP: &str = "\
The response time is that of one request for the list of namespaces. The counts
are sums over all namespaces of a kind. TIMEOUTS, EXPIRED and REVOKED count
events since the server started: waits that ended without a grant, holds whose
lease expired, and holds that were taken away.
STATUS is ready, degraded (some new claims are refused; the exit code is 0) or
not ready (all new claims are refused; the exit code is 117), with the reasons.
If the server does not respond, the exit code is 122.

Examples:
  waymaker-ctl server status
  waymaker-ctl server status --json | jq .response_ms";

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Show readiness, version, listeners, capabilities and counts of the server
    #[command(after_help = exit::after(STATUS_HELP, &[Use::Status, Use::Request]))]
    Status,
}

/// The state of the server.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Server")]
pub(crate) struct ServerObject {
    /// Address of the server, from --server.
    server: String,
    /// Response time of one request in milliseconds.
    response_ms: f64,
    /// Readiness of the server: ready, degraded or not_ready; null if the server is too old to report it.
    status: Option<&'static str>,
    /// Reasons for which the server is degraded or not ready; null without `status`.
    reasons: Option<Vec<ReasonObject>>,
    /// Version of the server; null without `status`.
    version: Option<String>,
    /// Time since the start of the server in milliseconds; null without `status`.
    uptime_ms: Option<u64>,
    /// Listeners with their addresses, such as binary=127.0.0.1:7420; null without `status`.
    listeners: Option<Vec<String>>,
    /// Version of the binary protocol on this connection.
    protocol_version: u16,
    /// Names of the server's optional capabilities; null if the server speaks version 1 of the protocol.
    capabilities: Option<Vec<&'static str>>,
    /// Counts for each kind of namespaces that exists.
    kinds: Vec<KindObject>,
}

fn status_name(readiness: Readiness) -> &'static str {
    match readiness {
        Readiness::Ready => "ready",
        Readiness::Degraded => "degraded",
        Readiness::NotReady => "not_ready",
    }
}

/// A reason for which the server is degraded or not ready.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Reason")]
struct ReasonObject {
    /// Code for programs, such as recovering or disk_full. Later servers may have more codes.
    code: String,
    /// Sentence for people.
    message: String,
    /// Time until the reason is over in milliseconds; null if the server does not know it.
    remaining_ms: Option<u64>,
}

impl From<&ServerReason> for ReasonObject {
    fn from(reason: &ServerReason) -> Self {
        let remaining_ms = reason.remaining.map(|remaining| remaining.as_millis() as u64);
        Self { code: reason.code.clone(), message: reason.message.clone(), remaining_ms }
    }
}

/// Counts over all namespaces of one kind.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Counts of a kind")]
struct KindObject {
    /// Kind of the namespaces: flat, tree, pool, registry or lazy.
    kind: &'static str,
    /// Number of namespaces.
    namespaces: u64,
    /// Number of holds.
    held: u64,
    /// Number of waiters.
    waiting: u64,
    /// Number of waits that ended without a grant.
    timeouts: u64,
    /// Number of holds whose lease expired.
    expired: u64,
    /// Number of holds that were taken away.
    revoked: u64,
}

pub(crate) async fn run(connection: &Connection, command: &ServerCommand) -> Exit {
    let ServerCommand::Status = command;
    status(connection).await.unwrap_or_else(|error| complain_of(&error))
}

async fn status(connection: &Connection) -> Result<Exit> {
    let client = connect(connection).await?;
    let begin = Instant::now();
    let namespaces = client.namespaces().await?;
    let response = begin.elapsed();
    let session = client.session();
    let capabilities = session.server_capabilities();
    let reports = capabilities.is_some_and(|all| all.contains(Capabilities::SERVER_STATUS));
    let report = if reports { Some(client.server_status().await?) } else { None };
    let readiness = report.as_ref().map(|report| report.readiness);
    let object = ServerObject {
        server: connection.server.clone(),
        response_ms: rounded_ms(response),
        status: readiness.map(status_name),
        reasons: report.as_ref().map(|report| report.reasons.iter().map(ReasonObject::from).collect()),
        version: report.as_ref().map(|report| report.version.clone()),
        uptime_ms: report.as_ref().map(|report| report.uptime.as_millis() as u64),
        listeners: report.map(|report| report.listeners),
        protocol_version: session.protocol_version(),
        capabilities: capabilities.map(|capabilities| capabilities.names().collect()),
        kinds: counts(&namespaces),
    };
    show(|| page(&object, capabilities), [&object]);
    client.close().await?;
    Ok(if readiness == Some(Readiness::NotReady) { Exit::NotReady } else { Exit::Success })
}

/// Returns milliseconds with three decimals.
fn rounded_ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}

fn counts(namespaces: &[NamespaceStatus]) -> Vec<KindObject> {
    let of_kind = |kind: Kind| {
        let same = namespaces.iter().filter(|namespace| namespace.kind == kind.into());
        let mut counts = KindObject {
            kind: kind.name(),
            namespaces: 0,
            held: 0,
            waiting: 0,
            timeouts: 0,
            expired: 0,
            revoked: 0,
        };
        for namespace in same {
            counts.namespaces += 1;
            counts.held += namespace.held;
            counts.waiting += namespace.waiting;
            counts.timeouts += namespace.timeouts;
            counts.expired += namespace.expired;
            counts.revoked += namespace.revoked;
        }
        counts
    };
    Kind::ALL.into_iter().map(of_kind).filter(|counts| counts.namespaces > 0).collect()
}

fn page(object: &ServerObject, capabilities: Option<Capabilities>) -> String {
    let mut page = format!(
        "{} responded in {} ms; protocol version {}\n\n",
        text::printable(object.server.as_bytes()),
        object.response_ms,
        object.protocol_version
    );
    page.push_str(&report(object));
    match capabilities {
        None => page.push_str("The server does not report its capabilities.\n"),
        Some(capabilities) => {
            let rows = Capabilities::NAMES.map(|(capability, name)| {
                let state = if capabilities.contains(capability) { "yes" } else { "no" };
                [name.to_owned(), state.to_owned(), meaning(capability).to_owned()]
            });
            page.push_str(&text::table(["CAPABILITY", "OFFERED", "MEANING"], rows));
        }
    }
    let title = ["KIND", "NAMESPACES", "HELD", "WAITING", "TIMEOUTS", "EXPIRED", "REVOKED"];
    let rows = object.kinds.iter().map(|counts| {
        let KindObject { kind, namespaces, held, waiting, timeouts, expired, revoked } = counts;
        let [namespaces, held, waiting, timeouts, expired, revoked] =
            [namespaces, held, waiting, timeouts, expired, revoked].map(u64::to_string);
        [(*kind).to_owned(), namespaces, held, waiting, timeouts, expired, revoked]
    });
    page.push('\n');
    page.push_str(&text::table(title, rows));
    page
}

/// Returns a table of readiness, version, uptime, listeners and reasons; empty if the server reports none of them.
fn report(object: &ServerObject) -> String {
    let (Some(status), Some(version), Some(uptime_ms)) = (object.status, &object.version, object.uptime_ms)
    else {
        return String::new();
    };
    let uptime = text::pause(Duration::from_secs(uptime_ms / 1_000));
    let mut rows = vec![
        ["STATUS".to_owned(), status.replace('_', " ")],
        ["VERSION".to_owned(), text::printable(version.as_bytes())],
        ["UPTIME".to_owned(), uptime],
    ];
    let listeners = object.listeners.iter().flatten();
    rows.extend(listeners.map(|listener| ["LISTENER".to_owned(), text::printable(listener.as_bytes())]));
    for reason in object.reasons.iter().flatten() {
        let text = format!("{}: {}", reason.code, reason.message);
        rows.push(["REASON".to_owned(), text::printable(text.as_bytes())]);
    }
    let mut report = text::table(["SERVER", ""], rows);
    report.push('\n');
    report
}

/// Describes a capability.
fn meaning(capability: Capabilities) -> &'static str {
    match capability {
        Capabilities::SCOPE_LOCAL => "fences survive a crash of the server (--scope local)",
        Capabilities::SCOPE_QUORUM => "fences survive the loss of the server's disk (--scope quorum)",
        Capabilities::LIST_POOLS => "the server lists pools (pools list)",
        Capabilities::REMOVE_NAMESPACE => "the server removes namespaces (namespaces remove)",
        Capabilities::OWN_CLAIM => "a client can restrict a release or extend to its own claims",
        Capabilities::PING => "the server detects silent clients",
        Capabilities::SERVER_STATUS => "the server reports its readiness (server status)",
        Capabilities::REASON => "the server records reasons (prefixes freeze --reason)",
        Capabilities::LIST_WAITING => "the server lists claims that wait (locks list --waiting)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use waymaker_client::NamespaceKind;

    use super::*;

    #[test]
    fn the_response_time_is_in_milliseconds() {
        assert_eq!(rounded_ms(Duration::from_nanos(1_234_567)), 1.234);
        assert_eq!(rounded_ms(Duration::from_secs(2)), 2_000.0);
    }

    #[test]
    fn counts_are_sums_over_the_namespaces_of_a_kind() {
        let namespace = |kind, factor| NamespaceStatus {
            name: b"n".to_vec(),
            kind,
            held: factor,
            waiting: 2 * factor,
            timeouts: 3 * factor,
            expired: 4 * factor,
            revoked: 5 * factor,
        };
        let counts = counts(&[
            namespace(NamespaceKind::Flat, 1),
            namespace(NamespaceKind::Pool, 7),
            namespace(NamespaceKind::Flat, 100),
        ]);
        let counts: Vec<_> = counts
            .iter()
            .map(|counts| {
                let KindObject { kind, namespaces, held, waiting, timeouts, expired, revoked } = counts;
                (*kind, [namespaces, held, waiting, timeouts, expired, revoked].map(|count| *count))
            })
            .collect();
        assert_eq!(counts, [("flat", [2, 101, 202, 303, 404, 505]), ("pool", [1, 7, 14, 21, 28, 35])]);
    }
}
