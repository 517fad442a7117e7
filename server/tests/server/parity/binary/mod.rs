//! The binary protocol over a socket, without sessions.

mod connection;
mod requests;
mod shown;

use self::connection::Connection;
use super::FrontEnd;
use super::command::{Acquire, Ask, Command, Kind, Thing};
use super::contract_text::without_internals;
use super::counters::says_nothing;
use super::grpc::now_ms;
use super::heard::Heard;
use super::pace::Pace;
use super::script::{Said, Script};
use crate::harness::Server;
use std::collections::BTreeMap;
use std::rc::Rc;
use waymaker_protocol::NamespaceKind;

/// Clients of one run, in namespaces whose names begin with `scope`.
pub(super) struct Binary {
    address: String,
    scope: String,
    heard: Heard,
    /// A lane has one connection for each namespace that it uses.
    connections: BTreeMap<(String, u32, Kind), Rc<Connection>>,
    /// The numbers of acquires and watches on their connections, by the numbers of their names.
    numbers: BTreeMap<usize, u32>,
    /// What the clients' times of a file are counted from: servers take only what is near their own.
    time_base_us: u64,
}

impl FrontEnd for Binary {
    const IN_ORDER: bool = true;

    fn cannot(script: &Script, command: &Command) -> Option<&'static str> {
        let kind = command.kind;
        match &command.ask {
            Ask::Acquire(Acquire { session: true, .. }) => Some("these connections have no sessions"),
            Ask::Acquire(Acquire { thing: Thing::Paths(paths), .. }) if paths.is_empty() => {
                Some("an empty list cannot be encoded")
            }
            Ask::Acquire(_) => None,
            Ask::OnClaim { .. } | Ask::Counters => None,
            Ask::Close { session_ended } => session_ended.then_some("these connections have no sessions"),
            _ if kind == Kind::Unclear => Some("nothing in the file says which kind of namespace it is"),
            _ if kind == Kind::Registry && script.has_kind(command.lane.namespace, Kind::Lazy) => {
                Some("a namespace has one kind")
            }
            _ if kind == Kind::Lazy && script.takes_time() => {
                Some("the grace after the end of a lease is not scaled")
            }
            Ask::Inspect(_) if kind == Kind::Pool => Some("a pool is described"),
            _ => None,
        }
    }

    fn open(server: &Rc<Server>, scope: String, heard: &Heard) -> Self {
        Self {
            address: server.address("binary").to_owned(),
            scope,
            heard: heard.clone(),
            connections: BTreeMap::new(),
            numbers: BTreeMap::new(),
            time_base_us: now_ms() as u64 * 1000,
        }
    }

    async fn run(&mut self, command: &Command, pace: &Pace) {
        match &command.ask {
            Ask::Acquire(acquire) => self.acquire(command, acquire, pace).await,
            Ask::OnClaim { target, key, ask } => {
                self.on_claim(command, target, key.as_deref(), ask, pace).await;
            }
            Ask::Close { .. } => {
                self.connections.retain(|(lane, ..), connection| {
                    let is_closed = *lane == command.lane.name;
                    if is_closed {
                        connection.close();
                    }
                    !is_closed
                });
            }
            Ask::Counters => self.counters().await,
            _ => self.on_key(command, pace).await,
        }
    }

    fn hears(&self, said: &Said) -> Vec<Said> {
        if says_nothing(said) {
            return Vec::new();
        }
        vec![Said::new(&said.lane, without_internals(&said.text))]
    }
}

impl Binary {
    /// The connection of a lane to a namespace.
    async fn connection(&mut self, command: &Command, kind: Kind) -> Rc<Connection> {
        let lane = &command.lane;
        let place = (lane.name.clone(), lane.namespace, kind);
        if let Some(connection) = self.connections.get(&place) {
            return Rc::clone(connection);
        }
        let namespace = format!("{}/{}/{kind:?}", self.scope, lane.namespace);
        let connection = Connection::open(&self.address, &namespace, kind_of(kind), lane, &self.heard).await;
        let connection = Rc::new(connection);
        self.connections.insert(place, Rc::clone(&connection));
        connection
    }
}

fn kind_of(kind: Kind) -> NamespaceKind {
    match kind {
        Kind::Flat | Kind::Unclear => NamespaceKind::Flat,
        Kind::Tree => NamespaceKind::Tree,
        Kind::Pool => NamespaceKind::Pool,
        Kind::Registry => NamespaceKind::Registry,
        Kind::Lazy => NamespaceKind::Lazy,
        Kind::Limit => NamespaceKind::Limit,
    }
}
