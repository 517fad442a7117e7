//! Rule `chatter`: a lane of a real client sends only the requests that its holds, its session and its callers need.
//!
//! Requests that a caller makes directly are not counted. Each limit follows from the behaviour that the client documents: a
//! renewal and a keep-alive are due after a third of a lease, and a lane lists its holds once for each connection.

use super::Auditor;
use super::guards::RELEASE_AFTER_BELIEVED_MIN_MS;
use crate::operation::{Acquire, MADE_UP_REQUEST_ID, Operation};
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::LockId;

/// Shortest time between two keep-alives of a lane with a hold that ends shortly after its connection: a
/// third of the shortest such `release_after_ms` that counts, minus a margin.
const KEEP_ALIVE_MIN_MS: u64 = 295;
/// Shortest time between a refused renewal and the next one.
const RETRY_MIN_MS: u64 = 4;
/// Maximum number of renewals of a hold within its lease. A client sends three, and more when round trips
/// become shorter.
const RENEWALS_PER_LEASE: u64 = 8;
/// Maximum number of acquires sent for each caller: the first, and repetitions after grants that were over
/// when they arrived.
const ACQUIRES_PER_CALL: usize = 4;
/// Maximum number of acquires sent again for each connection.
const ACQUIRES_PER_CONNECTION: usize = 16;
/// Maximum number of STATUS requests about one hold on one connection.
const QUESTIONS_MAX: usize = 3;

/// Maximum number of cancellations of one acquire on one connection: two, if the caller drops it while the
/// connection is being opened.
const CANCELLATIONS_MAX: usize = 2;

/// Requests of real clients.
#[derive(Debug, Default)]
pub(crate) struct Chatter {
    /// Connections on which the lane has listed its holds.
    listed: BTreeSet<usize>,
    /// Times of the last two keep-alives of each connection. A request from before the connection may be
    /// answered in addition.
    keep_alives: BTreeMap<usize, [u64; 2]>,
    /// Newest renewal of each hold, and the times of the last two, by connection.
    renewals: BTreeMap<(usize, LockId), (usize, [u64; 2])>,
    /// Holds that a caller has extended.
    extended: BTreeSet<LockId>,
    questions: BTreeMap<(usize, LockId), usize>,
    /// Cancellations of each acquire, by connection and number.
    cancellations: BTreeMap<(usize, u32), usize>,
    /// Number of acquires sent by each process, and number of its callers.
    acquires: BTreeMap<usize, (usize, usize)>,
    /// Lanes with a hold that makes keep-alives more frequent.
    tied: BTreeSet<usize>,
}

impl Auditor {
    /// Records that a caller of a real client requests a hold.
    pub(crate) fn note_call(&mut self, process: usize) {
        self.chatter.acquires.entry(process).or_default().1 += 1;
    }

    /// Records that a caller of a real client moves the end of a lease.
    pub(crate) fn note_extend_call(&mut self, id: LockId) {
        self.chatter.extended.insert(id);
    }

    /// Rule `chatter`: checks a request that a real client sends for the first time.
    pub(super) fn judge_chatter(&mut self, connection: usize, request: usize, now_ms: u64) {
        let lane = self.requests[request].lane;
        match self.requests[request].operation {
            Operation::Holds { cursor: 0 } if !self.chatter.listed.insert(connection) => {
                self.accuse("chatter", || {
                    format!("lane {lane} lists its holds a second time on connection {connection}")
                });
            }
            Operation::KeepAlive => self.judge_keep_alive(connection, request, now_ms),
            Operation::Extend { id, .. } => self.judge_renewal(connection, request, id, now_ms),
            Operation::Status { id } if !self.may_be_found(id) => {
                let count = self.chatter.questions.entry((connection, id)).or_default();
                *count += 1;
                if *count > QUESTIONS_MAX {
                    self.accuse("chatter", || {
                        format!(
                            "lane {lane} has sent more than {QUESTIONS_MAX} STATUS requests about {id} on one connection"
                        )
                    });
                }
            }
            Operation::Cancel { acquire, .. } => {
                let count = self.chatter.cancellations.entry((connection, acquire)).or_default();
                *count += 1;
                if *count > CANCELLATIONS_MAX {
                    self.accuse("chatter", || {
                        format!(
                            "lane {lane} has cancelled request {acquire} more than {CANCELLATIONS_MAX} times on one connection"
                        )
                    });
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

    /// Rule `chatter`: keep-alives of a session are not more frequent than its lease requires.
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
                format!(
                    "lane {lane} sends keep-alives too often for a session lease of {lease_ms} ms: at {first_ms}, {last_ms} and {now_ms} ms"
                )
            });
        }
    }

    /// Rule `chatter`: renewals of a hold are not more frequent than its lease requires.
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
                format!(
                    "lane {lane} renews {id} too often for a lease of {lease_ms} ms: at {first_ms}, {last_ms} and {now_ms} ms"
                )
            });
        }
    }

    /// Rule `chatter`: a process sends only a limited number of acquires for each caller and connection.
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

    /// Returns an auditor that knows a hold of a real client on connection 3.
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
    fn a_hold_is_renewed_only_a_few_times_within_its_lease() {
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
    fn an_acquire_is_not_sent_forever_for_one_caller() {
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
