//! The timing wheel against a sorted map.

use proptest::prelude::*;
use std::collections::BTreeMap;
use waymaker_engine::{ClaimIx, Popped, Time, Timers, Wheel, WheelLinks};

const TIMER_COUNT: u32 = 24;

struct Table(Vec<(WheelLinks, Time)>);

impl Timers for Table {
    fn links(&mut self, timer: ClaimIx) -> &mut WheelLinks {
        &mut self.0[timer.number() as usize].0
    }

    fn deadline(&self, timer: ClaimIx) -> Time {
        self.0[timer.number() as usize].1
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Sets the timer so many milliseconds from now, anew if it is set.
    Set(u32, u64),
    Clear(u32),
    /// Moves the deadline of a set timer further away without telling the wheel.
    PutOff(u32, u64),
    /// Time moves on; at most so many steps of the wheel are done, as in a turn with a budget.
    Advance(u64, usize),
}

/// Near, far, and at the edges of the levels.
fn distance() -> impl Strategy<Value = u64> {
    let edges = prop::sample::select(vec![
        0,
        1,
        62,
        63,
        64,
        65,
        4031,
        4095,
        4096,
        4097,
        262_143,
        262_144,
        1 << 24,
        1 << 30,
    ]);
    prop_oneof![4 => 0..200_u64, 3 => edges, 2 => 0..10_000_u64, 1 => 0..(1_u64 << 34)]
}

fn step() -> impl Strategy<Value = Step> {
    let timer = 0..TIMER_COUNT;
    prop_oneof![
        5 => (timer.clone(), distance()).prop_map(|(timer, distance)| Step::Set(timer, distance)),
        2 => timer.clone().prop_map(Step::Clear),
        2 => (timer, distance()).prop_map(|(timer, distance)| Step::PutOff(timer, distance)),
        4 => (distance(), 1..40_usize).prop_map(|(distance, steps)| Step::Advance(distance, steps)),
    ]
}

/// The wheel, and when each set timer is due.
struct Pair {
    wheel: Wheel,
    table: Table,
    due: BTreeMap<u32, u64>,
    now: u64,
    /// Everything until then has fired.
    asked: u64,
}

impl Pair {
    fn new(start: u64) -> Self {
        let table = Table(vec![(WheelLinks::UNSET, Time::NEVER); TIMER_COUNT as usize]);
        let wheel = Wheel::new(Time::from_millis(start));
        Self { wheel, table, due: BTreeMap::new(), now: start, asked: start }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Set(timer, distance) => {
                let at = self.now + distance;
                self.wheel.clear(&mut self.table, ClaimIx::new(timer));
                self.table.0[timer as usize].1 = Time::from_millis(at);
                self.wheel.set(&mut self.table, ClaimIx::new(timer), Time::from_millis(at));
                self.due.insert(timer, at);
            }
            Step::Clear(timer) => {
                self.wheel.clear(&mut self.table, ClaimIx::new(timer));
                self.due.remove(&timer);
            }
            Step::PutOff(timer, distance) => {
                if let Some(at) = self.due.get_mut(&timer) {
                    *at += distance;
                    self.table.0[timer as usize].1 = Time::from_millis(*at);
                }
            }
            Step::Advance(distance, steps) => {
                self.now += distance;
                self.pop(steps);
            }
        }
        for timer in 0..TIMER_COUNT {
            assert_eq!(
                self.table.0[timer as usize].0.is_set(),
                self.due.contains_key(&timer),
                "timer {timer}"
            );
        }
        let earliest = self.due.values().min().map_or(u64::MAX, |at| (*at).max(self.now + 1));
        assert!(
            self.wheel.next_deadline() <= Time::from_millis(earliest),
            "the next one is said to be later"
        );
    }

    fn pop(&mut self, steps: usize) {
        let mut last = self.asked;
        for _ in 0..steps {
            match self.wheel.pop(&mut self.table, Time::from_millis(self.now)) {
                Popped::Timer { timer, at } => {
                    let at = at.as_millis();
                    assert!(at >= last && at <= self.now, "{at} after {last} at {}", self.now);
                    last = at;
                    let due = self.due[&timer.number()];
                    if due > at {
                        // It was put off: whoever owns it sets it again.
                        self.wheel.set(&mut self.table, timer, Time::from_millis(due));
                    } else {
                        // What was set for the past is due at the next instant that the wheel comes to.
                        self.due.remove(&timer.number());
                    }
                }
                Popped::Moved | Popped::EndOfInstant => {}
                Popped::Nothing => {
                    let forgotten = self.due.iter().find(|(_, at)| **at < self.now && **at > self.asked);
                    assert_eq!(forgotten, None, "at {}", self.now);
                    self.asked = self.now;
                    return;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_timer_fires_once_in_order_and_on_time(
        start in prop_oneof![Just(0), 0..100_000_u64, Just(1 << 36)],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut pair = Pair::new(start);
        for step in &steps {
            pair.run(step);
        }
        // Nothing is left behind: all that is set comes in the end.
        pair.now = (1 << 42) - 1;
        pair.pop(usize::MAX);
        prop_assert!(pair.due.is_empty(), "{:?}", pair.due);
        prop_assert_eq!(pair.wheel.next_deadline(), Time::NEVER);
    }
}
