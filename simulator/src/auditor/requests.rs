//! The requests of clients. Each new request and each repetition adds to the knowledge of the auditor.

use super::Auditor;
use super::pool_pages::PoolWalk;
use super::records::RequestRecord;
use super::walks::Walk;
use crate::operation::{Listing, Operation, Registration, RegistrationListing};

impl Auditor {
    /// Records a request that a client sends; `end` is the stream offset of its last byte. The same number
    /// again is a repetition.
    pub(crate) fn asks(
        &mut self,
        connection: usize,
        number: u32,
        operation: Operation,
        end: u64,
        now_ms: u64,
    ) {
        let lane = self.connections[connection].lane;
        self.note_meddling(lane, &operation);
        if self.guards.is_real(lane) {
            match operation {
                Operation::Hello { .. } => self.note_greeting(lane),
                _ => self.judge_window(connection, number, !self.lanes[lane].requests.contains_key(&number)),
            }
            if let Operation::Extend { id, .. } | Operation::Status { id } = operation {
                self.note_asked_behind(lane, number, id);
            }
        }
        let request = match self.lanes[lane].requests.get(&number).copied() {
            Some(request) if self.requests[request].operation.is_repeated_by(&operation) => {
                self.requests[request].is_try |= operation.is_try();
                let is_other_server = self.restarts.happened_since(self.requests[request].sent_ms);
                self.requests[request].sent_ms = now_ms;
                self.requests[request].connection = connection;
                self.requests[request].sent_count += 1;
                if is_other_server {
                    self.note_asked_anew(request, &operation);
                }
                // A repeated request that the server has already answered has no effect.
                if self.requests[request].kept.is_none() {
                    self.note_if_freeze(request, &operation, now_ms);
                }
                self.requests[request].arrived_ms = None;
                if let Operation::Acquire(acquire) = operation {
                    self.note_in_crowd(request, &acquire);
                }
                // The repeated request may wait again, under another id.
                self.requests[request].queued = None;
                self.requests[request].is_answered &= self.requests[request].kept.is_some();
                request
            }
            _ => {
                let request = self.note_new(connection, number, operation, now_ms);
                if self.guards.is_real(lane) {
                    self.judge_chatter(connection, request, now_ms);
                }
                request
            }
        };
        if let Operation::Acquire(acquire) = operation {
            self.note_same_request_id(request, &acquire);
        }
        if let Operation::Take(withdrawal) = operation {
            self.note_withdrawal_sent(request, &withdrawal);
        }
        if let Operation::Watch { .. } = operation {
            self.connections[connection].asked_watches.insert(number);
        }
        self.note_behind_goodbye(connection, number, &operation);
        self.connections[connection].is_greeting |= matches!(operation, Operation::Hello { .. });
        self.connections[connection].unarrived.push_back((end, request));
    }

    fn note_new(&mut self, connection: usize, number: u32, operation: Operation, now_ms: u64) -> usize {
        let lane = self.connections[connection].lane;
        let fence_before = match operation {
            Operation::Inspect { key }
            | Operation::Describe { pool: key }
            | Operation::Watch { key }
            | Operation::Verify { key, .. }
            | Operation::LookUp { key }
            | Operation::Register(Registration { key, .. }) => self.newest_fence(key),
            _ => 0,
        };
        let fences_before = match operation {
            Operation::Acquire(acquire) => {
                acquire.keys().iter().map(|(key, _)| (*key, self.key(*key).newest_said())).collect()
            }
            _ => Vec::new(),
        };
        let counted_before = match operation {
            Operation::Acquire(acquire) => self.counted_before(&acquire),
            _ => Vec::new(),
        };
        self.requests.push(RequestRecord {
            lane,
            connection,
            number,
            operation,
            first_sent_ms: now_ms,
            sent_ms: now_ms,
            arrived_ms: None,
            fence_before,
            fences_before,
            counted_before,
            sent_count: 1,
            is_try: operation.is_try(),
            may_be_cancelled: false,
            is_cancelled: false,
            reset_by: None,
            is_granted: false,
            kept: None,
            is_answered: false,
            is_timed_out: false,
            granted_ms: None,
            answered_ms: None,
            refused_ms: None,
            queued: None,
        });
        let request = self.requests.len() - 1;
        self.lanes[lane].requests.insert(number, request);
        match operation {
            Operation::Release { id, own: true, .. } | Operation::Extend { id, own: true, .. }
                if self.is_of_another_client(request, id) => {}
            Operation::Release { id, forged: false, .. } => self.note_may_end(id, now_ms),
            Operation::Extend { id, lease_ms, .. } => self.note_may_move(request, id, lease_ms, now_ms),
            Operation::Cancel { acquire, .. } => {
                if let Some(acquire) = self.lanes[lane].requests.get(&acquire).copied() {
                    self.requests[acquire].may_be_cancelled = true;
                    if self.connections[connection].is_front {
                        self.requests[acquire].reset_by = Some(request);
                    }
                }
            }
            Operation::Goodbye => self.note_goodbye(lane, now_ms),
            Operation::Acquire(acquire) => {
                self.note_in_crowd(request, &acquire);
                self.pools.note_named(&acquire, now_ms);
                if acquire.scope.is_durable() {
                    acquire.keys().into_iter().for_each(|(key, _)| self.key(key).is_local_asked = true);
                }
            }
            Operation::SetCapacity { pool, capacity } => {
                self.pools.note_set(pool, request, capacity, now_ms);
            }
            Operation::Take(withdrawal) => self.note_withdrawal(request, &withdrawal, now_ms),
            Operation::Register(registration) => self.note_registering(lane, &registration, now_ms),
            Operation::Unregister { key } => self.note_unregistering(request, key, now_ms),
            Operation::Freeze { .. } => self.note_if_freeze(request, &operation, now_ms),
            Operation::ForceRelease { id } => self.note_forced(id, now_ms),
            Operation::Holds { cursor: 0 } => self.lanes[lane].holds_walk = Walk::new(now_ms),
            Operation::List(Listing { cursor: 0, walk, .. })
            | Operation::ListEntries(RegistrationListing { cursor: 0, walk, .. }) => {
                self.walks.insert((self.lanes[lane].client, walk), Walk::new(now_ms));
            }
            Operation::ListPools(Listing { cursor: 0, walk, .. }) => {
                self.pool_walks.insert((self.lanes[lane].client, walk), PoolWalk::new(now_ms));
            }
            _ => {}
        }
        request
    }
}
