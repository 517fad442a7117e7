//! Latency histogram of bounded size and error.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::units::show_ns;

/// Longest latency that the histogram distinguishes from longer ones.
const LATENCY_NS_MAX: u64 = 120_000_000_000;

/// Latencies in nanoseconds, with three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

/// Percentiles of a report, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[expect(missing_docs, reason = "the names of the fields describe them")]
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
    /// Records `count` requests with the same latency.
    #[inline]
    pub fn record(&mut self, latency_ns: u64, count: u64) {
        self.histogram.saturating_record_n(latency_ns, count);
    }

    /// Adds the latencies of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
    }

    /// Returns the latency at this quantile.
    pub fn at(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile)
    }

    /// Returns the number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns the percentiles of a report.
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
    /// Formats the percentiles in one line.
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
