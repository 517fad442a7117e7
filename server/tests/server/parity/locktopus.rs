//! Locktopus over WebSockets: sets of paths that are awaited without end. Each claim has a connection of its own.

use super::FrontEnd;
use super::command::{Acquire, Ask, Command, Kind, OnClaim, Thing, segments};
use super::counters::COUNTERS;
use super::heard::Heard;
use super::pace::Pace;
use super::script::{Said, Script};
use crate::harness::{Server, WATCHDOG};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, spawn_local};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

/// Clients of one run, in namespaces whose names begin with `scope`.
pub(super) struct Locktopus {
    address: String,
    scope: String,
    heard: Heard,
    /// By the numbers of their claims.
    lockers: BTreeMap<usize, Locker>,
}

struct Locker {
    sink: SplitSink<WebSocketStream<TcpStream>, Message>,
    reader: AbortHandle,
}

impl FrontEnd for Locktopus {
    const IN_ORDER: bool = false;

    fn cannot(script: &Script, command: &Command) -> Option<&'static str> {
        if script.takes_time() {
            return Some("there are no leases, and no waits that end");
        }
        if script
            .expected()
            .any(|said| said.text.starts_with("refused") && !said.text.ends_with(": cancelled"))
        {
            return Some("nothing is refused");
        }
        match &command.ask {
            Ask::Acquire(acquire) if command.kind == Kind::Tree => {
                let Acquire { session, priority, scope, request_id, metadata, .. } = acquire;
                let has_more = *session
                    || *priority != 0
                    || scope.is_some()
                    || request_id.is_some()
                    || metadata.is_some();
                has_more.then_some("a lock is its paths alone")
            }
            Ask::OnClaim { ask: OnClaim::Release { own: false } | OnClaim::Cancel, key: None, target }
                if !target.contains('/') =>
            {
                None
            }
            Ask::Close { session_ended: false } | Ask::Counters => None,
            _ => Some("one locks paths and releases them, and nothing else"),
        }
    }

    fn open(server: &Rc<Server>, scope: String, heard: &Heard) -> Self {
        let address = server.address("http").to_owned();
        Self { address, scope, heard: heard.clone(), lockers: BTreeMap::new() }
    }

    async fn run(&mut self, command: &Command, pace: &Pace) {
        match &command.ask {
            Ask::Acquire(acquire) => self.lock(command, acquire, pace).await,
            Ask::OnClaim { target, .. } => self.release(&command.lane.name, target).await,
            Ask::Close { .. } => {
                self.lockers.retain(|number, locker| {
                    let stays = self.heard.claim(*number).lane != command.lane.name;
                    if !stays {
                        locker.reader.abort();
                    }
                    stays
                });
            }
            _ => {}
        }
    }

    fn hears(&self, said: &Said) -> Vec<Said> {
        let Said { lane, text } = said;
        let words: Vec<&str> = text.split(' ').collect();
        let text = match words[..] {
            _ if *lane == COUNTERS => return Vec::new(),
            // Nobody is told of places in the queue, and who gives up knows it.
            ["queued" | "refused", ..] => return Vec::new(),
            // There are no fences and no leases.
            ["granted", name, .., "waited"] => format!("granted {name} waited"),
            ["granted", name, ..] => format!("granted {name}"),
            ["gave", "up", name] | ["released", name, ..] => format!("released {name}"),
            _ => text.clone(),
        };
        vec![Said::new(lane, text)]
    }
}

impl Locktopus {
    async fn lock(&mut self, command: &Command, acquire: &Acquire, pace: &Pace) {
        let Thing::Paths(paths) = &acquire.thing else { unreachable!("it cannot be said") };
        let lane = command.lane.name.clone();
        let number = self.heard.name(command, &acquire.name, "");
        let namespace = format!("{}.{}", self.scope.replace('/', "."), command.lane.namespace);
        let timeout_ms = acquire.release_after_ms.map_or(60_000, |length_ms| pace.wait_ms(length_ms));
        let url = format!("ws://{}/v1?namespace={namespace}&abandon-timeout-ms={timeout_ms}", self.address);
        let socket = TcpStream::connect(&self.address).await.expect("the server accepts");
        socket.set_nodelay(true).expect("a socket");
        let (socket, _) = client_async(url, socket).await.expect("a WebSocket");
        let (mut sink, mut stream) = socket.split();
        let heard = self.heard.clone();
        let reader = spawn_local(async move {
            let mut waits = false;
            while let Some(Ok(message)) = stream.next().await {
                if let Message::Text(text) = message {
                    waits = hear(&heard, &lane, number, &text, waits);
                }
            }
        });
        let resource = |(path, shared): &(String, bool)| json!({"type": if *shared { "read" } else { "write" }, "path": segments(path)});
        let resources: Vec<Value> = paths.iter().map(resource).collect();
        let request = json!({"action": "lock", "resources": resources}).to_string();
        sink.send(Message::text(request)).await.expect("the server reads");
        self.lockers.insert(number, Locker { sink, reader: reader.abort_handle() });
        self.heard.until_answered(number, WATCHDOG).await;
    }

    async fn release(&mut self, lane: &str, target: &str) {
        let number = self.heard.find(lane, target);
        let locker = self.lockers.get_mut(&number).expect("it was locked");
        // It is answered once more.
        self.heard.unanswered(number);
        locker.sink.send(Message::text(r#"{"action":"release"}"#)).await.expect("the server reads");
        self.heard.until_answered(number, WATCHDOG).await;
    }
}

/// Says what a message tells a lock that waits or does not. Says whether it waits from now on.
fn hear(heard: &Heard, lane: &str, number: usize, text: &str, waits: bool) -> bool {
    let message: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text:?} is no JSON"));
    let name = heard.claim(number).name;
    let said = match (message["action"].as_str(), message["state"].as_str()) {
        (Some("lock"), Some("enqueued")) => "(waits)".to_owned(),
        (Some("lock"), Some("acquired")) if waits => {
            heard.say(lane, format!("granted {name} waited"));
            return false;
        }
        (Some("lock"), Some("acquired")) => format!("granted {name}"),
        (Some("release"), Some("ready")) => format!("released {name}"),
        _ => panic!("{text}"),
    };
    let waits = said == "(waits)";
    heard.say(lane, said);
    heard.answered(number);
    waits
}
