//! A lock on one key is a stream.

use super::Waymaker;
use crate::harness::WATCHDOG;
use crate::parity::command::{Acquire, Command};
use crate::parity::grpc::until;
use crate::parity::heard::Heard;
use crate::parity::pace::Pace;
use tokio::task::spawn_local;
use tonic::{Code, Status, Streaming};
use waymaker_proto::waymaker::{LockEvent, LockEventType, LockRequest};

impl Waymaker {
    pub(super) async fn lock(
        &mut self,
        command: &Command,
        acquire: &Acquire,
        key: &str,
        shared: bool,
        pace: &Pace,
    ) {
        let lane = command.lane.name.clone();
        let number = self.heard.name(command, &acquire.name, &self.full(key));
        let request = request!(LockRequest { key: self.full(key) }, command, acquire, pace);
        let mut client = self.client(&lane);
        let teller =
            Teller { heard: self.heard.clone(), lane: lane.clone(), number, is_told: acquire.queued };
        let stream = spawn_local(async move {
            let asked = if shared { client.read_lock(request).await } else { client.lock(request).await };
            teller.tell(asked.expect("a stream").into_inner()).await;
        });
        self.connections.keep(&lane, stream.abort_handle());
        self.heard.until_answered(number, WATCHDOG).await;
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
