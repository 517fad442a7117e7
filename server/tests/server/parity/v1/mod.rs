//! Our own contract `waymaker.v1`: all kinds of namespaces, and operators.

mod claims;
mod entries;
mod keys;
mod shown;
mod teller;

use super::FrontEnd;
use super::command::{Acquire, Ask, Command, Kind, OnClaim, Thing};
use super::counters::says_nothing;
use super::grpc::{Connections, now_ms};
use super::heard::Heard;
use super::pace::Pace;
use super::script::{Said, Script};
use crate::harness::Server;
use std::collections::BTreeMap;
use std::rc::Rc;
use tokio::task::AbortHandle;

/// Clients of one run, in namespaces whose names begin with `scope`.
pub(super) struct V1 {
    scope: String,
    heard: Heard,
    connections: Connections,
    /// Watches by lane and key.
    watches: BTreeMap<(String, String), AbortHandle>,
    /// What the clients' times of a file are counted from: servers take only what is near their own.
    time_base_us: u64,
}

impl FrontEnd for V1 {
    const IN_ORDER: bool = false;

    fn cannot(script: &Script, command: &Command) -> Option<&'static str> {
        let kind = command.kind;
        let is_entry = |target: &str| {
            let name = target.rsplit('/').next();
            let is_it =
                |ask: &Ask| matches!(ask, Ask::Register { register, .. } if Some(&*register.key) == name);
            script.commands().any(|command| is_it(&command.ask))
        };
        match &command.ask {
            Ask::Acquire(Acquire { session: true, .. }) => Some("there are no sessions"),
            Ask::Acquire(Acquire { thing: Thing::Permits { permits: 0, .. }, .. }) => {
                Some("no permits are one")
            }
            Ask::Acquire(Acquire { thing: Thing::Permits { capacity: Some(0), .. }, .. }) => {
                Some("no capacity is any")
            }
            Ask::Acquire(_) => None,
            Ask::OnClaim { ask, .. } if ask.is_own() => Some("an id is all that a request needs"),
            Ask::OnClaim { key: Some(_), .. } => Some("an id is enough"),
            Ask::OnClaim { target, .. } if is_entry(target) => Some("entries are named by their keys"),
            Ask::OnClaim { ask: OnClaim::Cancel, .. } if script.gives_up_nothing() => {
                Some("who gives up what is held releases it")
            }
            Ask::OnClaim { .. } | Ask::Counters => None,
            Ask::Close { session_ended } => session_ended.then_some("there are no sessions"),
            Ask::Holds | Ask::TreeStatistics => Some("it is not in the contract"),
            _ if kind == Kind::Unclear => Some("nothing in the file says which kind of namespace it is"),
            _ if kind == Kind::Registry && script.has_kind(command.lane.namespace, Kind::Lazy) => {
                Some("a namespace has one kind")
            }
            _ if kind == Kind::Lazy && script.takes_time() => {
                Some("the grace after the end of a lease is not scaled")
            }
            Ask::Register { register, .. } if kind == Kind::Lazy => {
                let has_more =
                    !register.value.is_empty() || !register.type_name.is_empty() || register.ephemeral;
                has_more.then_some("an owned lock is its owner alone")
            }
            Ask::Verify { .. } | Ask::Inspect(_) if matches!(kind, Kind::Pool | Kind::Lazy) => {
                Some("it is not in the contract of this kind")
            }
            Ask::Watch(_) | Ask::Unwatch(_) if !matches!(kind, Kind::Flat | Kind::Registry) => {
                Some("keys and entries alone are watched")
            }
            Ask::Registrations(_) if kind == Kind::Lazy => Some("owned locks are not listed"),
            Ask::Internal(_) => Some("it is about the inside of a server"),
            _ => None,
        }
    }

    fn open(server: &Rc<Server>, scope: String, heard: &Heard) -> Self {
        let connections = Connections::new(server.address("grpc"));
        let time_base_us = now_ms() as u64 * 1000;
        Self { scope, heard: heard.clone(), connections, watches: BTreeMap::new(), time_base_us }
    }

    async fn run(&mut self, command: &Command, pace: &Pace) {
        let lane = &command.lane.name;
        match &command.ask {
            Ask::Acquire(acquire) => self.acquire(command, acquire, pace).await,
            Ask::OnClaim { target, ask, .. } => self.on_claim(command, target, ask, pace).await,
            Ask::Counters => self.counters().await,
            Ask::Register { .. } | Ask::Unregister { .. } | Ask::LookUp(_) | Ask::Registrations(_) => {
                self.on_entry(command, pace).await;
            }
            Ask::Close { .. } => self.connections.close(lane),
            _ => self.on_key(command, pace).await,
        }
    }

    fn hears(&self, said: &Said) -> Vec<Said> {
        let Said { lane, text } = said;
        let words: Vec<&str> = text.split(' ').collect();
        let is_own = |name: &str| !name.contains('/');
        let kind_of = |name: &str| {
            let claim = self.heard.try_find(lane, name).map(|number| self.heard.claim(number));
            claim.map(|claim| claim.kind)
        };
        let is_entry = |name| matches!(kind_of(name), Some(Kind::Registry | Kind::Lazy));
        let mut lines = vec![Said::new(lane, shown::without_internals(text))];
        match words[..] {
            // No stream follows an entry.
            ["expired", name] | ["lease", "moved", name, ..] if is_entry(name) => lines.clear(),
            _ if says_nothing(said) => lines.clear(),
            // An owner is not told whether the lock was there.
            ["registered", name, .., "renewed"] if kind_of(name) == Some(Kind::Lazy) => {
                lines = vec![Said::new(lane, text.trim_end_matches(" renewed"))];
            }
            // Whoever gives up a watch knows it.
            ["watches", _, "no", "longer"] | ["did", "not", "watch", _] => lines.clear(),
            // Who waits is given up by its id.
            ["gave", "up", name] => {
                lines = vec![Said::new(lane, format!("released {name} before it was granted"))];
            }
            // A stream is told of whatever is done by an id, also where its own client did it.
            ["released", name] if is_own(name) => {
                // It calls the hold by the newest of its names.
                let claim = self.heard.claim(self.heard.find(lane, name));
                let name = claim.id.map_or_else(|| name.to_owned(), |id| self.heard.name_of(&id, lane));
                lines.push(Said::new(lane, format!("revoked {name}: released elsewhere")));
            }
            ["extended", name, remaining, ..] if is_own(name) && self.is_held(lane, name) => {
                lines.push(Said::new(lane, format!("lease moved {name} {remaining}")));
            }
            _ => {}
        }
        lines
    }
}

impl V1 {
    /// The namespace of this number and kind. Tables of owned locks are named without what stands in front.
    fn namespace(&self, kind: Kind, number: u32) -> String {
        format!("{}/{number}/{kind:?}", self.scope)
    }

    fn is_held(&self, lane: &str, name: &str) -> bool {
        let claim = self.heard.try_find(lane, name).map(|number| self.heard.claim(number));
        claim.is_some_and(|claim| claim.is_held)
    }

    /// Says an answer, or the refusal in its place.
    fn answer<T>(
        &self,
        lane: &str,
        name: &str,
        answer: Result<T, tonic::Status>,
        shown: impl FnOnce(T) -> String,
    ) {
        let text = match answer {
            Ok(answer) => shown(answer),
            Err(status) => {
                let name = if name.is_empty() { String::new() } else { format!(" {name}") };
                format!("refused{name}: {}", shown::refusal(&status))
            }
        };
        self.heard.say(lane, text);
    }
}
