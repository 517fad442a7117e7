//! The local deadlines of holds, computed as `docs/reference/wire.md` requires.

/// An answered round trip. The server's clock showed `stamp_ms` at `sent_us` or later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) sent_us: u64,
    pub(super) stamp_ms: u64,
}

/// The server's statement about a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseWord {
    pub(super) stamp_ms: u64,
    pub(super) remaining_ms: u32,
    /// Length of the whole lease.
    pub(super) lease_ms: u32,
}

fn margin_us(lease_ms: u32) -> u64 {
    let lease_us = u64::from(lease_ms) * 1000;
    (lease_us / 10).min(50_000) + lease_us / 100
}

/// Returns the local deadline of a lease that was requested at `sent_us` and whose response has not arrived
/// yet.
pub(super) fn shortened_us(sent_us: u64, given_ms: u32) -> u64 {
    sent_us + (u64::from(given_ms) * 1000).saturating_sub(margin_us(given_ms))
}

impl Anchor {
    /// Returns the local deadline of a lease, as of `now_us`.
    pub(super) fn deadline_us(self, word: LeaseWord, now_us: u64) -> u64 {
        let remaining_us = i128::from(word.remaining_ms) * 1000 - i128::from(margin_us(word.lease_ms));
        let apart_us = (i128::from(word.stamp_ms) - i128::from(self.stamp_ms)) * 1000;
        let placed_us = i128::from(self.sent_us) + apart_us + remaining_us;
        let latest_us = i128::from(now_us) + remaining_us;
        placed_us.min(latest_us).clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// A hold as its client sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldView {
    /// Lease that renewals ask for.
    pub(super) lease_ms: u32,
    pub(super) is_session_lease: bool,
    /// True if the client learned of the hold from its own grant, or has renewed it since. The client relies
    /// on the hold only then.
    pub(super) is_confirmed: bool,
    /// Local deadline of the hold's own lease.
    pub(super) own_deadline_us: u64,
    /// Stamp of the server's latest statement about the lease. Renewals over several connections are decided
    /// in any order, and the order of two renewals in one millisecond is unknown.
    pub(super) lease_stamp_ms: u64,
    /// Time of the next renewal; `None` if the client does not renew the hold.
    pub(super) renew_at_us: Option<u64>,
}

impl HoldView {
    /// Returns the time until which the client may rely on the hold.
    pub(super) fn deadline_us(&self, session_deadline_us: u64) -> u64 {
        if self.is_session_lease { session_deadline_us } else { self.own_deadline_us }
    }

    /// Returns whether the hold has no lease and ends only with its connection.
    pub(super) fn is_endless(&self) -> bool {
        self.lease_ms == u32::MAX
    }

    /// Notes that a renewal was sent, which may shorten the lease.
    pub(super) fn note_extend_sent(&mut self, now_us: u64, given_ms: u32) {
        if self.is_endless() {
            // The hold has no lease and gets none from a renewal.
            return;
        }
        self.own_deadline_us = self.own_deadline_us.min(shortened_us(now_us, given_ms));
        if self.renew_at_us.is_some() {
            self.renew_at_us = Some(now_us + u64::from(given_ms) * 1000 / 3);
        }
    }
}
