//! Until when a lock may be believed in without another word of the server.

use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use waymaker_client::internal::margin;
use waymaker_client::{BootClock, BootTime, Clock};
use waymaker_proto::waymaker::Lease;

use super::request::milliseconds;
use super::{Error, Waymaker};

/// No server gives a longer lease.
const LEASE_MAX: Duration = Duration::from_secs(86_400);
/// A sleep does not count the time for which the machine is suspended, so it looks at the clock now and then.
const NAP: Duration = Duration::from_secs(1);

/// An instant that lies before the end of the lease on the server; never, while nothing is held. What was over stays over.
#[derive(Debug)]
pub(super) struct LocalDeadline {
    at: watch::Sender<BootTime>,
    /// Held by the one extension that is on its way: answers may come in another order than the server serves the calls.
    extending: Mutex<()>,
}

impl LocalDeadline {
    pub(super) fn never() -> Self {
        Self { at: watch::Sender::new(BootTime::NEVER), extending: Mutex::default() }
    }

    pub(super) fn get(&self) -> BootTime {
        *self.at.borrow()
    }

    /// Makes it earlier, if it is later than that.
    pub(super) fn lower(&self, to: BootTime) {
        self.at.send_if_modified(|at| std::mem::replace(at, to.min(*at)) != *at);
    }

    /// Moves it, unless it has passed. Returns whether it moved.
    fn set(&self, to: BootTime) -> bool {
        self.at.send_if_modified(|at| {
            let is_ahead = BootClock.now() < *at;
            if is_ahead {
                *at = to;
            }
            is_ahead
        })
    }

    /// Waits until it has passed.
    pub(super) async fn passed(&self) {
        let mut changes = self.at.subscribe();
        loop {
            let at = *changes.borrow_and_update();
            let left = at.since(BootClock.now());
            if at == BootTime::NEVER {
                // The sender is here, so this waits for nothing but a change.
                let _ = changes.changed().await;
            } else if left.is_zero() {
                return;
            } else {
                let _ = timeout(left.min(NAP), changes.changed()).await;
            }
        }
    }

    /// Extends the lease, and moves with it: to the length of the lease after the call was sent, less the margin. The
    /// server may have heard of a call that failed, so a shorter lease counts from the moment of the call. Calls are sent one after
    /// the other.
    pub(super) async fn extend(
        &self,
        client: &Waymaker,
        key: &str,
        id: &str,
        lease_timeout: Duration,
    ) -> Result<Lease, Error> {
        let _extending = self.extending.lock().await;
        let lease = Duration::from_millis(milliseconds(lease_timeout).into()).min(LEASE_MAX);
        let end = BootClock.now().after(lease).before(margin(lease));
        if !lease.is_zero() {
            self.lower(end);
        }
        let extended = client.extend_lease(key, id, lease_timeout).await?;
        match self.set(end) {
            true => Ok(extended),
            false => Err(Error::NotFound("the local deadline passed before the response arrived".to_owned())),
        }
    }
}
