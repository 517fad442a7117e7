//! A request for tokens of one bucket, and the decision about it.

use crate::effect::{Allowance, Refusal};
use crate::limits::KEY_LEN_MAX;

/// Longest time in nanoseconds, for instants, for periods and for filling a bucket: 292 years. The sum of two such
/// times still fits.
pub(super) const TIME_MAX_NS: u64 = u64::MAX >> 1;

/// Request for one bucket. A bucket holds at most `burst` tokens, gains `rate` tokens in each period, and is full
/// before its first use.
///
/// One token arrives every `period_ns / rate` nanoseconds, rounded up. So a bucket never exceeds its rate. Rounding
/// loses less than 0.1 % at a million tokens per second. The loss grows with the rate, which is at most one token per
/// nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle<'a> {
    /// Name of the bucket.
    pub name: &'a [u8],
    /// Keyed hash of the namespace and of the name of the bucket.
    pub hash: u64,
    /// Number of tokens that arrive in each period.
    pub rate: u32,
    /// Length of a period in nanoseconds.
    pub period_ns: u64,
    /// Number of tokens in a full bucket.
    pub burst: u32,
    /// Number of tokens to take; 0 only reads the state.
    pub cost: u32,
    /// Whether to return `cost` tokens instead of taking them. Tokens above `burst` are lost.
    pub refund: bool,
}

impl Throttle<'_> {
    /// Checks the fields of a request. Callers check all buckets of a request before they take tokens from any of them.
    ///
    /// # Errors
    /// Returns a refusal that names the invalid field.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.name.is_empty() {
            return Err(Refusal::bad_input("name", 0, "must not be empty"));
        }
        if self.name.len() > KEY_LEN_MAX {
            return Err(Refusal::bad_input(
                "name",
                KEY_LEN_MAX as u64,
                "the name is too long; the maximum is 1024 bytes",
            ));
        }
        if self.rate == 0 {
            return Err(Refusal::bad_input("rate", 0, "must be at least 1"));
        }
        if self.period_ns == 0 {
            return Err(Refusal::bad_input("period_ns", 0, "must be at least 1"));
        }
        if self.period_ns > TIME_MAX_NS {
            return Err(Refusal::bad_input(
                "period_ns",
                TIME_MAX_NS,
                "the period is too long; the maximum is about 292 years",
            ));
        }
        if self.burst == 0 {
            return Err(Refusal::bad_input("burst", 0, "must be at least 1"));
        }
        let emission_ns = self.emission_ns();
        if emission_ns.saturating_mul(u64::from(self.burst)) > TIME_MAX_NS {
            let burst_max = TIME_MAX_NS / emission_ns;
            let message = "the burst is too large for this rate: the bucket would take too long to fill";
            return Err(Refusal::bad_input("burst", burst_max, message));
        }
        Ok(())
    }

    /// Returns the time in nanoseconds in which one token arrives.
    #[inline]
    pub(super) fn emission_ns(&self) -> u64 {
        // `check` refuses a rate or a period of 0, but runs separately, so this function must not divide by zero.
        self.period_ns.div_ceil(u64::from(self.rate).max(1)).clamp(1, TIME_MAX_NS)
    }

    /// Decides whether this request may take its tokens from a bucket that will be full in `missing_ns`. Returns the
    /// answer, and the time until the bucket is full after this request.
    #[inline]
    pub(super) fn decide(&self, missing_ns: u64) -> (Allowance, u64) {
        let emission_ns = self.emission_ns();
        let burst_ns = emission_ns.saturating_mul(u64::from(self.burst)).min(TIME_MAX_NS);
        let cost_ns = emission_ns.saturating_mul(u64::from(self.cost));
        let wanted_ns = missing_ns.saturating_add(cost_ns);
        let (missing_ns, retry_after_ns) = if self.refund {
            (missing_ns.saturating_sub(cost_ns), 0)
        } else if self.cost == 0 {
            (missing_ns, 0)
        } else if self.cost > self.burst {
            (missing_ns, u64::MAX)
        } else if wanted_ns <= burst_ns {
            (wanted_ns, 0)
        } else {
            (missing_ns, wanted_ns - burst_ns)
        };
        let allowance = Allowance {
            allowed: retry_after_ns == 0,
            remaining: burst_ns.saturating_sub(missing_ns) / emission_ns,
            retry_after_ns,
            reset_after_ns: missing_ns,
        };
        (allowance, missing_ns)
    }
}
