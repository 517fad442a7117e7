//! Hierarchical timing wheel for deadlines.

use crate::handle::ClaimIx;
use crate::time::Time;

const LEVEL_COUNT: usize = 7;
const SLOT_BITS: u32 = 6;
const SLOT_COUNT: usize = 1 << SLOT_BITS;
/// Bit of [`Previous`] that says that the other bits are the number of a slot. Without it, they are the number of a
/// timer.
const SLOT_MARK: u32 = 1 << 31;
/// Last instant of the wheel, in milliseconds: 139 years after the start of the clock. Later deadlines are clamped to
/// it, so the slots of the highest level never have to be used a second time.
const HORIZON_MS: u64 = (1 << (SLOT_BITS * LEVEL_COUNT as u32)) - 1;

/// Links of a timer to its neighbours in a slot's list, kept inside the record of the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WheelLinks {
    next: ClaimIx,
    previous: Previous,
}

/// Link to the entry before a timer in its list: another timer or, for the first timer, the slot that has the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Previous(u32);

impl Previous {
    /// Value of a timer that is not set.
    const UNSET: Self = Self(u32::MAX);

    fn timer(timer: ClaimIx) -> Self {
        Self(timer.number())
    }

    fn slot(level: usize, slot: usize) -> Self {
        Self(SLOT_MARK | (level * SLOT_COUNT + slot) as u32)
    }
}

impl WheelLinks {
    /// Links of a timer that is not set.
    pub const UNSET: Self = Self { next: ClaimIx::NONE, previous: Previous::UNSET };

    /// Returns the next timer in the list of the same slot, or `NONE`.
    #[inline]
    pub(crate) fn next(self) -> ClaimIx {
        self.next
    }

    /// Returns the timer before this one in the list of the same slot. If there is none, returns a handle that no timer
    /// has.
    #[inline]
    pub(crate) fn previous(self) -> ClaimIx {
        ClaimIx::new(self.previous.0)
    }

    /// Whether the timer is in the wheel.
    #[inline]
    pub fn is_set(self) -> bool {
        self.previous != Previous::UNSET
    }
}

/// Access of the wheel to its timers. A timer is the handle of a record that has links and a deadline.
pub trait Timers {
    /// Returns the links of this timer.
    fn links(&mut self, timer: ClaimIx) -> &mut WheelLinks;
    /// Returns the present deadline of this timer. The deadline of a set timer may be postponed without telling the
    /// wheel; the wheel uses the new one when it next moves the timer to a lower level. A timer whose deadline is
    /// brought forward must be cleared and set again.
    fn deadline(&self, timer: ClaimIx) -> Time;
}

/// Result of [`Wheel::pop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped {
    /// A timer is due: it was set for the instant `at`. Its deadline may have been postponed since, so the caller must
    /// check it.
    Timer {
        /// Timer, no longer in the wheel.
        timer: ClaimIx,
        /// Instant for which the timer was set.
        at: Time,
    },
    /// A timer moved to another slot. The step did work, but nothing is due yet.
    Moved,
    /// All timers of the current instant were popped. Any other timer is set for a later instant.
    EndOfInstant,
    /// Nothing more is due.
    Nothing,
}

/// Hierarchical timing wheel (Varghese and Lauck, 1987). Setting and clearing a timer are O(1); the links are inside
/// the records of the timers.
///
/// Level 0 has a slot for each millisecond of the current 64 ms. Level 1 has one for each 64 ms of the current 4,096
/// ms, and so on. So each level stands for a group of six bits of an instant. The level of a timer is the highest group
/// in which its deadline differs from `elapsed`. When `elapsed` reaches the start of a slot of a higher level, its
/// timers move to lower levels, one by one. [`Wheel::pop`] does one such step per call, so a million timers in one slot
/// cause no long pause.
#[derive(Debug)]
pub struct Wheel {
    /// Current instant in milliseconds. All timers before it were popped, and timers at it are being popped.
    elapsed: u64,
    /// Bit for each slot that is not empty.
    occupied: [u64; LEVEL_COUNT],
    /// Bit for each level that has a slot that is not empty.
    levels: u8,
    heads: [[ClaimIx; SLOT_COUNT]; LEVEL_COUNT],
    /// Whether level 0 timers were popped at the instant `elapsed`, and [`Popped::EndOfInstant`] was not returned for
    /// it yet.
    instant_open: bool,
}

impl Wheel {
    /// Returns an empty wheel at this instant.
    pub fn new(start: Time) -> Self {
        Self {
            elapsed: start.as_millis(),
            occupied: [0; LEVEL_COUNT],
            levels: 0,
            heads: [[ClaimIx::NONE; SLOT_COUNT]; LEVEL_COUNT],
            instant_open: false,
        }
    }

    /// Sets a timer that is not set. A deadline that is not after `elapsed` counts as the millisecond after `elapsed`.
    #[inline]
    pub fn set(&mut self, timers: &mut impl Timers, timer: ClaimIx, deadline: Time) {
        let at = deadline.as_millis().clamp(self.elapsed + 1, HORIZON_MS);
        self.insert(timers, timer, at);
    }

    #[inline]
    fn insert(&mut self, timers: &mut impl Timers, timer: ClaimIx, at: u64) {
        // The level is the highest group of six bits in which the deadline `at` differs from the current instant
        // `elapsed`. The lowest six bits are set here, so that a deadline which differs only in these bits, or not at
        // all, gets level 0.
        let differing = (at ^ self.elapsed) | (SLOT_COUNT as u64 - 1);
        let level = ((63 - differing.leading_zeros()) / SLOT_BITS) as usize;
        let slot = (at >> (SLOT_BITS * level as u32)) as usize & (SLOT_COUNT - 1);
        let head = self.heads[level][slot];
        *timers.links(timer) = WheelLinks { next: head, previous: Previous::slot(level, slot) };
        if head.is_some() {
            timers.links(head).previous = Previous::timer(timer);
        }
        self.heads[level][slot] = timer;
        self.occupied[level] |= 1 << slot;
        self.levels |= 1 << level;
    }

    /// Clears a timer. Has no effect if it is not set.
    // This function is always inlined: every release and every grant calls it, and a call would cost more than its
    // body.
    #[inline(always)]
    pub fn clear(&mut self, timers: &mut impl Timers, timer: ClaimIx) {
        let links = std::mem::replace(timers.links(timer), WheelLinks::UNSET);
        if links.next.is_some() {
            timers.links(links.next).previous = links.previous;
        }
        if links.previous == Previous::UNSET {
            // The timer was not set.
        } else if links.previous.0 & SLOT_MARK == 0 {
            timers.links(ClaimIx::new(links.previous.0)).next = links.next;
        } else {
            let (level, slot) = Self::position(links.previous);
            self.heads[level][slot] = links.next;
            if links.next.is_none() {
                self.occupied[level] &= !(1 << slot);
                if self.occupied[level] == 0 {
                    self.levels &= !(1 << level);
                }
            }
        }
    }

    /// Advances the wheel by one step, at most to `until`. A step takes one due timer out of the wheel, moves one timer
    /// to a lower level, or reports that all timers of an instant were popped. Callers repeat the call until it returns
    /// `Nothing`, or until the budget of the turn is used up.
    pub fn pop(&mut self, timers: &mut impl Timers, until: Time) -> Popped {
        let next = self.next_slot();
        if self.instant_open && next.is_none_or(|(_, _, at)| at > self.elapsed) {
            self.instant_open = false;
            return Popped::EndOfInstant;
        }
        let Some((level, slot, at)) = next.filter(|(_, _, at)| *at <= until.as_millis()) else {
            self.elapsed = self.elapsed.max(until.as_millis());
            return Popped::Nothing;
        };
        self.elapsed = self.elapsed.max(at);
        let timer = self.heads[level][slot];
        self.clear(timers, timer);
        if level == 0 {
            self.instant_open = true;
            return Popped::Timer { timer, at: Time::from_millis(at) };
        }
        let at = timers.deadline(timer).as_millis().clamp(self.elapsed, HORIZON_MS);
        self.insert(timers, timer, at);
        Popped::Moved
    }

    /// Whether [`Self::pop`] has returned timers of the current instant, but not yet [`Popped::EndOfInstant`] for it.
    pub fn is_within_instant(&self) -> bool {
        self.instant_open
    }

    /// Returns the earliest instant at which [`Wheel::pop`] may find a timer. The first due timer may be later than
    /// this instant, but never earlier.
    pub fn next_deadline(&self) -> Time {
        if self.instant_open {
            return Time::from_millis(self.elapsed);
        }
        match self.next_slot() {
            Some((_, _, at)) => Time::from_millis(at),
            None => Time::NEVER,
        }
    }

    /// Returns the slot that is due first: its level, its number, and the instant at which it begins. If it has begun
    /// already, the instant is the current one (`elapsed`).
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        // A slot of a higher level that contains the current instant (`elapsed`) comes first: `pop` is moving its
        // timers to lower levels, one per call, and some may be due now. `insert` adds no timer to such a slot: it uses
        // a higher level only if deadline and `elapsed` are in different slots of that level.
        let current = |level: usize| (self.elapsed >> (SLOT_BITS * level as u32)) as usize & (SLOT_COUNT - 1);
        let mut higher = self.levels & !1;
        while higher != 0 {
            let level = higher.trailing_zeros() as usize;
            let slot = current(level);
            if self.occupied[level] & (1 << slot) != 0 {
                return Some((level, slot, self.elapsed));
            }
            higher &= higher - 1;
        }
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let slot = self.occupied[level].trailing_zeros() as usize;
        debug_assert!(slot >= current(level), "the wheel skipped a slot");
        let group = SLOT_BITS * level as u32;
        let above = self.elapsed >> (group + SLOT_BITS) << (group + SLOT_BITS);
        Some((level, slot, above | (slot as u64) << group))
    }

    fn position(mark: Previous) -> (usize, usize) {
        let index = (mark.0 & !SLOT_MARK) as usize;
        (index / SLOT_COUNT, index % SLOT_COUNT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Timer {
        links: WheelLinks,
        deadline: Time,
    }

    struct Table(Vec<Timer>);

    impl Timers for Table {
        fn links(&mut self, timer: ClaimIx) -> &mut WheelLinks {
            &mut self.0[timer.number() as usize].links
        }
        fn deadline(&self, timer: ClaimIx) -> Time {
            self.0[timer.number() as usize].deadline
        }
    }

    fn table(deadlines: &[u64]) -> Table {
        let timer = |at: &u64| Timer { links: WheelLinks::UNSET, deadline: Time::from_millis(*at) };
        Table(deadlines.iter().map(timer).collect())
    }

    fn set_all(wheel: &mut Wheel, table: &mut Table) {
        for timer in (0..table.0.len() as u32).map(ClaimIx::new) {
            let deadline = table.deadline(timer);
            wheel.set(table, timer, deadline);
        }
    }

    /// Returns the timers that are due at `until` or before, each with its instant.
    fn due(wheel: &mut Wheel, table: &mut Table, until: u64) -> Vec<(u32, u64)> {
        let mut due = Vec::new();
        loop {
            match wheel.pop(table, Time::from_millis(until)) {
                Popped::Timer { timer, at } => due.push((timer.number(), at.as_millis())),
                Popped::Moved | Popped::EndOfInstant => {}
                Popped::Nothing => return due,
            }
        }
    }

    #[test]
    fn timers_fire_at_their_deadline_in_time_order() {
        let deadlines = [1, 63, 64, 65, 4095, 4096, 4097, 262_144, 1 << 30, (1 << 41) + 5];
        let (mut wheel, mut table) = (Wheel::new(Time::ZERO), table(&deadlines));
        set_all(&mut wheel, &mut table);
        for (timer, at) in deadlines.iter().enumerate() {
            assert_eq!(due(&mut wheel, &mut table, at - 1), []);
            assert!(wheel.next_deadline() <= Time::from_millis(*at));
            assert_eq!(due(&mut wheel, &mut table, *at), [(timer as u32, *at)]);
        }
        assert_eq!(wheel.next_deadline(), Time::NEVER);
    }

    #[test]
    fn a_large_time_step_fires_all_timers_in_order() {
        let deadlines: Vec<u64> = (0..2000).map(|n: u64| 1 + n * n * 7919 % 300_000).collect();
        let (mut wheel, mut table) = (Wheel::new(Time::ZERO), table(&deadlines));
        set_all(&mut wheel, &mut table);
        let found = due(&mut wheel, &mut table, 300_000);
        assert_eq!(found.len(), deadlines.len());
        assert!(found.is_sorted_by_key(|(_, at)| *at));
        assert!(found.iter().all(|(timer, at)| deadlines[*timer as usize] == *at));
    }

    #[test]
    fn a_cleared_timer_never_fires_and_its_neighbours_still_fire() {
        let (mut wheel, mut table) = (Wheel::new(Time::from_millis(1000)), table(&[5000; 5]));
        set_all(&mut wheel, &mut table);
        for timer in [0, 2, 4].map(ClaimIx::new) {
            wheel.clear(&mut table, timer);
            assert!(!table.links(timer).is_set());
        }
        wheel.clear(&mut table, ClaimIx::new(2));
        let mut found = due(&mut wheel, &mut table, 5000);
        found.sort_unstable();
        assert_eq!(found, [(1, 5000), (3, 5000)]);
    }

    #[test]
    fn a_past_deadline_is_due_at_the_next_tick() {
        let (mut wheel, mut table) = (Wheel::new(Time::from_millis(1000)), table(&[7]));
        set_all(&mut wheel, &mut table);
        assert_eq!(due(&mut wheel, &mut table, 1001), [(0, 1001)]);
    }

    #[test]
    fn the_end_of_a_tick_follows_all_its_timers_exactly_once() {
        let (mut wheel, mut table) = (Wheel::new(Time::ZERO), table(&[64, 64, 64]));
        set_all(&mut wheel, &mut table);
        let mut steps = Vec::new();
        loop {
            match wheel.pop(&mut table, Time::from_millis(100)) {
                Popped::Nothing => break,
                Popped::Moved => {}
                Popped::Timer { .. } => steps.push("timer"),
                Popped::EndOfInstant => steps.push("end"),
            }
        }
        assert_eq!(steps, ["timer", "timer", "timer", "end"]);
    }
}
