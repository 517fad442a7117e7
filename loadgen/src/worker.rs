//! One load thread: an epoll loop over its connections. This is the only client code path for all codecs and
//! workloads.
//!
//! The cost of a request in this loop limits the measurable throughput. So the loop reads the clock once for all
//! responses of one read, writes once for all requests that follow from it, allocates nothing, parses responses in
//! the receive buffer, and records one histogram entry for all responses of equal latency.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mio::{Events, Interest, Poll, Token};
use nix::sys::prctl;

use crate::clock::Clock;
use crate::codec::Codec;
use crate::connection::Connection;
use crate::faults::FaultKind;
use crate::options::Window;
use crate::plan::Plan;
use crate::player::{Player, WorkerResult};
use crate::schedule::Schedule;
use crate::units::as_ns;
use crate::workload::Workload;

/// Longest time between two checks of the clock and of the stop flag.
const POLL_TIME_MAX: Duration = Duration::from_millis(50);
/// Sleep of a worker that shares its core.
pub const NAP_TIME: Duration = Duration::from_micros(10);
/// Time limit for requests in flight after the end of the load; later responses count as missing.
pub const DRAIN_NS_MAX: u64 = 5_000_000_000;
/// Large enough for the responses of many requests in one call: 1,024 grants are 48 KiB.
const RECEIVE_BUFFER_LEN: usize = 128 << 10;

/// Times of load and measurement, in nanoseconds of the clock.
#[derive(Clone, Copy, Debug)]
pub struct Timetable {
    /// Clock of all threads.
    pub clock: Clock,
    /// Start of the measurement; responses from then on count.
    pub measure_from_ns: u64,
    /// End of the measurement.
    pub measure_until_ns: u64,
}

impl Timetable {
    /// Returns the timetable of a plan that starts now.
    pub fn of(plan: &Plan) -> Self {
        let measure_from_ns = as_ns(plan.warmup);
        Self {
            clock: Clock::start(),
            measure_from_ns,
            measure_until_ns: measure_from_ns + as_ns(plan.duration),
        }
    }

    /// Whether a response that arrives now counts.
    pub fn is_measured(&self, now_ns: u64) -> bool {
        (self.measure_from_ns..self.measure_until_ns).contains(&now_ns)
    }
}

/// State that a load thread shares with the main thread.
#[derive(Debug, Default)]
pub struct Signals {
    /// Set to end the load early.
    pub stop: Arc<AtomicBool>,
    /// Number of responses so far.
    pub answer_count: AtomicU64,
}

/// One load thread.
#[derive(Debug)]
pub struct Worker<C: Codec, W: Workload> {
    connections: Vec<Connection<C>>,
    player: Player<W>,
    window: Window,
    /// `Some` for an open loop.
    schedule: Option<Schedule>,
    spin: bool,
    /// Sleeps briefly even if the next request is due soon. Another thread of this program may share the core, and
    /// the kernel takes the core away from a real-time thread that never sleeps.
    naps: bool,
    timetable: Timetable,
    poll_interval_ns: u64,
    /// Acquires answered busy that are retried later: due time, connection, slot.
    polls: VecDeque<(u64, usize, u32)>,
}

impl<C: Codec, W: Workload> Worker<C, W> {
    /// Creates one thread's part of the load; with a schedule it is an open loop.
    pub fn new(
        connections: Vec<Connection<C>>,
        workload: W,
        plan: &Plan,
        schedule: Option<Schedule>,
        timetable: Timetable,
    ) -> Self {
        let active_count = connections.iter().map(|connection| connection.slots.active_count()).sum();
        let player = Player::new(workload, active_count, RECEIVE_BUFFER_LEN, plan.keeps_samples);
        Self {
            connections,
            player,
            window: plan.window,
            schedule,
            spin: plan.spin,
            naps: plan.keeps_samples,
            timetable,
            poll_interval_ns: as_ns(plan.poll_interval),
            polls: VecDeque::new(),
        }
    }

    /// Runs the load until the timetable ends or the load is stopped, then waits for the outstanding responses.
    /// Fails if the server cannot serve the load at all.
    pub fn run(mut self, signals: &Signals) -> Result<WorkerResult> {
        if self.naps {
            // Without this, each sleep would take about fifty microseconds longer.
            prctl::set_timerslack(1)?;
        }
        let mut poll = Poll::new()?;
        let mut events = Events::with_capacity(self.connections.len().clamp(1, 1024));
        for (index, connection) in self.connections.iter_mut().enumerate() {
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(connection.stream.socket_mut(), Token(index), interest)?;
        }
        let mut receive_buffer = vec![0; RECEIVE_BUFFER_LEN];
        let mut now_ns = self.timetable.clock.now_ns();
        if self.schedule.is_none() {
            self.send_all_ready(now_ns);
        }
        let mut answer_count = 0;
        while self.player.active_count > 0 {
            if self.naps {
                thread::sleep(NAP_TIME);
            }
            match poll.poll(&mut events, Some(self.poll_time(now_ns))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(error).context("the event loop failed");
                }
                _ => {}
            }
            for event in &events {
                answer_count += self.handle_event(event.token().0, &mut receive_buffer);
            }
            if let Some(message) = self.player.impossible {
                bail!(message);
            }
            signals.answer_count.store(answer_count, Ordering::Relaxed);
            now_ns = self.timetable.clock.now_ns();
            self.poll_due(now_ns);
            if self.player.is_stopping {
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
            self.player.result.faults.add(FaultKind::Unanswered, || {
                format!("no response within {} s after the end", DRAIN_NS_MAX / 1_000_000_000)
            });
        }
        self.close_all();
        Ok(self.player.finish())
    }

    /// Removes the sessions that the connections opened. The measurement is complete, so errors are ignored.
    fn close_all(&mut self) {
        for connection in self.connections.iter_mut().filter(|connection| !connection.is_lost) {
            let mut farewell = Vec::new();
            connection.codec.put_close(&mut farewell);
            if !farewell.is_empty() {
                let _ = connection.send(&farewell);
            }
        }
    }

    fn poll_time(&self, now_ns: u64) -> Duration {
        let due_ns = match &self.schedule {
            _ if self.spin => return Duration::ZERO,
            Some(schedule) => schedule.next_due_ns(),
            None => u64::MAX,
        };
        let due_ns = self.polls.front().map_or(due_ns, |(poll_due_ns, ..)| due_ns.min(*poll_due_ns));
        // epoll has a resolution of one millisecond, so the loop busy-polls if the next request is due within two.
        match due_ns.saturating_sub(now_ns) / 1_000_000 {
            0..2 => Duration::ZERO,
            ms => Duration::from_millis(ms - 1).min(POLL_TIME_MAX),
        }
    }

    /// Issues no more acquires; existing holds are released.
    fn stop(&mut self, now_ns: u64) {
        self.player.is_stopping = true;
        self.timetable.measure_until_ns = self.timetable.measure_until_ns.min(now_ns);
        self.poll_due(u64::MAX);
        // In a closed loop every ready slot waits for another response, and continues then.
        if self.schedule.take().is_some() {
            self.send_all_ready(now_ns);
        }
    }

    /// Receives and handles responses until the socket is empty. Returns the number of responses.
    #[inline]
    fn handle_event(&mut self, index: usize, receive_buffer: &mut [u8]) -> u64 {
        let mut answer_count = 0;
        let connection = &mut self.connections[index];
        if connection.is_lost {
            return 0;
        }
        if let Err(error) = connection.send_rest() {
            self.player.lose(connection, &error.to_string());
            return 0;
        }
        loop {
            let (len, is_empty) = match connection.receive(receive_buffer) {
                Ok(Some(received)) => received,
                Ok(None) => return answer_count,
                Err(error) => {
                    self.player.lose(connection, &error.to_string());
                    return answer_count;
                }
            };
            let now_ns = self.timetable.clock.now_ns();
            let is_measured = self.timetable.is_measured(now_ns);
            match self.player.handle_bytes(connection, &receive_buffer[..len], now_ns, is_measured) {
                Ok(count) => answer_count += count,
                Err(message) => {
                    self.player.lose(connection, &message);
                    return answer_count;
                }
            }
            if self.poll_interval_ns == 0 || self.player.is_stopping {
                connection.ready.append(&mut connection.refused);
            } else {
                let due_ns = now_ns + self.poll_interval_ns;
                self.polls.extend(connection.refused.drain(..).map(|slot_index| (due_ns, index, slot_index)));
            }
            let is_complete = self.window == Window::Sliding || connection.in_flight_count == 0;
            if self.schedule.is_none() && is_complete {
                self.player.put_all_ready(connection, now_ns);
                flush(&mut self.player, connection);
            }
            if is_empty {
                return answer_count;
            }
        }
    }

    /// Retries acquires that are due.
    fn poll_due(&mut self, now_ns: u64) {
        while let Some((_, index, slot_index)) = self.polls.pop_front_if(|(due_ns, ..)| *due_ns <= now_ns) {
            let connection = &mut self.connections[index];
            if !connection.is_lost {
                connection.ready.push(slot_index);
                self.player.put_all_ready(connection, now_ns);
                flush(&mut self.player, connection);
            }
        }
    }

    /// Sends ready requests on all connections.
    fn send_all_ready(&mut self, now_ns: u64) {
        for connection in self.connections.iter_mut().filter(|connection| !connection.is_lost) {
            self.player.put_all_ready(connection, now_ns);
            flush(&mut self.player, connection);
        }
    }

    /// Sends requests that are due by the schedule, as far as slots are free.
    fn send_due(&mut self, now_ns: u64) {
        let Some(schedule) = &mut self.schedule else { return };
        let connections = &mut self.connections;
        while let Some((due_ns, index)) = schedule
            .take_due(now_ns, |index| !connections[index].is_lost && !connections[index].ready.is_empty())
        {
            self.player.put_oldest_ready(&mut connections[index], due_ns, now_ns);
            flush(&mut self.player, &mut connections[index]);
        }
    }
}

/// Sends the requests that the player wrote for this connection.
#[inline]
fn flush<C: Codec, W: Workload>(player: &mut Player<W>, connection: &mut Connection<C>) {
    if player.outgoing.is_empty() {
        return;
    }
    let sent = connection.send(&player.outgoing);
    player.outgoing.clear();
    if let Err(error) = sent {
        player.lose(connection, &error.to_string());
    }
}
