//! The holds that are guarded, and when each is to be renewed or given up.

use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol::{LockId, Readable};

use crate::clock::BootTime;
use crate::deadline::{Anchor, LeaseReport, deadline, margin};
use crate::hold::{ConnectionTie, Hold, HoldLease};
use crate::loss::{LossCallback, LossReason};
use crate::session::timers::{TimerKey, Timers};

/// A renewal that was not answered for so long, while nothing else arrived either, casts doubt on the connection.
/// Below this it would cut connections to a server that merely stumbled.
pub(super) const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// The longest silence that is put up with.
pub(super) const PATIENCE_MAX: Duration = Duration::from_secs(5);

pub(super) fn patience(lease: Duration) -> Duration {
    (lease / 3).clamp(PATIENCE_MIN, PATIENCE_MAX)
}

/// Where the renewal of a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// It is not renewed: nobody asked for it, the session does it, or there is no connection.
    Off,
    /// To be sent at this instant.
    Due(BootTime),
    /// Sent at `since`; at `doubt` it is time to ask whether the connection still lives.
    Sent { since: BootTime, doubt: BootTime },
}

/// One hold in the table.
pub(super) struct Entry {
    pub(super) hold: Arc<Hold>,
    pub(super) on_loss: Option<LossCallback>,
    /// With which length to renew, where the hold renews itself.
    pub(super) renew_ms: Option<u32>,
    /// The whole lease as last given.
    pub(super) lease: Duration,
    pub(super) renewal: Renewal,
    /// The server's clock at the newest answer about the lease. An older answer that comes late changes nothing.
    pub(super) stamp_ms: u64,
    /// Extends asked for by callers and not answered. Each may be served before its answer is read, and before the
    /// answers to renewals that were sent earlier, and each may shorten the lease.
    pub(super) extends_pending: u32,
    /// The earliest end of the lease that any of them asks for.
    pub(super) extends_bound: BootTime,
    /// What the timer of this hold is set to.
    timer: BootTime,
}

impl Entry {
    pub(super) fn new(hold: Arc<Hold>, lease: Duration, stamp_ms: u64) -> Self {
        Self {
            hold,
            on_loss: None,
            renew_ms: None,
            lease,
            renewal: Renewal::Off,
            stamp_ms,
            extends_pending: 0,
            extends_bound: BootTime::NEVER,
            timer: BootTime::NEVER,
        }
    }

    pub(super) fn is_on_session(&self) -> bool {
        matches!(self.hold.lease, HoldLease::Session(_))
    }

    /// When to look at this hold again. The session's deadline has a timer of its own; that of a tie to the connection
    /// moves on unnoticed, and is looked at when it would have passed.
    fn due(&self) -> BootTime {
        let lease = match &self.hold.lease {
            HoldLease::Own(deadline) => deadline.get(),
            HoldLease::Session(_) => BootTime::NEVER,
        };
        let tie = self.hold.tie.as_ref().map_or(BootTime::NEVER, ConnectionTie::deadline);
        let deadline = lease.min(tie).min(self.hold.cap.get());
        match self.renewal {
            Renewal::Off => deadline,
            Renewal::Due(at) | Renewal::Sent { doubt: at, .. } => deadline.min(at),
        }
    }

    /// Takes over the server's report of the lease unless a newer one is known. Returns whether it did.
    pub(super) fn lease_reported(&mut self, anchor: Anchor, report: LeaseReport, now: BootTime) -> bool {
        let HoldLease::Own(own) = &self.hold.lease else { return false };
        if report.stamp_ms < self.stamp_ms {
            return false;
        }
        let deadline = deadline(anchor, report, now);
        own.set(deadline.min(self.extends_bound));
        self.stamp_ms = report.stamp_ms;
        self.lease = report.lease;
        if self.renew_ms.is_some() {
            self.renewal = Renewal::Due(renew_at(deadline, report));
        }
        true
    }

    /// The server has answered for this hold on the present connection.
    pub(super) fn uncap(&mut self) {
        self.hold.cap.set(BootTime::NEVER);
    }

    /// Sets the timer to what the rest now says.
    pub(super) fn rearm(&mut self, timers: &mut Timers) {
        let due = self.due();
        timers.replace(TimerKey::Hold(self.hold.id), self.timer, due);
        self.timer = due;
    }

    fn grace(&self) -> Option<Duration> {
        self.hold.tie.as_ref().map(|tie| tie.grace)
    }
}

/// All guarded holds of a session. A hold has one owner: the guard of the newest acquire that was granted it.
///
/// A guard whose hold is neither believed in nor overdue has nothing to give back: its hold is over, or a newer guard has it.
#[derive(Default)]
pub(super) struct Holds {
    /// Holds that are believed in.
    entries: BTreeMap<LockId, Entry>,
    /// Holds that were lost at their local deadlines and whose guards have not let go of them. The server may still keep them.
    overdue: BTreeMap<LockId, Arc<Hold>>,
    /// How many holds outlive their connection by how long.
    graces: BTreeMap<Duration, usize>,
}

impl Holds {
    pub(super) fn insert(&mut self, entry: Entry, timers: &mut Timers) {
        let id = entry.hold.id;
        if let Some(grace) = entry.grace() {
            *self.graces.entry(grace).or_default() += 1;
        }
        self.overdue.remove(&id);
        if let Some(older) = self.entries.insert(id, entry) {
            self.disarm(&older, timers);
            self.tell_loss(older, LossReason::Superseded, "");
        }
        self.rearm(id, timers);
    }

    pub(super) fn contains(&self, id: LockId) -> bool {
        self.entries.contains_key(&id)
    }

    pub(super) fn get_mut(&mut self, id: LockId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    /// Returns whether this guard owns its hold and believes in it.
    pub(super) fn is_owner(&self, hold: &Arc<Hold>) -> bool {
        self.entries.get(&hold.id).is_some_and(|entry| Arc::ptr_eq(&entry.hold, hold))
    }

    /// The guard of this hold lets go of it. Returns whether it has something to give back.
    pub(super) fn let_go(&mut self, hold: &Arc<Hold>, timers: &mut Timers) -> bool {
        let is_owner = self.remove_if(hold.id, |entry| Arc::ptr_eq(&entry.hold, hold), timers).is_some();
        hold.loss.release();
        is_owner || self.remove_overdue_if(hold.id, |overdue| Arc::ptr_eq(overdue, hold))
    }

    /// A newer acquire has the hold that was granted to the acquire with this number, or to any if none is given.
    pub(super) fn supersede(&mut self, id: LockId, number: Option<u32>, timers: &mut Timers) {
        let is_meant = |hold: &Arc<Hold>| number.is_none() || hold.take_up_number == number;
        if let Some(entry) = self.remove_if(id, |entry| is_meant(&entry.hold), timers) {
            self.tell_loss(entry, LossReason::Superseded, "");
        }
        self.remove_overdue_if(id, is_meant);
    }

    /// Forgets overdue holds that another acquire may have taken up unnoticed.
    pub(super) fn drop_overdue_that_may_be_taken_up(&mut self) {
        self.overdue.retain(|_, hold| hold.take_up_number.is_none());
    }

    /// Takes out the holds that were lost at their local deadlines.
    pub(super) fn take_overdue(&mut self) -> impl Iterator<Item = Arc<Hold>> + use<> {
        std::mem::take(&mut self.overdue).into_values()
    }

    /// Takes a hold out that is believed in and passes this test.
    fn remove_if(
        &mut self,
        id: LockId,
        is_it: impl Fn(&Entry) -> bool,
        timers: &mut Timers,
    ) -> Option<Entry> {
        let btree_map::Entry::Occupied(found) = self.entries.entry(id) else { return None };
        if !is_it(found.get()) {
            return None;
        }
        let entry = found.remove();
        self.disarm(&entry, timers);
        Some(entry)
    }

    /// Takes an overdue hold out that passes this test. Returns whether there was one.
    fn remove_overdue_if(&mut self, id: LockId, is_it: impl Fn(&Arc<Hold>) -> bool) -> bool {
        let is_found = self.overdue.get(&id).is_some_and(is_it);
        if is_found {
            self.overdue.remove(&id);
        }
        is_found
    }

    /// Clears the timer of an entry that was taken out, and counts its grace no longer.
    fn disarm(&mut self, entry: &Entry, timers: &mut Timers) {
        timers.replace(TimerKey::Hold(entry.hold.id), entry.timer, BootTime::NEVER);
        if let Some(grace) = entry.grace()
            && let Some(count) = self.graces.get_mut(&grace)
        {
            *count -= 1;
            if *count == 0 {
                self.graces.remove(&grace);
            }
        }
    }

    /// Sets the timer of a hold to what its entry now says.
    pub(super) fn rearm(&mut self, id: LockId, timers: &mut Timers) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.rearm(timers);
        }
    }

    /// The timer of this hold fired: it is out of the set.
    pub(super) fn timer_fired(&mut self, id: LockId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&id)?;
        entry.timer = BootTime::NEVER;
        Some(entry)
    }

    /// Takes a hold out, tells its guard, and calls its callback.
    pub(super) fn lose(&mut self, id: LockId, reason: LossReason, timers: &mut Timers) {
        self.lose_with(id, reason, "", timers);
    }

    /// The same with what somebody wrote about it.
    pub(super) fn lose_with(&mut self, id: LockId, reason: LossReason, message: &str, timers: &mut Timers) {
        if let Some(entry) = self.remove_if(id, |_| true, timers) {
            self.tell_loss(entry, reason, message);
        }
    }

    /// Tells the guard of an entry that was taken out, and calls its callback.
    fn tell_loss(&mut self, entry: Entry, reason: LossReason, message: &str) {
        if reason == LossReason::LocalDeadline {
            self.overdue.insert(entry.hold.id, Arc::clone(&entry.hold));
        }
        let first = entry.hold.loss.set(reason, message);
        let (key, fence) = (Readable(&entry.hold.key), entry.hold.fence);
        match reason {
            LossReason::ClientClosed => tracing::debug!(%key, fence, "a lock is left"),
            reason => tracing::warn!(%key, fence, %reason, note = message, "a lock is lost"),
        }
        if let (true, Some(on_loss)) = (first, entry.on_loss) {
            on_loss.call(reason);
        }
    }

    pub(super) fn ids(&self) -> Vec<LockId> {
        self.entries.keys().copied().collect()
    }

    pub(super) fn ids_on_session(&self) -> Vec<LockId> {
        self.entries.values().filter(|entry| entry.is_on_session()).map(|entry| entry.hold.id).collect()
    }

    /// The holds that another acquire may take up.
    pub(super) fn ids_that_may_be_taken_up(&self) -> Vec<LockId> {
        let may_be = self.entries.values().filter(|entry| entry.hold.take_up_number.is_some());
        may_be.map(|entry| entry.hold.id).collect()
    }

    pub(super) fn ids_tied_to_connection(&self) -> Vec<LockId> {
        self.entries.values().filter(|entry| entry.hold.tie.is_some()).map(|entry| entry.hold.id).collect()
    }

    /// The shortest time by which a hold outlives its connection.
    pub(super) fn grace_min(&self) -> Option<Duration> {
        self.graces.first_key_value().map(|(grace, _)| *grace)
    }

    /// Lets no deadline move on until the server has been asked about its hold.
    pub(super) fn cap_all(&mut self, timers: &mut Timers) {
        for id in self.ids() {
            if let Some(entry) = self.entries.get(&id) {
                entry.hold.cap.set(entry.hold.deadline());
            }
            self.rearm(id, timers);
        }
    }

    /// Returns whether any hold may be believed in.
    pub(super) fn any_alive(&self, now: BootTime) -> bool {
        self.entries.values().any(|entry| now < entry.hold.deadline())
    }
}

/// Renewals wait for the beginning of one of so many steps of the time between two of them.
const RENEWAL_STEPS: u32 = 256;

/// When to renew: after a third of what was left of the lease when the server decided, or up to one step earlier. Steps
/// begin at the same instants for all leases of one length, so thousands of them leave in a few writes and their answers
/// come in a few reads, whenever they were granted.
pub(super) fn renew_at(deadline: BootTime, report: LeaseReport) -> BootTime {
    let usable = report.remaining.saturating_sub(margin(report.lease));
    let interval = report.remaining / 3;
    let at = deadline.before(usable).after(interval);
    let step = (interval / RENEWAL_STEPS).as_nanos().max(1) as u64;
    BootTime::from_nanos(at.as_nanos() / step * step)
}

/// How long to leave a server alone that could not renew just now.
pub(super) fn retry_delay(lease: Duration) -> Duration {
    (lease / 10).clamp(Duration::from_millis(5), Duration::from_secs(1))
}
