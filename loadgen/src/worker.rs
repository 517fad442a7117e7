//! One thread of load: an epoll loop over its connections. The only client code path, for all targets and workloads.
//!
//! What a request costs here decides what can be measured at all, so: one clock reading for all answers of one read,
//! one write for all requests that follow from it, no allocation, answers parsed where they were received, and one
//! histogram entry for all answers of equal latency.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};

use crate::clock::Clock;
use crate::connection::Connection;
use crate::faults::{FaultKind, Faults};
use crate::latencies::Latencies;
use crate::options::Window;
use crate::schedule::Schedule;
use crate::slots::SlotState;
use crate::target::{Answer, Target};
use crate::workload::{Grant, Lane, Workload};

/// Longest time between two looks at the clock and at the flag that stops the load.
const POLL_TIME_MAX: Duration = Duration::from_millis(50);
/// How long requests in flight may take after the end; then they count as unanswered.
const DRAIN_NS_MAX: u64 = 5_000_000_000;
/// Receives the answers of many requests in one call: 1,024 grants are 48 KiB.
const RECEIVE_BUFFER_LEN: usize = 128 << 10;

/// When to load and when to count, in nanoseconds of the clock.
#[derive(Clone, Copy, Debug)]
pub struct Timetable {
    /// Common to all threads.
    pub clock: Clock,
    /// What is answered from here on counts,
    pub measure_from_ns: u64,
    /// until here.
    pub measure_until_ns: u64,
}

/// What a thread shares with the one that waits for it.
#[derive(Debug, Default)]
pub struct Signals {
    /// Ends the load early.
    pub stop: Arc<AtomicBool>,
    /// Answers so far.
    pub answer_count: AtomicU64,
}

/// What one thread saw.
#[derive(Debug, Default)]
pub struct WorkerResult {
    /// Requests answered while it was measured.
    pub request_count: u64,
    /// Acquires that were answered busy and sent again, while it was measured.
    pub poll_count: u64,
    /// From sending, or from when it should have been, to the answer.
    pub latency: Latencies,
    /// From one release to the next grant.
    pub hand_over: Option<Latencies>,
    /// What was wrong, at any time.
    pub faults: Faults,
}

/// One thread of load.
pub struct Worker<T: Target, W: Workload> {
    connections: Vec<Connection<T>>,
    workload: W,
    window: Window,
    schedule: Option<Schedule>,
    spin: bool,
    timetable: Timetable,
    is_stopping: bool,
    /// Slots that are not done.
    active_count: u32,
    /// Requests of the connection at hand.
    outgoing: Vec<u8>,
    result: WorkerResult,
    run: Run,
}

/// Answers of equal latency that are not recorded yet.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    sent_at_ns: u64,
    count: u64,
}

impl<T: Target, W: Workload> Worker<T, W> {
    /// A thread's part of the load; with a schedule it is an open loop.
    pub fn new(
        connections: Vec<Connection<T>>,
        workload: W,
        window: Window,
        schedule: Option<Schedule>,
        spin: bool,
        timetable: Timetable,
    ) -> Self {
        let active_count = connections.iter().map(|connection| connection.slots.active_count()).sum();
        Self {
            connections,
            workload,
            window,
            schedule,
            spin,
            timetable,
            is_stopping: false,
            active_count,
            outgoing: Vec::with_capacity(RECEIVE_BUFFER_LEN),
            result: WorkerResult::default(),
            run: Run::default(),
        }
    }

    /// Loads until the timetable ends or it is stopped, then waits for the answers that are still due.
    pub fn run(mut self, signals: &Signals) -> io::Result<WorkerResult> {
        let mut poll = Poll::new()?;
        let mut events = Events::with_capacity(self.connections.len().clamp(1, 1024));
        for (index, connection) in self.connections.iter_mut().enumerate() {
            poll.registry().register(
                &mut connection.stream,
                Token(index),
                Interest::READABLE | Interest::WRITABLE,
            )?;
        }
        let mut receive_buffer = vec![0; RECEIVE_BUFFER_LEN];
        let mut now_ns = self.timetable.clock.now_ns();
        if self.schedule.is_none() {
            (0..self.connections.len()).for_each(|index| self.send_ready(index, now_ns));
        }
        let mut answer_count = 0;
        while self.active_count > 0 {
            match poll.poll(&mut events, Some(self.poll_time(now_ns))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                answer_count += self.handle_event(event.token().0, &mut receive_buffer);
            }
            signals.answer_count.store(answer_count, Ordering::Relaxed);
            now_ns = self.timetable.clock.now_ns();
            if self.is_stopping {
                if now_ns > self.timetable.measure_until_ns.saturating_add(DRAIN_NS_MAX) {
                    break;
                }
            } else if now_ns >= self.timetable.measure_until_ns || signals.stop.load(Ordering::Relaxed) {
                self.stop(now_ns);
            } else {
                self.send_due(now_ns);
            }
        }
        let unanswered: u32 =
            self.connections.iter().map(|connection| connection.slots.in_flight_count()).sum();
        for _ in 0..unanswered {
            self.result.faults.add(FaultKind::Unanswered, || {
                format!("no answer within {} s after the end", DRAIN_NS_MAX / 1_000_000_000)
            });
        }
        self.result.hand_over = self.workload.into_hand_over();
        Ok(self.result)
    }

    fn poll_time(&self, now_ns: u64) -> Duration {
        let due_ns = match &self.schedule {
            _ if self.spin => return Duration::ZERO,
            Some(schedule) if !self.is_stopping => schedule.next_due_ns(),
            _ => u64::MAX,
        };
        // epoll counts whole milliseconds, so what is due within two is waited for without sleeping.
        match due_ns.saturating_sub(now_ns) / 1_000_000 {
            0..2 => Duration::ZERO,
            ms => Duration::from_millis(ms - 1).min(POLL_TIME_MAX),
        }
    }

    /// Issues no more acquires; holds are released.
    fn stop(&mut self, now_ns: u64) {
        self.is_stopping = true;
        self.timetable.measure_until_ns = self.timetable.measure_until_ns.min(now_ns);
        if self.schedule.take().is_some() {
            (0..self.connections.len()).for_each(|index| self.send_ready(index, now_ns));
        }
    }

    /// Receives and answers until the socket is empty. Says how many answers came.
    #[inline]
    fn handle_event(&mut self, index: usize, receive_buffer: &mut [u8]) -> u64 {
        let mut answer_count = 0;
        if self.connections[index].is_lost {
            return 0;
        }
        if let Err(error) = self.connections[index].send_rest() {
            self.lose(index, &error.to_string());
            return 0;
        }
        loop {
            let (len, is_empty) = match self.connections[index].receive(receive_buffer) {
                Ok(Some(received)) => received,
                Ok(None) => return answer_count,
                Err(error) => {
                    self.lose(index, &error.to_string());
                    return answer_count;
                }
            };
            let now_ns = self.timetable.clock.now_ns();
            match self.handle_bytes(index, &receive_buffer[..len], now_ns) {
                Ok(count) => answer_count += count,
                Err(message) => {
                    self.lose(index, &message);
                    return answer_count;
                }
            }
            if self.schedule.is_none() {
                self.send_ready(index, now_ns);
            }
            if is_empty {
                return answer_count;
            }
        }
    }

    /// Handles all whole answers and keeps the rest.
    #[inline]
    fn handle_bytes(&mut self, index: usize, bytes: &[u8], now_ns: u64) -> Result<u64, String> {
        let is_measured = (self.timetable.measure_from_ns..self.timetable.measure_until_ns).contains(&now_ns);
        let mut offset = 0;
        let mut answer_count = 0;
        loop {
            let connection = &mut self.connections[index];
            match connection.target.next_answer(&bytes[offset..]) {
                Ok(Some((answer, len))) => {
                    offset += len;
                    answer_count += 1;
                    self.handle_answer(index, answer, now_ns, is_measured);
                }
                Ok(None) => {
                    connection.keep(&bytes[offset..]);
                    break;
                }
                Err(broken) => return Err(broken.0),
            }
        }
        if is_measured {
            self.record_run(now_ns);
        }
        Ok(answer_count)
    }

    #[inline]
    fn handle_answer(&mut self, index: usize, answer: Answer<T::Hold>, now_ns: u64, is_measured: bool) {
        let connection = &mut self.connections[index];
        let number = match &answer {
            Answer::Granted { number, .. } | Answer::Released { number } | Answer::Busy { number } => *number,
            Answer::Refused { number: Some(number), .. } => *number,
            Answer::Refused { number: None, message } => {
                self.result.faults.add(FaultKind::UnexpectedError, || message.clone());
                return;
            }
        };
        let Some((slot_index, slot)) = connection.slots.in_flight(number) else {
            self.result
                .faults
                .add(FaultKind::WrongAnswer, || format!("number {number}: no such request in flight"));
            return;
        };
        let sent_at_ns = slot.sent_at_ns;
        let mut is_recorded = true;
        match (answer, slot.state) {
            (Answer::Granted { hold, fence, .. }, SlotState::Acquiring) => {
                slot.state = SlotState::Held;
                slot.hold = hold;
                let fence = T::HAS_FENCES.then_some(fence);
                let grant =
                    Grant { claim: slot.claim, fence, fence_floor: slot.fence_floor, now_ns, is_measured };
                if let Err(wrong) = self.workload.granted(grant) {
                    self.result.faults.add(wrong.kind, || wrong.message);
                }
            }
            (Answer::Released { .. }, SlotState::Releasing) => {
                slot.state = SlotState::Idle;
                is_recorded = W::RECORDS_RELEASES;
            }
            (Answer::Busy { .. }, SlotState::Acquiring) if W::CONTENDS && !T::WAITS => {
                slot.state = SlotState::Refused;
                connection.ready.push_back(slot_index);
                connection.in_flight_count -= 1;
                self.result.poll_count += u64::from(is_measured);
                return;
            }
            (answer, state) => {
                let key = slot.claim.key.0;
                slot.state = SlotState::Idle;
                self.add_fault(&answer, state, key);
            }
        }
        let connection = &mut self.connections[index];
        connection.ready.push_back(slot_index);
        connection.in_flight_count -= 1;
        if is_measured {
            self.result.request_count += 1;
            if is_recorded {
                if self.run.sent_at_ns != sent_at_ns {
                    self.record_run(now_ns);
                    self.run.sent_at_ns = sent_at_ns;
                }
                self.run.count += 1;
            }
        }
    }

    #[cold]
    fn add_fault(&mut self, answer: &Answer<T::Hold>, state: SlotState, key: u32) {
        let (kind, example) = match answer {
            Answer::Busy { .. } => (
                FaultKind::ImpossibleBusy,
                format!(
                    "key {key:08x}, of which only one request of ours knows, is held by somebody else; a load that was \
                     killed leaves its holds to the end of their leases"
                ),
            ),
            Answer::Refused { message, .. } => {
                (FaultKind::UnexpectedError, format!("{state:?} key {key:08x}: {message}"))
            }
            Answer::Granted { .. } => {
                (FaultKind::WrongAnswer, format!("a grant for the release of key {key:08x}"))
            }
            Answer::Released { .. } => {
                (FaultKind::WrongAnswer, format!("a release for the acquire of key {key:08x}"))
            }
        };
        self.result.faults.add(kind, || example);
    }

    #[inline]
    fn record_run(&mut self, now_ns: u64) {
        if self.run.count > 0 {
            self.result.latency.record(now_ns.saturating_sub(self.run.sent_at_ns), self.run.count);
            self.run.count = 0;
        }
    }

    /// Sends what is ready on one connection; in bursts only when all answers are there.
    #[inline]
    fn send_ready(&mut self, index: usize, now_ns: u64) {
        let connection = &mut self.connections[index];
        if connection.is_lost || (self.window == Window::Burst && connection.in_flight_count > 0) {
            return;
        }
        for _ in 0..connection.ready.len() {
            self.put_next(index, now_ns, now_ns);
        }
        self.flush(index);
    }

    /// Sends what the schedule says is due, as far as slots are free.
    fn send_due(&mut self, now_ns: u64) {
        let Some(mut schedule) = self.schedule.take() else { return };
        while let Some((due_ns, index)) = schedule.take_due(now_ns, |index| {
            let connection = &self.connections[index];
            !connection.is_lost && !connection.ready.is_empty()
        }) {
            self.put_next(index, due_ns, now_ns);
            self.flush(index);
        }
        self.schedule = Some(schedule);
    }

    /// Appends the next request of the first ready slot to the outgoing bytes.
    #[inline]
    fn put_next(&mut self, index: usize, sent_at_ns: u64, now_ns: u64) {
        let connection = &mut self.connections[index];
        let Some(slot_index) = connection.ready.pop_front() else { return };
        let number = connection.slots.next_number(slot_index);
        let lane = Lane(connection.first_lane + slot_index);
        let slot = connection.slots.at(slot_index);
        match slot.state {
            SlotState::Held => {
                self.workload.releasing(slot.claim, now_ns);
                slot.state = SlotState::Releasing;
                slot.sent_at_ns = sent_at_ns;
                connection.target.put_release(number, slot.claim, &slot.hold, &mut self.outgoing);
            }
            _ if self.is_stopping => {
                slot.state = SlotState::Done;
                self.active_count -= 1;
                return;
            }
            state => {
                if state != SlotState::Refused {
                    slot.claim = self.workload.choose(lane);
                    slot.sent_at_ns = sent_at_ns;
                }
                slot.fence_floor = self.workload.fence_floor(slot.claim);
                slot.state = SlotState::Acquiring;
                connection.target.put_acquire(number, slot.claim, &mut self.outgoing);
            }
        }
        slot.number = number;
        connection.in_flight_count += 1;
    }

    #[inline]
    fn flush(&mut self, index: usize) {
        if self.outgoing.is_empty() {
            return;
        }
        let sent = self.connections[index].send(&self.outgoing);
        self.outgoing.clear();
        if let Err(error) = sent {
            self.lose(index, &error.to_string());
        }
    }

    #[cold]
    fn lose(&mut self, index: usize, message: &str) {
        let connection = &mut self.connections[index];
        connection.is_lost = true;
        self.active_count -= connection.slots.active_count();
        let in_flight_count = connection.in_flight_count;
        self.result.faults.add(FaultKind::ConnectionLost, || {
            format!("{message}; {in_flight_count} requests were in flight")
        });
        connection.slots = crate::slots::Slots::new(0);
        connection.ready.clear();
    }
}
