//! Sent requests without a response, and requests that wait to be sent.
//!
//! # What the server allows
//!
//! 1. At most `in_flight_max` requests may be in flight (sent and without a response). A waiting acquire does not count
//!    from the moment the server has reported `QUEUED`.
//! 2. A request number may be sent only if every request `in_flight_max` or more numbers before it has its response.
//!    Waiting acquires are exempt. The server remembers only its last `in_flight_max` responses, so it cannot answer a
//!    repetition of an older request.
//!
//! # Acquires that wait for long
//!
//! An acquire may wait until its number is too old to be repeated. If the connection is then lost, the lane repeats the
//! acquire under a new number. But the server may have granted the acquire just before, with only the response lost.
//! The hold of that grant would then block the new attempt, and every other, until its lease expires. A hold on the
//! session's lease would block them as long as the session lives.
//!
//! The hold of a grant whose response was lost must be released. For this, each acquire that may wait asks for the
//! event `QUEUED`, which contains the id of its claim. Before the lane repeats the acquire under a new number, it
//! releases that id, unless the caller set a request id. An acquire whose claim id the lane does not know still counts
//! as in flight, so its number never becomes too old.
//!
//! The holds of a multi-key claim have other ids than the claim had while it waited, so the id from `QUEUED` cannot
//! release them. Instead, a multi-key claim has a request id, by which its repetition finds the holds. If only some of
//! the holds are left, `Lane::reconcile` releases them: it compares the server's list of holds with the client's
//! guards.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use waymaker_protocol::{Capabilities, LockId};

use crate::clock::BootTime;
use crate::error::Error;
use crate::loss::LossReason;
use crate::request::job::{AcquireJob, ConfirmJob, Job};
use crate::request::queue_place::QueuePlace;
use crate::request::reply::Reply;

/// Reason of the uncertain outcome of a request that needs a capability of the server. An older server without this
/// capability has replaced the server that got the request. The earlier server may have served the request.
const OLDER_SERVER: &str = "the server that got the request was replaced by an older one";

/// A request that was sent and has no response yet.
pub(super) struct Pending {
    pub(super) job: Job,
    /// Time of the first transmission under the present number. The server cannot have decided earlier, even if the
    /// request was repeated.
    pub(super) sent: BootTime,
    /// Whether the request was already sent on an earlier connection, so its response may be old.
    pub(super) carried: bool,
    /// Id of the claim, if the server has reported on this connection that the acquire waits.
    queued: Option<LockId>,
}

/// Position of a request in the order in which the lane sends its requests. The position never wraps, but the request
/// number that is computed from it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sequence(u64);

/// Count of request numbers: all but 0, which the server uses for the connection as a whole.
const NUMBER_COUNT: u64 = u32::MAX as u64;

impl Sequence {
    pub(super) fn number(self) -> u32 {
        (self.0 % NUMBER_COUNT) as u32 + 1
    }

    /// Returns the newest position before `next` with this number.
    fn of_number(number: u32, next: Self) -> Option<Self> {
        let offset = u64::from(number).checked_sub(1)?;
        let newest = next.0 - next.0 % NUMBER_COUNT + offset;
        if newest < next.0 { Some(Self(newest)) } else { newest.checked_sub(NUMBER_COUNT).map(Self) }
    }
}

/// The next request number, the requests in flight, and the unsent requests.
pub(super) struct Window {
    /// Position of the next request.
    next: Sequence,
    /// Maximum number of requests in flight, and of responses that the server remembers. From the welcome that began
    /// the session, at least 2.
    in_flight_max: u64,
    /// Capabilities of the server of this connection.
    pub(super) offered: Capabilities,
    /// Sent requests without a response that the server has not reported as waiting.
    in_flight: BTreeMap<Sequence, Pending>,
    /// Acquires that the server has reported as waiting.
    waiting: BTreeMap<Sequence, Pending>,
    /// Unsent requests other than acquires. They are called prompt, because they never wait in a queue of the server.
    /// They are sent before acquires.
    unsent: VecDeque<Job>,
    /// Unsent acquires by token. Tokens rise in the order in which the callers made the acquires.
    unsent_acquires: BTreeMap<u64, Box<AcquireJob>>,
}

impl Window {
    pub(super) fn new(in_flight_max: u32) -> Self {
        Self {
            next: Sequence(0),
            in_flight_max: u64::from(in_flight_max.max(2)),
            offered: Capabilities::NONE,
            in_flight: BTreeMap::new(),
            waiting: BTreeMap::new(),
            unsent: VecDeque::new(),
            unsent_acquires: BTreeMap::new(),
        }
    }

    /// Queues a job to be sent. Acquires are sent in the order of their tokens (numbers that rise in the order of the
    /// callers' acquires). Other jobs are sent in the order of their calls of `push`, and before acquires.
    pub(super) fn push(&mut self, job: Job) {
        match job {
            Job::Acquire(job) => {
                self.unsent_acquires.insert(job.token, job);
            }
            job => self.unsent.push_back(job),
        }
    }

    /// Queues a job in front of all others. An acquire is instead queued as by [`Window::push`]: its token (a number
    /// that rises in the order of the callers' acquires) determines its position.
    pub(super) fn push_front(&mut self, job: Job) {
        match job {
            Job::Acquire(_) => self.push(job),
            job => self.unsent.push_front(job),
        }
    }

    /// Appends to `out` the unsent requests that the server's limit of requests in flight allows, and counts them as in
    /// flight. Requests that need a capability that the server lacks fail instead.
    pub(super) fn transmit(&mut self, now: BootTime, out: &mut Vec<u8>) {
        while self.has_room() {
            // Prompt jobs go first: renewals and releases must not wait behind acquires.
            let acquire = || self.unsent_acquires.pop_first().map(|(_, job)| Job::Acquire(job));
            let Some(mut job) = self.unsent.pop_front().or_else(acquire) else { break };
            if let Some(refusal) = job.refusal(self.offered) {
                // This server lacks a capability that the request needs, so fail the request instead of sending it. If
                // it was already sent, then to an earlier, newer server, which may have served it. The outcome is then
                // unknown, and the caller gets `OLDER_SERVER` as the reason.
                job.fail_unsent(&refusal, OLDER_SERVER);
                continue;
            }
            let sequence = self.next;
            self.next.0 += 1;
            job.encode(sequence.number(), now, self.offered, out);
            self.put_back(sequence, Pending { job, sent: now, carried: false, queued: None });
        }
    }

    /// Returns whether the server allows one more request in flight.
    fn has_room(&self) -> bool {
        let oldest = self.in_flight.first_key_value().map_or(self.next, |(sequence, _)| *sequence);
        (self.in_flight.len() as u64) < self.in_flight_max && self.next.0 - oldest.0 < self.in_flight_max
    }

    /// Returns whether one more acquire would be sent at once.
    pub(super) fn has_room_for_acquire(&self) -> bool {
        self.has_room() && !self.has_unsent()
    }

    /// Removes and returns the request with this number.
    pub(super) fn take(&mut self, number: u32) -> Option<(Sequence, Pending)> {
        let sequence = Sequence::of_number(number, self.next)?;
        let pending = self.in_flight.remove(&sequence).or_else(|| self.waiting.remove(&sequence))?;
        Some((sequence, pending))
    }

    /// Stores a request that was just sent, or puts it back at its position after [`Window::take`], because its final
    /// response is still missing.
    pub(super) fn put_back(&mut self, sequence: Sequence, pending: Pending) {
        let map = if pending.queued.is_some() { &mut self.waiting } else { &mut self.in_flight };
        map.insert(sequence, pending);
    }

    /// Moves the acquire with this number to the waiting ones, because the server has reported that it waits: it no
    /// longer counts as in flight. Stores the id of its claim, and reports the queue position to the caller.
    pub(super) fn queued(&mut self, number: u32, place: QueuePlace) {
        if let Some((sequence, mut pending)) = self.take(number) {
            pending.queued = Some(place.id);
            if let Job::Acquire(job) = &mut pending.job
                && let Some(on_queued) = job.on_queued.take()
            {
                // The caller may have dropped the receiver; ignore the error.
                let _ = on_queued.send(place);
            }
            self.put_back(sequence, pending);
        }
    }

    /// Returns all sent requests without a response, each with its number.
    pub(super) fn pending_mut(&mut self) -> impl Iterator<Item = (u32, &mut Pending)> {
        self.in_flight
            .iter_mut()
            .chain(&mut self.waiting)
            .map(|(sequence, pending)| (sequence.number(), pending))
    }

    /// Removes and returns the prompt jobs (all except acquires) for which `is_it` returns true, sent or not. The lane
    /// then ignores the responses to the sent ones.
    pub(super) fn take_prompt(&mut self, is_it: impl Fn(&Job) -> bool) -> Vec<Job> {
        let sent =
            self.in_flight.extract_if(.., |_, pending| is_it(&pending.job)).map(|(_, pending)| pending.job);
        let mut jobs: Vec<_> = sent.collect();
        let (taken, kept) = std::mem::take(&mut self.unsent).into_iter().partition(|job| is_it(job));
        self.unsent = kept;
        jobs.extend::<VecDeque<_>>(taken);
        jobs
    }

    /// Sends every unanswered request again under its number, in the order of the first transmissions. The server
    /// remembers only its last `in_flight_max` responses. A waiting acquire with an older number is queued again, to be
    /// sent under a new number, unless its caller has gone. The release of its old claim is queued before it, in case
    /// the server has granted the claim. If the caller set a request id, nothing is released, since the new acquire
    /// finds the old claim. A request that needs a capability that this server lacks is not sent, and its caller gets
    /// [`Error::Uncertain`].
    pub(super) fn repeat(&mut self, is_other_process: bool, now: BootTime, out: &mut Vec<u8>) {
        let oldest = Sequence(self.next.0.saturating_sub(self.in_flight_max));
        let recent = self.waiting.split_off(&oldest);
        for pending in std::mem::replace(&mut self.waiting, recent).into_values() {
            self.ask_again(pending);
        }
        // The server removed waiting acquires from their queues when the connection broke. They are in flight again
        // until the server reports that they wait.
        self.in_flight.append(&mut self.waiting);
        let offered = self.offered;
        let is_refused = |_: &Sequence, pending: &mut Pending| pending.job.refusal(offered).is_some();
        for (_, mut refused) in self.in_flight.extract_if(.., is_refused) {
            refused.job.leave_uncertain(OLDER_SERVER);
        }
        for (sequence, pending) in &mut self.in_flight {
            pending.carried = true;
            pending.queued = None;
            if is_other_process && let Some(reply) = pending.job.reply() {
                reply.note_sent();
            }
            pending.job.encode(sequence.number(), now, offered, out);
        }
    }

    /// Queues a request again, to be sent under a new number, because its old number is too old or belongs to an ended
    /// session. If the server has reported that the request waits, first queues the release of its claim, unless the
    /// caller set a request id. Drops an acquire without a caller.
    fn ask_again(&mut self, pending: Pending) {
        let may_be_taken_up = matches!(&pending.job, Job::Acquire(job) if job.claim.may_be_taken_up());
        if let Some(id) = pending.queued {
            // With a request id of its caller, the new acquire finds the waiting claim by that id. So do not release
            // the claim: a newer acquire with the same request id may already own it.
            if !may_be_taken_up {
                let (take_up_number, is_own, reply) = (None, false, Reply::Nobody);
                self.push(Job::Release { id, key: None, by_guard: true, take_up_number, is_own, reply });
            }
        }
        let mut job = pending.job;
        if let Some(reply) = job.reply() {
            reply.note_sent();
        }
        match job {
            Job::Acquire(job) if !job.reply.has_caller() => {}
            job => self.push(job),
        }
    }

    /// Restarts the request numbers at 1 for a new session. Queues the unanswered requests again, but drops those for
    /// which `keep` returns false.
    pub(super) fn restart(&mut self, in_flight_max: u32, keep: impl Fn(&Job) -> bool) {
        let mut all = std::mem::take(&mut self.in_flight);
        all.append(&mut self.waiting);
        self.next = Sequence(0);
        self.in_flight_max = u64::from(in_flight_max.max(2));
        for pending in all.into_values().filter(|pending| keep(&pending.job)) {
            self.ask_again(pending);
        }
    }

    /// Removes and returns an acquire that was not sent yet.
    pub(super) fn take_unsent_acquire(&mut self, token: u64) -> Option<Box<AcquireJob>> {
        self.unsent_acquires.remove(&token)
    }

    /// Removes and returns all acquires that were not sent yet.
    pub(super) fn take_unsent_acquires(&mut self) -> impl Iterator<Item = Box<AcquireJob>> + use<> {
        std::mem::take(&mut self.unsent_acquires).into_values()
    }

    /// Returns the acquire with this token and its request number, if it was sent and has no final response. The number
    /// is `None` if the grant has arrived and the lane asks the server whether its holds still live.
    pub(super) fn sent_acquire(&mut self, token: u64) -> Option<(Option<u32>, &mut AcquireJob)> {
        let sent = self.in_flight.iter_mut().chain(&mut self.waiting);
        let sent = sent.map(|(sequence, pending)| (sequence.number(), &mut pending.job));
        sent.chain(self.unsent.iter_mut().map(|job| (0, job))).find_map(|(number, job)| match job {
            Job::Acquire(job) if job.token == token => Some((Some(number), &mut **job)),
            Job::Confirm(job) if job.acquire.token == token => Some((None, &mut *job.acquire)),
            _ => None,
        })
    }

    /// Returns whether the response to an acquire may still name a hold of this key, so that the lane must not release
    /// such a hold yet. Acquires in flight count until the server reports that they wait. An acquire with a request id
    /// may find an existing hold, so it counts even before it is sent.
    pub(super) fn awaits_decision(&self, key: &[u8]) -> bool {
        let is_sent = self.in_flight.values().any(|pending| match &pending.job {
            Job::Acquire(job) => job.claim.may_hold(key),
            _ => false,
        });
        let may_find = |job: &AcquireJob| job.claim.may_be_taken_up() && job.claim.may_hold(key);
        is_sent || self.unsent_acquires.values().any(|job| may_find(job))
    }

    /// Returns the ids of the holds whose grants are being confirmed: the lane asks the server whether they still live
    /// before the callers get them.
    pub(super) fn confirming(&self) -> BTreeSet<LockId> {
        let sent = self.in_flight.values().map(|pending| &pending.job);
        sent.chain(&self.unsent)
            .filter_map(|job| if let Job::Confirm(job) = job { Some(job) } else { None })
            .flat_map(|job| job.grant.holds.iter().map(|hold| hold.id))
            .collect()
    }

    /// Applies the report that a newer acquire has taken over a hold by its request id, so that it owns the hold now.
    /// Drops the unsent release of the older guard. An older acquire fails if its grant of the hold is still being
    /// confirmed with the server. If `number` is given, affects only the release and the grant of the acquire with this
    /// request number.
    pub(super) fn supersede(&mut self, id: LockId, number: Option<u32>) {
        let is_meant = |of: Option<u32>| number.is_none() || of == number;
        let is_its_release = |job: &Job| match job {
            Job::Release { id: of, by_guard: true, take_up_number, .. } => {
                *of == id && is_meant(*take_up_number)
            }
            _ => false,
        };
        let (releases, kept) = std::mem::take(&mut self.unsent).into_iter().partition(is_its_release);
        self.unsent = kept;
        for mut release in Vec::from(releases) {
            release.fail(Error::Lost(LossReason::Superseded));
        }
        for confirm in self.confirms_mut() {
            if is_meant(confirm.grant.take_up_number) && confirm.grant.holds.iter().any(|hold| hold.id == id)
            {
                confirm.is_superseded = true;
                confirm.acquire.reply.answer(Err(Error::Lost(LossReason::Superseded)));
            }
        }
    }

    /// Notes that the end of this hold's lease has moved or is about to move. If the lane is confirming or has confirmed
    /// the hold with the server, as a part of its grant, the known end may be outdated. The lane then confirms again
    /// from this hold on.
    pub(super) fn lease_moves(&mut self, id: LockId) {
        for confirm in self.confirms_mut() {
            let index = confirm.grant.holds.iter().position(|hold| hold.id == id);
            if let Some(index) = index.filter(|index| *index <= confirm.index) {
                (confirm.index, confirm.is_stale) = (index, true);
            }
        }
    }

    /// Notes that the server has reported the end of this hold. If a grant of the hold is being confirmed with the
    /// server, its confirmation then counts as refused.
    pub(super) fn ended(&mut self, id: LockId) {
        for confirm in self.confirms_mut() {
            if confirm.grant.holds.iter().any(|hold| hold.id == id) {
                confirm.ended = Some(id);
            }
        }
    }

    /// Returns the grants that are being confirmed.
    fn confirms_mut(&mut self) -> impl Iterator<Item = &mut ConfirmJob> {
        let sent = self.in_flight.values_mut().map(|pending| &mut pending.job);
        sent.chain(&mut self.unsent)
            .filter_map(|job| if let Job::Confirm(job) = job { Some(&mut **job) } else { None })
    }

    /// Drops the unsent jobs other than acquires for which `keep` returns false.
    pub(super) fn retain_unsent(&mut self, keep: impl FnMut(&mut Job) -> bool) {
        self.unsent.retain_mut(keep);
    }

    /// Returns whether any job is queued to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || !self.unsent_acquires.is_empty()
    }

    /// Returns whether no request is in flight, waiting or unsent.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty() && !self.has_unsent()
    }

    /// Returns whether the server may keep a hold without a guard if the lane sends nothing more. This is so if a sent
    /// acquire, a release or a confirmation of a grant has no response yet.
    pub(super) fn may_leave_hold(&self) -> bool {
        let sent = self.in_flight.values().chain(self.waiting.values()).map(|pending| &pending.job);
        sent.chain(&self.unsent).any(|job| matches!(job, Job::Acquire(_)) || job.matters_unawaited())
    }

    /// Returns whether a caller waits for a response or may query an outcome later. A goodbye counts as well.
    pub(super) fn is_awaited(&self) -> bool {
        let sent = self.in_flight.values().chain(self.waiting.values()).map(|pending| &pending.job);
        !self.unsent_acquires.is_empty() || sent.chain(&self.unsent).any(Job::is_awaited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::claim::{Claim, Wait};
    use waymaker_protocol::next_frame;

    const NOW: BootTime = BootTime::from_nanos(0);

    fn acquire(token: u64) -> Job {
        let (reply, _) = Reply::channel();
        Job::Acquire(Box::new(AcquireJob {
            token,
            claim: Claim::key(b"k", false),
            wait: Wait::Forever,
            timer: BootTime::NEVER,
            renew: true,
            late_grant_count: 0,
            on_loss: None,
            on_queued: None,
            reply,
        }))
    }

    fn window(in_flight_max: u32, acquires: u64) -> Window {
        let mut window = Window::new(in_flight_max);
        for token in 0..acquires {
            window.push(acquire(token));
        }
        window
    }

    fn transmit(window: &mut Window) -> Vec<(u32, u8)> {
        let mut out = Vec::new();
        window.transmit(NOW, &mut out);
        numbers(&out)
    }

    fn numbers(mut bytes: &[u8]) -> Vec<(u32, u8)> {
        let mut numbers = Vec::new();
        while let Some(frame) = next_frame(bytes, 1 << 20).unwrap() {
            numbers.push((frame.number(), frame.opcode()));
            bytes = &bytes[frame.len()..];
        }
        numbers
    }

    fn place(place: u64) -> QueuePlace {
        QueuePlace { id: LockId { place, secret: 7 }, position: 0, ticket: 0 }
    }

    #[test]
    fn a_queued_acquire_frees_a_slot_of_the_window() {
        let mut window = window(8, 20);
        assert_eq!(transmit(&mut window).len(), 8);
        for _ in 0..2 {
            window.queued(3, place(3));
        }
        // The server remembers only eight responses. If it got request 9, it could not repeat the response to request
        // 1, which the lane still lacks. After a `QUEUED` for request 1, the lane knows the id of its claim and needs
        // no repetition under this number. So it may then send request 9.
        assert_eq!(transmit(&mut window), []);
        window.queued(1, place(1));
        assert_eq!(transmit(&mut window), [(9, 0x10)]);
        assert!(window.take(3).is_some());
        assert_eq!(transmit(&mut window), []);
    }

    #[test]
    fn prompt_requests_are_sent_before_acquires() {
        let mut window = window(8, 2);
        window.push(Job::KeepAlive);
        assert_eq!(transmit(&mut window), [(1, 0x02), (2, 0x10), (3, 0x10)]);
    }

    /// The server remembers eight responses. A request whose number is eight higher than that of an unanswered request
    /// would tell the server that the client has the response to the latter.
    #[test]
    fn numbers_stay_within_the_window_of_an_unanswered_prompt_request() {
        let mut window = Window::new(8);
        for _ in 0..20 {
            window.push(Job::KeepAlive);
        }
        assert_eq!(transmit(&mut window).len(), 8);
        for number in 2..=8 {
            window.take(number).unwrap();
        }
        assert_eq!(transmit(&mut window), []);
        window.take(1).unwrap();
        assert_eq!(transmit(&mut window).len(), 8);
    }

    /// The server may have granted the acquire under its old number, with the response lost. If the lane did not
    /// release that hold first, it would block the acquire under its new number until its lease expires.
    #[test]
    fn a_waiting_acquire_older_than_the_window_gets_a_new_number() {
        let mut window = window(8, 2);
        transmit(&mut window);
        window.queued(1, place(1));
        window.queued(2, place(2));
        for number in 3..=9 {
            window.push(Job::KeepAlive);
            transmit(&mut window);
            window.take(number).unwrap();
        }
        let mut out = Vec::new();
        window.repeat(false, NOW, &mut out);
        assert_eq!(numbers(&out), [(2, 0x10)]);
        assert_eq!(transmit(&mut window), []);
        window.queued(2, place(3));
        assert_eq!(transmit(&mut window), [(10, 0x11), (11, 0x10)]);
    }

    #[test]
    fn numbers_skip_zero_when_they_wrap_and_repeats_keep_their_order() {
        let mut window = window(16, 4);
        window.next = Sequence(3 * NUMBER_COUNT - 2);
        let sent = transmit(&mut window);
        let expected = [u32::MAX - 1, u32::MAX, 1, 2].map(|number| (number, 0x10));
        assert_eq!(sent, expected);
        let mut out = Vec::new();
        window.repeat(false, NOW, &mut out);
        assert_eq!(numbers(&out), sent);
        for (number, _) in sent {
            assert!(window.take(number).is_some(), "{number}");
        }
    }
}
