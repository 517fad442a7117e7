//! What the front ends over gRPC have in common.

use super::words::shown_millis;
use std::collections::BTreeMap;
use std::time::SystemTime;
use tokio::task::AbortHandle;
use tonic::transport::{Channel, Endpoint};

/// The connections of one run: each lane has one, and those who listen to what it is told.
pub(super) struct Connections {
    address: String,
    lanes: BTreeMap<String, (Channel, Vec<AbortHandle>)>,
}

impl Connections {
    pub(super) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), lanes: BTreeMap::new() }
    }

    pub(super) fn channel(&mut self, lane: &str) -> Channel {
        self.lane(lane).0.clone()
    }

    /// Lets this listener end with the connection of its lane.
    pub(super) fn keep(&mut self, lane: &str, listener: AbortHandle) {
        self.lane(lane).1.push(listener);
    }

    fn lane(&mut self, lane: &str) -> &mut (Channel, Vec<AbortHandle>) {
        self.lanes.entry(lane.to_owned()).or_insert_with(|| (channel(&self.address), Vec::new()))
    }

    /// Closes the connection of a lane, with all its streams.
    pub(super) fn close(&mut self, lane: &str) {
        let Some((_channel, listeners)) = self.lanes.remove(lane) else { return };
        listeners.iter().for_each(AbortHandle::abort);
    }
}

/// A connection that is made with its first call.
pub(super) fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).expect("an address").connect_lazy()
}

/// The time of day.
pub(super) fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970");
    now.as_millis() as i64
}

/// How long it is until an instant.
pub(super) fn until(unix_ms: i64) -> String {
    shown_millis(unix_ms.saturating_sub(now_ms()).max(0) as u64)
}

/// How long ago an instant was.
pub(super) fn since(unix_ms: i64) -> String {
    shown_millis(now_ms().saturating_sub(unix_ms).max(0) as u64)
}
