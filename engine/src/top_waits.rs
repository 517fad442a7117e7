//! Search for the most contended keys in bounded memory.

use crate::limits::{CONTENDED_KEY_COUNT_MAX, CONTENTION_WINDOW_MS};
use crate::time::Time;
use std::cmp::Reverse;

/// Counts of waits in the newest one or two windows of time.
///
/// All waits of one millisecond count for the key of the first of them. So the sum of all counts stays exact, and the
/// search for the counter of a key runs at most once in a millisecond.
#[derive(Debug)]
pub(crate) struct TopWaits {
    current: TopKeys,
    current_began: Time,
    previous: TopKeys,
    /// Length in milliseconds of the previous window of time, in which claims began to wait that `previous` counts by
    /// key; 0 if there was none.
    previous_ms: u64,
    /// Time of the last wait that [`TopWaits::count`] counted (a claim began to wait), and the position of its counter
    /// in `current`. `current` has the counters of keys for the present window. `None` if the window began or lost
    /// counters since that wait.
    counted: Option<(Time, usize)>,
    /// Number of claims that began to wait in the same millisecond as the wait in `counted`, but after it. They count
    /// for the key of that wait, but are not in its counter yet.
    rest: u64,
}

/// The keys with the most waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contended {
    /// Length in milliseconds of the time in which waits were counted.
    pub(crate) window_ms: u64,
    /// Namespace, key, and number of waits; most waits first.
    pub(crate) keys: Vec<(u16, Vec<u8>, u64)>,
}

impl TopWaits {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            current: TopKeys::default(),
            current_began: now,
            previous: TopKeys::default(),
            previous_ms: 0,
            counted: None,
            rest: 0,
        }
    }

    /// Notes that a claim begins to wait. If a wait was already counted in this millisecond, adds 1 to `rest` and
    /// returns false: this wait counts for the same key. Otherwise returns true, and the caller must call
    /// [`TopWaits::count`] with the key of this claim.
    #[inline]
    pub(crate) fn note(&mut self, now: Time) -> bool {
        if self.counted.is_some_and(|(counted_at, _)| counted_at == now) {
            self.rest += 1;
            return false;
        }
        true
    }

    /// Counts a wait for this key. All later waits of this millisecond also count for this key.
    pub(crate) fn count(&mut self, namespace: u16, key: &[u8], now: Time) {
        self.count_rest();
        self.roll(now);
        self.counted = Some((now, self.current.add(namespace, key)));
    }

    /// Adds `rest` to the counter that `counted` names. All waits of a millisecond count for the key of the first of
    /// them, and `rest` is the number of the others.
    fn count_rest(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        if let Some((_, place)) = self.counted {
            self.current.0[place].waits += rest;
        }
    }

    /// Returns the keys with the most waits, at most [`CONTENDED_KEY_COUNT_MAX`].
    pub(crate) fn contended(&mut self, now: Time) -> Contended {
        self.count_rest();
        self.roll(now);
        let mut keys: Vec<(u16, Vec<u8>, u64)> = Vec::new();
        for counter in self.previous.0.iter().chain(&self.current.0) {
            match keys.iter_mut().find(|(namespace, key, _)| counter.is_of(*namespace, key)) {
                Some((.., waits)) => *waits += counter.waits,
                None => keys.push((counter.namespace, counter.key.to_vec(), counter.waits)),
            }
        }
        keys.sort_by_key(|(.., waits)| Reverse(*waits));
        keys.truncate(CONTENDED_KEY_COUNT_MAX);
        Contended { window_ms: self.previous_ms + now.ms_since(self.current_began), keys }
    }

    /// Removes the keys of the namespaces that `concerns` accepts, because these namespaces are about to be removed.
    pub(crate) fn forget(&mut self, concerns: impl Fn(u16) -> bool) {
        self.count_rest();
        self.counted = None;
        for keys in [&mut self.previous, &mut self.current] {
            keys.0.retain(|counter| !concerns(counter.namespace));
        }
    }

    /// Begins a new window if the current one ended.
    fn roll(&mut self, now: Time) {
        let current_ms = now.ms_since(self.current_began);
        if current_ms < CONTENTION_WINDOW_MS {
            return;
        }
        self.counted = None;
        let current = std::mem::take(&mut self.current);
        (self.previous, self.previous_ms) = if current_ms < 2 * CONTENTION_WINDOW_MS {
            (current, current_ms)
        } else {
            // No wait was counted, and no list requested, for so long that the current window is too old to be shown.
            (TopKeys::default(), CONTENTION_WINDOW_MS)
        };
        self.current_began = now;
    }
}

/// Counters of the Space-Saving algorithm of Metwally, Agrawal and El Abbadi. A key with more than 1/n of all waits has
/// one of the n counters, and its counter is never below its number of waits.
#[derive(Debug, Default)]
struct TopKeys(Vec<Counter>);

#[derive(Debug)]
struct Counter {
    namespace: u16,
    key: Box<[u8]>,
    waits: u64,
}

impl Counter {
    fn is_of(&self, namespace: u16, key: &[u8]) -> bool {
        self.namespace == namespace && *self.key == *key
    }
}

impl TopKeys {
    /// Counts one wait for a key. Returns the position of its counter.
    fn add(&mut self, namespace: u16, key: &[u8]) -> usize {
        let known = self.0.iter().position(|counter| counter.is_of(namespace, key));
        let place = known.unwrap_or_else(|| self.make_counter(namespace, key));
        self.0[place].waits += 1;
        place
    }

    /// Returns the position of a counter for a key that has none. If all counters are in use, the key takes over the
    /// counter with the fewest waits, and continues with its value.
    fn make_counter(&mut self, namespace: u16, key: &[u8]) -> usize {
        let counter = Counter { namespace, key: key.into(), waits: 0 };
        let counters = self.0.iter().enumerate();
        match counters.min_by_key(|(_, counter)| counter.waits) {
            Some((place, least)) if self.0.len() == CONTENDED_KEY_COUNT_MAX => {
                self.0[place] = Counter { waits: least.waits, ..counter };
                place
            }
            _ => {
                self.0.push(counter);
                self.0.len() - 1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// Notes one wait for the key at this time.
    fn wait(waits: &mut TopWaits, key: &[u8], now: Time) {
        if waits.note(now) {
            waits.count(1, key, now);
        }
    }

    fn waits_of(waits: &mut TopWaits, key: &[u8], now: Time) -> u64 {
        let contended = waits.contended(now);
        contended.keys.iter().filter(|(_, listed, _)| listed == key).map(|(.., waits)| waits).sum()
    }

    #[test]
    fn rare_waits_are_counted_one_by_one() {
        let mut waits = TopWaits::new(at(0));
        for second in 1..=9 {
            wait(&mut waits, if second % 3 == 0 { b"a" } else { b"b" }, at(second * 1_000));
        }
        let contended = waits.contended(at(10_000));
        assert_eq!(
            contended,
            Contended { window_ms: 10_000, keys: vec![(1, b"b".into(), 6), (1, b"a".into(), 3)] }
        );
    }

    #[test]
    fn the_waits_of_a_millisecond_count_for_the_first_of_them() {
        for now in [0, 1] {
            let mut waits = TopWaits::new(at(0));
            wait(&mut waits, b"a", at(now));
            for _ in 0..4 {
                wait(&mut waits, b"b", at(now));
            }
            let counts = |waits: &mut TopWaits| [b"a", b"b"].map(|key| waits_of(waits, key, at(now)));
            assert_eq!(counts(&mut waits), [5, 0]);
            wait(&mut waits, b"b", at(now + 1));
            assert_eq!(counts(&mut waits), [5, 1]);
        }
    }

    #[test]
    fn the_waits_of_the_last_millisecond_of_a_window_count_for_that_window() {
        let mut waits = TopWaits::new(at(0));
        for _ in 0..3 {
            wait(&mut waits, b"a", at(CONTENTION_WINDOW_MS - 1));
        }
        wait(&mut waits, b"b", at(CONTENTION_WINDOW_MS));
        let end = at(2 * CONTENTION_WINDOW_MS - 1);
        assert_eq!([b"a", b"b"].map(|key| waits_of(&mut waits, key, end)), [3, 1]);
    }

    #[test]
    fn waits_after_a_removed_namespace_count_for_no_other_key() {
        let mut waits = TopWaits::new(at(0));
        for namespace in [1, 2] {
            let now = at(u64::from(namespace));
            assert!(waits.note(now));
            waits.count(namespace, b"a", now);
        }
        waits.forget(|namespace| namespace == 2);
        assert!(waits.note(at(2)), "the wait is counted for its own key");
        assert_eq!(waits.contended(at(3)).keys, [(1, b"a".to_vec(), 1)]);
    }

    #[test]
    fn a_key_with_many_waits_stays_listed_among_any_number_of_others() {
        let mut waits = TopWaits::new(at(0));
        for number in 0..20_000_u64 {
            let key = if number % 10 == 0 { b"hot".to_vec() } else { number.to_le_bytes().to_vec() };
            wait(&mut waits, &key, at(1 + number));
        }
        let contended = waits.contended(at(20_001));
        assert_eq!(contended.keys.len(), CONTENDED_KEY_COUNT_MAX);
        let (_, key, waits) = &contended.keys[0];
        assert_eq!(key, b"hot");
        assert!((2_000..2_400).contains(waits), "{waits} waits");
    }

    #[test]
    fn waits_count_for_one_or_two_windows() {
        let mut waits = TopWaits::new(at(0));
        wait(&mut waits, b"a", at(1));
        assert_eq!(waits_of(&mut waits, b"a", at(CONTENTION_WINDOW_MS)), 1);
        wait(&mut waits, b"a", at(CONTENTION_WINDOW_MS + 1));
        let contended = waits.contended(at(CONTENTION_WINDOW_MS + 1));
        assert_eq!((contended.window_ms, contended.keys[0].2), (CONTENTION_WINDOW_MS + 1, 2));
        assert_eq!(waits_of(&mut waits, b"a", at(2 * CONTENTION_WINDOW_MS)), 1);
        assert_eq!(waits_of(&mut waits, b"a", at(3 * CONTENTION_WINDOW_MS)), 0);
    }

    #[test]
    fn a_long_silence_empties_the_list() {
        let mut waits = TopWaits::new(at(0));
        wait(&mut waits, b"a", at(1));
        let expected = Contended { window_ms: CONTENTION_WINDOW_MS, keys: Vec::new() };
        assert_eq!(waits.contended(at(10 * CONTENTION_WINDOW_MS)), expected);
    }

    #[test]
    fn keys_of_a_removed_namespace_are_forgotten() {
        let mut waits = TopWaits::new(at(0));
        for namespace in [1, 2] {
            let now = at(u64::from(namespace));
            assert!(waits.note(now));
            waits.count(namespace, b"a", now);
        }
        waits.forget(|namespace| namespace == 1);
        assert_eq!(waits.contended(at(3)).keys, [(2, b"a".to_vec(), 1)]);
    }
}
