//! A lane with the state of its guards: makes this state for each grant, moves the deadlines of guards, and reports
//! losses to them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use waymaker_protocol::{Frame, Readable, SessionRequest, Welcome};

use crate::clock::BootTime;
use crate::error::{Error, Result};
use crate::handle::{Command, Handle};
use crate::hold::{ConnectionTie, Hold, LeaseMs, SharedInstant};
use crate::lane::{Event, GuardedHold, Lane, SessionOptions};
use crate::loss::{Loss, LossCallback, LossReason};
use crate::one_or_more::OneOrMore;
use crate::request::job::Grantee;
use crate::request::reply::Reply;
use crate::session::Session;

/// A lane with the state of its guards. It derefs to the lane for calls that change nothing. A call that may cause
/// events for guards also applies them: it makes the state of new guards, moves their deadlines, and reports losses to
/// them.
pub(crate) struct GuardedLane {
    lane: Lane,
    /// Handle of the connection. Weak, because only the client, its guards and its futures own it: the connection ends
    /// when the last of them is dropped.
    handle: Weak<Handle>,
    /// State of the guards that count as held, by the number of the guard.
    guards: HashMap<u64, Guarded, BuildHasherDefault<NumberHasher>>,
    /// Local deadline of the session's lease, shared with the guards on this lease.
    session_deadline: Arc<SharedInstant>,
    /// Latest time at which the connection is known to have been alive ([`Lane::alive`]). Shared with the guards whose
    /// holds the server ends some time after the loss of the connection.
    alive: Arc<SharedInstant>,
}

/// Hasher for the consecutive numbers of guards. The guards are in a hash table because a tree would allocate and free
/// nodes as guards come and go.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// State of a guard that counts as held, and its callback for a loss.
struct Guarded {
    hold: Arc<Hold>,
    on_loss: Option<LossCallback>,
}

impl GuardedLane {
    /// Creates a lane as [`Lane::new`] does, without guards.
    pub(crate) fn new(
        options: SessionOptions,
        session: Arc<Session>,
        handle: Weak<Handle>,
        now: BootTime,
    ) -> Self {
        let lane = Lane::new(options, session, now);
        let session_deadline = Arc::new(SharedInstant::new(lane.session_deadline()));
        let alive = Arc::new(SharedInstant::new(lane.alive()));
        Self { lane, handle, guards: HashMap::default(), session_deadline, alive }
    }

    /// Returns the bytes to send on the current connection.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.lane.out
    }

    /// Calls [`Lane::request`], which causes no events for guards.
    pub(crate) fn request(&mut self) -> Option<SessionRequest> {
        self.lane.request()
    }

    /// Calls [`Lane::withdraw_request`], which causes no events for guards.
    pub(crate) fn withdraw_request(&mut self) {
        self.lane.withdraw_request();
    }

    /// Calls [`Lane::handle_hello_refused`], which causes no events for guards.
    pub(crate) fn handle_hello_refused(&mut self, endpoint: usize, error: &Error) -> bool {
        self.lane.handle_hello_refused(endpoint, error)
    }

    /// Calls [`Lane::begin_outage`], which causes no events for guards.
    pub(crate) fn begin_outage(&mut self, now: BootTime) {
        self.lane.begin_outage(now);
    }

    /// Handles a command from a handle or a guard.
    pub(crate) fn handle_command(&mut self, command: Command, now: BootTime) {
        match command {
            Command::Submit(job) => self.lane.submit(job, now),
            Command::Abandon { token } => self.lane.abandon(token),
            Command::Release { hold, reply } => {
                let released = self.lane.release(hold.guard, reply, now);
                self.let_go(&hold);
                refuse(&hold, released);
            }
            Command::Extend { hold, lease_ms, reply } => {
                refuse(&hold, self.lane.extend(hold.guard, lease_ms, reply, now));
            }
            Command::Forget { hold } => {
                self.lane.forget(hold.guard);
                self.let_go(&hold);
            }
            Command::Unwatch { token } => self.lane.unwatch(token),
            Command::SessionGone { id } => self.lane.told_gone(id),
            Command::Close { mut reply } => {
                self.lane.expect_answer(&mut reply, now);
                self.lane.close(reply);
            }
        }
        self.settle();
    }

    /// Calls [`Lane::handle_deserted`], then handles the events for guards.
    pub(crate) fn handle_deserted(&mut self) {
        self.lane.handle_deserted();
        self.settle();
    }

    /// Calls [`Lane::transmit`], which causes no events for guards.
    pub(crate) fn transmit(&mut self, now: BootTime) {
        self.lane.transmit(now);
    }

    /// Calls [`Lane::handle_frame`], then handles the events for guards.
    pub(crate) fn handle_frame(&mut self, frame: Frame<'_>, now: BootTime) -> Result<()> {
        let result = self.lane.handle_frame(frame, now);
        self.settle();
        result
    }

    /// Calls [`Lane::handle_timers`], then handles the events for guards.
    pub(crate) fn handle_timers(&mut self, now: BootTime) {
        self.lane.handle_timers(now);
        self.settle();
    }

    /// Calls [`Lane::handle_disconnected`], then handles the events for guards.
    pub(crate) fn handle_disconnected(&mut self, cause: Error, now: BootTime) {
        self.lane.handle_disconnected(cause, now);
        self.settle();
    }

    /// Calls [`Lane::handle_attempt_failed`], then handles the events for guards.
    pub(crate) fn handle_attempt_failed(&mut self, error: Error) -> bool {
        let asks_otherwise = self.lane.handle_attempt_failed(error);
        self.settle();
        asks_otherwise
    }

    /// Calls [`Lane::handle_welcome`], then handles the events for guards.
    pub(crate) fn handle_welcome(&mut self, welcome: Welcome, sent: BootTime, now: BootTime) {
        self.lane.handle_welcome(welcome, sent, now);
        self.settle();
    }

    /// Applies the queued events of the lane in their order: makes the state of new guards, moves deadlines, and
    /// reports losses. Only then publishes [`Lane::session_deadline`] and [`Lane::alive`] to the guards. A guard whose
    /// hold is unconfirmed after an outage must first get its old deadline as a limit.
    fn settle(&mut self) {
        while let Some(event) = self.lane.next_event() {
            self.handle_event(event);
        }
        self.session_deadline.set(self.lane.session_deadline());
        self.alive.set(self.lane.alive());
    }

    /// Handles one event of the lane.
    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Granted { grantee, on_loss, holds } => self.hand_over(grantee, on_loss, holds),
            Event::Bound { guard, until } => {
                if let Some(guarded) = self.guards.get(&guard.number) {
                    guarded.hold.bound.set(until);
                }
            }
            Event::LeaseLength { guard, lease_ms } => {
                if let Some(guarded) = self.guards.get(&guard.number) {
                    guarded.hold.lease_ms.set(lease_ms);
                }
            }
            Event::Lost { guard, reason, message } => {
                if let Some(guarded) = self.guards.remove(&guard.number) {
                    guarded.lose(reason, &message);
                }
            }
            Event::SessionBegan => {
                self.session_deadline = Arc::new(SharedInstant::new(BootTime::default()));
                self.alive = Arc::new(SharedInstant::new(self.lane.alive()));
            }
        }
    }

    /// Hands the holds of a grant over to the caller, which makes guards of them. Releases them if the caller has gone.
    fn hand_over(
        &mut self,
        mut grantee: Grantee,
        on_loss: Option<LossCallback>,
        holds: OneOrMore<GuardedHold>,
    ) {
        if self.handle.strong_count() == 0 {
            // A guard needs a handle, and all handles were dropped. So release the holds.
            holds.iter().for_each(|hold| self.lane.give_back(hold.guard));
            return grantee.taken_back();
        }
        let holds = match holds {
            OneOrMore::One(granted) => OneOrMore::One(self.guard(granted, on_loss)),
            OneOrMore::More(holds) => {
                let mut callbacks = callbacks(on_loss, holds.len()).into_iter();
                let guard = |granted| self.guard(granted, callbacks.next());
                OneOrMore::More(holds.into_iter().map(guard).collect())
            }
        };
        if let (Some(refused), Some(handle)) = (grantee.deliver(holds), self.handle.upgrade()) {
            // The caller has dropped its future, so release the holds as a dropped guard would. If the last handle was
            // dropped too, send no command: the lane closes and releases all holds.
            for hold in refused.iter() {
                let release = Command::Release { hold: Arc::clone(hold), reply: Reply::Nobody };
                let _ = handle.command(release);
            }
        }
    }

    /// Creates the state of the guard of one hold, and adds it to the table.
    fn guard(&mut self, granted: GuardedHold, on_loss: Option<LossCallback>) -> Arc<Hold> {
        let GuardedHold { guard, key, fence, shared, clamped, lease_ms, until, is_on_session, grace } =
            granted;
        let hold = Arc::new(Hold {
            key,
            guard,
            fence,
            shared,
            clamped,
            lease_ms: LeaseMs::new(lease_ms),
            bound: SharedInstant::new(until),
            session: is_on_session.then(|| Arc::clone(&self.session_deadline)),
            tie: grace.map(|grace| ConnectionTie { alive: Arc::clone(&self.alive), grace }),
            loss: Loss::default(),
        });
        self.guards.insert(guard.number, Guarded { hold: Arc::clone(&hold), on_loss });
        hold
    }

    /// Removes the state of a guard that was released, dropped or forgotten.
    fn let_go(&mut self, hold: &Hold) {
        self.guards.remove(&hold.guard.number);
        hold.loss.release();
    }
}

/// Reports the loss to the caller of a release or extend that the lane did not accept, because the guard does not own
/// the hold any more.
fn refuse<T>(hold: &Hold, result: std::result::Result<(), Reply<T>>) {
    if let Err(mut reply) = result {
        reply.answer(Err(Error::Lost(hold.loss.reason().unwrap_or(LossReason::Superseded))));
    }
}

impl Deref for GuardedLane {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        &self.lane
    }
}

#[cfg(test)]
impl std::ops::DerefMut for GuardedLane {
    fn deref_mut(&mut self) -> &mut Lane {
        &mut self.lane
    }
}

impl Drop for GuardedLane {
    /// Reports the loss to all remaining guards, because their leases are no longer renewed.
    fn drop(&mut self) {
        let mut guards: Vec<_> = self.guards.drain().collect();
        // The order of a hash table is not deterministic, so sort the guards before their callbacks run.
        guards.sort_unstable_by_key(|(number, _)| *number);
        for (_, guarded) in guards {
            guarded.lose(LossReason::ClientClosed, "");
        }
    }
}

impl Guarded {
    /// Reports the loss to the guard. Calls its callback, unless a loss or the release of the guard was noted before.
    fn lose(self, reason: LossReason, message: &str) {
        let first = self.hold.loss.set(reason, message);
        let (key, fence) = (Readable(&self.hold.key), self.hold.fence);
        match reason {
            LossReason::ClientClosed => {
                tracing::debug!(%key, fence, "closed the client while it held a lock");
            }
            reason => tracing::warn!(%key, fence, %reason, note = message, "lost a lock"),
        }
        if let (true, Some(on_loss)) = (first, self.on_loss) {
            on_loss.call(reason);
        }
    }
}

/// Returns `count` callbacks, one for each hold of a grant. The first of them that is called calls `on_loss`, the
/// others do nothing. Returns none if there is no `on_loss`.
fn callbacks(on_loss: Option<LossCallback>, count: usize) -> Vec<LossCallback> {
    let Some(on_loss) = on_loss else { return Vec::new() };
    let on_loss = Arc::new(Mutex::new(Some(on_loss)));
    let callback = || {
        let on_loss = Arc::clone(&on_loss);
        LossCallback::new(move |reason| {
            let taken = on_loss.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(on_loss) = taken {
                on_loss.call(reason);
            }
        })
    };
    (0..count).map(|_| callback()).collect()
}
