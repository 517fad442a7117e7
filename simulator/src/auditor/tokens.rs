//! Rule `tokens`: the numbers of the rate limiter (remaining tokens, time to retry, time until the bucket is
//! full) agree.

use super::Auditor;
use super::buckets::BucketHistory;
use crate::key::Key;
use crate::operation::{Rule, Withdrawal};
use waymaker_protocol::Throttled;

/// Largest rounding error of a difference of two instants in milliseconds.
const CLOCK_NS: u64 = 2_000_000;

/// Newest response about one bucket alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastThrottle {
    request: usize,
    sent_ms: u64,
    said_ms: u64,
    missing_ns: u64,
}

/// Returns the time in which one token is refilled.
fn emission_ns(rule: &Rule) -> u64 {
    rule.period_ns.div_ceil(u64::from(rule.rate))
}

/// Returns whether the numbers of a response agree with each other, for a request of this cost.
fn is_consistent(rule: &Rule, cost: u32, refund: bool, throttled: &Throttled) -> bool {
    let emission_ns = emission_ns(rule);
    let burst_ns = emission_ns * u64::from(rule.burst);
    let missing_ns = throttled.reset_after_ns;
    let remaining = burst_ns.saturating_sub(missing_ns) / emission_ns;
    let retry_ns = if refund || throttled.allowed {
        0
    } else if cost > rule.burst {
        u64::MAX
    } else {
        (missing_ns + emission_ns * u64::from(cost)).saturating_sub(burst_ns)
    };
    missing_ns <= burst_ns && remaining == throttled.remaining && retry_ns == throttled.retry_after_ns
}

impl Auditor {
    /// Rule `tokens`: a response agrees with itself, and with the previous response about the same bucket.
    pub(super) fn judge_tokens(
        &mut self,
        request: usize,
        withdrawal: &Withdrawal,
        throttled: &Throttled,
        now_ms: u64,
    ) {
        let agrees = |(bucket, cost): (Key, u32)| {
            // One part of a request for two buckets may be allowed while the other is not.
            let is_whole = withdrawal.second.is_none();
            let rule = self.settings.rule_of(bucket);
            let itself = Throttled {
                allowed: throttled.allowed || !is_whole && throttled.retry_after_ns == 0,
                ..*throttled
            };
            is_consistent(&rule, cost, withdrawal.refund, &itself)
        };
        if !withdrawal.parts().any(agrees) {
            return self.accuse("tokens", || {
                format!(
                    "{withdrawal:?} got a response whose numbers do not agree with each other: {throttled:?}"
                )
            });
        }
        if withdrawal.second.is_none() {
            self.judge_missing_tokens(request, withdrawal, throttled, now_ms);
        }
    }

    /// Rule `tokens`: the missing tokens agree with the previous response, the time since then, and other requests.
    fn judge_missing_tokens(
        &mut self,
        request: usize,
        withdrawal: &Withdrawal,
        throttled: &Throttled,
        now_ms: u64,
    ) {
        let ((bucket, cost), sent_ms) = (withdrawal.first, self.requests[request].first_sent_ms);
        let emission_ns = emission_ns(&self.settings.rule_of(bucket));
        let missing_ns = throttled.reset_after_ns;
        let taken_ns =
            if throttled.allowed && !withdrawal.refund { emission_ns * u64::from(cost) } else { 0 };
        let Some(history) = self.buckets.get_mut(&bucket) else { return };
        let newest = LastThrottle { request, sent_ms, said_ms: now_ms, missing_ns };
        let Some(last) = history.last.replace(newest).filter(|last| last.said_ms < sent_ms) else { return };
        let most_passed_ns = (now_ms - last.sent_ms) * 1_000_000 + CLOCK_NS;
        let least_passed_ns = ((sent_ms - last.said_ms) * 1_000_000).saturating_sub(CLOCK_NS);
        let between = |refund: bool| history.between(refund, (last.request, last.sent_ms), (request, now_ms));
        let (taken, refunded) = (between(false) * emission_ns, between(true) * emission_ns);
        let own_back_ns = if withdrawal.refund { emission_ns * u64::from(cost) } else { 0 };
        let least = last.missing_ns.saturating_sub(most_passed_ns + refunded + own_back_ns) + taken_ns;
        let most = last.missing_ns.saturating_sub(least_passed_ns) + taken + taken_ns;
        if !(least..=most).contains(&missing_ns) {
            self.accuse("tokens", || {
                format!(
                    "bucket {bucket}: {withdrawal:?}, sent at {sent_ms} ms, got {throttled:?}; by {last:?}, `reset_after_ns` must be {least} to {most}"
                )
            });
        }
    }
}

impl BucketHistory {
    /// Returns the maximum number of tokens that other requests may have taken, or refunded, between two
    /// requests.
    fn between(&self, refund: bool, (first, from_ms): (usize, u64), (second, to_ms): (usize, u64)) -> u64 {
        let others =
            self.withdrawals().iter().filter(|taken| taken.request != first && taken.request != second);
        others
            .filter(|taken| taken.refund == refund && taken.may_count(from_ms, to_ms))
            .map(|taken| taken.cost)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Burst of ten tokens, refilled with one token each 10 ms.
    const RULE: Rule = Rule { rate: 100, burst: 10, period_ns: 1_000_000_000 };

    fn throttled(remaining: u64, retry_after_ns: u64, reset_after_ns: u64) -> Throttled {
        Throttled { allowed: retry_after_ns == 0, remaining, retry_after_ns, reset_after_ns }
    }

    #[test]
    fn remaining_tokens_agree_with_the_time_until_the_bucket_is_full() {
        assert!(is_consistent(&RULE, 4, false, &throttled(6, 0, 40_000_000)));
        assert!(!is_consistent(&RULE, 4, false, &throttled(7, 0, 40_000_000)));
        assert!(!is_consistent(&RULE, 4, false, &throttled(6, 0, 50_000_001)));
    }

    #[test]
    fn a_refusal_contains_the_time_until_enough_tokens_are_refilled() {
        assert!(is_consistent(&RULE, 5, false, &throttled(3, 20_000_000, 70_000_000)));
        assert!(!is_consistent(&RULE, 5, false, &throttled(3, 40_000_000, 70_000_000)));
    }
}
