//! Namespaces that the configuration declares.

use crate::milliseconds::Milliseconds;
use waymaker_engine::{Quotas, Scope};
use waymaker_protocol::NamespaceKind;

/// A namespace that the configuration declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredNamespace {
    /// Name of the namespace.
    pub name: String,
    /// Kind of the namespace.
    pub kind: NamespaceKind,
    /// Lease of an acquire or a renewal that requests 0, unless it uses the session lease. `None` uses the default of
    /// the server.
    pub default_lease: Option<Milliseconds>,
    /// Lowest scope of claims in the namespace; a lower requested scope is raised to it.
    pub min_scope: Scope,
    /// Quotas on the claims of all clients in the namespace together.
    pub quotas: Quotas,
}

/// The default lease of a declared namespace is above the longest lease that the server grants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("namespace \"{name}\": default_lease: {default_lease} is above --limits-lease-max, which is {max}")]
pub struct LeaseAboveMaximum {
    name: String,
    default_lease: Milliseconds,
    max: Milliseconds,
}

impl DeclaredNamespace {
    /// Checks that the default lease of the namespace is at most `lease_max`, the longest lease that the server grants.
    ///
    /// # Errors
    /// Returns an error if it is longer.
    pub fn check(&self, lease_max: Milliseconds) -> Result<(), LeaseAboveMaximum> {
        match self.default_lease {
            Some(default_lease) if default_lease > lease_max => {
                Err(LeaseAboveMaximum { name: self.name.clone(), default_lease, max: lease_max })
            }
            _ => Ok(()),
        }
    }
}
