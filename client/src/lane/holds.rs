//! The holds with guards, and their times of renewal and expiry.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque, btree_map};
use std::time::Duration;

use waymaker_protocol::LockId;

use super::event::Event;
use super::timers::{TimerKey, Timers};
use super::window::Sequence;
use crate::clock::BootTime;
use crate::deadline::{Anchor, LeaseReport, deadline, margin, nanos};
use crate::hold::GuardId;
use crate::loss::LossReason;

/// Minimum time of silence after which a connection with an unanswered renewal or keep-alive counts as dead. A lower
/// limit would cut connections to a server that only paused for a moment.
pub(super) const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// Maximum time of silence after which a connection with an unanswered renewal or keep-alive counts as dead.
pub(super) const PATIENCE_MAX: Duration = Duration::from_secs(5);

/// Returns the time of silence after which a connection with an unanswered renewal or keep-alive of this lease counts
/// as dead.
pub(super) fn patience(lease: Duration) -> Duration {
    (lease / 3).clamp(PATIENCE_MIN, PATIENCE_MAX)
}

/// State of the renewal of a hold, or of the keep-alive of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// No renewal is scheduled: the caller switched renewal off, the session renews the hold, the hold has no lease,
    /// there is no connection, or a status request for this hold was queued.
    Off,
    /// At this instant, the lane sends an extend for a hold that renews itself, a status request for any other hold, or
    /// the keep-alive of the session. While an extend of a caller is pending, the lane sends no extend of its own.
    Due(BootTime),
    /// An extend or a keep-alive was queued and has no response yet. At `doubt` the connection counts as dead if no
    /// frame has arrived after `since`.
    Sent { since: BootTime, doubt: BootTime },
}

/// Local deadline of the lease of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEnd {
    /// Local deadline of the hold's own lease; `NEVER` for a hold without a lease.
    Own(BootTime),
    /// The session's lease. All such holds share one local deadline, which each report of the session's lease may move.
    Session,
}

/// One hold of the lane whose guard counts as held: the guard was neither released nor forgotten, and no loss was
/// reported to it.
pub(super) struct Entry {
    /// Guard that owns the hold.
    pub(super) guard: GuardId,
    /// Request number of the acquire that was granted this hold, if its caller set a request id; otherwise `None`.
    /// Another acquire with this request id may become the owner of the hold. The server's event about this (`TakenUp`)
    /// names this number, so the lane can tell whether the event is about this grant.
    pub(super) take_up_number: Option<u32>,
    pub(super) lease_end: LeaseEnd,
    /// Longest time for which the hold counts as held after [`Holds::alive`]: its `release_after` less a margin. `None`
    /// without a `release_after`, or if it is below one second.
    pub(super) grace: Option<Duration>,
    /// Upper bound of the local deadline while it is unknown whether the hold survived an outage: the deadline that the
    /// hold had when the new connection was welcomed. `NEVER` before the first outage since the grant, and once the
    /// server has confirmed the hold on this connection.
    cap: BootTime,
    /// Value of [`Entry::bound`] that the lane last reported to the guard: the local deadline by the hold's own lease,
    /// its unanswered extends and its cap.
    told: BootTime,
    /// Lease to renew with, in milliseconds, if the hold renews itself; 0 selects the server's default.
    pub(super) renew_ms: Option<u32>,
    /// Length of the whole lease, by the grant or the newest extend; longer if a status report showed a longer
    /// remaining lease.
    pub(super) lease: Duration,
    pub(super) renewal: Renewal,
    /// Stamp of the newest report of this lease: the server's clock when it determined the remaining lease. Reports
    /// with an older stamp are ignored. 0 after a change of the server process, until the next report.
    pub(super) stamp_ms: u64,
    /// Source of the newest report of the remaining lease since the grant: a response or an event of the server. `None`
    /// until there is one.
    reported_by: Option<ReportedBy>,
    /// Number of unanswered extends of this hold that callers requested; not counted for a hold on the session's lease.
    /// While it is above 0, the lane sends no renewals, and `extends_bound` limits the local deadline: the server may
    /// already have shortened the lease.
    pub(super) extends_pending: u32,
    /// Earliest of the local deadlines that the pending extends of callers can cause. Each extend causes its earliest
    /// deadline if the server serves it as soon as the caller requests it. `NEVER` as soon as every pending extend has
    /// a response: until then, each of them may have shortened the lease.
    pub(super) extends_bound: BootTime,
    /// Time that the timer of this hold is set to.
    timer: BootTime,
}

/// Source of the server's report of a lease: the response to the request with this sequence, or the event that another
/// client has moved the lease. Of two responses with the same stamp, the response to the later request is the newer
/// report, because the server decides the requests of a connection in their order.
#[derive(Clone, Copy)]
pub(super) enum ReportedBy {
    Answer(Sequence),
    Event,
}

impl Entry {
    pub(super) fn new(guard: GuardId, lease_end: LeaseEnd, lease: Duration, stamp_ms: u64) -> Self {
        let mut entry = Self {
            guard,
            take_up_number: None,
            lease_end,
            grace: None,
            cap: BootTime::NEVER,
            told: BootTime::NEVER,
            renew_ms: None,
            lease,
            renewal: Renewal::Off,
            stamp_ms,
            reported_by: None,
            extends_pending: 0,
            extends_bound: BootTime::NEVER,
            timer: BootTime::NEVER,
        };
        entry.told = entry.bound();
        entry
    }

    pub(super) fn is_on_session(&self) -> bool {
        self.lease_end == LeaseEnd::Session
    }

    /// Returns whether another acquire, in this client or in another one, may take up the hold.
    pub(super) fn may_be_taken_up(&self) -> bool {
        self.take_up_number.is_some()
    }

    /// Returns the local deadline by the hold's own lease, by unanswered extends and by its cap (the deadline from
    /// before an outage, while the hold is unconfirmed). Excludes the deadline of the session and the deadline by
    /// `grace`.
    pub(super) fn bound(&self) -> BootTime {
        match self.lease_end {
            LeaseEnd::Own(deadline) => deadline.min(self.extends_bound).min(self.cap),
            LeaseEnd::Session => self.cap,
        }
    }

    /// Applies the server's report of the hold's own lease, unless a newer report is known. If the hold renews itself,
    /// also sets the time of the next renewal. Returns whether the report was applied; false for a hold on the
    /// session's lease.
    pub(super) fn lease_reported(
        &mut self,
        anchor: Anchor,
        mut by: ReportedBy,
        report: LeaseReport,
        now: BootTime,
    ) -> bool {
        let LeaseEnd::Own(known) = self.lease_end else { return false };
        let deadline = deadline(anchor, report, now);
        let is_newer = match (report.stamp_ms.cmp(&self.stamp_ms), self.reported_by, by) {
            (Ordering::Less, ..) => false,
            // Responses may arrive in another order than the requests, because the server confirms a longer lease only
            // once it is durable. The stamp (the server's clock when it determined the lease) has whole milliseconds.
            // So of two responses with the same stamp, the response to the later request counts.
            (Ordering::Equal, Some(ReportedBy::Answer(newest)), ReportedBy::Answer(answer)) => {
                newest < answer
            }
            // The reports have the same stamp, in whole milliseconds, and at least one of them is an event. It is
            // unknown which of the two changes the server made last, so the earlier deadline counts. Later responses
            // with this stamp do not reveal the order, so the earlier deadline counts for them too.
            (Ordering::Equal, Some(ReportedBy::Event), _) | (Ordering::Equal, _, ReportedBy::Event) => {
                self.reported_by = Some(ReportedBy::Event);
                by = ReportedBy::Event;
                deadline < known
            }
            (Ordering::Equal | Ordering::Greater, ..) => true,
        };
        if !is_newer {
            return false;
        }
        self.lease_end = LeaseEnd::Own(deadline);
        self.stamp_ms = report.stamp_ms;
        self.reported_by = Some(by);
        self.lease = report.lease;
        if self.renew_ms.is_some() {
            self.renewal = Renewal::Due(renew_at(deadline, report));
        }
        true
    }

    /// Removes the cap (the upper bound from before an outage), because the server has confirmed this hold on the
    /// current connection.
    pub(super) fn uncap(&mut self) {
        self.cap = BootTime::NEVER;
    }

    /// Reports [`Entry::bound`] (the local deadline by the hold's own lease, its unanswered extends and its cap) to the
    /// guard, if it has moved. Then sets the entry's timer to the hold's deadline or, if that is earlier, to the
    /// instant in its [`Renewal`]. `alive` is [`Holds::alive`], from which the deadline by `grace` counts.
    fn rearm(&mut self, alive: BootTime, events: &mut VecDeque<Event>, timers: &mut Timers) {
        let bound = self.bound();
        if bound != self.told {
            self.told = bound;
            events.push_back(Event::Bound { guard: self.guard, until: bound });
        }
        let tie = self.grace.map_or(BootTime::NEVER, |grace| alive.after(grace));
        let deadline = bound.min(tie);
        let due = match self.renewal {
            Renewal::Off => deadline,
            Renewal::Due(at) | Renewal::Sent { doubt: at, .. } => deadline.min(at),
        };
        timers.replace(TimerKey::Hold(self.guard.hold), self.timer, due);
        self.timer = due;
    }
}

/// A hold that was lost at its local deadline and whose guard still exists. When the guard is dropped, the lane
/// releases the hold.
#[derive(Clone, Copy)]
pub(super) struct Overdue {
    guard: GuardId,
    pub(super) take_up_number: Option<u32>,
}

/// All holds of a lane that have guards. A hold has one owner: the guard of the newest acquire that was granted it.
///
/// `entries` has the holds that count as held. `overdue` has those that were lost at their local deadlines. A guard
/// whose hold is in neither has nothing to release: its hold has ended, was already released or forgotten, or has
/// another owner.
#[derive(Default)]
pub(super) struct Holds {
    /// Holds that count as held.
    entries: BTreeMap<LockId, Entry>,
    /// Holds that were lost at their local deadlines. The server may still keep them.
    overdue: BTreeMap<LockId, Overdue>,
    /// Number of holds in `entries` for each length of `grace`.
    graces: BTreeMap<Duration, usize>,
    /// Local deadline of the session's lease.
    pub(super) session_deadline: BootTime,
    /// Send time of the newest request of this connection whose response became the anchor for deadlines, or of the
    /// HELLO. A hold with an [`Entry::grace`] (its `release_after` less a margin) counts as held at most for that time
    /// after `alive`.
    ///
    /// The server may notice the loss of a connection long before the client does, and then begins to count the hold's
    /// `release_after`. At the time `alive`, the server had not noticed a loss yet, because it decided the response on
    /// this connection after that time.
    pub(super) alive: BootTime,
    /// Events for guards that the driver has not taken yet, oldest first.
    pub(super) events: VecDeque<Event>,
}

impl Holds {
    /// Creates an empty table for a connection that was alive at `now`.
    pub(super) fn new(now: BootTime) -> Self {
        Self { alive: now, ..Self::default() }
    }

    pub(super) fn insert(&mut self, entry: Entry, timers: &mut Timers) {
        let id = entry.guard.hold;
        if let Some(grace) = entry.grace {
            *self.graces.entry(grace).or_default() += 1;
        }
        self.overdue.remove(&id);
        match self.entries.entry(id) {
            btree_map::Entry::Vacant(place) => {
                place.insert(entry).rearm(self.alive, &mut self.events, timers);
            }
            btree_map::Entry::Occupied(mut place) => {
                let older = place.insert(entry);
                self.disarm(&older, timers);
                self.tell_loss(&older, LossReason::Superseded, "");
                self.rearm(id, timers);
            }
        }
    }

    pub(super) fn contains(&self, id: LockId) -> bool {
        self.entries.contains_key(&id)
    }

    pub(super) fn get_mut(&mut self, id: LockId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    /// Returns the entry of the hold that this guard owns, if it still counts as held.
    pub(super) fn owned(&self, guard: GuardId) -> Option<&Entry> {
        self.entries.get(&guard.hold).filter(|entry| entry.guard == guard)
    }

    /// Removes the hold of a guard that releases or forgets it, and returns its [`Entry::take_up_number`]. Returns
    /// `None` if the guard has nothing to release.
    pub(super) fn let_go(&mut self, guard: GuardId, timers: &mut Timers) -> Option<Option<u32>> {
        if let Some(entry) = self.remove_if(guard.hold, |entry| entry.guard == guard, timers) {
            return Some(entry.take_up_number);
        }
        let overdue = self.remove_overdue_if(guard.hold, |overdue| overdue.guard == guard)?;
        Some(overdue.take_up_number)
    }

    /// Removes a hold that a newer acquire has taken up, and reports the loss to its guard, unless the guard has
    /// already lost it. With a `number`, only if the hold was granted to the acquire with this request number.
    pub(super) fn supersede(&mut self, id: LockId, number: Option<u32>, timers: &mut Timers) {
        let is_meant = |take_up_number: Option<u32>| number.is_none() || take_up_number == number;
        if let Some(entry) = self.remove_if(id, |entry| is_meant(entry.take_up_number), timers) {
            self.tell_loss(&entry, LossReason::Superseded, "");
        }
        self.remove_overdue_if(id, |overdue| is_meant(overdue.take_up_number));
    }

    /// Removes the overdue holds that another acquire may take up, so that their guards release nothing when they are
    /// dropped. Called at the end of the session: from then on no event reports a takeover, and a release could end the
    /// hold of another client.
    pub(super) fn drop_overdue_that_may_be_taken_up(&mut self) {
        self.overdue.retain(|_, overdue| overdue.take_up_number.is_none());
    }

    /// Removes and returns the holds that were lost at their local deadlines.
    pub(super) fn take_overdue(&mut self) -> impl Iterator<Item = (LockId, Overdue)> + use<> {
        std::mem::take(&mut self.overdue).into_iter()
    }

    /// Removes and returns the hold with this id if it counts as held and `is_it` accepts it.
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

    /// Removes and returns the overdue hold with this id if `is_it` accepts it.
    fn remove_overdue_if(&mut self, id: LockId, is_it: impl Fn(&Overdue) -> bool) -> Option<Overdue> {
        self.overdue.get(&id).is_some_and(is_it).then(|| self.overdue.remove(&id)).flatten()
    }

    /// Clears the timer of a removed entry. Also removes the entry from `graces`, which counts the holds with each
    /// length of `grace`: the shortest length limits the interval of keep-alives.
    fn disarm(&mut self, entry: &Entry, timers: &mut Timers) {
        timers.replace(TimerKey::Hold(entry.guard.hold), entry.timer, BootTime::NEVER);
        if let Some(grace) = entry.grace
            && let Some(count) = self.graces.get_mut(&grace)
        {
            *count -= 1;
            if *count == 0 {
                self.graces.remove(&grace);
            }
        }
    }

    /// Returns the deadline that follows from the `release_after` of a hold: `grace` (the `release_after` less a
    /// margin) after [`Holds::alive`], the last time at which the connection is known to have been alive. `NEVER`
    /// without a grace.
    fn tie_end(&self, grace: Option<Duration>) -> BootTime {
        grace.map_or(BootTime::NEVER, |grace| self.alive.after(grace))
    }

    /// Returns the local deadline of a hold: the earliest of [`Entry::bound`] (own lease, unanswered extends, cap), the
    /// deadline of the session for a hold on its lease, and the deadline by [`Entry::grace`].
    fn deadline(&self, entry: &Entry) -> BootTime {
        let session = if entry.is_on_session() { self.session_deadline } else { BootTime::NEVER };
        entry.bound().min(session).min(self.tie_end(entry.grace))
    }

    /// Returns whether the local deadline of this hold has passed; false if the hold no longer counts as held.
    pub(super) fn is_over(&self, id: LockId, now: BootTime) -> bool {
        self.entries.get(&id).is_some_and(|entry| self.deadline(entry) <= now)
    }

    /// Reports [`Entry::bound`] of a hold to its guard if the bound has moved, and sets the timer of the hold.
    ///
    /// The timer ignores the deadline of the session, which has a timer of its own. The deadline by `grace` counts from
    /// [`Holds::alive`], so it moves forward with later responses, without a call of this function. So the timer may
    /// fire before that deadline; `hold_due` then sets it again.
    pub(super) fn rearm(&mut self, id: LockId, timers: &mut Timers) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.rearm(self.alive, &mut self.events, timers);
        }
    }

    /// Marks the timer of this hold as not set, because it has fired, and returns the entry of the hold. The caller
    /// then removes the hold or sets the timer again.
    pub(super) fn timer_fired(&mut self, id: LockId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&id)?;
        entry.timer = BootTime::NEVER;
        Some(entry)
    }

    /// Removes a hold from those that count as held, and reports the loss to its guard. Does nothing if it is not among
    /// them.
    pub(super) fn lose(&mut self, id: LockId, reason: LossReason, timers: &mut Timers) {
        self.lose_with(id, reason, "", timers);
    }

    /// Removes a hold from those that count as held, and reports the loss to its guard with this reason. Does nothing
    /// if it is not among them. `message` is the text of the operator who ended the hold; empty if there is none.
    pub(super) fn lose_with(&mut self, id: LockId, reason: LossReason, message: &str, timers: &mut Timers) {
        if let Some(entry) = self.remove_if(id, |_| true, timers) {
            self.tell_loss(&entry, reason, message);
        }
    }

    /// Reports the loss of a removed entry to its guard. If the hold was lost at its local deadline, the server may
    /// still keep it. So also adds it to `overdue`, from which the lane releases it when the guard is dropped.
    fn tell_loss(&mut self, entry: &Entry, reason: LossReason, message: &str) {
        if reason == LossReason::LocalDeadline {
            let overdue = Overdue { guard: entry.guard, take_up_number: entry.take_up_number };
            self.overdue.insert(entry.guard.hold, overdue);
        }
        self.events.push_back(Event::Lost { guard: entry.guard, reason, message: message.into() });
    }

    pub(super) fn ids(&self) -> Vec<LockId> {
        self.entries.keys().copied().collect()
    }

    fn ids_of(&self, is_it: impl Fn(&Entry) -> bool) -> Vec<LockId> {
        self.entries.iter().filter(|(_, entry)| is_it(entry)).map(|(id, _)| *id).collect()
    }

    pub(super) fn ids_on_session(&self) -> Vec<LockId> {
        self.ids_of(Entry::is_on_session)
    }

    /// Returns the holds that another acquire may take up.
    pub(super) fn ids_that_may_be_taken_up(&self) -> Vec<LockId> {
        self.ids_of(Entry::may_be_taken_up)
    }

    pub(super) fn ids_tied_to_connection(&self) -> Vec<LockId> {
        self.ids_of(|entry| entry.grace.is_some())
    }

    /// Returns the shortest grace of all holds; `None` if no hold has one.
    pub(super) fn grace_min(&self) -> Option<Duration> {
        self.graces.first_key_value().map(|(grace, _)| *grace)
    }

    /// Sets the cap (the upper bound of the local deadline) of each hold to its present local deadline. The cap stays
    /// until the server has confirmed the hold.
    pub(super) fn cap_all(&mut self, timers: &mut Timers) {
        for id in self.ids() {
            let deadline = self.entries.get(&id).map(|entry| self.deadline(entry));
            if let (Some(entry), Some(deadline)) = (self.entries.get_mut(&id), deadline) {
                entry.cap = deadline;
            }
            self.rearm(id, timers);
        }
    }

    /// Resets the stamps of all leases. Called if another server process answers. The stamps come from the clock of the
    /// server's machine since its boot, so those of the new process may be smaller. Without the reset, the lane would
    /// ignore the new process's reports of leases as old.
    pub(super) fn forget_stamps(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.stamp_ms = 0);
    }

    /// Returns whether any hold still counts as held.
    pub(super) fn any_alive(&self, now: BootTime) -> bool {
        self.entries.values().any(|entry| now < self.deadline(entry))
    }

    /// Returns whether any hold still counts as held and has a local deadline.
    pub(super) fn any_expires(&self, now: BootTime) -> bool {
        self.entries.values().any(|entry| (now..BootTime::NEVER).contains(&self.deadline(entry)))
    }
}

/// Number of steps into which the time between two renewals is divided. Renewal times are rounded down to the start of
/// a step, so that the renewals of many holds fall on the same instants.
const RENEWAL_STEPS: u64 = 256;

/// Returns the time of the next renewal: after a third of the remaining lease, rounded down to the start of a step. A
/// step is 1/256 of that third (`RENEWAL_STEPS`), counted from zero of the local clock.
///
/// For all remaining leases of one length, the steps are equally long and begin at the same instants of the local
/// clock. So all renewals within one step become due together, often thousands of them. The client sends them in a few
/// writes and reads the responses in a few reads.
pub(super) fn renew_at(deadline: BootTime, report: LeaseReport) -> BootTime {
    // Compute with integer nanoseconds: every grant and every renewal calls this function, and `Duration` divides
    // slowly.
    let remaining = nanos(report.remaining);
    let usable = remaining.saturating_sub(nanos(margin(report.lease)));
    let interval = remaining / 3;
    let at = deadline.as_nanos().saturating_sub(usable).saturating_add(interval);
    let step = (interval / RENEWAL_STEPS).max(1);
    BootTime::from_nanos(at / step * step)
}

/// Returns the delay before the lane repeats a renewal or a status request that the server could not serve, for a hold
/// with this lease.
pub(super) fn retry_delay(lease: Duration) -> Duration {
    (lease / 10).clamp(Duration::from_millis(5), Duration::from_secs(1))
}
