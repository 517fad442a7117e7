//! Plays a workload on connections: handles responses and writes the requests that follow from them. Owns no
//! socket.

use std::mem;

use crate::codec::{Answer, Codec};
use crate::connection::Connection;
use crate::faults::{FaultKind, Faults};
use crate::latencies::Latencies;
use crate::slots::SlotState;
use crate::workload::{Grant, Lane, Workload};

/// Results of one thread.
#[derive(Debug, Default)]
pub struct WorkerResult {
    /// Number of requests answered during the measurement.
    pub request_count: u64,
    /// Number of acquires answered busy and sent again, during the measurement.
    pub poll_count: u64,
    /// Time from sending (in an open loop: from the time the request was due) to the response.
    pub latency: Latencies,
    /// Time from a release to the next grant.
    pub hand_over: Option<Latencies>,
    /// Each single latency, also outside the measurement, if they are kept.
    pub samples: Vec<Sample>,
    /// Wrong responses, also outside the measurement.
    pub faults: Faults,
}

/// Responses with the same latency.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Time at which the requests were sent; in an open loop, the time at which they were due.
    pub sent_at_ns: u64,
    /// Time at which the responses arrived.
    pub answered_at_ns: u64,
    /// Number of responses.
    pub count: u64,
}

/// Workload of one thread, and its results so far.
#[derive(Debug)]
pub struct Player<W: Workload> {
    workload: W,
    /// Whether the load is ending: no more acquires, only releases of existing holds.
    pub is_stopping: bool,
    /// Number of slots of all connections that are not done.
    pub active_count: u32,
    /// Requests for the current connection; empty between connections.
    pub outgoing: Vec<u8>,
    /// Results so far.
    pub result: WorkerResult,
    /// Why the server cannot serve this load at all.
    pub impossible: Option<String>,
    run: Run,
    /// Whether every latency is kept, with its time.
    keeps_samples: bool,
}

/// Responses of equal latency that are not recorded yet.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    sent_at_ns: u64,
    count: u64,
}

impl<W: Workload> Player<W> {
    /// Creates the player, before the first request.
    pub fn new(workload: W, active_count: u32, outgoing_capacity: usize, keeps_samples: bool) -> Self {
        Self {
            workload,
            is_stopping: false,
            active_count,
            outgoing: Vec::with_capacity(outgoing_capacity),
            result: WorkerResult::default(),
            impossible: None,
            run: Run::default(),
            keeps_samples,
        }
    }

    /// Ends the play and returns the results.
    pub fn finish(self) -> WorkerResult {
        WorkerResult { hand_over: self.workload.into_hand_over(), ..self.result }
    }

    /// Handles all complete responses, keeps the remaining bytes, and returns the number of responses.
    #[inline]
    pub fn handle_bytes<C: Codec>(
        &mut self,
        connection: &mut Connection<C>,
        bytes: &[u8],
        now_ns: u64,
        is_measured: bool,
    ) -> Result<u64, String> {
        let mut rest = bytes;
        let mut answer_count = 0;
        loop {
            match connection.codec.next_answer(rest) {
                Ok(Some((answer, len))) => {
                    rest = &rest[len..];
                    answer_count += 1;
                    self.handle_answer(connection, answer, now_ns, is_measured);
                }
                Ok(None) => {
                    connection.keep(rest);
                    break;
                }
                Err(broken) => return Err(broken.0),
            }
        }
        self.record_run(now_ns);
        Ok(answer_count)
    }

    #[inline]
    fn handle_answer<C: Codec>(
        &mut self,
        connection: &mut Connection<C>,
        answer: Answer<C::Hold>,
        now_ns: u64,
        is_measured: bool,
    ) {
        let number = match &answer {
            Answer::Granted { number, .. } | Answer::Released { number } | Answer::Busy { number } => *number,
            Answer::Throttled { number, .. } | Answer::Renewed { number } => *number,
            Answer::ReleasedInPart => return,
            Answer::Refused { number: Some(number), .. } => *number,
            Answer::Impossible { message } => {
                self.impossible.get_or_insert_with(|| message.clone());
                return;
            }
            Answer::Refused { number: None, message } => {
                self.result.faults.add(FaultKind::UnexpectedError, || message.clone());
                return;
            }
        };
        let Some((slot_index, slot)) = connection.slots.in_flight(number) else {
            self.add_unasked(number);
            return;
        };
        let sent_at_ns = slot.sent_at_ns;
        let mut is_recorded = is_measured;
        match (answer, slot.state) {
            (Answer::Granted { hold, fence, .. }, SlotState::Acquiring) => {
                slot.state = SlotState::Held;
                slot.hold = hold;
                let fence = C::HAS_FENCES.then_some(fence);
                let grant =
                    Grant { claim: slot.claim, fence, fence_floor: slot.fence_floor, now_ns, is_measured };
                if let Err(wrong) = self.workload.granted(grant) {
                    self.result.faults.add(wrong.kind, || wrong.message);
                }
            }
            (Answer::Released { .. }, SlotState::Releasing) => {
                slot.state = SlotState::Idle;
                is_recorded &= W::RECORDS_RELEASES;
            }
            (Answer::Throttled { allowed, .. }, SlotState::Acquiring) => {
                slot.state = SlotState::Idle;
                self.workload.throttled(slot.claim, allowed);
            }
            (Answer::Renewed { .. }, SlotState::Acquiring) if W::RENEWS => slot.state = SlotState::Idle,
            (Answer::Busy { .. }, SlotState::Acquiring) if W::CONTENDS && !C::WAITS => {
                slot.state = SlotState::Refused;
                connection.refused.push(slot_index);
                connection.in_flight_count -= 1;
                self.result.poll_count += u64::from(is_measured);
                return;
            }
            (answer, state) => {
                slot.state = SlotState::Idle;
                let key = slot.claim.key.0;
                self.add_fault(&answer, state, key);
            }
        }
        connection.ready.push(slot_index);
        connection.in_flight_count -= 1;
        self.result.request_count += u64::from(is_measured);
        if is_recorded {
            if self.run.sent_at_ns != sent_at_ns {
                self.record_run(now_ns);
                self.run.sent_at_ns = sent_at_ns;
            }
            self.run.count += 1;
        }
    }

    #[inline]
    fn record_run(&mut self, now_ns: u64) {
        if self.run.count > 0 {
            let Run { sent_at_ns, count } = self.run;
            self.result.latency.record(now_ns.saturating_sub(sent_at_ns), count);
            if self.keeps_samples {
                self.result.samples.push(Sample { sent_at_ns, answered_at_ns: now_ns, count });
            }
            self.run.count = 0;
        }
    }

    /// Appends the next requests of all ready slots.
    #[inline]
    pub fn put_all_ready<C: Codec>(&mut self, connection: &mut Connection<C>, now_ns: u64) {
        let mut ready = mem::take(&mut connection.ready);
        for slot_index in ready.drain(..) {
            self.put_next(connection, slot_index, now_ns, now_ns);
        }
        connection.ready = ready;
    }

    /// Appends the next request of the slot that has been ready for longest, so that all slots, and with them all
    /// keys, get their turn. `due_ns` is the time at which the request was due.
    #[inline]
    pub fn put_oldest_ready<C: Codec>(&mut self, connection: &mut Connection<C>, due_ns: u64, now_ns: u64) {
        if !connection.ready.is_empty() {
            let slot_index = connection.ready.remove(0);
            self.put_next(connection, slot_index, due_ns, now_ns);
        }
    }

    #[inline]
    fn put_next<C: Codec>(
        &mut self,
        connection: &mut Connection<C>,
        slot_index: u32,
        sent_at_ns: u64,
        now_ns: u64,
    ) {
        let number = connection.slots.next_number(slot_index);
        let slot = connection.slots.at(slot_index);
        match slot.state {
            SlotState::Held => {
                self.workload.releasing(slot.claim, now_ns);
                slot.state = SlotState::Releasing;
                slot.sent_at_ns = sent_at_ns;
                connection.codec.put_release(number, slot.claim, &slot.hold, &mut self.outgoing);
            }
            _ if self.is_stopping => {
                slot.state = SlotState::Done;
                self.active_count -= 1;
                return;
            }
            state => {
                if state != SlotState::Refused {
                    slot.claim = self.workload.choose(Lane(connection.first_lane + slot_index));
                    slot.sent_at_ns = sent_at_ns;
                }
                slot.fence_floor = self.workload.fence_floor(slot.claim);
                slot.state = SlotState::Acquiring;
                connection.codec.put_acquire(number, slot.claim, &mut self.outgoing);
            }
        }
        slot.number = number;
        connection.in_flight_count += 1;
    }

    /// Records the loss of the connection and of all its requests in flight.
    #[cold]
    pub fn lose<C: Codec>(&mut self, connection: &mut Connection<C>, message: &str) {
        self.active_count -= connection.slots.active_count();
        let in_flight_count = connection.in_flight_count;
        self.result.faults.add(FaultKind::ConnectionLost, || {
            format!("{message}; {in_flight_count} requests were in flight")
        });
        connection.lose();
    }

    #[cold]
    fn add_unasked(&mut self, number: u32) {
        self.result.faults.add(FaultKind::WrongAnswer, || {
            format!("number {number} does not belong to a request in flight")
        });
    }

    #[cold]
    fn add_fault<Hold>(&mut self, answer: &Answer<Hold>, state: SlotState, key: u32) {
        let (kind, example) = match answer {
            Answer::Busy { .. } => (
                FaultKind::ImpossibleBusy,
                format!(
                    "key {key:08x} is used by one request only, but another client holds it; if an earlier run was \
                     killed, its holds stay until their leases expire"
                ),
            ),
            Answer::Refused { message, .. } | Answer::Impossible { message } => {
                (FaultKind::UnexpectedError, format!("{state:?} key {key:08x}: {message}"))
            }
            Answer::Granted { .. } => {
                (FaultKind::WrongAnswer, format!("a grant in response to the release of key {key:08x}"))
            }
            Answer::Released { .. } | Answer::ReleasedInPart => {
                (FaultKind::WrongAnswer, format!("a release in response to the acquire of key {key:08x}"))
            }
            Answer::Renewed { .. } => {
                (FaultKind::WrongAnswer, format!("a renewal in response to {state:?} key {key:08x}"))
            }
            Answer::Throttled { .. } => {
                (FaultKind::WrongAnswer, format!("a limiter response to the release of key {key:08x}"))
            }
        };
        self.result.faults.add(kind, || example);
    }
}
