//! Until when a client may rely on what it holds: the arithmetic of `docs/reference/wire.md`.

/// An answered round trip: the server's clock showed `stamp_ms` not before `sent_us`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) sent_us: u64,
    pub(super) stamp_ms: u64,
}

/// What the server said of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseWord {
    pub(super) stamp_ms: u64,
    pub(super) remaining_ms: u32,
    /// The whole lease.
    pub(super) lease_ms: u32,
}

fn margin_us(lease_ms: u32) -> u64 {
    let lease_us = u64::from(lease_ms) * 1000;
    (lease_us / 10).min(50_000) + lease_us / 100
}

/// Until when a client relies on a lease that it asked for at that time, before it has the answer.
pub(super) fn shortened_us(sent_us: u64, given_ms: u32) -> u64 {
    sent_us + (u64::from(given_ms) * 1000).saturating_sub(margin_us(given_ms))
}

impl Anchor {
    /// The local deadline of a lease, as of `now_us`.
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
pub(super) struct Held {
    /// The lease that renewals ask for.
    pub(super) lease_ms: u32,
    pub(super) is_session_lease: bool,
    /// Learned from a grant of its own, or renewed since: only then it is relied on.
    pub(super) is_confirmed: bool,
    /// Of its own lease.
    pub(super) own_deadline_us: u64,
    /// When the server last said something of it. Renewals over several connections are decided in any order, and of two
    /// in one millisecond the order is not known.
    pub(super) lease_stamp_ms: u64,
    /// When it renews, if it does.
    pub(super) renew_at_us: Option<u64>,
}

impl Held {
    /// Until when the client may rely on it.
    pub(super) fn deadline_us(&self, session_deadline_us: u64) -> u64 {
        if self.is_session_lease { session_deadline_us } else { self.own_deadline_us }
    }

    /// It ends with its connection alone.
    pub(super) fn is_endless(&self) -> bool {
        self.lease_ms == u32::MAX
    }

    /// A renewal is on its way, and may shorten the lease.
    pub(super) fn note_extend_sent(&mut self, now_us: u64, given_ms: u32) {
        if self.is_endless() {
            // It has no lease, and will not get one.
            return;
        }
        self.own_deadline_us = self.own_deadline_us.min(shortened_us(now_us, given_ms));
        if self.renew_at_us.is_some() {
            self.renew_at_us = Some(now_us + u64::from(given_ms) * 1000 / 3);
        }
    }
}
