//! Requests that a lane of a real client sends by itself, which are no more than its holds and its session need.
//!
//! Requests that a caller asks for by itself are not counted. Each limit follows from a promise of the client: a renewal and a keep-alive
//! are due after a third of a lease, and a lane lists its holds once for each connection.

use super::Auditor;
use super::guards::RELEASE_AFTER_BELIEVED_MIN_MS;
use crate::operation::{Acquire, MADE_UP_REQUEST_ID, Operation};
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::LockId;

/// Shortest time between two keep-alives of a lane with a hold that ends soon after its connection and is believed in: a third of the shortest time that counts, less a margin.
const KEEP_ALIVE_MIN_MS: u64 = 295;
/// Shortest time between a renewal that was refused and the next.
const RETRY_MIN_MS: u64 = 4;
/// Renewals of a hold in the time of its lease, at most. A client sends three, and more when round trips become shorter.
const RENEWALS_PER_LEASE: u64 = 8;
/// Acquires that are sent for each caller, at most: an attempt, and others after grants that were over when they arrived.
const ACQUIRES_PER_CALL: usize = 4;
/// Acquires that are sent anew for each connection, at most.
const ACQUIRES_PER_CONNECTION: usize = 16;
/// Questions about one hold on one connection, at most.
const QUESTIONS_MAX: usize = 3;

/// Cancellations of one acquire on one connection, at most: of a caller that leaves while the connection begins, two.
const CANCELLATIONS_MAX: usize = 2;

/// The requests of real clients.
#[derive(Debug, Default)]
pub(crate) struct Chatter {
    /// Connections on which the holds were listed.
    listed: BTreeSet<usize>,
    /// When the last two keep-alives of each connection were sent. A request from before the connection may be answered beside them.
    keep_alives: BTreeMap<usize, [u64; 2]>,
    /// The same of the renewals of each hold, with the last renewal.
    renewals: BTreeMap<(usize, LockId), (usize, [u64; 2])>,
    /// Holds that a caller has extended.
    extended: BTreeSet<LockId>,
    questions: BTreeMap<(usize, LockId), usize>,
    /// Cancellations of each acquire, by connection and number.
    cancellations: BTreeMap<(usize, u32), usize>,
    /// Acquires that were sent by each process, and callers that asked for them.
    acquires: BTreeMap<usize, (usize, usize)>,
    /// Lanes with a hold that makes keep-alives more frequent.
    tied: BTreeSet<usize>,
}

impl Auditor {
    /// A caller of a real client asks for a hold.
    pub(crate) fn note_call(&mut self, process: usize) {
        self.chatter.acquires.entry(process).or_default().1 += 1;
    }

    /// A caller of a real client moves the end of a lease.
    pub(crate) fn note_extend_call(&mut self, id: LockId) {
        self.chatter.extended.insert(id);
    }

    /// A real client sends this request for the first time.
    pub(super) fn judge_chatter(&mut self, connection: usize, request: usize, now_ms: u64) {
        let lane = self.requests[request].lane;
        match self.requests[request].operation {
            Operation::Holds { cursor: 0 } if !self.chatter.listed.insert(connection) => {
                self.accuse("chatter", || {
                    format!("lane {lane} lists its holds again on connection {connection}")
                });
            }
            Operation::KeepAlive => self.judge_keep_alive(connection, request, now_ms),
            Operation::Extend { id, .. } => self.judge_renewal(connection, request, id, now_ms),
            Operation::Status { id } if !self.may_be_found(id) => {
                let count = self.chatter.questions.entry((connection, id)).or_default();
                *count += 1;
                if *count > QUESTIONS_MAX {
                    self.accuse("chatter", || format!("lane {lane} asks for {id} again and again"));
                }
            }
            Operation::Cancel { acquire, .. } => {
                let count = self.chatter.cancellations.entry((connection, acquire)).or_default();
                *count += 1;
                if *count > CANCELLATIONS_MAX {
                    self.accuse("chatter", || format!("lane {lane} cancels {acquire} again and again"));
                }
            }
            Operation::Acquire(acquire) => self.judge_acquire_count(lane, &acquire),
            _ => {}
        }
    }

    /// Returns whether the acquire with this number was cancelled on this connection.
    pub(super) fn is_cancelled_on(&self, connection: usize, number: u32) -> bool {
        self.chatter.cancellations.contains_key(&(connection, number))
    }

    /// Returns whether other acquires may find this hold by its request id.
    fn may_be_found(&self, id: LockId) -> bool {
        self.holds
            .get(&id)
            .is_none_or(|hold| hold.request_id.is_some_and(|number| number < MADE_UP_REQUEST_ID))
    }

    fn judge_keep_alive(&mut self, connection: usize, request: usize, now_ms: u64) {
        let lane = self.requests[request].lane;
        let lease_ms = u64::from(self.lease_ms_of_session(self.lanes[lane].session));
        let third_ms = lease_ms / 3;
        let min_ms =
            if self.chatter.tied.contains(&lane) { third_ms.min(KEEP_ALIVE_MIN_MS) } else { third_ms };
        let min_ms = min_ms.min(5_000) * 99 / 100;
        let sent = self.chatter.keep_alives.entry(connection).or_default();
        let [first_ms, last_ms] = std::mem::replace(sent, [sent[1], now_ms]);
        if first_ms > 0 && now_ms + 1 < first_ms + min_ms {
            self.accuse("chatter", || {
                format!("lane {lane} keeps its session of {lease_ms} ms alive at {first_ms}, {last_ms} and {now_ms}")
            });
        }
    }

    fn judge_renewal(&mut self, connection: usize, request: usize, id: LockId, now_ms: u64) {
        let (last, sent) = self.chatter.renewals.entry((connection, id)).or_default();
        let last = std::mem::replace(last, request);
        let [first_ms, last_ms] = std::mem::replace(sent, [sent[1], now_ms]);
        if first_ms == 0 {
            return;
        }
        if self.chatter.extended.contains(&id) || self.may_be_found(id) {
            return;
        }
        let Some(hold) = self.holds.get(&id).filter(|hold| !hold.others_may_end) else { return };
        let is_refused = self.requests[last].refused_ms.is_some();
        let lease_ms = u64::from(hold.lease_ms);
        let min_ms = if is_refused { RETRY_MIN_MS } else { lease_ms / RENEWALS_PER_LEASE };
        if now_ms + 1 < first_ms + min_ms {
            let lane = self.requests[request].lane;
            self.accuse("chatter", || {
                format!("lane {lane} renews {id} of {lease_ms} ms at {first_ms}, {last_ms} and {now_ms}")
            });
        }
    }

    fn judge_acquire_count(&mut self, lane: usize, acquire: &Acquire) {
        if acquire.release_after_ms.is_some_and(|ms| ms >= RELEASE_AFTER_BELIEVED_MIN_MS) {
            self.chatter.tied.insert(lane);
        }
        let process = self.lanes[lane].process;
        let lanes = self.lanes.iter().filter(|lane| lane.process == process);
        let connection_count: usize = lanes.map(|lane| lane.connections.len()).sum();
        let (sent_count, call_count) = self.chatter.acquires.entry(process).or_default();
        *sent_count += 1;
        let (sent_count, call_count) = (*sent_count, *call_count);
        if sent_count > ACQUIRES_PER_CALL * call_count + ACQUIRES_PER_CONNECTION * connection_count {
            self.accuse("chatter", || {
                format!(
                    "process {process} has sent {sent_count} acquires for {call_count} callers, on {connection_count} \
                     connections"
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auditor::scene::{ACQUIRE, asks, auditor, granted, id_of, rule, says, says_granted};
    use waymaker_protocol::{Extended, Response};

    /// Returns an auditor that has heard of a hold of a real client, on connection 3.
    fn guarded() -> Auditor {
        let mut auditor = auditor();
        auditor.settings.start_ms = 0;
        let lane = auditor.new_lane_of_process(3, 7);
        auditor.open(lane, false);
        auditor.note_call(7);
        asks(&mut auditor, 3, Acquire { request_id: None, release_after_ms: None, ..ACQUIRE }, 100);
        says_granted(&mut auditor, 3, granted(1, 100));
        auditor
    }

    fn renews(auditor: &mut Auditor, number: u32, now_ms: u64) {
        let operation = Operation::Extend { id: id_of(1), lease_ms: 700, own: false };
        auditor.asks(3, number, operation, 0, now_ms);
        let extended = Extended { remaining_ms: 700, stamp_ms: now_ms, clamped: false };
        says(auditor, 3, number, &Response::Extended(extended), now_ms);
    }

    #[test]
    fn a_hold_is_renewed_a_few_times_in_its_lease_and_not_more() {
        let mut auditor = guarded();
        renews(&mut auditor, 2, 300);
        renews(&mut auditor, 3, 530);
        renews(&mut auditor, 4, 540);
        assert_eq!(auditor.violation(), None);
        renews(&mut auditor, 5, 560);
        assert_eq!(rule(&auditor), Some("chatter"));
    }

    #[test]
    fn a_caller_may_extend_a_hold_as_often_as_it_likes() {
        let mut auditor = guarded();
        auditor.note_extend_call(id_of(1));
        renews(&mut auditor, 2, 300);
        renews(&mut auditor, 3, 305);
        renews(&mut auditor, 4, 310);
        assert_eq!(auditor.violation(), None);
    }

    #[test]
    fn a_lane_lists_its_holds_once_on_each_connection() {
        let mut auditor = guarded();
        auditor.asks(3, 2, Operation::Holds { cursor: 0 }, 0, 200);
        auditor.asks(3, 3, Operation::Holds { cursor: 8 }, 0, 201);
        assert_eq!(auditor.violation(), None);
        auditor.asks(3, 4, Operation::Holds { cursor: 0 }, 0, 202);
        assert_eq!(rule(&auditor), Some("chatter"));
    }

    #[test]
    fn an_acquire_is_not_sent_for_ever_for_one_caller() {
        let mut auditor = guarded();
        let acquire = Acquire { request_id: None, key: 1, ..ACQUIRE };
        for number in 2..=20 {
            auditor.asks(3, number, Operation::Acquire(acquire), 0, 200);
        }
        assert_eq!(auditor.violation(), None);
        for number in 21..=22 {
            auditor.asks(3, number, Operation::Acquire(acquire), 0, 200);
        }
        assert_eq!(rule(&auditor), Some("chatter"));
    }
}
