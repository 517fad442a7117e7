//! The published contract `waymaker.WaymakerService`: flat keys, one or several.

/// A request for one key or several, which say the same of how these are acquired.
macro_rules! request {
    ($kind:ident { $what:ident: $value:expr }, $command:expr, $acquire:expr, $pace:expr) => {
        $kind {
            $what: $value,
            max_wait_period: $pace.wait_ms($acquire.wait_ms),
            max_lease_period: $pace.millis($acquire.lease_ms),
            priority: $acquire.priority,
            requester_info: $acquire.metadata.clone().unwrap_or_default(),
            requester_application: $acquire.owner.clone().unwrap_or_else(|| $command.lane.owner.clone()),
            request_id: $acquire.request_id.clone().unwrap_or_default(),
            fence_scope: $acquire.scope.map_or(0, i32::from),
        }
    };
}

mod claims;
mod lock;
mod multi_lock;

use super::FrontEnd;
use super::command::{Ask, Command, Kind, OnClaim, Thing};
use super::counters::COUNTERS;
use super::grpc::{Connections, channel};
use super::heard::Heard;
use super::pace::Pace;
use super::script::{PAGE, Said, Script};
use crate::harness::Server;
use std::rc::Rc;
use tonic::transport::Channel;
use waymaker_proto::v1::operator_service_client::OperatorServiceClient;
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;

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
            Ask::OnClaim { ask, .. } if ask.is_own() => Some("an id is all that a request needs"),
            Ask::OnClaim { target, .. } if is_several(target) => {
                Some("several keys have no id while they wait")
            }
            Ask::OnClaim { ask: OnClaim::Cancel, .. } if script.gives_up_nothing() => {
                Some("who gives up a lock that is held releases it")
            }
            Ask::OnClaim { ask: OnClaim::Extend { lease_ms: 0, .. }, .. } => {
                Some("a lease of no length is refused")
            }
            Ask::OnClaim { ask: OnClaim::ForceRelease { .. }, .. } => Some("there are no operators"),
            Ask::OnClaim { .. } | Ask::Close { session_ended: false } | Ask::Counters => None,
            Ask::List { waiting: false, .. } if command.kind == Kind::Flat => None,
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
            Ask::List { prefix, .. } => self.list(lane, prefix.as_deref().unwrap_or_default()).await,
            Ask::Close { .. } => self.connections.close(lane),
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

    /// A key as the files write it.
    fn shown(&self, key: &str) -> String {
        key.strip_prefix(&self.scope).unwrap_or(key).replace('\0', "\\0")
    }

    fn is_several(&self, lane: &str, name: &str) -> bool {
        self.heard.claim(self.heard.find(lane, name)).key == self.scope
    }
}
