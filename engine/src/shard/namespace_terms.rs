//! Terms that all clients of a namespace share: its default lease, its lowest scope and its quotas.
//!
//! [`Shard::apply_terms`] applies the default lease and the lowest scope of the namespace to an acquire before the
//! shard decides about it. So the code of acquires need not know them. Renewals look up the default lease themselves,
//! and registrations the lowest scope. `account_for` adds the quota account of the namespace to each lane.

use super::{AcquireOptions, AcquireTerms, Shard};
use crate::account::{Account, Accounts};
use crate::handle::LaneIx;
use crate::ids::Scope;
use std::sync::Arc;

/// Terms of one namespace. The default value changes nothing.
#[derive(Clone, Debug, Default)]
pub struct NamespaceTerms {
    /// Lease in milliseconds for an acquire or renewal that asks for the default lease. `None` means the default of the
    /// limits.
    pub lease_default_ms: Option<u32>,
    /// Lowest scope of a claim. Claims of a lower scope are raised to it.
    pub scope_min: Scope,
    /// Quota account that counts the claims of all clients of the namespace.
    pub account: Option<Arc<Account>>,
}

impl NamespaceTerms {
    /// Whether the terms change nothing.
    pub fn is_empty(&self) -> bool {
        self.lease_default_ms.is_none() && !self.scope_min.is_durable() && self.account.is_none()
    }
}

impl Shard {
    /// Sets the terms of a namespace. Must be called before the shard restores or serves any claim of the namespace.
    pub fn set_terms(&mut self, namespace: u16, terms: NamespaceTerms) {
        self.terms.insert(namespace, terms);
    }

    /// Whether any namespace has terms.
    #[inline]
    pub fn has_terms(&self) -> bool {
        !self.terms.is_empty()
    }

    /// Applies the terms of a namespace to an acquire. If `terms` ask for the default lease (0), sets the default lease
    /// of the namespace. If the scope in `options` is below the lowest scope of the namespace, raises it to that.
    #[inline]
    pub fn apply_terms(
        &self,
        namespace: u16,
        terms: &mut AcquireTerms<'_>,
        options: &mut AcquireOptions<'_>,
    ) {
        if self.has_terms() {
            // A hold that lasts as long as its session has no lease, so it gets no default lease.
            if !terms.session_lease {
                terms.lease_ms = self.lease_of_terms(namespace, terms.lease_ms);
            }
            options.scope = self.scope_in(namespace, options.scope);
        }
    }

    /// Returns the lease of a request in milliseconds. 0 is replaced by the default lease of the namespace, if it has
    /// one.
    #[inline]
    pub(super) fn lease_in(&self, namespace: u16, asked_ms: u32) -> u32 {
        if self.has_terms() { self.lease_of_terms(namespace, asked_ms) } else { asked_ms }
    }

    #[cold]
    fn lease_of_terms(&self, namespace: u16, asked_ms: u32) -> u32 {
        let own_ms = self.terms.get(&namespace).and_then(|terms| terms.lease_default_ms);
        own_ms.filter(|_| asked_ms == 0).unwrap_or(asked_ms)
    }

    /// Returns the scope of a claim: the requested scope or the lowest scope of the namespace, whichever is higher.
    #[cold]
    pub(super) fn scope_in(&self, namespace: u16, asked: Scope) -> Scope {
        self.terms.get(&namespace).map_or(asked, |terms| terms.scope_min.max(asked))
    }

    /// Sets the quota accounts of a lane: the accounts of its client, and the account of its namespace.
    pub(super) fn account_for(&mut self, lane: LaneIx) {
        let record = &self.lanes.lanes[lane];
        let own = record.access.as_ref().map_or(Accounts::NONE, |access| access.accounts().clone());
        let namespace = self.terms.get(&record.namespace).and_then(|terms| terms.account.clone());
        self.set_accounts(lane, Accounts { namespace, ..own });
    }
}
