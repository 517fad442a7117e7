//! The published contract `waymaker.WaymakerService`: flat keys, one or several.

use super::command::{Acquire, Ask, Command, Kind, OnClaim, Thing};
use super::counters::COUNTERS;
use super::grpc::{Connections, channel, since, until};
use super::heard::Heard;
use super::pace::Pace;
use super::script::{PAGE, Said, Script};
use super::{FrontEnd, PATIENCE};
use crate::harness::Server;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::spawn_local;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use waymaker_proto::v1;
use waymaker_proto::v1::operator_service_client::OperatorServiceClient;
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{
    ExtendLeaseRequest, LeaseStatusRequest, ListAcquiredLocksRequest, LockEvent, LockEventType, LockRequest,
    MultiLockKey, MultiLockRequest, MultiLockResponse, UnLockRequest,
};

/// What the contract calls our errors. It has no word for what it cannot ask for.
const CODES: [(&str, &str, &str); 6] = [
    ("busy", "timeout", "a wait of no length is one that ends at once"),
    ("frozen", "internal", "the contract knows no operators"),
    ("overloaded", "internal", "the contract knows no limits"),
    ("no_space", "internal", "the contract knows no disk"),
    ("scope_unavailable", "bad_input", "streams say so of all that is wrong in a request"),
    ("not_owner", "internal", "the contract knows no entries"),
];

/// Clients of one run. All lock in one namespace, so their keys begin with `scope`.
pub(super) struct Waymaker {
    scope: String,
    heard: Heard,
    connections: Connections,
    /// Looks at the keys as an operator does: a call over several keys says nothing while it waits.
    operator: OperatorServiceClient<Channel>,
}

impl FrontEnd for Waymaker {
    const IN_ORDER: bool = false;

    fn cannot(script: &Script, command: &Command) -> Option<&'static str> {
        let is_several = |target: &str| {
            let mut acquires = script.commands().filter_map(|command| match &command.ask {
                Ask::Acquire(acquire) => Some(acquire),
                _ => None,
            });
            let name = target.rsplit('/').next();
            acquires.any(|acquire| matches!(acquire.thing, Thing::Keys(_)) && Some(&*acquire.name) == name)
        };
        if command.lane.namespace != 0 {
            return Some("there is one namespace");
        }
        match &command.ask {
            Ask::Acquire(acquire) if command.kind == Kind::Flat => {
                let has_more = acquire.session || acquire.release_after_ms.is_some();
                has_more.then_some("a lock ends with its lease alone")
            }
            Ask::OnClaim { target, .. } if is_several(target) => {
                Some("several keys have no id while they wait")
            }
            Ask::OnClaim { ask: OnClaim::Cancel, .. } if script.gives_up_nothing() => {
                Some("who gives up a lock that is held releases it")
            }
            Ask::OnClaim { ask: OnClaim::Extend { lease_ms: 0 }, .. } => {
                Some("a lease of no length is refused")
            }
            Ask::OnClaim { ask: OnClaim::ForceRelease { .. }, .. } => Some("there are no operators"),
            Ask::OnClaim { .. } | Ask::Close { session_ended: false } | Ask::Counters => None,
            Ask::List { .. } if command.kind == Kind::Flat => None,
            _ => Some("the contract has locks on keys, and nothing else"),
        }
    }

    fn open(server: &Rc<Server>, scope: String, heard: &Heard) -> Self {
        let address = server.address("grpc");
        let operator = OperatorServiceClient::new(channel(address));
        let connections = Connections::new(address);
        Self { scope: format!("{scope}/"), heard: heard.clone(), connections, operator }
    }

    async fn run(&mut self, command: &Command, pace: &Pace) {
        let lane = &command.lane.name;
        match &command.ask {
            Ask::Acquire(acquire) => match &acquire.thing {
                Thing::Key { key, shared } => self.lock(command, acquire, key, *shared, pace).await,
                Thing::Keys(keys) => self.multi_lock(command, acquire, keys, pace).await,
                Thing::Paths(_) | Thing::Permits { .. } => unreachable!("it cannot be said"),
            },
            Ask::OnClaim { target, key, ask } => {
                let text = self.on_claim(lane, target, key.as_deref(), ask, pace).await;
                self.heard.say(lane, text);
            }
            Ask::List { prefix } => self.list(lane, prefix.as_deref().unwrap_or_default()).await,
            Ask::Close { .. } => self.connections.close(lane).await,
            _ => {}
        }
    }

    fn hears(&self, said: &Said) -> Vec<Said> {
        let Said { lane, text } = said;
        if *lane == COUNTERS {
            return Vec::new();
        }
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let is_part = |name: &str| {
            let parts = name.split_once('.').map(|(several, _)| several);
            parts.is_some_and(|several| self.is_several(lane, several))
        };
        match words[..] {
            _ if *lane == PAGE => {}
            // Nobody is told of these; a stream that has no event for what happened just ends.
            ["queued" | "revoked" | "lease", ..] => return Vec::new(),
            // Several keys have no stream.
            ["expired" | "taken", .., name] if is_part(name) => return Vec::new(),
            ["granted", ..] => {
                words.retain(|word| !["clamped", "repeated", "exclusive", "shared"].contains(word));
            }
            ["extended", ..] => words.retain(|word| *word != "clamped"),
            ["released", name, ..] | ["gave", "up", name] => words = vec!["released", name],
            ["refused", name, code, ..] => {
                let code = code.trim_end_matches(',');
                let superseded = text.ends_with("superseded");
                let called =
                    CODES.iter().find(|(ours, ..)| *ours == code).map_or(code, |(_, called, _)| called);
                words = vec!["refused", name, if superseded { "superseded" } else { called }];
            }
            [_, "is", ..] => words.retain(|word| {
                !["exclusive", "shared"].contains(word)
                    && !word.starts_with("age=")
                    && !word.starts_with("waited=")
            }),
            _ => {}
        }
        vec![Said::new(lane, words.join(" "))]
    }
}

impl Waymaker {
    fn client(&mut self, lane: &str) -> WaymakerServiceClient<Channel> {
        WaymakerServiceClient::new(self.connections.channel(lane))
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.scope)
    }

    async fn lock(&mut self, command: &Command, acquire: &Acquire, key: &str, shared: bool, pace: &Pace) {
        let lane = command.lane.name.clone();
        let number = self.heard.name(command, &acquire.name, &self.full(key));
        let request = LockRequest {
            key: self.full(key),
            max_wait_period: pace.wait_ms(acquire.wait_ms),
            max_lease_period: pace.millis(acquire.lease_ms),
            priority: acquire.priority,
            requester_info: acquire.metadata.clone().unwrap_or_default(),
            requester_application: acquire.owner.clone().unwrap_or_else(|| command.lane.owner.clone()),
            request_id: acquire.request_id.clone().unwrap_or_default(),
            fence_scope: acquire.scope.map_or(0, i32::from),
        };
        let mut client = self.client(&lane);
        let teller =
            Teller { heard: self.heard.clone(), lane: lane.clone(), number, is_told: acquire.queued };
        let stream = spawn_local(async move {
            let asked = if shared { client.read_lock(request).await } else { client.lock(request).await };
            teller.tell(asked.expect("a stream").into_inner()).await;
        });
        self.connections.keep(&lane, stream.abort_handle());
        self.heard.until_answered(number, PATIENCE).await;
    }

    async fn multi_lock(
        &mut self,
        command: &Command,
        acquire: &Acquire,
        keys: &[(String, bool)],
        pace: &Pace,
    ) {
        let lane = command.lane.name.clone();
        let number = self.heard.name(command, &acquire.name, &self.scope);
        let items =
            keys.iter().map(|(key, shared)| MultiLockKey { key: self.full(key), write_lock: !shared });
        let request = MultiLockRequest {
            keys: items.collect(),
            max_wait_period: pace.wait_ms(acquire.wait_ms),
            max_lease_period: pace.millis(acquire.lease_ms),
            priority: acquire.priority,
            requester_info: acquire.metadata.clone().unwrap_or_default(),
            requester_application: acquire.owner.clone().unwrap_or_else(|| command.lane.owner.clone()),
            request_id: acquire.request_id.clone().unwrap_or_default(),
            fence_scope: acquire.scope.map_or(0, i32::from),
        };
        let first = request.keys.first().map(|key| key.key.clone()).unwrap_or_default();
        let waiting = self.waiting(&first).await;
        let mut client = self.client(&lane);
        let (heard, name, scope) = (self.heard.clone(), acquire.name.clone(), self.scope.clone());
        let teller = SeveralTeller { heard, lane: lane.clone(), name, scope, number };
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

    fn is_several(&self, lane: &str, name: &str) -> bool {
        self.heard.claim(self.heard.find(lane, name)).key == self.scope
    }

    async fn on_claim(
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
        let shown = |key: &str| key.strip_prefix(&self.scope).unwrap_or(key).replace('\0', "\\0");
        let refused = |code: &str| format!("refused {target}: {code}");
        match ask {
            OnClaim::Release | OnClaim::Cancel => {
                let answer = client.un_lock(UnLockRequest { key, id }).await.expect("an answer").into_inner();
                if answer.success { format!("released {target}") } else { refused(&answer.result_code) }
            }
            OnClaim::Extend { lease_ms } => {
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
                let (key, fence) = (shown(&lease.key), lease.fence_token);
                let (end, priority) = (until(end), lease.priority);
                format!("{target} is `{key}` {state} fence={fence} remaining={end} priority={priority}")
            }
        }
    }

    async fn list(&mut self, lane: &str, prefix: &str) {
        let request = ListAcquiredLocksRequest { key_prefix: self.full(prefix) };
        let answer = self.client(lane).list_acquired_locks(request).await.expect("an answer").into_inner();
        for lock in answer.locks {
            let key = lock.key.strip_prefix(&self.scope).unwrap_or(&lock.key).replace('\0', "\\0");
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

/// Says what a stream tells.
struct Teller {
    heard: Heard,
    lane: String,
    number: usize,
    /// The file speaks of the id already while the claim waits.
    is_told: bool,
}

impl Teller {
    async fn tell(self, mut stream: Streaming<LockEvent>) {
        let (mut waited, mut held) = (false, false);
        loop {
            let event = match stream.message().await {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(status) => return self.tell_status(&status, held),
            };
            let name = self.heard.claim(self.number).name;
            match event.event_type() {
                LockEventType::Waiting => {
                    waited = true;
                    self.heard.tell_id(self.number, &event.id, self.is_told);
                    self.heard.say(&self.lane, "(waits)");
                }
                LockEventType::Acquired => {
                    held = true;
                    self.heard.granted(self.number, &event.id);
                    let (fence, remaining) = (event.fence_token, until(event.lease_expires_at));
                    let waited = if waited { " waited" } else { "" };
                    let text = format!("granted {name} fence={fence} remaining={remaining}{waited}");
                    self.heard.say(&self.lane, text);
                }
                LockEventType::Failed => {
                    let code = event.message.split(':').next().unwrap_or_default();
                    let code = if code == "BadInput" { "bad_input" } else { code };
                    self.heard.say(&self.lane, format!("refused {name}: {code}"));
                }
                LockEventType::Expired => {
                    let name = self.heard.name_of(&event.id, &self.lane);
                    self.heard.say(&self.lane, format!("expired {name}"));
                }
                LockEventType::Heartbeat => {}
                LockEventType::Unknown => panic!("{event:?}"),
            }
            self.heard.answered(self.number);
        }
    }

    fn tell_status(&self, status: &Status, held: bool) {
        assert_eq!(status.code(), Code::Aborted, "{status}");
        let name = self.heard.claim(self.number).name;
        let text = if held { format!("taken up {name}") } else { format!("refused {name}: superseded") };
        self.heard.say(&self.lane, text);
    }
}

/// Says what is answered to several keys.
struct SeveralTeller {
    heard: Heard,
    lane: String,
    name: String,
    scope: String,
    number: usize,
}

impl SeveralTeller {
    fn tell(self, response: MultiLockResponse) {
        let waited = if self.heard.claim(self.number).is_answered { " waited" } else { "" };
        let mut text = format!("granted {}", self.name);
        if !response.success {
            text = format!("refused {}: {}", self.name, response.result_code);
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
