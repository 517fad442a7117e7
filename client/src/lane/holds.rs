//! The holds that are guarded, and when each is to be renewed or given up.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque, btree_map};
use std::time::Duration;

use waymaker_protocol::LockId;

use super::event::{Event, GuardId};
use super::timers::{TimerKey, Timers};
use super::window::Sequence;
use crate::clock::BootTime;
use crate::deadline::{Anchor, LeaseReport, deadline, margin, nanos};
use crate::loss::LossReason;

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
    /// To be sent at this instant: an extend, or a question if the hold does not renew itself.
    Due(BootTime),
    /// Sent and not answered. At `doubt` the connection counts as dead if nothing has arrived after `since`.
    Sent { since: BootTime, doubt: BootTime },
}

/// Local deadline of the lease of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEnd {
    /// Its own, with its local deadline.
    Own(BootTime),
    /// The session's: one local deadline for all, moved by one keep-alive.
    Session,
}

/// One hold in the table.
pub(super) struct Entry {
    /// Its owner.
    pub(super) guard: GuardId,
    /// Number of the acquire, if another acquire with its request id may take up the hold.
    pub(super) take_up_number: Option<u32>,
    pub(super) lease_end: LeaseEnd,
    /// For how long the hold outlives its connection, less a margin; `None` if it does not end with it.
    pub(super) grace: Option<Duration>,
    /// Deadline of the hold when the connection was bound anew, until the server has answered for the hold; then never.
    cap: BootTime,
    /// The bound that the guard knows.
    told: BootTime,
    /// With which length to renew, where the hold renews itself.
    pub(super) renew_ms: Option<u32>,
    /// The whole lease as last given.
    pub(super) lease: Duration,
    pub(super) renewal: Renewal,
    /// The server's clock at the newest report of the lease. A late report with an older stamp changes nothing.
    pub(super) stamp_ms: u64,
    /// What reported the lease since the grant.
    reported_by: Option<ReportedBy>,
    /// Extends asked for by callers and not answered. Each may be served before its answer is read, and before the
    /// answers to renewals that were sent earlier, and each may shorten the lease.
    pub(super) extends_pending: u32,
    /// The earliest end of the lease that any of them asks for.
    pub(super) extends_bound: BootTime,
    /// What the timer of this hold is set to.
    timer: BootTime,
}

/// How the server reported the lease of a hold. It decides the requests of a connection in their order.
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

    /// Returns the deadline by the hold's own lease and by its cap, without those of the session and of the connection.
    pub(super) fn bound(&self) -> BootTime {
        match self.lease_end {
            LeaseEnd::Own(deadline) => deadline.min(self.extends_bound).min(self.cap),
            LeaseEnd::Session => self.cap,
        }
    }

    /// Takes over the server's report of the lease unless a newer one is known. Returns whether it did.
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
            // A longer lease is answered once it is durable, so the answers can come in another order than the requests.
            (Ordering::Equal, Some(ReportedBy::Answer(newest)), ReportedBy::Answer(answer)) => {
                newest < answer
            }
            // Which of them was decided last is not known, and later answers of this millisecond do not tell.
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

    /// The server has answered for this hold on the present connection.
    pub(super) fn uncap(&mut self) {
        self.cap = BootTime::NEVER;
    }

    /// As [`Holds::rearm`].
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

/// A hold that was lost at its local deadline and whose guard has not let go of it.
#[derive(Clone, Copy)]
pub(super) struct Overdue {
    guard: GuardId,
    pub(super) take_up_number: Option<u32>,
}

/// All guarded holds of a lane. A hold has one owner: the guard of the newest acquire that was granted it.
///
/// A guard whose hold is neither believed in nor overdue has nothing to give back: its hold is over, or a newer guard has it.
#[derive(Default)]
pub(super) struct Holds {
    /// Holds that are believed in.
    entries: BTreeMap<LockId, Entry>,
    /// Holds that were lost at their local deadlines. The server may still keep them.
    overdue: BTreeMap<LockId, Overdue>,
    /// How many holds outlive their connection by how long.
    graces: BTreeMap<Duration, usize>,
    /// Local deadline of the session's lease.
    pub(super) session_deadline: BootTime,
    /// Send time of the last answered request of this connection. The server may notice the loss of a connection long before the client
    /// does, but the connection lived when the server decided that answer.
    pub(super) alive: BootTime,
    /// Events for guards, in their order.
    pub(super) events: VecDeque<Event>,
}

impl Holds {
    /// No holds yet, on a connection that is known to have lived until now.
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

    /// Returns the entry of the hold that this guard owns and believes in.
    pub(super) fn owned(&self, guard: GuardId) -> Option<&Entry> {
        self.entries.get(&guard.hold).filter(|entry| entry.guard == guard)
    }

    /// Removes the hold of a guard that lets go of it. Returns `None` if the guard has nothing to give back, else the take-up number of the
    /// hold.
    pub(super) fn let_go(&mut self, guard: GuardId, timers: &mut Timers) -> Option<Option<u32>> {
        if let Some(entry) = self.remove_if(guard.hold, |entry| entry.guard == guard, timers) {
            return Some(entry.take_up_number);
        }
        let overdue = self.remove_overdue_if(guard.hold, |overdue| overdue.guard == guard)?;
        Some(overdue.take_up_number)
    }

    /// A newer acquire has the hold that was granted to the acquire with this number, or to any if none is given.
    pub(super) fn supersede(&mut self, id: LockId, number: Option<u32>, timers: &mut Timers) {
        let is_meant = |take_up_number: Option<u32>| number.is_none() || take_up_number == number;
        if let Some(entry) = self.remove_if(id, |entry| is_meant(entry.take_up_number), timers) {
            self.tell_loss(&entry, LossReason::Superseded, "");
        }
        self.remove_overdue_if(id, |overdue| is_meant(overdue.take_up_number));
    }

    /// Forgets overdue holds that another acquire may have taken up unnoticed.
    pub(super) fn drop_overdue_that_may_be_taken_up(&mut self) {
        self.overdue.retain(|_, overdue| overdue.take_up_number.is_none());
    }

    /// Takes out the holds that were lost at their local deadlines.
    pub(super) fn take_overdue(&mut self) -> impl Iterator<Item = (LockId, Overdue)> + use<> {
        std::mem::take(&mut self.overdue).into_iter()
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

    /// Takes an overdue hold out that passes this test.
    fn remove_overdue_if(&mut self, id: LockId, is_it: impl Fn(&Overdue) -> bool) -> Option<Overdue> {
        self.overdue.get(&id).is_some_and(is_it).then(|| self.overdue.remove(&id)).flatten()
    }

    /// Clears the timer of an entry that was taken out, and counts its grace no longer.
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

    /// Returns the deadline of a hold that outlives its connection by `grace`.
    fn tie_end(&self, grace: Option<Duration>) -> BootTime {
        grace.map_or(BootTime::NEVER, |grace| self.alive.after(grace))
    }

    /// Returns the local deadline of a hold.
    fn deadline(&self, entry: &Entry) -> BootTime {
        let session = if entry.is_on_session() { self.session_deadline } else { BootTime::NEVER };
        entry.bound().min(session).min(self.tie_end(entry.grace))
    }

    /// Returns whether the local deadline of this hold has passed.
    pub(super) fn is_over(&self, id: LockId, now: BootTime) -> bool {
        self.entries.get(&id).is_some_and(|entry| self.deadline(entry) <= now)
    }

    /// Tells the guard of a hold its bound, if it has moved, and sets the timer of the hold. The deadline of the session has a timer of its
    /// own. The deadline by the life of the connection moves without notice, so the timer may find it later than it was.
    pub(super) fn rearm(&mut self, id: LockId, timers: &mut Timers) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.rearm(self.alive, &mut self.events, timers);
        }
    }

    /// The timer of this hold fired: it is out of the set.
    pub(super) fn timer_fired(&mut self, id: LockId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&id)?;
        entry.timer = BootTime::NEVER;
        Some(entry)
    }

    /// Takes a hold out and tells its guard.
    pub(super) fn lose(&mut self, id: LockId, reason: LossReason, timers: &mut Timers) {
        self.lose_with(id, reason, "", timers);
    }

    /// The same with what somebody wrote about it.
    pub(super) fn lose_with(&mut self, id: LockId, reason: LossReason, message: &str, timers: &mut Timers) {
        if let Some(entry) = self.remove_if(id, |_| true, timers) {
            self.tell_loss(&entry, reason, message);
        }
    }

    /// Tells the guard of an entry that was taken out.
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

    /// The holds that another acquire may take up.
    pub(super) fn ids_that_may_be_taken_up(&self) -> Vec<LockId> {
        self.ids_of(Entry::may_be_taken_up)
    }

    pub(super) fn ids_tied_to_connection(&self) -> Vec<LockId> {
        self.ids_of(|entry| entry.grace.is_some())
    }

    /// The shortest time by which a hold outlives its connection.
    pub(super) fn grace_min(&self) -> Option<Duration> {
        self.graces.first_key_value().map(|(grace, _)| *grace)
    }

    /// Lets no deadline move on until the server has been asked about its hold.
    pub(super) fn cap_all(&mut self, timers: &mut Timers) {
        for id in self.ids() {
            let deadline = self.entries.get(&id).map(|entry| self.deadline(entry));
            if let (Some(entry), Some(deadline)) = (self.entries.get_mut(&id), deadline) {
                entry.cap = deadline;
            }
            self.rearm(id, timers);
        }
    }

    /// Forgets when the leases were reported: the stamps of a server that was started anew may be smaller.
    pub(super) fn forget_stamps(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.stamp_ms = 0);
    }

    /// Returns whether any hold may be believed in.
    pub(super) fn any_alive(&self, now: BootTime) -> bool {
        self.entries.values().any(|entry| now < self.deadline(entry))
    }

    /// Returns whether any hold may be believed in and has a local deadline.
    pub(super) fn any_expires(&self, now: BootTime) -> bool {
        self.entries.values().any(|entry| (now..BootTime::NEVER).contains(&self.deadline(entry)))
    }
}

/// Renewals wait for the beginning of one of so many steps of the time between two of them.
const RENEWAL_STEPS: u64 = 256;

/// When to renew: after a third of what was left of the lease when the server decided, or up to one step earlier. Steps
/// begin at the same instants for all leases of one length, so thousands of them leave in a few writes and their answers
/// come in a few reads, whenever they were granted.
pub(super) fn renew_at(deadline: BootTime, report: LeaseReport) -> BootTime {
    // Arithmetic on nanoseconds: every grant and every renewal does it, and `Duration` divides slowly.
    let remaining = nanos(report.remaining);
    let usable = remaining.saturating_sub(nanos(margin(report.lease)));
    let interval = remaining / 3;
    let at = deadline.as_nanos().saturating_sub(usable).saturating_add(interval);
    let step = (interval / RENEWAL_STEPS).max(1);
    BootTime::from_nanos(at / step * step)
}

/// How long to leave a server alone that could not renew just now.
pub(super) fn retry_delay(lease: Duration) -> Duration {
    (lease / 10).clamp(Duration::from_millis(5), Duration::from_secs(1))
}
