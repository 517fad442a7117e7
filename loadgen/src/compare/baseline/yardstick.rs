//! The number by which two builds are compared in one row.

use serde::Serialize;

use crate::compare::goals::server_ns_per_request;
use crate::report::Numbers;
use crate::units::{show_ns, show_rate};

/// A number of a slice, and the direction in which it is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Yardstick {
    /// Requests per second.
    Requests,
    /// Median latency of a request.
    LatencyP50,
    /// Median time from a release to the next grant.
    HandOverP50,
    /// CPU time of the server per request.
    ServerCpu,
}

impl Yardstick {
    /// Returns the number of a slice; `None` if the slice does not have it.
    pub fn number(self, numbers: &Numbers) -> Option<f64> {
        match self {
            Self::Requests => Some(numbers.timed_per_second),
            Self::LatencyP50 => Some(numbers.latency.p50_ns as f64),
            Self::HandOverP50 => Some(numbers.hand_over?.p50_ns as f64),
            Self::ServerCpu => server_ns_per_request(numbers),
        }
    }

    /// Returns the ratio of the two builds in one round; above 1 always means that the new build is better. `None`
    /// if a slice has no responses.
    pub fn ratio(self, old: f64, new: f64) -> Option<f64> {
        let ratio = if self == Self::Requests { new / old } else { old / new };
        // Without responses there are 0 requests, and the cost per request is 0 or infinite. Such a round counts
        // for neither build, because counting it against the new build alone would shift the median.
        Some(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
    }

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::LatencyP50 => "p50",
            Self::HandOverP50 => "hand-over p50",
            Self::ServerCpu => "server CPU per request",
        }
    }

    /// Formats the number with its unit.
    pub fn show(self, number: f64) -> String {
        match self {
            Self::Requests => show_rate(number),
            Self::LatencyP50 | Self::HandOverP50 => show_ns(number as u64),
            Self::ServerCpu => format!("{number:.0} ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Yardstick;

    #[test]
    fn a_ratio_above_1_means_the_new_build_is_better() {
        assert_eq!(Yardstick::Requests.ratio(100.0, 110.0), Some(1.1));
        for cost in [Yardstick::LatencyP50, Yardstick::HandOverP50, Yardstick::ServerCpu] {
            assert_eq!(cost.ratio(110.0, 100.0), Some(1.1), "{cost:?}");
        }
    }

    #[test]
    fn a_slice_without_responses_counts_for_neither_build() {
        for (old, new) in
            [(0.0, 0.0), (0.0, 100.0), (100.0, 0.0), (f64::INFINITY, 100.0), (100.0, f64::INFINITY)]
        {
            for yardstick in
                [Yardstick::Requests, Yardstick::LatencyP50, Yardstick::HandOverP50, Yardstick::ServerCpu]
            {
                assert_eq!(yardstick.ratio(old, new), None, "{yardstick:?}: {old} and {new}");
            }
        }
    }
}
