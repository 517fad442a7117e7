//! Local deadline of a lock, computed without any network.
//!
//! The server reports how much of the lease remains at its own time `stamp`. The client knows the position of that
//! stamp on the local clock only from a round trip, the anchor. So it assumes the earliest possible time: the server
//! cannot have read its clock before the anchor's request was sent. The deadline is earlier still, by a margin.
//!
//! ```text
//! local   ---- sent ------------------------------- received ----------------------------->
//!                 \                               /                        | deadline
//! server  --------- anchor.stamp ----- stamp -----------------------------------| lease end
//!                                      |<----------- remaining ---------------->|
//!
//! deadline = anchor.sent + (stamp - anchor.stamp) + remaining - margin
//! ```
//!
//! The anchor (a request's send time, with the server's stamp in the response) converts server times to local times. A
//! grant that waited cannot be the anchor: its request was sent long before the decision, so every deadline would be
//! too early by the length of the wait. Instead, the client converts the stamp of such a grant with the anchor of
//! another round trip. With valid stamps, the time at which a response arrives does not count. So a response that spent
//! half of the lease in a socket still yields the same deadline.
//!
//! The margin is the time by which the local deadline lies before the end of the lease. It covers the remaining errors:
//! stamps are whole milliseconds, two clocks drift, and a holder needs a moment to stop its work.

use std::time::Duration;

use crate::clock::BootTime;

/// Maximum of the margin's fixed part. The share for clock drift is added to it.
const MARGIN_MAX: Duration = Duration::from_millis(50);

/// One answered round trip: the server's clock showed `stamp_ms` not before `sent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Time at which the request was first sent.
    pub sent: BootTime,
    /// The server's clock when it decided the response, in milliseconds.
    pub stamp_ms: u64,
}

/// The server's report of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseReport {
    /// The server's clock when it determined the remaining lease, in milliseconds.
    pub stamp_ms: u64,
    /// Remaining lease at that time.
    pub remaining: Duration,
    /// Length of the whole lease. From this length, [`margin`] computes how long before the end of the lease the local
    /// deadline lies.
    pub lease: Duration,
}

/// Returns the nanoseconds of a duration, at most `u64::MAX`.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the margin of a lease of this length: the time by which the local deadline lies before the end of the lease.
pub fn margin(lease: Duration) -> Duration {
    let lease = nanos(lease);
    Duration::from_nanos(nanos(MARGIN_MAX).min(lease / 10) + lease / 100)
}

/// Value of [`LeaseReport::remaining`] for a hold without a lease.
const WITHOUT_END: Duration = Duration::from_millis(u32::MAX as u64);

/// Returns the local deadline of the lease; [`BootTime::NEVER`] for a hold without a lease. `now` is the time at which
/// the response was read. It guards against a server with invalid stamps: no lease can end later than its remaining
/// time after the response arrived.
pub fn deadline(anchor: Anchor, report: LeaseReport, now: BootTime) -> BootTime {
    const NANOS_PER_MS: i128 = 1_000_000;
    if report.remaining == WITHOUT_END {
        return BootTime::NEVER;
    }
    let margin = margin(report.lease).as_nanos() as i128;
    let remaining = report.remaining.as_nanos() as i128 - margin;
    let elapsed = (i128::from(report.stamp_ms) - i128::from(anchor.stamp_ms)) * NANOS_PER_MS;
    let placed = i128::from(anchor.sent.as_nanos()) + elapsed + remaining;
    let latest = i128::from(now.as_nanos()) + remaining;
    let nanos = placed.min(latest).clamp(0, i128::from(u64::MAX - 1));
    BootTime::from_nanos(nanos as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);
    /// Margin of `LEASE`: 50 ms and one hundredth of its ten seconds.
    const MARGIN: Duration = Duration::from_millis(150);

    fn at_ms(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    fn report(stamp_ms: u64, remaining: Duration) -> LeaseReport {
        LeaseReport { stamp_ms, remaining, lease: LEASE }
    }

    #[test]
    fn the_margin_is_a_tenth_up_to_50_ms_plus_one_percent() {
        assert_eq!(margin(Duration::from_millis(10)), Duration::from_micros(1_100));
        assert_eq!(margin(Duration::from_millis(500)), Duration::from_millis(55));
        assert_eq!(margin(LEASE), MARGIN);
    }

    #[test]
    fn an_immediate_answer_counts_from_the_send_time_of_its_request() {
        let anchor = Anchor { sent: at_ms(1_000), stamp_ms: 77_000 };
        for received in [1_000, 1_001, 9_000] {
            let deadline = deadline(anchor, report(77_000, LEASE), at_ms(received));
            assert_eq!(deadline, at_ms(1_000 + 10_000 - 150));
        }
    }

    #[test]
    fn a_grant_after_a_long_wait_is_dated_by_a_newer_round_trip() {
        let anchor = Anchor { sent: at_ms(3_600_000), stamp_ms: 500_000 };
        // The anchor is a round trip whose request was sent at 3,600 s of the local clock; the server's clock showed
        // 500 s. The server decides the grant at 502 s, and the client reads it at 3,603 s.
        let deadline = deadline(anchor, report(502_000, LEASE), at_ms(3_603_000));
        assert_eq!(deadline, at_ms(3_602_000 + 10_000 - 150));
    }

    #[test]
    fn an_answer_older_than_the_anchor_is_dated_before_it() {
        let anchor = Anchor { sent: at_ms(20_000), stamp_ms: 9_000 };
        let deadline = deadline(anchor, report(4_000, LEASE), at_ms(20_500));
        assert_eq!(deadline, at_ms(15_000 + 10_000 - 150));
    }

    /// The deadline must lie before the true end of the lease, wherever in its round trip the server decided.
    #[test]
    fn the_deadline_is_never_late_whatever_the_network_delay() {
        for to_server in [0, 1, 40, 900] {
            for to_client in [0, 1, 40, 900] {
                for wait in [0, 3, 5_000] {
                    let sent = 10_000;
                    // The server's clock runs 123 ms behind the local clock.
                    let decided_local = sent + to_server;
                    let anchor = Anchor { sent: at_ms(sent), stamp_ms: decided_local - 123 };
                    let granted_local = decided_local + to_client + wait;
                    let received = at_ms(granted_local + to_client);
                    let end = at_ms(granted_local + 10_000);
                    let deadline = deadline(anchor, report(granted_local - 123, LEASE), received);
                    assert!(deadline.after(MARGIN) <= end);
                    assert!(end.since(deadline) <= MARGIN + Duration::from_millis(to_server));
                }
            }
        }
    }

    #[test]
    fn invalid_stamps_neither_overflow_nor_lengthen_the_lease() {
        for anchor_ms in [0, u64::MAX] {
            for stamp_ms in [0, 5, u64::MAX] {
                let anchor = Anchor { sent: at_ms(1_000), stamp_ms: anchor_ms };
                let remaining = Duration::from_millis(u64::from(u32::MAX - 1));
                let deadline = deadline(anchor, report(stamp_ms, remaining), at_ms(2_000));
                assert!(deadline <= at_ms(2_000).after(remaining));
            }
        }
    }
}
