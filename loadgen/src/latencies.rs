//! Latencies in a histogram of bounded size and error.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::units::show_ns;

/// The longest latency that is told apart from longer ones.
const LATENCY_NS_MAX: u64 = 120_000_000_000;

/// Latencies in nanoseconds, to three digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

/// The points of a distribution that a report names, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Percentiles {
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    pub count: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram =
            Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("the bounds are constants that it accepts");
        Self { histogram }
    }
}

impl Latencies {
    /// Records the same latency `count` times.
    #[inline]
    pub fn record(&mut self, latency_ns: u64, count: u64) {
        self.histogram.saturating_record_n(latency_ns, count);
    }

    /// Takes over those of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
    }

    /// The latency that this share of them does not exceed.
    pub fn at(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The points that a report names.
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        Percentiles {
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.histogram.max(),
            count: self.histogram.len(),
        }
    }
}

impl Percentiles {
    /// In one line.
    pub fn describe(&self) -> String {
        if self.count == 0 {
            return "none".into();
        }
        format!(
            "p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
            show_ns(self.p50_ns),
            show_ns(self.p90_ns),
            show_ns(self.p99_ns),
            show_ns(self.p999_ns),
            show_ns(self.max_ns)
        )
    }
}
