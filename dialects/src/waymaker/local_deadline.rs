//! Local deadline of a lock: the time until which its holder may believe in it without an event of the server.

use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use waymaker_client::internal::margin;
use waymaker_client::{BootClock, BootTime, Clock};
use waymaker_proto::waymaker::Lease;

use super::request::milliseconds;
use super::{Error, Waymaker};

/// Maximum lease of every server.
const LEASE_MAX: Duration = Duration::from_secs(86_400);
/// Maximum sleep between two looks at the clock: a sleep does not count the time for which the machine is suspended.
const NAP: Duration = Duration::from_secs(1);

/// An instant before the end of the lease on the server; [`BootTime::NEVER`] while no lock is held. A passed deadline never
/// moves.
#[derive(Debug)]
pub(super) struct LocalDeadline {
    at: watch::Sender<BootTime>,
    /// Serialises extensions: responses may arrive in another order than the server served the calls.
    extending: Mutex<()>,
}

impl LocalDeadline {
    pub(super) fn never() -> Self {
        Self { at: watch::Sender::new(BootTime::NEVER), extending: Mutex::default() }
    }

    pub(super) fn get(&self) -> BootTime {
        *self.at.borrow()
    }

    /// Moves the deadline to `to` if that is earlier.
    pub(super) fn lower(&self, to: BootTime) {
        self.at.send_if_modified(|at| std::mem::replace(at, to.min(*at)) != *at);
    }

    /// Moves the deadline, unless it has passed. Returns whether it moved.
    fn set(&self, to: BootTime) -> bool {
        self.at.send_if_modified(|at| {
            let is_ahead = BootClock.now() < *at;
            if is_ahead {
                *at = to;
            }
            is_ahead
        })
    }

    /// Waits until the deadline has passed.
    pub(super) async fn passed(&self) {
        let mut changes = self.at.subscribe();
        loop {
            let at = *changes.borrow_and_update();
            let left = at.since(BootClock.now());
            if at == BootTime::NEVER {
                // The sender is `self`, so this cannot fail.
                let _ = changes.changed().await;
            } else if left.is_zero() {
                return;
            } else {
                let _ = timeout(left.min(NAP), changes.changed()).await;
            }
        }
    }

    /// Extends the lease, and moves the deadline to the end of the new lease, counted from the time at which the call was sent,
    /// less the margin. The server may have served a call that failed, so a shorter lease counts from the moment of the call.
    /// Calls are sent one after the other.
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
