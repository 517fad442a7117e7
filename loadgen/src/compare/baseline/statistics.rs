//! Verdict on one row from its paired ratios, without an assumption about their distribution.
//!
//! The interval of the median comes from order statistics. The number of ratios below the true median is binomial with
//! probability 1/2. So the probability that the true median is between the k-th smallest and the k-th largest ratio
//! depends on their count alone.

use serde::Serialize;

use crate::compare::round::Spread;

/// Minimum number of valid rounds for a verdict.
pub const ROUND_COUNT_MIN: u32 = 15;
/// A row fails if the whole interval is below this ratio: the new build lost more than 3 %.
pub const RATIO_MIN: f64 = 0.97;
/// Minimum probability that the interval contains the true median.
const COVERAGE_MIN: f64 = 0.95;

/// Verdict on one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The ratios do not show a loss of more than 3 %.
    Pass,
    /// The new build lost more than 3 %.
    Fail,
    /// There are fewer valid rounds than a verdict needs.
    Inconclusive,
    /// A quick run has no verdict.
    NotJudged,
}

impl Verdict {
    /// Returns the verdict on the ratios of all valid rounds; needs at least `round_count_min` of them.
    pub fn of(ratios: &[f64], round_count_min: u32) -> Self {
        if ratios.len() < round_count_min as usize {
            return Self::Inconclusive;
        }
        match Interval::of_median(ratios) {
            None => Self::Inconclusive,
            Some(interval) if interval.high < RATIO_MIN => Self::Fail,
            Some(_) => Self::Pass,
        }
    }

    /// Returns the word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "**FAIL**",
            Self::Inconclusive => "**inconclusive**",
            Self::NotJudged => "no verdict",
        }
    }
}

/// A confidence interval of a median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the interval contains the true median; at least 0.95.
    pub coverage: f64,
}

impl Interval {
    /// Returns the narrowest symmetric interval that covers the median with at least 95 %; `None` for fewer than 6
    /// values.
    pub fn of_median(values: &[f64]) -> Option<Self> {
        let Ranks { low, high, coverage } = Ranks::for_count(values.len())?;
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self { low: sorted[low - 1], high: sorted[high - 1], coverage })
    }
}

/// Returns the median of these values; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values.to_vec()).map(|spread| spread.median)
}

/// Ranks of the two ends of an interval among sorted values, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ranks {
    low: usize,
    high: usize,
    coverage: f64,
}

impl Ranks {
    /// Returns the ranks of the narrowest symmetric interval with enough coverage for `count` values; `None` for
    /// fewer than 6.
    fn for_count(count: usize) -> Option<Self> {
        // Logarithm of P(exactly `below` of `count` values are below the median). The probability itself would
        // underflow to zero beyond 1,074 values.
        let mut log_probability = -(count as f64) * std::f64::consts::LN_2;
        let mut tail = 0.0;
        let mut found = None;
        for below in 0..count / 2 {
            tail += log_probability.exp();
            let coverage = 1.0 - 2.0 * tail;
            if coverage < COVERAGE_MIN {
                break;
            }
            found = Some(Self { low: below + 1, high: count - below, coverage });
            log_probability += ((count - below) as f64 / (below + 1) as f64).ln();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::{COVERAGE_MIN, Interval, RATIO_MIN, ROUND_COUNT_MIN, Ranks, Verdict, median};

    fn ranks(count: usize) -> Option<(usize, usize)> {
        Ranks::for_count(count).map(|ranks| (ranks.low, ranks.high))
    }

    /// Returns `count` values around `center`, each `step` from the next.
    fn evenly_spread(count: i32, center: f64, step: f64) -> Vec<f64> {
        (0..count).map(|place| center + step * (f64::from(place) - f64::from(count - 1) / 2.0)).collect()
    }

    #[test]
    fn ranks_match_published_tables_of_the_sign_test() {
        assert_eq!(ranks(5), None, "even the smallest and the largest of 5 values cover only 93.75 %");
        for (count, expected) in [
            (6, (1, 6)),
            (15, (4, 12)),
            (16, (4, 13)),
            (17, (5, 13)),
            (20, (6, 15)),
            (25, (8, 18)),
            (30, (10, 21)),
            (35, (12, 24)),
            (40, (14, 27)),
        ] {
            assert_eq!(ranks(count), Some(expected), "{count} values");
        }
        let coverage = Ranks::for_count(15).expect("15 values are enough").coverage;
        assert!((coverage - (1.0 - 2.0 * 576.0 / 32_768.0)).abs() < 1e-12, "{coverage}");
    }

    #[test]
    fn no_narrower_interval_covers_enough_from_15_to_40_values() {
        for count in 15..=40_u128 {
            let mut ways = 1_u128;
            let mut tails = Vec::new();
            for below in 0..count / 2 {
                tails.push(ways + tails.last().unwrap_or(&0));
                ways = ways * (count - below) / (below + 1);
            }
            let covers = |tail: &u128| {
                // 1 - 2 tail / 2^count >= 0.95 in whole numbers.
                2 * tail * 20 <= 1 << count
            };
            let low = tails.iter().take_while(|tail| covers(tail)).count();
            let count = count as usize;
            assert_eq!(ranks(count), Some((low, count + 1 - low)), "{count} values");
            assert!(Ranks::for_count(count).expect("enough values").coverage >= COVERAGE_MIN);
        }
    }

    #[test]
    fn thousands_of_values_have_an_interval() {
        let (low, high) = ranks(3_000).expect("enough values");
        // The normal approximation: 1,500 -+ 1.96 * sqrt(3,000) / 2.
        assert!((1_446..=1_447).contains(&low) && (3_001 - low) == high, "{low} to {high}");
    }

    #[test]
    fn the_interval_of_15_values_is_the_4th_to_the_12th_in_any_order() {
        let mut values: Vec<f64> = (1..=15).map(f64::from).collect();
        values.reverse();
        values.swap(2, 9);
        let interval = Interval::of_median(&values).expect("enough values");
        assert_eq!((interval.low, interval.high), (4.0, 12.0));
        assert_eq!(median(&values), Some(8.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn ties_collapse_the_interval_onto_their_value() {
        let interval = Interval::of_median(&[1.0; 15]).expect("enough values");
        assert_eq!((interval.low, interval.high), (1.0, 1.0));
        assert_eq!(Verdict::of(&[RATIO_MIN; 15], ROUND_COUNT_MIN), Verdict::Pass, "the bound itself passes");
        assert_eq!(Verdict::of(&[0.969; 15], ROUND_COUNT_MIN), Verdict::Fail);
        let mut most_tied = vec![0.96; 11];
        most_tied.extend([1.0; 4]);
        assert_eq!(Verdict::of(&most_tied, ROUND_COUNT_MIN), Verdict::Pass, "the 12th value is 1.0");
        most_tied[14] = 0.96;
        assert_eq!(Verdict::of(&most_tied, ROUND_COUNT_MIN), Verdict::Fail, "the 12th value is 0.96");
    }

    #[test]
    fn a_sample_shifted_by_five_percent_fails() {
        for count in 15..=40 {
            let ratios = evenly_spread(count, 0.95, 0.001);
            assert_eq!(Verdict::of(&ratios, ROUND_COUNT_MIN), Verdict::Fail, "{count} rounds");
        }
    }

    #[test]
    fn the_same_shift_passes_if_the_noise_is_too_large_to_show_it() {
        for count in 15..=40 {
            let ratios = evenly_spread(count, 0.95, 0.02);
            assert_eq!(Verdict::of(&ratios, ROUND_COUNT_MIN), Verdict::Pass, "{count} rounds");
        }
    }

    #[test]
    fn a_single_outlier_changes_no_verdict() {
        let mut good = evenly_spread(15, 1.0, 0.002);
        good[0] = 0.01;
        assert_eq!(Verdict::of(&good, ROUND_COUNT_MIN), Verdict::Pass);
        let mut bad = evenly_spread(15, 0.95, 0.001);
        bad[0] = 100.0;
        assert_eq!(Verdict::of(&bad, ROUND_COUNT_MIN), Verdict::Fail);
    }

    #[test]
    fn too_few_rounds_are_inconclusive_however_clear_they_are() {
        assert_eq!(Verdict::of(&[0.5; 14], ROUND_COUNT_MIN), Verdict::Inconclusive);
        assert_eq!(Verdict::of(&[1.0; 29], 30), Verdict::Inconclusive);
        assert_eq!(Verdict::of(&[], ROUND_COUNT_MIN), Verdict::Inconclusive);
        assert_eq!(Verdict::of(&[0.5; 4], 4), Verdict::Inconclusive, "4 values have no interval");
    }

    /// If the true median is exactly the bound, a row may fail in at most 2.5 % of all runs: in the runs whose
    /// whole interval is below the true median.
    #[test]
    fn a_loss_of_exactly_three_percent_rarely_fails() {
        let mut random = StdRng::seed_from_u64(7);
        let mut fail_count = 0;
        for _ in 0..4_000 {
            // A skewed distribution with median 0.97 and a heavy upper tail.
            let ratios: Vec<f64> =
                (0..15).map(|_| RATIO_MIN * (0.5 / random.random_range(1e-9..1.0_f64)).powf(0.1)).collect();
            fail_count += u32::from(Verdict::of(&ratios, ROUND_COUNT_MIN) == Verdict::Fail);
        }
        // 1.76 % are expected for 15 rounds, which is 70.
        assert!((40..=100).contains(&fail_count), "{fail_count} of 4,000");
    }
}
