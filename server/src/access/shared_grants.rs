//! Computed rights, which all connections of one identity to one namespace share.

use super::shared_values::SharedValues;
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_access::Identity;
use waymaker_engine::{Access, Grants};
use waymaker_protocol::NamespaceKind;

/// Table of the rights that were computed under one policy. Connections and their requests own these rights, and the
/// table only finds them. The rights are dropped with their last owner.
///
/// With many rules, the rights of an identity take much memory and time to compute. The connections of the identity
/// therefore share them.
#[derive(Debug, Default)]
pub(super) struct SharedGrants(Mutex<SharedValues<Key, Grants>>);

/// An identity with its groups, and a namespace with its kind.
type Key = (Arc<str>, Vec<Arc<str>>, Box<[u8]>, u8);

impl SharedGrants {
    /// Returns the rights of an identity in a namespace. Calls `find` to compute them, unless the computed rights of
    /// this identity are still in use.
    pub(super) fn access(
        &self,
        identity: &Identity,
        namespace: &[u8],
        kind: NamespaceKind,
        find: impl FnOnce() -> Access,
    ) -> Access {
        let key = (Arc::clone(&identity.name), identity.groups.clone(), namespace.into(), kind as u8);
        let shared = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shared().get(&key);
        if let Some(grants) = known {
            return Access::of(grants);
        }
        // Compute without the lock, so that other threads need not wait for it. Several threads may compute the same
        // rights.
        let access = find();
        let mut shared = shared();
        if let Some(grants) = shared.get(&key) {
            return Access::of(grants);
        }
        shared.insert(key, access.grants());
        access
    }
}
