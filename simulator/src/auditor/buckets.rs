//! Rules of the rate limiter: no bucket grants more than its burst and refill, and no request is refused
//! without a reason.

use super::Auditor;
use super::tokens::LastThrottle;
use crate::key::Key;
use crate::operation::{Rule, Withdrawal};
use std::collections::BTreeMap;
use waymaker_protocol::{ErrorAnswer, ErrorDetail, Throttled};

/// Number of newest requests that are checked with each response.
const WINDOW_COUNT: usize = 80;
/// Largest rounding error of the difference of two instants, in milliseconds.
const CLOCK_MS: u64 = 2;

/// All requests to a bucket.
#[derive(Debug, Default)]
pub(crate) struct BucketHistory {
    withdrawals: Vec<WithdrawalRecord>,
    /// The newest response about this bucket alone.
    pub(super) last: Option<LastThrottle>,
}

impl BucketHistory {
    pub(super) fn withdrawals(&self) -> &[WithdrawalRecord] {
        &self.withdrawals
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WithdrawalRecord {
    pub(super) request: usize,
    pub(super) cost: u64,
    pub(super) refund: bool,
    sent_ms: u64,
    /// Time of the response, and whether it allowed the request.
    said: Option<(u64, bool)>,
    /// Time before which the request took effect, if at all, for a request that will get no response.
    over_ms: Option<u64>,
}

impl WithdrawalRecord {
    /// Returns whether the request may have changed the bucket between the two instants.
    pub(super) fn may_count(&self, from_ms: u64, to_ms: u64) -> bool {
        self.sent_ms <= to_ms && self.said.is_none_or(|(said_ms, allowed)| allowed && said_ms >= from_ms)
    }
}

pub(crate) type Buckets = BTreeMap<Key, BucketHistory>;

impl Auditor {
    pub(super) fn note_withdrawal(&mut self, request: usize, withdrawal: &Withdrawal, sent_ms: u64) {
        for (bucket, cost) in withdrawal.parts() {
            let taken = WithdrawalRecord {
                request,
                cost: u64::from(cost),
                refund: withdrawal.refund,
                sent_ms,
                said: None,
                over_ms: None,
            };
            self.buckets.entry(bucket).or_default().withdrawals.push(taken);
        }
    }

    /// Returns whether this request to the running server is already recorded.
    pub(super) fn is_withdrawal_noted(&self, request: usize, withdrawal: &Withdrawal) -> bool {
        let is_noted =
            |history: &BucketHistory| history.withdrawals.iter().any(|taken| taken.request == request);
        withdrawal.parts().any(|(bucket, _)| self.buckets.get(&bucket).is_some_and(is_noted))
    }

    /// Records that the request is sent, perhaps again: it may take effect from now on.
    pub(super) fn note_withdrawal_sent(&mut self, request: usize, withdrawal: &Withdrawal) {
        for (bucket, _) in withdrawal.parts() {
            let history = self.buckets.entry(bucket).or_default();
            for taken in history.withdrawals.iter_mut().filter(|taken| taken.request == request) {
                taken.over_ms = None;
            }
        }
    }

    /// Rules `answers`, `tokens` and `rate` for one response of the rate limiter.
    pub(super) fn judge_withdrawal(
        &mut self,
        request: usize,
        withdrawal: &Withdrawal,
        throttled: &Throttled,
        now_ms: u64,
    ) {
        for (bucket, _) in withdrawal.parts() {
            let history = self.buckets.entry(bucket).or_default();
            for taken in history.withdrawals.iter_mut().filter(|taken| taken.request == request) {
                taken.said = Some((now_ms, throttled.allowed));
            }
        }
        let burst = |bucket: Key| u64::from(self.settings.rule_of(bucket).burst);
        let never = withdrawal.parts().any(|(bucket, cost)| u64::from(cost) > burst(bucket));
        let says_never = throttled.retry_after_ns == u64::MAX;
        // The response describes the bucket with the fewest tokens, so no bucket has fewer left.
        let left = |(bucket, cost)| {
            burst(bucket).saturating_sub(if withdrawal.refund { 0 } else { u64::from(cost) })
        };
        let most = withdrawal.parts().map(left).min().unwrap_or(0);
        let is_free = withdrawal.parts().all(|(_, cost)| cost == 0) || withdrawal.refund;
        let is_wrong = (throttled.allowed != (throttled.retry_after_ns == 0))
            || is_free && !throttled.allowed
            || !withdrawal.refund && never != says_never;
        if is_wrong {
            return self.accuse("answers", || {
                format!(
                    "{withdrawal:?} got {throttled:?}: `allowed` must agree with `retry_after_ns` and with the burst of the bucket"
                )
            });
        }
        self.judge_tokens(request, withdrawal, throttled, now_ms);
        if throttled.allowed && throttled.remaining > most {
            return self.accuse("tokens", || {
                format!(
                    "{withdrawal:?} leaves at most {most} tokens, but the response shows more: {throttled:?}"
                )
            });
        }
        if throttled.allowed {
            withdrawal.parts().for_each(|(bucket, _)| self.judge_windows(bucket, now_ms));
        } else if !never {
            self.judge_no(request, withdrawal, now_ms);
        }
    }

    /// Rule `rate`: no window that ends now has more taken tokens than the burst, the refill and the refunds.
    fn judge_windows(&mut self, bucket: Key, now_ms: u64) {
        let rule = self.settings.rule_of(bucket);
        let all = &self.buckets[&bucket].withdrawals;
        let withdrawals = &all[all.len().saturating_sub(WINDOW_COUNT)..];
        let mut starts: Vec<u64> = withdrawals.iter().map(|taken| taken.sent_ms).collect();
        starts.dedup();
        for from_ms in starts {
            let inside = |taken: &&WithdrawalRecord| {
                taken.sent_ms >= from_ms
                    && !taken.refund
                    && taken.said.is_some_and(|(said_ms, allowed)| allowed && said_ms <= now_ms)
            };
            let taken: u64 = withdrawals.iter().filter(inside).map(|taken| taken.cost).sum();
            let refunds = all.iter().filter(|taken| taken.refund && taken.may_count(from_ms, now_ms));
            let refunded: u64 = refunds.map(|taken| taken.cost).sum();
            let window_ns = u128::from(now_ms - from_ms + 1) * 1_000_000;
            let back = window_ns * u128::from(rule.rate) / u128::from(rule.period_ns) + 1;
            let bound = u128::from(rule.burst) + back + u128::from(refunded);
            if u128::from(taken) > bound {
                return self.accuse("rate", || {
                    format!(
                        "bucket {bucket} granted {taken} tokens from {from_ms} to {now_ms} ms; the maximum is {bound}: {rule:?}"
                    )
                });
            }
        }
    }

    /// Records when requests that will get no response took effect at the latest.
    fn settle(&mut self, bucket: Key, now_ms: u64) {
        let Some(mut history) = self.buckets.remove(&bucket) else { return };
        for taken in
            history.withdrawals.iter_mut().filter(|taken| taken.said.is_none() && taken.over_ms.is_none())
        {
            taken.over_ms = self.last_effect_ms(taken.request).filter(|over_ms| *over_ms < now_ms);
        }
        self.buckets.insert(bucket, history);
    }

    /// Records that the whole request was refused and took nothing from its buckets.
    pub(super) fn note_nothing_taken(&mut self, request: usize, withdrawal: &Withdrawal, now_ms: u64) {
        for (bucket, _) in withdrawal.parts() {
            let history = self.buckets.entry(bucket).or_default();
            for taken in history.withdrawals.iter_mut().filter(|taken| taken.request == request) {
                taken.said = Some((now_ms, false));
            }
        }
    }

    /// Returns whether a shard may have had no room for a bucket of this request. A shard keeps only buckets
    /// that are not full.
    pub(super) fn may_lack_a_bucket(
        &mut self,
        withdrawal: &Withdrawal,
        error: &ErrorAnswer<'_>,
        sent_ms: u64,
        now_ms: u64,
    ) -> bool {
        let ErrorDetail::Text { value, field: b"buckets per shard", .. } = error.detail else { return false };
        // A server that starts again may have other shards.
        if self.restarts.count > 0 {
            return true;
        }
        let count_max = self.share(self.settings.limits.bucket_count_max);
        let takes = |bucket: Key| withdrawal.parts().any(|(own, cost)| own == bucket && cost > 0);
        let mut kept: BTreeMap<u16, u32> = BTreeMap::new();
        for bucket in self.settings.mix.bucket_keys() {
            if takes(bucket) || self.may_not_be_full(bucket, sent_ms, now_ms) {
                *kept.entry(self.shard_of(bucket)).or_default() += 1;
            }
        }
        let is_full = |(bucket, _)| takes(bucket) && kept[&self.shard_of(bucket)] > count_max;
        value == u64::from(count_max) && !withdrawal.refund && withdrawal.parts().any(is_full)
    }

    /// Returns whether a bucket may have lacked tokens at some time between the two instants.
    fn may_not_be_full(&mut self, bucket: Key, from_ms: u64, to_ms: u64) -> bool {
        self.settle(bucket, to_ms);
        let rule = self.settings.rule_of(bucket);
        let Some(history) = self.buckets.get(&bucket) else { return false };
        let withdrawals =
            history.withdrawals.iter().filter(|taken| !taken.refund && taken.may_count(0, to_ms));
        let withdrawals =
            withdrawals.map(|taken| (taken.said.map(|(said_ms, _)| said_ms).or(taken.over_ms), taken.cost));
        may_lack(&rule, withdrawals, u64::from(rule.burst), from_ms)
    }

    /// Rule `rate`: a request is refused only if some bucket may have lacked tokens.
    fn judge_no(&mut self, request: usize, withdrawal: &Withdrawal, now_ms: u64) {
        let sent_ms = self.requests[request].first_sent_ms;
        let may_lack = withdrawal.parts().any(|(bucket, cost)| {
            self.settle(bucket, now_ms);
            let others = self.buckets[&bucket].withdrawals.iter().filter(|taken| taken.request != request);
            let withdrawals = others.filter(|taken| !taken.refund && taken.may_count(0, now_ms));
            let withdrawals = withdrawals
                .map(|taken| (taken.said.map(|(said_ms, _)| said_ms).or(taken.over_ms), taken.cost));
            may_lack(&self.settings.rule_of(bucket), withdrawals, u64::from(cost), sent_ms)
        });
        if !may_lack {
            self.accuse("rate", || {
                format!("{withdrawal:?} was refused at {now_ms} ms, but all of its buckets had enough tokens")
            });
        }
    }
}

/// Returns whether a bucket may have lacked `cost` tokens at `at_ms` or later. That is so if, from some
/// instant at which the bucket was full, the tokens taken since then minus the refill leave too few. Each
/// withdrawal has the latest time at which it took effect and its number of tokens.
fn may_lack(
    rule: &Rule,
    withdrawals: impl Iterator<Item = (Option<u64>, u64)>,
    cost: u64,
    at_ms: u64,
) -> bool {
    // A withdrawal that may take effect only later counts from every instant.
    let mut said: Vec<(u64, u64)> =
        withdrawals.map(|(said_ms, cost)| (said_ms.unwrap_or(u64::MAX), cost)).collect();
    said.sort_unstable_by(|one, other| other.cmp(one));
    let mut taken = cost;
    taken > u64::from(rule.burst)
        || said.into_iter().any(|(said_ms, cost)| {
            taken += cost;
            let since_ms = at_ms.saturating_sub(said_ms.saturating_add(CLOCK_MS));
            let back = u128::from(since_ms) * 1_000_000 * u128::from(rule.rate) / u128::from(rule.period_ns);
            u128::from(taken) > u128::from(rule.burst) + back
        })
}

#[cfg(test)]
mod tests {
    use super::super::scene::{auditor, rule, says};
    use super::*;
    use crate::operation::Operation;
    use waymaker_protocol::{ErrorCode, Response};

    /// Burst of ten tokens, refilled with one token each 10 ms.
    const RULE: Rule = Rule { rate: 100, burst: 10, period_ns: 1_000_000_000 };

    fn lacks(withdrawals: &[(Option<u64>, u64)], cost: u64, at_ms: u64) -> bool {
        may_lack(&RULE, withdrawals.iter().copied(), cost, at_ms)
    }

    #[test]
    fn a_bucket_lacks_taken_tokens_that_are_not_refilled() {
        assert!(lacks(&[(Some(100), 6)], 5, 110));
        assert!(!lacks(&[(Some(100), 6)], 4, 110));
        assert!(!lacks(&[(Some(100), 6)], 5, 120));
    }

    #[test]
    fn refilled_tokens_are_not_missing_after_older_withdrawals() {
        assert!(!lacks(&[(Some(100), 10), (Some(300), 3)], 5, 310));
        assert!(lacks(&[(Some(100), 10), (Some(150), 3)], 5, 155));
    }

    #[test]
    fn an_unanswered_request_may_take_its_tokens_at_any_time() {
        assert!(lacks(&[(None, 6), (Some(100), 10)], 5, 10_000));
    }

    /// Returns the rule that is broken if a second client is refused for lack of room, and the first bucket
    /// is empty or full. `is_taken_after` adds a refused request for the same bucket.
    fn refused_for_room(is_empty: bool, is_taken_after: bool) -> Option<&'static str> {
        let mut auditor = auditor();
        (auditor.settings.worker_count, auditor.settings.limits.bucket_count_max) = (1, 1);
        let buckets: Vec<Key> = auditor.settings.mix.bucket_keys().collect();
        let rule_of = |bucket| auditor.settings.rule_of(bucket);
        let (first, second) = (rule_of(buckets[0]), rule_of(buckets[1]));
        let take =
            |bucket, cost| Operation::Take(Withdrawal { first: (bucket, cost), second: None, refund: false });
        let empty_ns = |rule: Rule| rule.period_ns.div_ceil(u64::from(rule.rate)) * u64::from(rule.burst);
        if is_empty {
            auditor.asks(0, 1, take(buckets[0], first.burst), 0, 1_000);
            let reset_after_ns = empty_ns(first);
            let allowed = Throttled { allowed: true, reset_after_ns, ..Throttled::default() };
            says(&mut auditor, 0, 1, &Response::Throttled(allowed), 1_000);
        }
        auditor.asks(2, 1, take(buckets[1], second.burst), 0, 1_001);
        let detail = ErrorDetail::Text { value: 1, field: b"buckets per shard", message: b"" };
        let refusal = ErrorAnswer { code: ErrorCode::Overloaded, detail };
        says(&mut auditor, 2, 1, &Response::Error(refusal), 1_001);
        if is_taken_after {
            auditor.asks(2, 2, take(buckets[1], second.burst), 0, 1_002);
            let missing_ns = empty_ns(second);
            let refused =
                Throttled { retry_after_ns: missing_ns, reset_after_ns: missing_ns, ..Throttled::default() };
            says(&mut auditor, 2, 2, &Response::Throttled(refused), 1_002);
        }
        rule(&auditor)
    }

    #[test]
    fn a_bucket_lacks_room_only_if_another_is_not_full_and_then_grants_nothing() {
        assert_eq!(refused_for_room(true, false), None);
        assert_eq!(refused_for_room(false, false), Some("answers"));
        assert_eq!(refused_for_room(true, true), Some("rate"));
    }
}
