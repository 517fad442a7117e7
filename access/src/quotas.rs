//! The quotas of the access file.

use crate::access_file_error::AccessFileError;
use crate::identity::Identity;
use crate::who::{Groups, Member, Who};
use serde::Deserialize;
use waymaker_engine::{Holder, Quotas, Resource};

/// A quota as written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaText {
    identity: Option<String>,
    group: Option<String>,
    #[serde(default)]
    everyone: bool,
    #[serde(default)]
    per_address: bool,
    connections: Option<u64>,
    new_connections_per_second: Option<u64>,
    sessions: Option<u64>,
    namespaces: Option<u64>,
    claims: Option<u64>,
    waiters: Option<u64>,
    bytes: Option<u64>,
}

/// A parsed quota.
#[derive(Debug)]
pub(crate) struct Quota {
    who: Who,
    holder: Holder,
    quotas: Quotas,
}

impl Quota {
    /// Checks a quota. `number` is its position in the file, from 1.
    pub(crate) fn parse(number: usize, text: QuotaText) -> Result<Self, AccessFileError> {
        let place = format!("quota {number}");
        let who = Who::parse(&place, text.identity, text.group, text.everyone)?;
        let mut quotas = Quotas::default();
        for (resource, max) in [
            (Resource::Connections, text.connections),
            (Resource::NewConnections, text.new_connections_per_second),
            (Resource::Sessions, text.sessions),
            (Resource::Namespaces, text.namespaces),
            (Resource::Claims, text.claims),
            (Resource::Waiters, text.waiters),
            (Resource::Bytes, text.bytes),
        ] {
            if let Some(max) = max {
                quotas.set(resource, max);
            }
        }
        if quotas.is_empty() {
            return Err(AccessFileError::NoQuota { number });
        }
        let holder = if text.per_address { Holder::Address } else { Holder::Identity };
        Ok(Self { who, holder, quotas })
    }
}

/// Returns the quotas of an identity, or of each of its source addresses. For each limit the first matching quota in
/// the file counts.
pub(crate) fn quotas_of(all: &[Quota], groups: &Groups, identity: &Identity, holder: Holder) -> Quotas {
    let mut quotas = Quotas::default();
    let member = Member::new(identity, groups);
    let own = all.iter().filter(|quota| quota.holder == holder && quota.who.is(&member));
    for quota in own {
        for resource in Resource::ALL {
            if let (None, Some(max)) = (quotas.get(resource), quota.quotas.get(resource)) {
                quotas.set(resource, max);
            }
        }
    }
    quotas
}
