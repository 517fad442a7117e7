//! Entries of registries, and owned locks.

use super::V1;
use crate::parity::command::{Ask, Command, Kind, Register};
use crate::parity::heard::written;
use crate::parity::pace::Pace;
use crate::parity::script::PAGE;
use crate::parity::words::{shown_millis, shown_signed_millis};
use waymaker_proto::v1;
use waymaker_proto::v1::owned_lease;
use waymaker_proto::v1::owned_lock_service_client::OwnedLockServiceClient;
use waymaker_proto::v1::register_request::Lease;
use waymaker_proto::v1::registry_service_client::RegistryServiceClient;

/// How many entries stand in a page, so that a list has several.
const PAGE_SIZE: u32 = 2;

impl V1 {
    pub(super) async fn on_entry(&mut self, command: &Command, pace: &Pace) {
        if command.kind == Kind::Lazy {
            return self.on_owned_lock(command, pace).await;
        }
        let lane = &command.lane.name;
        let namespace = self.namespace(command.kind, command.lane.namespace);
        let mut client = RegistryServiceClient::new(self.connections.channel(lane));
        match &command.ask {
            Ask::Register { register, heartbeat } => {
                let Register { key, owner, value, type_name, lease_ms, ephemeral } = register.clone();
                let name = written(&key);
                self.heard.name(command, name, &key);
                let request = v1::RegisterRequest {
                    namespace,
                    key: key.clone(),
                    owner,
                    value: value.into_bytes(),
                    r#type: type_name,
                    lease: Some(Lease::LeaseMs(pace.signed_millis(lease_ms))),
                    ephemeral,
                };
                let answer =
                    if *heartbeat { client.heartbeat(request).await } else { client.register(request).await };
                self.answer(lane, name, answer, |answer| {
                    let v1::RegisterResponse { fence, remaining_ms, renewed, .. } = answer.into_inner();
                    let renewed = if renewed { " renewed" } else { "" };
                    format!(
                        "registered {name} fence={fence} remaining={}{renewed}",
                        shown_signed_millis(remaining_ms)
                    )
                });
            }
            Ask::Unregister { key, owner } => {
                let name = written(key);
                self.heard.name(command, name, key);
                let request = v1::UnregisterRequest { namespace, key: key.clone(), owner: owner.clone() };
                let answer = client.unregister(request).await;
                self.answer(lane, name, answer, |_| format!("unregistered {name}"));
            }
            Ask::LookUp(key) => {
                let answer = client.look_up(v1::LookUpRequest { namespace, key: key.clone() }).await;
                self.answer(lane, written(key), answer, |answer| {
                    shown_entry(answer.into_inner().entry.as_ref())
                });
            }
            Ask::Registrations(type_name) => {
                let mut request = v1::ListEntriesRequest {
                    namespace,
                    r#type: type_name.clone(),
                    cursor: String::new(),
                    page_size: PAGE_SIZE,
                };
                loop {
                    let page = client.list_entries(request.clone()).await.expect("a page").into_inner();
                    for entry in &page.entries {
                        self.heard.say(PAGE, shown_entry(Some(entry)));
                    }
                    if page.next_cursor.is_empty() {
                        return;
                    }
                    request.cursor = page.next_cursor;
                }
            }
            _ => unreachable!("it is about entries"),
        }
    }

    async fn on_owned_lock(&mut self, command: &Command, pace: &Pace) {
        let lane = &command.lane.name;
        let table = self.namespace(command.kind, command.lane.namespace);
        let mut client = OwnedLockServiceClient::new(self.connections.channel(lane));
        let shown = |key: &str, lock: Option<v1::OwnedLock>| {
            let v1::OwnedLock { fence, remaining_ms, .. } = lock.expect("a lock");
            format!("registered {key} fence={fence} remaining={}", shown_signed_millis(remaining_ms))
        };
        match &command.ask {
            Ask::Register { register, heartbeat } => {
                let Register { key, owner, lease_ms, .. } = register.clone();
                let name = written(&key);
                self.heard.name(command, name, &key);
                let duration_ms = pace.signed_millis(lease_ms);
                let lease = Some(v1::OwnedLease { lease: Some(owned_lease::Lease::DurationMs(duration_ms)) });
                if *heartbeat {
                    let request = v1::HeartbeatLockRequest { table, key: key.clone(), owner, lease };
                    let answer = client.heartbeat_lock(request).await;
                    self.answer(lane, name, answer, |answer| shown(name, answer.into_inner().lock));
                } else {
                    let request = v1::AcquireLockRequest { table, key: key.clone(), owner, lease };
                    let answer = client.acquire_lock(request).await;
                    self.answer(lane, name, answer, |answer| shown(name, answer.into_inner().lock));
                }
            }
            Ask::Unregister { key, owner } => {
                let name = written(key);
                self.heard.name(command, name, key);
                let request = v1::ReleaseLockRequest { table, key: key.clone(), owner: owner.clone() };
                let answer = client.release_lock(request).await;
                self.answer(lane, name, answer, |_| format!("unregistered {name}"));
            }
            Ask::LookUp(key) => {
                let answer =
                    client.get_current_lock(v1::GetCurrentLockRequest { table, key: key.clone() }).await;
                self.answer(lane, written(key), answer, |answer| {
                    let Some(lock) = answer.into_inner().lock else {
                        return "nothing is registered".to_owned();
                    };
                    let age_ms = lock.leased_until_ms - lock.remaining_ms - lock.created_at_ms;
                    let (age, remaining) =
                        (shown_signed_millis(age_ms), shown_signed_millis(lock.remaining_ms));
                    format!(
                        "{} has `{}` fence={} age={age} remaining={remaining}",
                        lock.owner, lock.key, lock.fence
                    )
                });
            }
            _ => unreachable!("owned locks are not listed here"),
        }
    }
}

fn shown_entry(entry: Option<&v1::Entry>) -> String {
    let Some(entry) = entry else { return "nothing is registered".to_owned() };
    let v1::Entry { key, owner, value, r#type, fence, remaining_ms, .. } = entry;
    let age_ms = entry.lease_expires_at_ms - remaining_ms - entry.updated_at_ms;
    let (age, remaining) = (shown_millis(age_ms.max(0) as u64), shown_signed_millis(*remaining_ms));
    let mut text = format!("{owner} has `{key}` fence={fence} age={age} remaining={remaining}");
    for (name, value) in [("value", String::from_utf8_lossy(value).as_ref()), ("type", r#type)] {
        if !value.is_empty() {
            text += &format!(" {name}={value}");
        }
    }
    text
}
