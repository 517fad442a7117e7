//! `locks list --waiting`: the claims of the namespace that wait.

use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{Client, Result, WaitingClaim};

use super::list::ordered;
use super::members::{ClientMembers, KeyMembers};
use crate::kind::Kind;
use crate::output::show;
use crate::text;

/// A claim that waits.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Waiting claim")]
pub(crate) struct WaitingObject {
    #[serde(flatten)]
    key: KeyMembers,
    /// Kind of the namespace: flat, tree, pool, registry or lazy.
    kind: &'static str,
    /// Id of the claim, 32 hexadecimal digits.
    id: String,
    /// Mode: read or write.
    mode: &'static str,
    /// Length of the wait so far, in milliseconds.
    age_ms: u64,
    /// Time until the wait ends, in milliseconds; null without a limit.
    remaining_ms: Option<u64>,
    /// Priority of the claim.
    priority: u32,
    #[serde(flatten)]
    client: ClientMembers,
}

/// Shows the claims of these kinds that wait for keys with this prefix.
pub(super) async fn list(client: &Client, kinds: &[Kind], prefix: &[u8]) -> Result<()> {
    let ask = async |kind| match kind {
        Kind::Tree => client.tree().list_waiting(text::segments(prefix)).await,
        kind => client.operator(kind.into()).list_waiting(prefix).await,
    };
    let claims = ordered(kinds, ask, |claim| (&claim.key, claim.id)).await?;
    show(|| table(&claims), claims.iter().map(|(kind, claim)| object(claim, *kind)));
    Ok(())
}

fn table(claims: &[(Kind, WaitingClaim)]) -> String {
    let title = ["KEY", "KIND", "MODE", "OWNER", "WAITING", "LEFT", "PRIORITY", "ID"];
    let rows = claims.iter().map(|(kind, claim)| {
        [
            text::key(*kind, &claim.key),
            kind.name().to_owned(),
            text::mode(claim.shared).to_owned(),
            text::printable(&claim.owner),
            text::time(Some(claim.age)),
            text::time(claim.remaining),
            claim.priority.to_string(),
            claim.id.to_string(),
        ]
    });
    text::table(title, rows)
}

fn object(claim: &WaitingClaim, kind: Kind) -> WaitingObject {
    WaitingObject {
        key: KeyMembers::new(kind, &claim.key),
        kind: kind.name(),
        id: claim.id.to_string(),
        mode: text::mode(claim.shared),
        age_ms: text::milliseconds(claim.age),
        remaining_ms: claim.remaining.map(text::milliseconds),
        priority: claim.priority,
        client: ClientMembers::new(&claim.owner, &claim.request_id, &claim.metadata),
    }
}
