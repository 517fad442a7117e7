//! The access control of the server, its policies, and checks of the accounts that count what identities have.

use super::Server;
use crate::event::Event;
use crate::identities::{POLICY_COUNT, TenantIdentity, TenantQuotas, identities_of_others};
use crate::world::World;
use std::sync::Arc;
use waymaker_engine::{Account, Resource};
use waymaker_server::node::Node;

/// Resources whose counts must be zero once all clients have left.
const COUNTED: [Resource; 5] =
    [Resource::Connections, Resource::Sessions, Resource::Claims, Resource::Waiters, Resource::Bytes];

/// The accounts of one start of the server. They are kept, so that a count that is left stays visible.
#[derive(Debug, Default)]
pub(super) struct KeptAccounts {
    limited: Vec<(TenantIdentity, Arc<Account>)>,
    others: Vec<Arc<Account>>,
}

impl KeptAccounts {
    /// Takes the accounts of all identities of a node.
    pub(super) fn of(world: &World, node: &Node) -> Self {
        if world.settings.identities.is_none() {
            return Self::default();
        }
        let account =
            |who: TenantIdentity| node.access.accounts(&who.identity(), Some(&who.evidence())).identity;
        let limited =
            TenantIdentity::LIMITED.into_iter().filter_map(|who| Some((who, account(who)?))).collect();
        let others = identities_of_others();
        let others = others.iter().filter_map(|identity| node.access.accounts(identity, None).identity);
        Self { limited, others: account(TenantIdentity::Operator).into_iter().chain(others).collect() }
    }
}

/// Gives a new node the access control of this run.
pub(super) fn set_access(world: &World, node: &mut Node) {
    if let Some(identities) = world.settings.identities {
        node.access = Arc::new(identities.access_control(world.policy));
    }
}

impl Server {
    /// Replaces the policy of the server, as it does after it has read its access file again.
    pub(crate) fn reload(&mut self, world: &mut World) {
        let Some(identities) = world.settings.identities.filter(|_| !world.calm) else { return };
        let step = world.identity_random.between(1, POLICY_COUNT as u64 - 1) as usize;
        let policy = (world.policy + step) % POLICY_COUNT;
        world.trace.note(world.now_us, 30, policy as u64, || format!("server    gets policy {policy}"));
        world.policy = policy;
        let now_ms = world.server_ms();
        world.auditor.note_policy(now_ms, policy);
        self.node.0.access.replace(identities.policy(policy));
        plan_reload(world);
    }

    /// Rule `quota`: no identity has more than its quota allows.
    pub(super) fn judge_quotas(&self, world: &mut World) {
        let Some(identities) = world.settings.identities else { return };
        let TenantQuotas { claims, waiters, sessions } = identities.quotas;
        // A grant that waits for the log counts as a waiter, and only the quota of claims limits these.
        let waiters = if world.settings.log().is_some() { waiters + claims } else { waiters };
        for (who, account) in &self.accounts.limited {
            for (resource, max) in
                [(Resource::Claims, claims), (Resource::Waiters, waiters), (Resource::Sessions, sessions)]
            {
                world.auditor.judge_used(*who, resource.name(), account.used(resource), max);
            }
        }
    }

    /// Returns the counts of accounts that are not zero, although all clients have left. Up to
    /// `entry_count_max` registrations may be left.
    pub(crate) fn left_in_accounts(&self, entry_count_max: u64) -> Vec<(&'static str, u64)> {
        let limited = self.accounts.limited.iter().map(|(_, account)| (account, 0));
        let others = self.accounts.others.iter().map(|account| (account, entry_count_max));
        let mut left = Vec::new();
        for (account, entry_count_max) in limited.chain(others) {
            for resource in COUNTED {
                let used = account.used(resource);
                let may_be_left = match resource {
                    Resource::Claims => used <= entry_count_max,
                    Resource::Bytes => entry_count_max > 0 || used == 0,
                    _ => used == 0,
                };
                if !may_be_left {
                    left.push((resource.name(), used));
                }
            }
        }
        left
    }
}

/// Plans the next change of the policy.
pub(crate) fn plan_reload(world: &mut World) {
    if let Some(gap_us) = world.settings.identities.and_then(|identities| identities.reload_us) {
        let after_us = world.identity_random.between(1, 2 * gap_us);
        world.after(after_us, Event::Reload);
    }
}
