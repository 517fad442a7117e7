//! The limiter: never more than the burst and what came back, and no refusal without a reason.

use super::Auditor;
use crate::operation::{Key, Taking};
use std::collections::BTreeMap;
use waymaker_protocol::Throttled;

/// Requests that are looked at for each answer.
const WINDOW_COUNT: usize = 80;

/// Everything that was ever asked of a bucket.
#[derive(Debug, Default)]
pub(crate) struct BucketHistory {
    takings: Vec<Taken>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    request: usize,
    cost: u64,
    refund: bool,
    sent_ms: u64,
    /// When the answer was said, and whether it was a yes.
    said: Option<(u64, bool)>,
}

impl Taken {
    /// It may have changed the bucket at some time in between.
    fn may_count(&self, from_ms: u64, to_ms: u64) -> bool {
        self.sent_ms <= to_ms && self.said.is_none_or(|(said_ms, allowed)| allowed && said_ms >= from_ms)
    }
}

pub(crate) type Buckets = BTreeMap<Key, BucketHistory>;

impl Auditor {
    pub(super) fn note_taking(&mut self, request: usize, taking: &Taking, sent_ms: u64) {
        for (bucket, cost) in taking.parts() {
            let taken = Taken { request, cost: u64::from(cost), refund: taking.refund, sent_ms, said: None };
            self.buckets.entry(bucket).or_default().takings.push(taken);
        }
    }

    pub(super) fn judge_taking(
        &mut self,
        request: usize,
        taking: &Taking,
        throttled: &Throttled,
        now_ms: u64,
    ) {
        for (bucket, _) in taking.parts() {
            let history = self.buckets.entry(bucket).or_default();
            for taken in history.takings.iter_mut().filter(|taken| taken.request == request) {
                taken.said = Some((now_ms, throttled.allowed));
            }
        }
        let burst = |bucket: Key| u64::from(self.settings.rule_of(bucket).burst);
        let never = taking.parts().any(|(bucket, cost)| u64::from(cost) > burst(bucket));
        let says_never = throttled.retry_after_ns == u64::MAX;
        let is_free = taking.parts().all(|(_, cost)| cost == 0) || taking.refund;
        let is_wrong = (throttled.allowed != (throttled.retry_after_ns == 0))
            || is_free && !throttled.allowed
            || !taking.refund && never != says_never;
        if is_wrong {
            return self.accuse("answers", || format!("{taking:?} got {throttled:?}"));
        }
        if throttled.allowed {
            taking.parts().for_each(|(bucket, _)| self.judge_windows(bucket, now_ms));
        } else if !never {
            self.judge_no(request, taking, now_ms);
        }
    }

    /// In no window that ends now more was taken than the burst, what came back, and what was given back.
    fn judge_windows(&mut self, bucket: Key, now_ms: u64) {
        let rule = self.settings.rule_of(bucket);
        let all = &self.buckets[&bucket].takings;
        let takings = &all[all.len().saturating_sub(WINDOW_COUNT)..];
        let mut starts: Vec<u64> = takings.iter().map(|taken| taken.sent_ms).collect();
        starts.dedup();
        for from_ms in starts {
            let inside = |taken: &&Taken| {
                taken.sent_ms >= from_ms
                    && !taken.refund
                    && taken.said.is_some_and(|(said_ms, allowed)| allowed && said_ms <= now_ms)
            };
            let taken: u64 = takings.iter().filter(inside).map(|taken| taken.cost).sum();
            let refunds = all.iter().filter(|taken| taken.refund && taken.may_count(from_ms, now_ms));
            let refunded: u64 = refunds.map(|taken| taken.cost).sum();
            let window_ns = u128::from(now_ms - from_ms + 1) * 1_000_000;
            let back = window_ns * u128::from(rule.rate) / u128::from(rule.period_ns) + 1;
            let bound = u128::from(rule.burst) + back + u128::from(refunded);
            if u128::from(taken) > bound {
                return self.accuse("rate", || {
                    format!(
                        "bucket {bucket}: {taken} tokens from {from_ms} to {now_ms}, {bound} at most: {rule:?}"
                    )
                });
            }
        }
    }

    /// Some bucket may not have had enough.
    fn judge_no(&mut self, request: usize, taking: &Taking, now_ms: u64) {
        let sent_ms = self.requests[request].first_sent_ms;
        let may_lack = taking.parts().any(|(bucket, cost)| {
            let rule = self.settings.rule_of(bucket);
            let full_ns = u128::from(rule.burst) * u128::from(rule.period_ns) / u128::from(rule.rate);
            let full_ms = u64::try_from(full_ns / 1_000_000 + 2).unwrap_or(u64::MAX);
            let from_ms = sent_ms.saturating_sub(full_ms);
            let takings = self.buckets[&bucket].takings.iter();
            let others = takings.filter(|taken| taken.request != request && !taken.refund);
            let lost: u64 =
                others.filter(|taken| taken.may_count(from_ms, now_ms)).map(|taken| taken.cost).sum();
            lost + u64::from(cost) > u64::from(rule.burst)
        });
        if !may_lack {
            self.accuse("rate", || format!("{taking:?} was refused at {now_ms} though there was enough"));
        }
    }
}
