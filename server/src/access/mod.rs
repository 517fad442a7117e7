//! Who may do what on this server.
//!
//! A client is identified once for each connection, or for each request of a front end, from its credentials and the [`Evidence`] of its
//! connection. From then on the worker knows what it may do in its namespace. [`Policy`] decides both; `files` reads it again when a file
//! has changed.

mod certificate;
mod evidence;
mod files;
mod policy;

pub(crate) use certificate::names_of;
pub use evidence::Evidence;
pub(crate) use files::PolicyFiles;
pub use files::{AccessOptions, AccessOptionsError};
pub use policy::{Policy, Unauthenticated};

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use waymaker_engine::Rights;
use waymaker_protocol::Quoted;

/// Says that an identity lacks a right in a namespace.
pub(crate) fn no_right_in(identity: &str, right: Rights, namespace: &[u8]) -> String {
    let (identity, namespace) = (Quoted(identity.as_bytes()), Quoted(namespace));
    format!("no rule gives {identity} the right `{}` in the namespace {namespace}", right.name())
}

/// The policy of a server as it was read last. Looked at when a client is identified, not for each request.
#[derive(Debug, Default)]
pub struct AccessControl {
    policy: RwLock<Arc<Policy>>,
    /// Rises with each new policy.
    version: AtomicU64,
}

impl AccessControl {
    /// Begins with this policy.
    pub fn new(policy: Policy) -> Self {
        Self { policy: RwLock::new(Arc::new(policy)), ..Self::default() }
    }

    /// The current policy.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A number that rises with each new policy.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Replaces the policy. New connections use it at once, and workers apply it to open connections.
    pub fn replace(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
        // Release: a thread that sees the number finds the policy.
        self.version.fetch_add(1, Ordering::Release);
    }
}
