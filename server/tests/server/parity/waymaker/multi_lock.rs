//! Several keys are one call, whose answer comes when they are held.

use super::Waymaker;
use crate::parity::command::{Acquire, Command};
use crate::parity::grpc::until;
use crate::parity::heard::{Claim, Heard};
use crate::parity::pace::Pace;
use std::time::Duration;
use tokio::task::spawn_local;
use waymaker_proto::v1;
use waymaker_proto::waymaker::{MultiLockKey, MultiLockRequest, MultiLockResponse};

impl Waymaker {
    pub(super) async fn multi_lock(
        &mut self,
        command: &Command,
        acquire: &Acquire,
        keys: &[(String, bool)],
        pace: &Pace,
    ) {
        let lane = command.lane.name.clone();
        let number = self.heard.name(command, &acquire.name, &self.scope);
        let keys = keys.iter().map(|(key, shared)| MultiLockKey { key: self.full(key), write_lock: !shared });
        let request = request!(MultiLockRequest { keys: keys.collect() }, command, acquire, pace);
        let first = request.keys.first().map(|key| key.key.clone()).unwrap_or_default();
        let waiting = self.waiting(&first).await;
        let mut client = self.client(&lane);
        let (heard, scope) = (self.heard.clone(), self.scope.clone());
        let teller = MultiKeyTeller { heard, lane: lane.clone(), scope, number };
        let call = spawn_local(async move {
            let response = client.multi_lock(request).await.expect("an answer").into_inner();
            teller.tell(response);
        });
        self.connections.keep(&lane, call.abort_handle());
        while !self.heard.claim(number).is_answered {
            if acquire.wait_ms > 0
                && self.waiting(&first).await > waiting
                && !self.heard.claim(number).is_answered
            {
                self.heard.say(&lane, "(waits)");
                self.heard.answered(number);
            }
            self.heard.until_answered(number, Duration::from_millis(2)).await;
        }
    }

    /// How many wait for a key.
    async fn waiting(&mut self, key: &str) -> u32 {
        let request = v1::InspectRequest {
            namespace: "waymaker".to_owned(),
            key: key.to_owned(),
            ..Default::default()
        };
        self.operator.inspect(request).await.map_or(0, |answer| answer.get_ref().waiter_count)
    }
}

/// Says what is answered to several keys.
struct MultiKeyTeller {
    heard: Heard,
    lane: String,
    scope: String,
    number: usize,
}

impl MultiKeyTeller {
    fn tell(self, response: MultiLockResponse) {
        let Claim { name, is_answered, .. } = self.heard.claim(self.number);
        let waited = if is_answered { " waited" } else { "" };
        let mut text = format!("granted {name}");
        if !response.success {
            text = format!("refused {name}: {}", response.result_code);
        }
        for lease in response.leases {
            let key = lease.key.strip_prefix(&self.scope).unwrap_or(&lease.key);
            let (fence, remaining) = (lease.fence_token, until(lease.lease_expires_at));
            text += &format!("\n{key} fence={fence} remaining={remaining}{waited}");
            self.heard.part_granted(self.number, key, &lease.key, &lease.id);
        }
        self.heard.say(&self.lane, text);
        self.heard.answered(self.number);
    }
}
