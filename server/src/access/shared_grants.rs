//! Rights that the connections of one identity share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use waymaker_access::Identity;
use waymaker_engine::{Access, Grants};
use waymaker_protocol::NamespaceKind;

/// Rights below which nobody looks for those that are not used any more.
const SWEEP_COUNT_MIN: usize = 64;

/// All rights that some connection has, of one policy.
///
/// With many rules the rights of an identity take much memory, and time to find, so connections share them.
#[derive(Debug, Default)]
pub(super) struct SharedGrants(Mutex<Shared>);

#[derive(Debug, Default)]
struct Shared {
    grants: HashMap<Key, Weak<Grants>>,
    /// Number of entries at which those that nobody uses are forgotten.
    sweep_at: usize,
}

/// An identity with its groups, and a namespace with its kind.
type Key = (Arc<str>, Vec<Arc<str>>, Box<[u8]>, u8);

impl SharedGrants {
    /// Returns the rights of an identity in a namespace. Calls `find` if no connection has them.
    pub(super) fn access(
        &self,
        identity: &Identity,
        namespace: &[u8],
        kind: NamespaceKind,
        find: impl FnOnce() -> Access,
    ) -> Access {
        let key = (Arc::clone(&identity.name), identity.groups.clone(), namespace.into(), kind as u8);
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(grants) = shared.grants.get(&key).and_then(Weak::upgrade) {
            return Access::of(grants);
        }
        if shared.grants.len() >= shared.sweep_at.max(SWEEP_COUNT_MIN) {
            shared.grants.retain(|_, grants| grants.strong_count() > 0);
            shared.sweep_at = 2 * shared.grants.len();
        }
        let access = find();
        shared.grants.insert(key, Arc::downgrade(access.grants()));
        access
    }
}
