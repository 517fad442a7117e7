//! Rule `reload`: a policy that takes a right away ends the connections of its identity, and no others.

use super::Auditor;
use crate::identities::{Right, TENANT_KEYS, TenantIdentity, has};
use crate::tenant_request::TenantRequest;
use waymaker_server::limits::HOUSEKEEPING_MS;

/// All policies of the run, each with the time from which it applies to new connections.
#[derive(Debug)]
pub(super) struct Policies(Vec<(u64, usize)>);

impl Default for Policies {
    fn default() -> Self {
        Self(vec![(0, 0)])
    }
}

impl Policies {
    pub(super) fn note(&mut self, now_ms: u64, policy: usize) {
        self.0.push((now_ms, policy));
    }

    /// Returns the changes of the policy since HELLO of a connection was sent.
    fn changes_since(&self, opened_ms: u64) -> Vec<Change> {
        let Self(policies) = self;
        // In the millisecond of HELLO either policy may have applied.
        let first = policies.iter().rposition(|(since_ms, _)| *since_ms < opened_ms).unwrap_or(0);
        let change = |index: usize| Change {
            since_ms: policies[index].0,
            end_ms: policies.get(index + 1).map(|(next_ms, _)| *next_ms),
            policy: policies[index].1,
            earlier: policies[first..index].iter().map(|(_, policy)| *policy).collect(),
        };
        (first + 1..policies.len()).map(change).collect()
    }
}

/// Times of a request of a tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Time at which the HELLO of its connection was sent.
    pub(crate) opened_ms: u64,
    /// Time at which the WELCOME of its connection arrived, or the present if it has not.
    pub(crate) welcomed_ms: u64,
    /// Time at which its first copy was sent.
    pub(crate) sent_ms: u64,
    /// Time at which its response arrived.
    pub(crate) now_ms: u64,
}

/// A change of the policy while a connection is open.
#[derive(Debug)]
struct Change {
    since_ms: u64,
    /// Time of the next change.
    end_ms: Option<u64>,
    policy: usize,
    /// The policies before it that the connection may have had.
    earlier: Vec<usize>,
}

/// Whether an identity loses a right with a policy.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    /// All earlier policies gave the right.
    surely: bool,
    /// Some earlier policy gave the right.
    possibly: bool,
}

impl Change {
    fn losses_of(&self, who: TenantIdentity) -> Losses {
        let all = TENANT_KEYS.iter().flat_map(|key| Right::ALL.map(|right| (*key, right)));
        let mut losses = Losses::default();
        for (key, right) in all.filter(|(key, right)| !has(self.policy, who, *right, key)) {
            let gave = |policy: &usize| has(*policy, who, right, key);
            losses.surely |= self.earlier.iter().all(gave);
            losses.possibly |= self.earlier.iter().any(gave);
        }
        losses
    }
}

impl Auditor {
    /// Returns the time at which workers have surely applied a policy to open connections.
    fn applied_ms(&self, since_ms: u64) -> u64 {
        self.latest_ms(since_ms + HOUSEKEEPING_MS)
    }

    /// Returns the policies that may decide about a request.
    pub(super) fn policies_at(&self, Times { opened_ms, sent_ms, now_ms, .. }: Times) -> Vec<usize> {
        let policies = &self.tenancies.policies.0;
        let is_possible = |(index, (since_ms, _)): &(usize, &(u64, usize))| {
            let is_replaced = policies.get(index + 1).is_some_and(|(next_ms, _)| {
                *next_ms < opened_ms || *next_ms < sent_ms && self.applied_ms(*next_ms) < sent_ms
            });
            *since_ms <= now_ms && !is_replaced
        };
        policies.iter().enumerate().filter(is_possible).map(|(_, (_, policy))| *policy).collect()
    }

    /// Rule `reload`: a connection whose identity has lost a right serves no request that was sent after the
    /// workers have applied the policy.
    pub(super) fn judge_rights_applied(
        &mut self,
        who: TenantIdentity,
        request: &TenantRequest,
        times: Times,
    ) {
        let Times { opened_ms, welcomed_ms, sent_ms, .. } = times;
        if matches!(request, TenantRequest::Hello { .. }) {
            return;
        }
        let is_over = |change: &Change| {
            let applied_ms = self.applied_ms(change.since_ms);
            let has_lasted = change.end_ms.is_none_or(|end_ms| applied_ms < end_ms);
            let is_applied = has_lasted && welcomed_ms < change.since_ms && applied_ms < sent_ms;
            is_applied && change.losses_of(who).surely
        };
        if self.tenancies.policies.changes_since(opened_ms).iter().any(is_over) {
            self.accuse("reload", || {
                format!("{} has lost a right, but its connection still serves {request:?}", who.name())
            });
        }
    }

    /// Rule `reload`: the server ends a connection only if its identity has lost a right.
    pub(crate) fn judge_ended(&mut self, who: TenantIdentity, (opened_ms, now_ms): (u64, u64)) {
        let explains = |change: &Change| change.since_ms <= now_ms && change.losses_of(who).possibly;
        if !self.tenancies.policies.changes_since(opened_ms).iter().any(explains) {
            self.accuse("reload", || {
                format!("the connection of {} was ended, but it has lost no right", who.name())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::durable_tests::logged;
    use super::super::scene::rule;
    use super::*;
    use waymaker_protocol::{Contention, ErrorAnswer, ErrorCode, ErrorDetail, Response};

    #[test]
    fn lost_rights_end_a_connection_and_nothing_else_does() {
        let mut auditor = logged();
        let start_ms = auditor.settings.start_ms;
        let detail = ErrorDetail::Contention(Contention::default());
        let busy = Response::Error(ErrorAnswer { code: ErrorCode::Busy, detail });
        auditor.note_policy(start_ms + 1_000, 1);
        let ask = |auditor: &mut Auditor, who, sent_ms| {
            let (opened_ms, sent_ms) = (start_ms + 500, start_ms + sent_ms);
            let times = Times { opened_ms, welcomed_ms: opened_ms + 1, sent_ms, now_ms: sent_ms };
            auditor.judge_tenant(who, &TenantRequest::Namespaces, times, &busy);
            rule(auditor)
        };
        assert_eq!(
            ask(&mut auditor, TenantIdentity::Alice, 1_400),
            None,
            "workers may not know of the policy yet"
        );
        assert_eq!(ask(&mut auditor, TenantIdentity::Operator, 9_000), None);
        assert_eq!(ask(&mut auditor, TenantIdentity::Alice, 9_000), Some("reload"));
        let ended = |who, opened_ms| {
            let mut auditor = logged();
            auditor.note_policy(start_ms + 1_000, 1);
            auditor.judge_ended(who, (start_ms + opened_ms, start_ms + 2_000));
            rule(&auditor)
        };
        assert_eq!(ended(TenantIdentity::Alice, 500), None);
        assert_eq!(ended(TenantIdentity::Alice, 1_500), Some("reload"));
        assert_eq!(ended(TenantIdentity::Operator, 500), Some("reload"));
    }
}
