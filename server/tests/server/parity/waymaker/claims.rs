//! What is asked about claims, by their ids or in a list.

use super::Waymaker;
use crate::parity::command::OnClaim;
use crate::parity::grpc::{since, until};
use crate::parity::pace::Pace;
use crate::parity::script::PAGE;
use waymaker_proto::waymaker::{
    ExtendLeaseRequest, LeaseStatusRequest, ListAcquiredLocksRequest, UnLockRequest,
};

impl Waymaker {
    pub(super) async fn on_claim(
        &mut self,
        lane: &str,
        target: &str,
        key: Option<&str>,
        ask: &OnClaim,
        pace: &Pace,
    ) -> String {
        let claim = self.heard.claim(self.heard.find(lane, target));
        let id = claim.secret_id.unwrap_or_else(|| panic!("the id of {target} is not known"));
        let key = key.map_or(claim.key, |key| self.full(key));
        let mut client = self.client(lane);
        let refused = |code: &str| format!("refused {target}: {code}");
        match ask {
            OnClaim::Release { .. } | OnClaim::Cancel => {
                let answer = client.un_lock(UnLockRequest { key, id }).await.expect("an answer").into_inner();
                if answer.success { format!("released {target}") } else { refused(&answer.result_code) }
            }
            OnClaim::Extend { lease_ms, .. } => {
                let request = ExtendLeaseRequest { key, id, lease_timeout: pace.millis(*lease_ms) };
                let answer = client.extend_lease(request).await.expect("an answer").into_inner();
                match answer.lease {
                    Some(lease) => format!("extended {target} remaining={}", until(lease.lease_expires_at)),
                    None => refused(&answer.result_code),
                }
            }
            _ => {
                let request = LeaseStatusRequest { key, id };
                let answer = client.lease_status(request).await.expect("an answer").into_inner();
                let Some(lease) = answer.lease else { return refused(&answer.result_code) };
                let (state, end) = match lease.acquired {
                    true => ("held", lease.lease_expires_at),
                    false => ("waits", lease.waiting_expires_at),
                };
                let (key, fence) = (self.shown(&lease.key), lease.fence_token);
                let (end, priority) = (until(end), lease.priority);
                format!("{target} is `{key}` {state} fence={fence} remaining={end} priority={priority}")
            }
        }
    }

    pub(super) async fn list(&mut self, lane: &str, prefix: &str) {
        let request = ListAcquiredLocksRequest { key_prefix: self.full(prefix) };
        let answer = self.client(lane).list_acquired_locks(request).await.expect("an answer").into_inner();
        for lock in answer.locks {
            let key = self.shown(&lock.key);
            let mode = if lock.write_lock { "exclusive" } else { "shared" };
            let (held, remaining) = (since(lock.acquired_at), until(lock.lease_expires_at));
            let (owner, fence) = (lock.requester_application, lock.fence_token);
            let mut text = format!("{key}: {owner} {mode} fence={fence} held={held} remaining={remaining}");
            if lock.priority != 0 {
                text += &format!(" priority={}", lock.priority);
            }
            for (name, value) in [("request", lock.request_id), ("metadata", lock.requester_info)] {
                if !value.is_empty() {
                    text += &format!(" {name}={value}");
                }
            }
            self.heard.say(PAGE, text);
        }
    }
}
