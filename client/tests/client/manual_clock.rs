//! A clock that stands still until its test moves it.

use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use waymaker_client::{BootTime, Clock, Timer};

use crate::patience::eventually;

/// Number of turns of a runtime in which one task answers another over a socket. Each turn polls all sockets.
const TURN_COUNT: u32 = 32;
/// Longest timer that moves the clock by itself: the pauses between attempts to connect.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Clock of a client. It stands still until the test moves it, so the scheduler cannot make a lease end or a renewal
/// late. The time of the server goes on. Clones share the same time.
///
/// Timers of more than a second fire when [`ManualClock::advance`] reaches them. A shorter timer moves the clock by
/// itself and fires after a few turns of the runtime.
#[derive(Clone)]
pub(crate) struct ManualClock(Arc<Mutex<State>>);

struct State {
    now: BootTime,
    /// `None` in place of a dropped timer.
    timers: Vec<Option<Armed>>,
}

struct Armed {
    at: BootTime,
    /// Turns of the runtime until it fires, so that other tasks make progress during a pause.
    turns_left: u32,
    waker: Option<Waker>,
}

impl ManualClock {
    pub(crate) fn new() -> Self {
        let now = BootTime::from_nanos(0).after(Duration::from_secs(10_000));
        Self(Arc::new(Mutex::new(State { now, timers: Vec::new() })))
    }

    /// Returns this clock for [`ClientBuilder::clock`](waymaker_client::ClientBuilder::clock).
    pub(crate) fn shared(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    /// Moves the clock. Each timer fires at its own instant. The clock moves on after the other tasks of the runtime
    /// had time to react. The runtime must have one thread.
    pub(crate) async fn advance(&self, duration: Duration) {
        let nothing_left = async || {
            for _ in 0..TURN_COUNT {
                tokio::task::yield_now().await;
            }
        };
        self.advance_with(duration, nothing_left).await;
    }

    /// Moves the clock while the only thread of the runtime is blocked, so no timer fires meanwhile.
    pub(crate) fn pass_blocked(&self, duration: Duration) {
        let mut state = self.0.lock().unwrap();
        state.now = state.now.after(duration);
    }

    /// Moves the clock, and waits for `answered` after each timer. `answered` sends a query over the client's
    /// connection. Responses keep the order of the requests, so the server has then answered the request of the timer
    /// too.
    pub(crate) async fn advance_with(&self, duration: Duration, mut answered: impl AsyncFnMut()) {
        let end = self.now().after(duration);
        loop {
            eventually(async || self.0.lock().unwrap().due_count() == 0).await;
            answered().await;
            if !self.0.lock().unwrap().step_toward(end) {
                return;
            }
        }
    }

    /// Returns whether a timer is armed that fires after a time within this range.
    pub(crate) fn is_armed_for(&self, time: impl RangeBounds<Duration>) -> bool {
        let state = self.0.lock().unwrap();
        let mut timers = state.timers.iter().flatten();
        timers.any(|timer| timer.at != BootTime::NEVER && time.contains(&timer.at.since(state.now)))
    }

    /// Moves the clock in steps of `step` until the condition holds.
    pub(crate) async fn advance_until(&self, step: Duration, mut is_so: impl AsyncFnMut() -> bool) {
        crate::patience::soon(async {
            while !is_so().await {
                self.advance(step).await;
                // Give other processes time to react.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

impl State {
    fn due_count(&self) -> usize {
        self.timers.iter().flatten().filter(|timer| timer.at <= self.now).count()
    }

    /// Moves the clock to the next timer, but at most to `end`. Returns false if `end` was reached before.
    fn step_toward(&mut self, end: BootTime) -> bool {
        let next = self.timers.iter().flatten().map(|timer| timer.at).min().unwrap_or(BootTime::NEVER);
        let is_over = self.now >= end;
        self.move_to(next.min(end));
        !is_over
    }

    fn move_to(&mut self, now: BootTime) {
        self.now = self.now.max(now);
        for timer in self.timers.iter_mut().flatten().filter(|timer| timer.at <= self.now) {
            if let Some(waker) = timer.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> BootTime {
        self.0.lock().unwrap().now
    }

    fn timer(&self) -> io::Result<Box<dyn Timer>> {
        let mut state = self.0.lock().unwrap();
        state.timers.push(Some(Armed { at: BootTime::NEVER, turns_left: 0, waker: None }));
        Ok(Box::new(ManualTimer { clock: self.clone(), index: state.timers.len() - 1 }))
    }
}

struct ManualTimer {
    clock: ManualClock,
    index: usize,
}

impl ManualTimer {
    fn with<T>(&self, work: impl FnOnce(&mut State, usize) -> T) -> T {
        work(&mut self.clock.0.lock().unwrap(), self.index)
    }
}

impl Timer for ManualTimer {
    fn arm(&mut self, at: BootTime) {
        self.with(|state, index| {
            let is_pause = at.since(state.now) <= PAUSE_MAX;
            let turns_left = if is_pause { TURN_COUNT } else { 0 };
            state.timers[index] = Some(Armed { at, turns_left, waker: None });
            if is_pause {
                state.move_to(at);
            }
        });
    }

    fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.with(|state, index| {
            let now = state.now;
            let timer = state.timers[index].as_mut().expect("its owner is there");
            if timer.at <= now {
                if timer.turns_left == 0 {
                    timer.at = BootTime::NEVER;
                    return Poll::Ready(());
                }
                timer.turns_left -= 1;
                context.waker().wake_by_ref();
            }
            timer.waker = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

impl Drop for ManualTimer {
    fn drop(&mut self) {
        self.with(|state, index| state.timers[index] = None);
    }
}
