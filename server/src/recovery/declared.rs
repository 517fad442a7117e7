//! Namespaces that the configuration declares. They exist from the start. If one has terms (default lease, minimum
//! scope or quotas), every shard has them.

use crate::milliseconds::Milliseconds;
use crate::namespaces::{DeclaredNamespace, NamespaceRefusal};
use crate::node::Node;
use std::sync::{Arc, PoisonError};
use waymaker_engine::{Account, Holder, NamespaceTerms};
use waymaker_protocol::NamespaceKind;

/// Reasons why a declared namespace cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// The data directory has the namespace with another kind.
    #[error(
        "namespace \"{name}\" has kind {logged} in the data directory, but the configuration declares kind {declared}; declare kind \
         {logged}, or start without the declaration and remove the namespace"
    )]
    OtherKind {
        /// Name of the namespace.
        name: String,
        /// Kind in the data directory.
        logged: &'static str,
        /// Kind in the configuration.
        declared: &'static str,
    },
    /// All namespace numbers are in use.
    #[error(
        "namespace \"{name}\" cannot be opened: the data directory has as many namespaces as there are numbers"
    )]
    TooMany {
        /// Name of the namespace.
        name: String,
    },
}

/// Returns an error if the data directory has the namespace with another kind.
pub(super) fn check_kind(
    namespace: &DeclaredNamespace,
    logged: NamespaceKind,
) -> Result<(), DeclarationError> {
    if logged == namespace.kind { Ok(()) } else { Err(other_kind(namespace, logged)) }
}

fn other_kind(namespace: &DeclaredNamespace, logged: NamespaceKind) -> DeclarationError {
    let (logged, declared) = (logged.name(), namespace.kind.name());
    DeclarationError::OtherKind { name: namespace.name.clone(), logged, declared }
}

/// Opens the declared namespaces. Sets the terms of each (default lease, minimum scope and quotas), if any, in every
/// shard. Must be called after the namespaces of the log are restored, before their contents are restored, and before
/// any worker runs.
///
/// # Errors
/// Returns an error if the log has one of the namespaces with another kind, or if no number is left.
///
/// # Panics
/// Panics if a worker has the turn of a shard.
pub(crate) fn open_declared(node: &Node) -> Result<(), DeclarationError> {
    node.declared.iter().try_for_each(|declared| open_one(node, declared))
}

fn open_one(node: &Node, declared: &DeclaredNamespace) -> Result<(), DeclarationError> {
    let DeclaredNamespace { name, kind, default_lease, min_scope, quotas } = declared;
    let lease_default_ms = default_lease.map(Milliseconds::get);
    let opened = {
        let mut namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        namespaces.declare(name.as_bytes(), *kind, lease_default_ms, |change| node.record_namespace(change))
    };
    let number = opened.map_err(|refusal| match refusal {
        NamespaceRefusal::OtherKind(logged) => other_kind(declared, logged),
        NamespaceRefusal::TooMany | NamespaceRefusal::Quota(_) => {
            DeclarationError::TooMany { name: name.clone() }
        }
    })?;
    let account = (!quotas.is_empty()).then(|| Arc::new(Account::new(Holder::Namespace, quotas)));
    let terms = NamespaceTerms { lease_default_ms, scope_min: *min_scope, account };
    if terms.is_empty() {
        return Ok(());
    }
    for hosted in &node.shards {
        let mut turn = hosted.enter().expect("no worker has started");
        turn.shard.set_terms(number, terms.clone());
        let left = turn.leave();
        assert!(left.is_none(), "no worker leaves a batch before its start");
    }
    Ok(())
}
