//! Says what a stream of `Acquire` tells.

use super::shown::{is_taken_over, refusal, remaining};
use crate::parity::heard::Heard;
use crate::parity::words::mode;
use std::collections::BTreeSet;
use tonic::{Response, Status, Streaming};
use waymaker_proto::v1;
use waymaker_proto::v1::acquire_response::Event;

/// Listens to one stream.
pub(super) struct Teller {
    pub(super) heard: Heard,
    pub(super) lane: String,
    pub(super) number: usize,
    /// The file speaks of the id already while the claim waits.
    pub(super) is_told: bool,
    /// Several keys, each of which becomes a hold with a name of its own.
    pub(super) is_several: bool,
}

type Stream = Result<Response<Streaming<v1::AcquireResponse>>, Status>;

impl Teller {
    pub(super) async fn tell(self, stream: Stream) {
        let mut held = BTreeSet::new();
        let mut stream = match stream {
            Ok(stream) => stream.into_inner(),
            Err(status) => return self.tell_status(&status, &held),
        };
        loop {
            match stream.message().await {
                Ok(Some(response)) => self.hear(response.event.expect("something is told"), &mut held),
                Ok(None) => return assert!(held.is_empty(), "the stream of {held:?} ended"),
                Err(status) => return self.tell_status(&status, &held),
            }
        }
    }

    fn say(&self, text: impl Into<String>) {
        self.heard.say(&self.lane, text);
    }

    fn hear(&self, event: Event, held: &mut BTreeSet<String>) {
        let name = self.heard.claim(self.number).name;
        match event {
            Event::Queued(v1::Queued { id, position, ticket }) => {
                self.heard.tell_id(self.number, &id, self.is_told);
                self.say("(waits)");
                if self.is_told {
                    self.say(format!("queued {name} position={position} ticket={ticket}"));
                }
            }
            Event::Acquired(acquired) => {
                held.extend(acquired.holds.iter().map(|hold| hold.id.clone()));
                self.acquired(&name, &acquired);
            }
            Event::LeaseMoved(moved) => {
                let name = self.heard.name_of(&moved.id, &self.lane);
                self.say(format!("lease moved {name} remaining={}", remaining(moved.remaining_ms)));
            }
            Event::Lost(lost) => {
                assert!(held.remove(&lost.id), "{lost:?} was not held");
                let name = self.heard.name_of(&lost.id, &self.lane);
                self.say(match lost.reason() {
                    v1::LostReason::Expired => format!("expired {name}"),
                    v1::LostReason::Released => format!("revoked {name}: released elsewhere"),
                    v1::LostReason::Disconnected => format!("revoked {name}: connection lost"),
                    v1::LostReason::Revoked => format!("revoked {name}: forced, {}", lost.message),
                    v1::LostReason::Unspecified => panic!("{lost:?}"),
                });
            }
        }
        self.heard.answered(self.number);
    }

    fn acquired(&self, name: &str, acquired: &v1::Acquired) {
        let mut flags = String::new();
        let said = [
            (acquired.clamped, " clamped"),
            (acquired.waited, " waited"),
            (acquired.already_held, " repeated"),
        ];
        for (_, word) in said.iter().filter(|(is_so, _)| *is_so) {
            flags.push_str(word);
        }
        let mut text = format!("granted {name}");
        for hold in &acquired.holds {
            let grant = format!("fence={} remaining={}{flags}", hold.fence, remaining(hold.remaining_ms));
            if self.is_several {
                text += &format!("\n{} {} {grant}", hold.key, mode(hold.shared));
                self.heard.part_granted(self.number, &hold.key, &hold.key, &hold.id);
            } else {
                text += &format!(" {grant}");
                self.heard.granted(self.number, &hold.id);
            }
        }
        self.say(text);
    }

    fn tell_status(&self, status: &Status, held: &BTreeSet<String>) {
        let name = self.heard.claim(self.number).name;
        if held.is_empty() {
            self.say(format!("refused {name}: {}", refusal(status)));
        } else {
            assert!(is_taken_over(status), "{status:?}");
            for id in held {
                let name = self.heard.name_of(id, &self.lane);
                self.say(format!("taken up {name}"));
            }
        }
        self.heard.answered(self.number);
    }
}
