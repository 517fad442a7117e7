//! Acquires, and what is asked about a claim.

use super::V1;
use super::shown::{age_of_hold, age_of_waiter, path, place, remaining};
use super::teller::Teller;
use crate::harness::WATCHDOG;
use crate::parity::command::{Acquire, Command, Kind, OnClaim, Thing};
use crate::parity::pace::Pace;
use crate::parity::words::mode;
use tokio::task::spawn_local;
use waymaker_proto::v1;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_proto::v1::operator_service_client::OperatorServiceClient;
use waymaker_proto::v1::semaphore_service_client::SemaphoreServiceClient;
use waymaker_proto::v1::status_response;
use waymaker_proto::v1::tree_service_client::TreeServiceClient;

/// Calls what the services of claims have in common.
macro_rules! of_kind {
    ($kind:expr, $channel:expr, $call:ident, $request:expr) => {
        match $kind {
            Kind::Tree => TreeServiceClient::new($channel).$call($request).await,
            Kind::Pool => SemaphoreServiceClient::new($channel).$call($request).await,
            _ => LockServiceClient::new($channel).$call($request).await,
        }
    };
}

impl V1 {
    pub(super) async fn acquire(&mut self, command: &Command, acquire: &Acquire, pace: &Pace) {
        let lane = command.lane.name.clone();
        let number = self.heard.name(command, &acquire.name, "");
        let namespace = self.namespace(command.kind, command.lane.namespace);
        let max_wait_ms = pace.wait_ms(acquire.wait_ms);
        let options = Some(v1::AcquireOptions {
            lease_ms: pace.millis(acquire.lease_ms),
            release_after_ms: acquire.release_after_ms.map(|length_ms| pace.wait_ms(length_ms)),
            priority: acquire.priority,
            scope: acquire.scope.map_or(0, i32::from),
            request_id: acquire.request_id.clone().unwrap_or_default(),
            owner: acquire.owner.clone().unwrap_or_else(|| command.lane.owner.clone()),
            metadata: acquire.metadata.clone().unwrap_or_default(),
        });
        let is_several = matches!(acquire.thing, Thing::Keys(_));
        let (heard, channel) = (self.heard.clone(), self.connections.channel(&lane));
        let teller = Teller { heard, lane: lane.clone(), number, is_told: acquire.queued, is_several };
        let keys = |keys: &[(String, bool)]| {
            let key = |(key, shared): &(String, bool)| v1::LockKey { key: key.clone(), shared: *shared };
            keys.iter().map(key).collect()
        };
        let of_keys = |keys| v1::AcquireKeysRequest {
            namespace: namespace.clone(),
            keys,
            max_wait_ms,
            options: options.clone(),
        };
        let stream = match &acquire.thing {
            Thing::Key { key, shared } => {
                let request = of_keys(keys(&[(key.clone(), *shared)]));
                spawn_local(async move {
                    teller.tell(LockServiceClient::new(channel).acquire(request).await).await;
                })
            }
            Thing::Keys(several) => {
                let request = of_keys(keys(several));
                spawn_local(async move {
                    teller.tell(LockServiceClient::new(channel).acquire(request).await).await;
                })
            }
            Thing::Paths(paths) => {
                let item = |(word, shared): &(String, bool)| v1::LockPath {
                    path: Some(path(word)),
                    shared: *shared,
                };
                let paths = paths.iter().map(item).collect();
                let request = v1::AcquirePathsRequest { namespace, paths, max_wait_ms, options };
                spawn_local(async move {
                    teller.tell(TreeServiceClient::new(channel).acquire(request).await).await;
                })
            }
            Thing::Permits { pool, permits, capacity, by_time, at } => {
                let request = v1::AcquirePermitsRequest {
                    namespace,
                    name: pool.clone(),
                    capacity: capacity.unwrap_or(0),
                    any_capacity: capacity.is_none(),
                    permits: *permits,
                    order: if *by_time { v1::SemaphoreOrder::Timestamp } else { v1::SemaphoreOrder::Arrival }
                        .into(),
                    timestamp_us: if *at == 0 { 0 } else { self.time_base_us + *at * 1_000_000 },
                    max_wait_ms,
                    options,
                };
                spawn_local(async move {
                    teller.tell(SemaphoreServiceClient::new(channel).acquire(request).await).await;
                })
            }
        };
        self.connections.keep(&lane, stream.abort_handle());
        self.heard.until_answered(number, WATCHDOG).await;
    }

    pub(super) async fn on_claim(&mut self, command: &Command, target: &str, ask: &OnClaim, pace: &Pace) {
        let lane = &command.lane.name;
        let claim = self.heard.claim(self.heard.find(lane, target));
        let id = claim.secret_id.clone().unwrap_or_else(|| panic!("the id of {target} is not known"));
        let namespace = self.namespace(claim.kind, command.lane.namespace);
        let name = target.strip_prefix(&format!("{lane}/")).unwrap_or(target);
        let (kind, channel) = (claim.kind, self.connections.channel(lane));
        match ask {
            OnClaim::Release { .. } | OnClaim::Cancel => {
                let answer = of_kind!(kind, channel, release, v1::ReleaseRequest { namespace, id });
                self.answer(lane, name, answer, |answer| {
                    let before = if answer.get_ref().was_waiting { " before it was granted" } else { "" };
                    format!("released {name}{before}")
                });
            }
            OnClaim::Extend { lease_ms, .. } => {
                let request = v1::ExtendRequest { namespace, id, lease_ms: pace.millis(*lease_ms) };
                let answer = of_kind!(kind, channel, extend, request);
                self.answer(lane, name, answer, |answer| {
                    let answer = answer.into_inner();
                    let clamped = if answer.clamped { " clamped" } else { "" };
                    format!("extended {name} remaining={}{clamped}", remaining(answer.remaining_ms))
                });
            }
            OnClaim::Status => {
                let answer = of_kind!(kind, channel, status, v1::StatusRequest { namespace, id });
                self.answer(lane, name, answer, |answer| {
                    format!("{name} is {}", status(answer.into_inner().claim.expect("a claim")))
                });
            }
            OnClaim::ForceRelease { reason } => {
                self.touch(lane, kind, &namespace).await;
                let request = v1::ForceReleaseRequest { namespace, id, reason: reason.clone() };
                let answer = OperatorServiceClient::new(channel).force_release(request).await;
                self.answer(lane, name, answer, |answer| {
                    let v1::ForceReleaseResponse { owner, fence, was_waiting, .. } = answer.into_inner();
                    let waited = if was_waiting { " which waited" } else { "" };
                    format!("forced {name} of {owner}{waited} fence={fence}")
                });
            }
        }
    }
}

fn status(claim: status_response::Claim) -> String {
    match claim {
        status_response::Claim::Hold(hold) => {
            let (key, mode) = (place(&hold.key, hold.path.as_ref()), mode(hold.shared));
            let (remaining, age) = (remaining(hold.remaining_ms), age_of_hold(&hold));
            let v1::Hold { fence, priority, .. } = hold;
            format!("`{key}` held {mode} fence={fence} remaining={remaining} age={age} priority={priority}")
        }
        status_response::Claim::Waiter(waiter) => {
            let (key, mode) = (place(&waiter.key, waiter.path.as_ref()), mode(waiter.shared));
            let (remaining, age) = (remaining(waiter.remaining_ms), age_of_waiter(&waiter));
            format!(
                "`{key}` waits {mode} fence=0 remaining={remaining} age={age} priority={}",
                waiter.priority
            )
        }
    }
}
