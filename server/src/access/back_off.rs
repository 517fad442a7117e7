//! Pauses of source addresses with too many failed logins. A login is an attempt to identify with credentials. An IPv6
//! address counts as its network.
//!
//! [`BackOff`] decides without I/O and without a clock. If too many logins of an address fail within a second, the
//! address is paused: the server refuses its logins without a check of the credentials. Only the signature of a signed
//! request is still checked, and a valid one is accepted. Each pause is twice as long as the one before, up to
//! [`LOGIN_PAUSE_MAX_MS`]. After [`LOGIN_QUIET_MS`] without a failure the pauses start at [`LOGIN_PAUSE_MIN_MS`] again.
//!
//! A successful login resets nothing: a client that guesses credentials may own valid ones and use them between two
//! guesses. A login that is refused during a pause is not a failure, so a client that retries too early does not extend
//! the pause.
//!
//! Memory is bounded: at most [`FAILING_ADDRESS_COUNT_MAX`] addresses are tracked. If the table is full, a new address
//! replaces the one that has been quiet for the longest time, and ends its pause.

use crate::limits::{
    FAILING_ADDRESS_COUNT_MAX, LOGIN_PAUSE_MAX_MS, LOGIN_PAUSE_MIN_MS, LOGIN_QUIET_MS, LOGIN_SERIES_MS,
};
use crate::network::Network;
use std::collections::{BTreeSet, HashMap};
use waymaker_engine::Time;

/// Maximum number of quiet addresses that each failed login removes from the table. Each failed login adds at most one
/// address, so a number above 1 lets the table shrink.
const FORGOTTEN_PER_FAILURE: usize = 4;

/// Addresses with failed logins.
#[derive(Debug)]
pub(super) struct BackOff {
    /// Number of failed logins within [`LOGIN_SERIES_MS`] that start a pause.
    failure_count_max: u32,
    tracked: HashMap<Network, AddressFailures>,
    /// The networks in `tracked`, which had a failed login, in the order of their last failure. The order tells which
    /// network has been quiet for the longest time and is removed first.
    by_failure: BTreeSet<(Time, Network)>,
}

/// The failures of one address.
#[derive(Clone, Copy, Debug)]
struct AddressFailures {
    failed_at: Time,
    /// Time of the first failure of the current series, which contains the failures within [`LOGIN_SERIES_MS`] of its
    /// first.
    series_begun: Time,
    /// Number of failed logins in the current series, which lasts for [`LOGIN_SERIES_MS`] from its first failure. It is
    /// 0 from the start of a pause until the first failure after the pause.
    series_len: u32,
    /// End of the latest pause; [`Time::ZERO`] before the first.
    pause_end: Time,
    /// Length of the next pause, in milliseconds.
    next_pause_ms: u64,
}

impl BackOff {
    /// Returns an empty table of failed logins, which pauses an address after this number of failed logins in a second.
    pub(super) fn new(failure_count_max: u32) -> Self {
        Self { failure_count_max, tracked: HashMap::new(), by_failure: BTreeSet::new() }
    }

    /// Returns the remaining pause of an address, in milliseconds; 0 if it is not paused.
    pub(super) fn pause_left_ms(&self, network: Network, now: Time) -> u64 {
        self.tracked.get(&network).map_or(0, |tracked| tracked.pause_end.ms_since(now))
    }

    /// Notes a failed login. Returns the length of the pause that it starts, in milliseconds; `None` if it starts none.
    pub(super) fn note_failure(&mut self, network: Network, now: Time) -> Option<u64> {
        self.forget_quiet(now);
        let known = self.tracked.remove(&network);
        if let Some(known) = known {
            self.by_failure.remove(&(known.failed_at, network));
        } else if self.tracked.len() >= FAILING_ADDRESS_COUNT_MAX
            && let Some((_, quietest)) = self.by_failure.pop_first()
        {
            self.tracked.remove(&quietest);
        }
        let mut tracked =
            known.filter(|known| !known.is_quiet(now)).unwrap_or_else(|| AddressFailures::new(now));
        let pause_ms = tracked.note_failure(self.failure_count_max, now);
        self.by_failure.insert((tracked.failed_at, network));
        self.tracked.insert(network, tracked);
        pause_ms
    }

    /// Removes up to [`FORGOTTEN_PER_FAILURE`] addresses whose last failure is at least [`LOGIN_QUIET_MS`] ago.
    fn forget_quiet(&mut self, now: Time) {
        for _ in 0..FORGOTTEN_PER_FAILURE {
            let Some(&(failed_at, network)) = self.by_failure.first() else { return };
            if now.ms_since(failed_at) < LOGIN_QUIET_MS {
                return;
            }
            self.by_failure.pop_first();
            self.tracked.remove(&network);
        }
    }
}

impl AddressFailures {
    fn new(now: Time) -> Self {
        Self {
            failed_at: now,
            series_begun: now,
            series_len: 0,
            pause_end: Time::ZERO,
            next_pause_ms: LOGIN_PAUSE_MIN_MS,
        }
    }

    fn is_quiet(&self, now: Time) -> bool {
        now.ms_since(self.failed_at) >= LOGIN_QUIET_MS
    }

    /// Counts a failed login of this address, unless the address is paused. Too many of them within [`LOGIN_SERIES_MS`]
    /// start a pause. Returns the length of the pause in milliseconds; `None` if this failure starts none.
    fn note_failure(&mut self, failure_count_max: u32, now: Time) -> Option<u64> {
        // Workers read the clock before they lock the table. So `now` may be earlier than a failure that another worker
        // has counted already. Keep the later of both times.
        self.failed_at = self.failed_at.max(now);
        if now < self.pause_end {
            // Another worker admitted this login before the pause started, so its failure does not count.
            return None;
        }
        if self.series_len == 0 || now.ms_since(self.series_begun) >= LOGIN_SERIES_MS {
            (self.series_begun, self.series_len) = (now, 0);
        }
        self.series_len += 1;
        if self.series_len < failure_count_max {
            return None;
        }
        let pause_ms = self.next_pause_ms;
        self.series_len = 0;
        self.pause_end = now.after_ms(pause_ms);
        self.next_pause_ms = (2 * pause_ms).min(LOGIN_PAUSE_MAX_MS);
        Some(pause_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURE_COUNT_MAX: u32 = 3;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// Returns the network with this number.
    fn numbered(number: u32) -> Network {
        Network::V4(0x0a00_0000 + number)
    }

    fn address(text: &str) -> Network {
        Network::of(text.parse().unwrap())
    }

    /// Fails logins of an address at this time until a pause starts, and returns its length.
    fn fail_until_paused(back_off: &mut BackOff, network: Network, now: u64) -> u64 {
        for _ in 1..FAILURE_COUNT_MAX {
            assert_eq!(back_off.note_failure(network, ms(now)), None);
        }
        back_off.note_failure(network, ms(now)).unwrap()
    }

    #[test]
    fn the_last_failure_of_a_series_begins_a_pause_of_its_address() {
        let mut back_off = BackOff::new(FAILURE_COUNT_MAX);
        let (guesser, other) = (numbered(1), numbered(2));
        for now in [5_000, 5_400] {
            assert_eq!(back_off.note_failure(guesser, ms(now)), None);
            assert_eq!(back_off.pause_left_ms(guesser, ms(now)), 0);
        }
        assert_eq!(back_off.note_failure(guesser, ms(5_999)), Some(1_000));
        assert_eq!(back_off.pause_left_ms(guesser, ms(5_999)), 1_000);
        assert_eq!(back_off.pause_left_ms(guesser, ms(6_998)), 1);
        assert_eq!(back_off.pause_left_ms(guesser, ms(6_999)), 0);
        assert_eq!(back_off.pause_left_ms(other, ms(5_999)), 0);
    }

    #[test]
    fn slow_failures_begin_no_pause() {
        let mut back_off = BackOff::new(FAILURE_COUNT_MAX);
        // The third failure is one second after the first, so it begins a new series.
        for now in (0..100).map(|number| number * 500) {
            assert_eq!(back_off.note_failure(numbered(1), ms(now)), None, "{now}");
        }
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let mut back_off = BackOff::new(FAILURE_COUNT_MAX);
        let mut now = 0;
        for pause_ms in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
            assert_eq!(fail_until_paused(&mut back_off, numbered(1), now), pause_ms);
            assert_eq!(back_off.pause_left_ms(numbered(1), ms(now)), pause_ms);
            now += pause_ms;
        }
    }

    #[test]
    fn a_failure_during_a_pause_neither_extends_it_nor_counts_for_the_next_one() {
        let mut back_off = BackOff::new(FAILURE_COUNT_MAX);
        fail_until_paused(&mut back_off, numbered(1), 0);
        for _ in 0..10 {
            assert_eq!(back_off.note_failure(numbered(1), ms(999)), None);
        }
        assert_eq!(back_off.pause_left_ms(numbered(1), ms(999)), 1);
        assert_eq!(fail_until_paused(&mut back_off, numbered(1), 1_000), 2_000);
    }

    #[test]
    fn a_quiet_time_makes_pauses_short_again() {
        let mut back_off = BackOff::new(FAILURE_COUNT_MAX);
        assert_eq!(fail_until_paused(&mut back_off, numbered(1), 0), 1_000);
        assert_eq!(fail_until_paused(&mut back_off, numbered(1), LOGIN_QUIET_MS - 1), 2_000);
        assert_eq!(fail_until_paused(&mut back_off, numbered(1), 2 * LOGIN_QUIET_MS - 1), 1_000);
    }

    #[test]
    fn an_ipv6_address_counts_as_its_network() {
        let mut back_off = BackOff::new(1);
        assert_eq!(back_off.note_failure(address("2001:db8:0:1::1"), ms(0)), Some(1_000));
        assert_eq!(back_off.pause_left_ms(address("2001:db8:0:1:ffff::2"), ms(0)), 1_000);
        assert_eq!(back_off.pause_left_ms(address("2001:db8:0:2::1"), ms(0)), 0);
    }

    #[test]
    fn quiet_addresses_are_forgotten() {
        let mut back_off = BackOff::new(FAILURE_COUNT_MAX);
        for number in 0..1_000 {
            back_off.note_failure(numbered(number), ms(0));
        }
        assert_eq!(back_off.tracked.len(), 1_000);
        for number in 2_000..2_400 {
            back_off.note_failure(numbered(number), ms(LOGIN_QUIET_MS));
        }
        assert_eq!((back_off.tracked.len(), back_off.by_failure.len()), (400, 400));
    }

    #[test]
    fn a_full_table_forgets_the_address_with_the_oldest_failure() {
        let mut back_off = BackOff::new(2);
        for number in 0..FAILING_ADDRESS_COUNT_MAX as u32 {
            back_off.note_failure(numbered(number), ms(0));
        }
        // Address 1 fails again at 1 ms and address 0 at 2 ms, so address 1 has the older failure.
        assert_eq!(back_off.note_failure(numbered(1), ms(1)), Some(1_000));
        assert_eq!(back_off.note_failure(numbered(0), ms(2)), Some(1_000));
        for number in 1..FAILING_ADDRESS_COUNT_MAX as u32 {
            back_off.note_failure(numbered(FAILING_ADDRESS_COUNT_MAX as u32 + number), ms(3));
        }
        let lens = (back_off.tracked.len(), back_off.by_failure.len());
        assert_eq!(lens, (FAILING_ADDRESS_COUNT_MAX, FAILING_ADDRESS_COUNT_MAX));
        assert_eq!(back_off.pause_left_ms(numbered(1), ms(3)), 0);
        assert_eq!(back_off.pause_left_ms(numbered(0), ms(3)), 999);
    }
}
