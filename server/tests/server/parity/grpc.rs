//! What the front ends over gRPC have in common.

use super::words::shown_millis;
use std::time::{Duration, SystemTime};
use tokio::task::AbortHandle;
use tonic::transport::{Channel, Endpoint};

/// How long a server takes at most to see that a connection was closed. Nobody is told when it does.
pub(super) const UNTIL_CLOSED: Duration = Duration::from_millis(50);

/// The connection of one lane, and those who listen to what it is told.
pub(super) struct Connection {
    pub(super) channel: Channel,
    pub(super) streams: Vec<AbortHandle>,
}

impl Connection {
    pub(super) fn new(address: &str) -> Self {
        Self { channel: channel(address), streams: Vec::new() }
    }

    /// Closes it, with all its streams.
    pub(super) async fn close(self) {
        for stream in self.streams {
            stream.abort();
        }
        drop(self.channel);
        tokio::time::sleep(UNTIL_CLOSED).await;
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
