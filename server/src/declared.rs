//! Namespaces that the configuration declares: they are there from the start, with their terms in every shard.

use crate::milliseconds::Milliseconds;
use crate::namespaces::NamespaceRefusal;
use crate::node::Node;
use crate::options::DeclaredNamespace;
use std::sync::{Arc, PoisonError};
use waymaker_engine::{Account, Holder, Terms};
use waymaker_protocol::NamespaceKind;

/// Why a declared namespace cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// It was created with another kind.
    #[error(
        "namespace \"{name}\" has kind {logged} in the data directory, but the configuration declares kind {declared}; declare kind \
         {logged}, or start without the declaration and remove the namespace"
    )]
    OtherKind {
        /// Its name.
        name: String,
        /// Its kind in the data directory.
        logged: &'static str,
        /// Its kind in the configuration.
        declared: &'static str,
    },
    /// All numbers of namespaces are in use.
    #[error(
        "namespace \"{name}\" cannot be opened: the data directory has as many namespaces as there are numbers"
    )]
    TooMany {
        /// Its name.
        name: String,
    },
}

impl DeclaredNamespace {
    /// Fails if the data directory has the namespace with another kind.
    pub(crate) fn check_kind(&self, logged: NamespaceKind) -> Result<(), DeclarationError> {
        if logged == self.kind { Ok(()) } else { Err(self.other_kind(logged)) }
    }

    fn other_kind(&self, logged: NamespaceKind) -> DeclarationError {
        let (logged, declared) = (logged.name(), self.kind.name());
        DeclarationError::OtherKind { name: self.name.clone(), logged, declared }
    }
}

impl Node {
    /// Opens the declared namespaces, and tells every shard their terms. Must be called after the namespaces of the log are restored,
    /// before anything in them is, and before any worker runs.
    ///
    /// # Errors
    /// If the log has one of them with another kind.
    ///
    /// # Panics
    /// If a worker has a turn.
    pub(crate) fn open_declared(&self) -> Result<(), DeclarationError> {
        self.declared.iter().try_for_each(|declared| self.open_one(declared))
    }

    fn open_one(&self, declared: &DeclaredNamespace) -> Result<(), DeclarationError> {
        let DeclaredNamespace { name, kind, default_lease, min_scope, quotas } = declared;
        let lease_default_ms = default_lease.map(Milliseconds::get);
        let opened = {
            let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            namespaces
                .declare(name.as_bytes(), *kind, lease_default_ms, |change| self.record_namespace(change))
        };
        let number = opened.map_err(|refusal| match refusal {
            NamespaceRefusal::OtherKind(logged) => declared.other_kind(logged),
            NamespaceRefusal::TooMany | NamespaceRefusal::Quota(_) => {
                DeclarationError::TooMany { name: name.clone() }
            }
        })?;
        let account = (!quotas.is_empty()).then(|| Arc::new(Account::new(Holder::Namespace, quotas)));
        let terms = Terms { lease_default_ms, scope_min: *min_scope, account };
        if terms.is_empty() {
            return Ok(());
        }
        for hosted in &self.shards {
            let mut turn = hosted.enter().expect("no worker has started");
            turn.shard.set_terms(number, terms.clone());
            let left = turn.leave();
            assert!(left.is_none(), "no worker leaves a batch before its start");
        }
        Ok(())
    }
}
