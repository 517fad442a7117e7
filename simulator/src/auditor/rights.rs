//! Rules `rights`, `identity`, `refused` and `quota`: the responses to tenants agree with the naive
//! table of rights in `identities`, and their holds keep their identities.

use super::Auditor;
use super::policies::{Policies, Times};
use super::restarts::Ending;
use crate::identities::{CLOSED_NAMESPACE, Right, TenantIdentity, UNUSED_KEY, has, has_somewhere};
use crate::tenant_request::{SHARED_OWNER, TenantRequest};
use std::collections::BTreeMap;
use waymaker_protocol::{
    ErrorAnswer, ErrorCode, ErrorDetail, Granted, LockId, Response, SessionId, SessionRequest,
};

/// Largest number of workers of a server.
const WORKER_COUNT_MAX: u64 = 4;

/// Known state of all tenants.
#[derive(Debug, Default)]
pub(super) struct Tenancies {
    pub(super) policies: Policies,
    holds: BTreeMap<LockId, TenantHold>,
    /// Sessions, each with the identity that began it and the number of earlier ends of the server.
    sessions: BTreeMap<SessionId, (TenantIdentity, u32)>,
    /// Number of ends of the server.
    end_count: u32,
    /// Highest fence of a grant.
    highest: u64,
}

/// A claim that was granted to a tenant.
#[derive(Debug)]
struct TenantHold {
    /// The identity that has the claim; `None` if another identity took over its request id.
    who: Option<TenantIdentity>,
    key: &'static [u8],
    is_durable: bool,
    /// Number of ends of the server before the grant.
    end_count: u32,
    /// Time until which the hold surely exists; 0 if a client may have ended it.
    until_ms: u64,
    /// Identities whose requests about the hold were not allowed when they were sent.
    tried_by: Vec<TenantIdentity>,
}

impl Tenancies {
    /// Records an end of the server.
    pub(super) fn note_end(&mut self, ending: Ending) {
        self.end_count += 1;
        for hold in self.holds.values_mut() {
            let is_kept = hold.is_durable && !matches!(ending, Ending::Loss | Ending::Damage);
            if !is_kept {
                hold.until_ms = 0;
            }
        }
    }

    /// Returns the highest fence in any response to a tenant.
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// Records that a client may have ended a hold, or has asked for it in vain.
    fn note_touched(&mut self, id: LockId, who: TenantIdentity, may: bool, until_ms: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if may {
            hold.until_ms = hold.until_ms.min(until_ms);
        } else if !hold.tried_by.contains(&who) {
            hold.tried_by.push(who);
        }
    }
}

impl Auditor {
    /// Records that the server gets a policy.
    pub(crate) fn note_policy(&mut self, now_ms: u64, policy: usize) {
        self.tenancies.policies.note(now_ms, policy);
        // A request that was not allowed when it was sent may be served now.
        for hold in self.tenancies.holds.values_mut() {
            let gains = |who: &TenantIdentity| {
                [Right::ReleaseOthers, Right::ForceRelease]
                    .into_iter()
                    .any(|right| has(policy, *who, right, hold.key))
            };
            if hold.tried_by.iter().any(gains) {
                hold.until_ms = 0;
            }
        }
    }

    /// Records a request that a tenant sends, because the server may serve it from now on.
    pub(crate) fn note_tenant_sends(&mut self, who: TenantIdentity, request: &TenantRequest, times: Times) {
        let (id, right) = match request {
            TenantRequest::Release { id } | TenantRequest::Extend { id, .. } => (*id, Right::ReleaseOthers),
            TenantRequest::ForceRelease { id } => (*id, Right::ForceRelease),
            _ => return,
        };
        let until_ms = match request {
            TenantRequest::Extend { lease_ms, .. } => times.sent_ms + u64::from(*lease_ms),
            _ => 0,
        };
        let Some(hold) = self.tenancies.holds.get(&id) else { return };
        let is_own = right == Right::ReleaseOthers && hold.who.is_none_or(|owner| owner == who);
        let policies = self.policies_at(times);
        let may = is_own || policies.into_iter().any(|policy| has(policy, who, right, hold.key));
        self.tenancies.note_touched(id, who, may, until_ms);
    }

    /// Judges the response to a request of a tenant.
    pub(crate) fn judge_tenant(
        &mut self,
        who: TenantIdentity,
        request: &TenantRequest,
        times: Times,
        response: &Response<'_>,
    ) {
        self.judge_rights_applied(who, request, times);
        let is_refused =
            matches!(response, Response::Error(ErrorAnswer { code: ErrorCode::Unauthorized, .. }));
        match (request, response) {
            (TenantRequest::Hello { session, is_closed }, _) => {
                self.judge_tenant_hello(who, (*session, *is_closed), response);
            }
            (TenantRequest::Acquire { key, shared, .. }, _) => {
                let right = if *shared { Right::AcquireShared } else { Right::Acquire };
                let is_granted = matches!(response, Response::Granted(_));
                self.judge_right(who, request, (right, Some(key)), times, (is_granted, is_refused));
                self.judge_tenant_acquire(who, request, times, response);
            }
            (TenantRequest::Release { id } | TenantRequest::Extend { id, .. }, _) => {
                let is_done = matches!(response, Response::Released(_) | Response::Extended(_));
                self.judge_about(who, *id, Right::ReleaseOthers, times, (is_done, response));
            }
            (TenantRequest::Status { id }, _) => {
                let is_done = matches!(response, Response::Status(_));
                self.judge_about(who, *id, Right::Inspect, times, (is_done, response));
            }
            (TenantRequest::ForceRelease { id }, _) => {
                let is_done = matches!(response, Response::ForceReleased(_));
                self.judge_right(who, request, (Right::ForceRelease, None), times, (is_done, is_refused));
                let key = self.tenancies.holds.get(id).map(|hold| hold.key);
                if let Some(key) = key.filter(|_| is_done) {
                    self.judge_right(who, request, (Right::ForceRelease, Some(key)), times, (true, false));
                }
            }
            (TenantRequest::Inspect { key }, _) => {
                let is_done = matches!(response, Response::Inspected(_));
                self.judge_right(who, request, (Right::Inspect, Some(key)), times, (is_done, is_refused));
                self.judge_unused(key, response);
            }
            (TenantRequest::Verify { key }, _) => {
                let is_done = matches!(response, Response::Verified(_));
                self.judge_right(who, request, (Right::Inspect, Some(key)), times, (is_done, is_refused));
            }
            (TenantRequest::List, _) => {
                let is_done = matches!(response, Response::Listed(_));
                self.judge_right(who, request, (Right::List, None), times, (is_done, is_refused));
            }
            (TenantRequest::Freeze, _) => {
                let is_done = matches!(response, Response::Frozen(_));
                self.judge_right(who, request, (Right::Freeze, Some(b"")), times, (is_done, is_refused));
            }
            (TenantRequest::RemoveNamespace, _) => {
                let is_done = matches!(response, Response::NamespaceRemoved(_));
                self.judge_right(who, request, (Right::Admin, None), times, (is_done, is_refused));
            }
            (TenantRequest::Namespaces, Response::NamespacesListed(listed)) => {
                if listed.namespaces.iter().any(|one| one.name == CLOSED_NAMESPACE) {
                    self.accuse("refused", || {
                        "a namespace exists in which every connection was refused".to_owned()
                    });
                }
            }
            (TenantRequest::Namespaces | TenantRequest::Goodbye, _) => {}
        }
    }

    /// Rule `rights`: a request succeeds only with the right that it needs, and is not refused with it.
    fn judge_right(
        &mut self,
        who: TenantIdentity,
        request: &TenantRequest,
        (right, key): (Right, Option<&[u8]>),
        times: Times,
        (is_done, is_refused): (bool, bool),
    ) {
        let has = |policy: &usize| match key {
            Some(key) => has(*policy, who, right, key),
            None => has_somewhere(*policy, who, right),
        };
        let policies = self.policies_at(times);
        if is_done && !policies.iter().any(has) {
            self.accuse("rights", || {
                format!("{} lacks the right {right:?}, but was served {request:?}", who.name())
            });
        }
        if is_refused && policies.iter().all(has) {
            self.accuse("rights", || {
                format!("{} has the right {right:?}, but was refused {request:?}", who.name())
            });
        }
    }

    /// Rules `rights` and `identity` for HELLO: only identities with a right get a connection, and only the
    /// identity that began a session resumes or joins it, also after a restart.
    fn judge_tenant_hello(
        &mut self,
        who: TenantIdentity,
        (session, is_closed): (SessionRequest, bool),
        response: &Response<'_>,
    ) {
        let may = who != TenantIdentity::Stranger && (!is_closed || who == TenantIdentity::Operator);
        match response {
            Response::Welcome(welcome) => {
                if !may {
                    self.accuse("rights", || {
                        format!("{} has no right in the namespace, but gets a connection", who.name())
                    });
                }
                let id = match session {
                    SessionRequest::New { .. } => {
                        let end_count = self.tenancies.end_count;
                        self.tenancies.sessions.insert(welcome.session_id, (who, end_count));
                        return;
                    }
                    SessionRequest::Resume { id, .. } | SessionRequest::Join { id } => id,
                    SessionRequest::None => return,
                };
                if let Some((owner, end_count)) = self.tenancies.sessions.get(&id).copied()
                    && owner != who
                {
                    let rule = self.rule_since(end_count);
                    self.accuse(rule, || {
                        format!("{} is in the session {id} of {}", who.name(), owner.name())
                    });
                }
            }
            Response::Error(ErrorAnswer { code: ErrorCode::Unauthorized, .. }) if may => {
                self.accuse("rights", || format!("{} has rights, but gets no connection", who.name()));
            }
            _ => {}
        }
    }

    /// Returns the rule for the identity of a claim or session that is older than `end_count` ends of the
    /// server.
    fn rule_since(&self, end_count: u32) -> &'static str {
        if self.tenancies.end_count == end_count { "rights" } else { "identity" }
    }

    /// Judges a request about a hold. Rules `rights` and `identity`: it succeeds only for the identity of the
    /// hold, or with the right. Rules `identity` and `refused`: its own identity finds a hold that must exist,
    /// after restarts and after requests that were refused.
    fn judge_about(
        &mut self,
        who: TenantIdentity,
        id: LockId,
        right: Right,
        times: Times,
        (is_done, response): (bool, &Response<'_>),
    ) {
        let Some(hold) = self.tenancies.holds.get(&id) else { return };
        let Some(owner) = hold.who else { return };
        let (end_count, key, until_ms) = (hold.end_count, hold.key, hold.until_ms);
        let was_tried = !hold.tried_by.is_empty();
        let policies = self.policies_at(times);
        let may = |policy: &usize| owner == who || has(*policy, who, right, key);
        if is_done && !policies.iter().any(may) {
            let rule = self.rule_since(end_count);
            return self.accuse(rule, || {
                format!(
                    "{} lacks the right {right:?} for the hold {id} of {}, but gets {response:?}",
                    who.name(),
                    owner.name()
                )
            });
        }
        let is_missed = matches!(
            response,
            Response::Error(ErrorAnswer { code: ErrorCode::NotFound | ErrorCode::Unauthorized, .. })
        );
        // `until_ms` of a release is 0 since it was sent, so a release is judged by a STATUS of its identity.
        if is_missed && policies.iter().all(may) && times.now_ms < until_ms {
            let rule =
                if was_tried && self.tenancies.end_count == end_count { "refused" } else { "identity" };
            self.accuse(rule, || {
                format!("{} does not find the hold {id} of {}, which must exist", who.name(), owner.name())
            });
        }
    }

    /// Judges the response to an acquire of a tenant. Rules `rights` and `identity`: a request id finds no
    /// claim of another identity. Rule `quota`: an identity has no more holds than its quota allows.
    fn judge_tenant_acquire(
        &mut self,
        who: TenantIdentity,
        request: &TenantRequest,
        times: Times,
        response: &Response<'_>,
    ) {
        let TenantRequest::Acquire { key, is_durable, is_on_session, is_named, .. } = *request else {
            return;
        };
        let Times { sent_ms, now_ms, .. } = times;
        if let Response::Error(ErrorAnswer { detail: ErrorDetail::Contention(contention), .. }) = response {
            let may_see = |policy: &usize| has(*policy, who, Right::Inspect, key);
            let is_shown = ![b"".as_slice(), SHARED_OWNER, who.name().as_bytes()].contains(&contention.owner);
            if is_shown && !self.policies_at(times).iter().any(may_see) {
                self.accuse("rights", || {
                    format!("{} may not inspect {key:?}, but is told its owner: {contention:?}", who.name())
                });
            }
        }
        let Response::Granted(Granted { id, fence, remaining_ms, .. }) = *response else { return };
        self.tenancies.highest = self.tenancies.highest.max(fence);
        let policies = self.policies_at(times);
        let end_count = self.tenancies.end_count;
        if let Some(hold) = self.tenancies.holds.get_mut(&id) {
            let Some(owner) = hold.who.filter(|owner| *owner != who) else { return };
            (hold.who, hold.until_ms) = (None, 0);
            if !policies.iter().any(|policy| has(*policy, who, Right::ReleaseOthers, key)) {
                let rule = if hold.end_count == end_count { "rights" } else { "identity" };
                self.accuse(rule, || {
                    format!("a request id of {} finds the claim {id} of {}", who.name(), owner.name())
                });
            }
            return;
        }
        // The holds of a session end with it. Another acquire may take over a request id, with another lease.
        let until_ms = if is_on_session || is_named { 0 } else { sent_ms + u64::from(remaining_ms) };
        let holds = self.tenancies.holds.values();
        let earlier = holds
            .filter(|hold| hold.who == Some(who) && hold.end_count == end_count && hold.until_ms > now_ms);
        let count = earlier.count() as u64 + 1;
        let hold = TenantHold { who: Some(who), key, is_durable, end_count, until_ms, tried_by: Vec::new() };
        self.tenancies.holds.insert(id, hold);
        let Some(identities) = self.settings.identities.filter(|_| TenantIdentity::LIMITED.contains(&who))
        else {
            return;
        };
        // Workers that serve the same identity at the same instant exceed its quota by one request each.
        let max = identities.quotas.claims + self.worker_count_max();
        if count > max {
            self.accuse("quota", || {
                format!("{} has {count} holds; its quota and the workers allow {max}", who.name())
            });
        }
    }

    /// Rule `refused`: no identity may acquire this key, so it has no claims and no fence.
    fn judge_unused(&mut self, key: &[u8], response: &Response<'_>) {
        if let Response::Inspected(seen) = response
            && key == UNUSED_KEY
            && (seen.holder_count > 0 || seen.waiter_count > 0)
        {
            let text = format!("every acquire of {key:?} was refused, but it has claims: {seen:?}");
            self.accuse("refused", || text);
        }
    }

    /// Returns the largest number of workers of this run.
    fn worker_count_max(&self) -> u64 {
        let changes = self.settings.durability.is_some_and(|durability| durability.changes_workers);
        if changes { WORKER_COUNT_MAX } else { self.settings.worker_count as u64 }
    }

    /// Rule `quota`, as the accounts of the server count: `used` of a resource of an identity, with its quota.
    pub(crate) fn judge_used(&mut self, who: TenantIdentity, resource: &str, used: u64, max: u64) {
        // Claims of an earlier server are counted when their session comes back.
        let starts = if self.settings.log().is_some() { u64::from(self.tenancies.end_count) + 1 } else { 1 };
        let max = (max + self.worker_count_max()) * starts;
        if used > max {
            self.accuse("quota", || {
                format!("{} has {used} {resource}; at most {max} are allowed", who.name())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::durable_tests::logged;
    use super::super::scene::{granted, rule};
    use super::*;
    use crate::identities::Identities;
    use waymaker_protocol::{Contention, Inspected, NamespacesListed, Released, Welcome};

    const ID: u64 = 5;

    fn id() -> LockId {
        granted(ID, 1_000).id
    }

    fn refused(code: ErrorCode) -> Response<'static> {
        Response::Error(ErrorAnswer { code, detail: ErrorDetail::Contention(Contention::default()) })
    }

    fn acquire(key: &'static [u8]) -> TenantRequest {
        TenantRequest::Acquire { key, shared: false, is_durable: true, is_on_session: false, is_named: false }
    }

    /// Judges a response, with HELLO, request and response at the same time.
    fn judge(auditor: &mut Auditor, who: TenantIdentity, request: &TenantRequest, response: &Response<'_>) {
        let now_ms = auditor.settings.start_ms + 1_000;
        let times = Times { opened_ms: now_ms, welcomed_ms: now_ms, sent_ms: now_ms, now_ms };
        auditor.note_tenant_sends(who, request, times);
        auditor.judge_tenant(who, request, times, response);
    }

    /// Returns the auditor of a run in which a durable hold of 700 ms was granted to Alice.
    fn held(key: &'static [u8]) -> Auditor {
        let mut auditor = logged();
        judge(&mut auditor, TenantIdentity::Alice, &acquire(key), &Response::Granted(granted(ID, 1_000)));
        assert_eq!(rule(&auditor), None);
        auditor
    }

    fn released() -> Response<'static> {
        Response::Released(Released { was_waiting: false })
    }

    #[test]
    fn no_request_is_served_without_its_right_or_refused_with_it() {
        let judged = |who, request: TenantRequest, response: Response<'_>| {
            let mut auditor = logged();
            judge(&mut auditor, who, &request, &response);
            rule(&auditor)
        };
        let hold = Response::Granted(granted(ID, 1_000));
        assert_eq!(judged(TenantIdentity::Bob, acquire(b"a/1"), hold), Some("rights"));
        let hold = Response::Granted(granted(ID, 1_000));
        assert_eq!(judged(TenantIdentity::Bob, acquire(b"b/1"), hold), None);
        assert_eq!(judged(TenantIdentity::Bob, acquire(b"a/1"), refused(ErrorCode::Unauthorized)), None);
        assert_eq!(
            judged(TenantIdentity::Bob, acquire(b"b/1"), refused(ErrorCode::Unauthorized)),
            Some("rights")
        );
        let hello = |is_closed| TenantRequest::Hello { session: SessionRequest::None, is_closed };
        let welcome = || Response::Welcome(Welcome::default());
        assert_eq!(judged(TenantIdentity::Bob, hello(true), welcome()), Some("rights"));
        assert_eq!(judged(TenantIdentity::Stranger, hello(false), welcome()), Some("rights"));
        assert_eq!(judged(TenantIdentity::Bob, hello(false), welcome()), None);
    }

    #[test]
    fn only_the_identity_of_a_hold_releases_it_also_after_a_restart() {
        let release = TenantRequest::Release { id: id() };
        for (ending, broken) in [(None, "rights"), (Some(Ending::Crash), "identity")] {
            let mut auditor = held(b"s/1");
            ending.into_iter().for_each(|ending| auditor.tenancies.note_end(ending));
            judge(&mut auditor, TenantIdentity::Operator, &release, &released());
            assert_eq!(rule(&auditor), None);
            judge(&mut auditor, TenantIdentity::Bob, &release, &refused(ErrorCode::NotFound));
            assert_eq!(rule(&auditor), None);
            judge(&mut auditor, TenantIdentity::Bob, &release, &released());
            assert_eq!(rule(&auditor), Some(broken));
        }
    }

    #[test]
    fn the_identity_of_a_hold_finds_it_after_a_restart_and_after_refused_requests() {
        let found = |ending: Option<Ending>, is_tried| {
            let mut auditor = held(b"s/1");
            ending.into_iter().for_each(|ending| auditor.tenancies.note_end(ending));
            if is_tried {
                judge(
                    &mut auditor,
                    TenantIdentity::Bob,
                    &TenantRequest::Release { id: id() },
                    &refused(ErrorCode::NotFound),
                );
            }
            judge(
                &mut auditor,
                TenantIdentity::Alice,
                &TenantRequest::Status { id: id() },
                &refused(ErrorCode::NotFound),
            );
            rule(&auditor)
        };
        assert_eq!(found(Some(Ending::Crash), false), Some("identity"));
        assert_eq!(found(Some(Ending::Damage), false), None);
        assert_eq!(found(None, true), Some("refused"));
        let mut auditor = held(b"s/1");
        judge(&mut auditor, TenantIdentity::Alice, &TenantRequest::Release { id: id() }, &released());
        judge(
            &mut auditor,
            TenantIdentity::Alice,
            &TenantRequest::Status { id: id() },
            &refused(ErrorCode::NotFound),
        );
        assert_eq!(rule(&auditor), None);
    }

    #[test]
    fn a_policy_that_gives_a_right_may_serve_an_earlier_request() {
        let mut auditor = held(b"s/1");
        judge(&mut auditor, TenantIdentity::Bob, &acquire(b"s/2"), &Response::Granted(granted(6, 1_000)));
        let other = granted(6, 1_000).id;
        judge(
            &mut auditor,
            TenantIdentity::Alice,
            &TenantRequest::Release { id: other },
            &refused(ErrorCode::NotFound),
        );
        let now_ms = auditor.settings.start_ms + 1_000;
        auditor.note_policy(now_ms, 2);
        judge(
            &mut auditor,
            TenantIdentity::Bob,
            &TenantRequest::Status { id: other },
            &refused(ErrorCode::NotFound),
        );
        assert_eq!(rule(&auditor), None);
    }

    #[test]
    fn a_session_belongs_to_the_identity_that_began_it() {
        let welcome =
            || Response::Welcome(Welcome { session_id: SessionId::default(), ..Welcome::default() });
        let hello = |session| TenantRequest::Hello { session, is_closed: false };
        let began = |who, ending: Option<Ending>| {
            let mut auditor = logged();
            judge(
                &mut auditor,
                TenantIdentity::Alice,
                &hello(SessionRequest::New { lease_ms: 1 }),
                &welcome(),
            );
            ending.into_iter().for_each(|ending| auditor.tenancies.note_end(ending));
            judge(&mut auditor, who, &hello(SessionRequest::Join { id: SessionId::default() }), &welcome());
            rule(&auditor)
        };
        assert_eq!(began(TenantIdentity::Alice, Some(Ending::Crash)), None);
        assert_eq!(began(TenantIdentity::Operator, None), Some("rights"));
        assert_eq!(began(TenantIdentity::Bob, Some(Ending::Crash)), Some("identity"));
    }

    #[test]
    fn refused_requests_leave_neither_claims_nor_namespaces() {
        let mut auditor = logged();
        let seen = |holder_count| Response::Inspected(Inspected { holder_count, ..Inspected::default() });
        judge(&mut auditor, TenantIdentity::Operator, &TenantRequest::Inspect { key: UNUSED_KEY }, &seen(0));
        judge(&mut auditor, TenantIdentity::Operator, &TenantRequest::Inspect { key: b"a/1" }, &seen(1));
        assert_eq!(rule(&auditor), None);
        judge(&mut auditor, TenantIdentity::Operator, &TenantRequest::Inspect { key: UNUSED_KEY }, &seen(1));
        assert_eq!(rule(&auditor), Some("refused"));
        let listed = waymaker_protocol::ListedNamespace { name: CLOSED_NAMESPACE, ..Default::default() };
        let listed = NamespacesListed { next: 0, namespaces: vec![listed] };
        let mut auditor = logged();
        judge(
            &mut auditor,
            TenantIdentity::Operator,
            &TenantRequest::Namespaces,
            &Response::NamespacesListed(listed),
        );
        assert_eq!(rule(&auditor), Some("refused"));
    }

    #[test]
    fn an_identity_exceeds_its_quota_by_one_hold_for_each_worker() {
        let mut auditor = logged();
        auditor.settings.identities = (0..100).find_map(Identities::new);
        // The number of workers stays the same.
        auditor.settings.durability = None;
        auditor.settings.worker_count = 2;
        let max = auditor.settings.identities.map_or(0, |identities| identities.quotas.claims) + 2;
        for fence in 1..=max {
            judge(
                &mut auditor,
                TenantIdentity::Alice,
                &acquire(b"a/1"),
                &Response::Granted(granted(fence, 1_000)),
            );
            assert_eq!(rule(&auditor), None);
        }
        judge(
            &mut auditor,
            TenantIdentity::Alice,
            &acquire(b"a/1"),
            &Response::Granted(granted(max + 1, 1_000)),
        );
        assert_eq!(rule(&auditor), Some("quota"));
    }
}
