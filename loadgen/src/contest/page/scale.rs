//! Logarithmic axes.

/// Maps positive values to positions on the page by their logarithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogScale {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

/// Smallest shown value; smaller values were never measured.
const SHOWN_MIN: f64 = 1e-6;
const SHOWN_MAX: f64 = 1e18;

const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

impl LogScale {
    /// Returns a scale from `start` to `end` that covers all positive values; `None` without positive values.
    pub(super) fn over(values: impl IntoIterator<Item = f64>, start: f64, end: f64) -> Option<Self> {
        let (low, high) = values
            .into_iter()
            .filter(|value| value.is_finite() && *value > 0.0)
            .map(|value| value.clamp(SHOWN_MIN, SHOWN_MAX))
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        if high == 0.0 {
            return None;
        }
        // A smaller range would exaggerate small differences.
        let (low, high) = if high / low < 4.0 { (low / 2.0, high * 2.0) } else { (low, high) };
        Some(Self { low: step_at_most(low * 0.97), high: step_at_least(high * 1.03), start, end })
    }

    /// Returns the position of a value.
    pub(super) fn at(self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).log10() / (self.high / self.low).log10();
        self.start + (self.end - self.start) * share.clamp(0.0, 1.0)
    }

    /// Returns the values with grid lines: 1, 2 and 5 of each decade if there are at most `count_max`, otherwise
    /// decades.
    pub(super) fn ticks(self, count_max: usize) -> Vec<f64> {
        let decades = (self.low.log10().floor() as i32)..=(self.high.log10().ceil() as i32);
        let of = |steps: &[f64]| -> Vec<f64> {
            decades
                .clone()
                .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
                .filter(|value| (self.low * 0.999..=self.high * 1.001).contains(value))
                .collect()
        };
        let fine = of(&STEPS);
        if fine.len() <= count_max { fine } else { of(&STEPS[..1]) }
    }
}

fn step_at_most(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    STEPS.iter().rev().map(|step| step * decade).find(|step| *step <= value).unwrap_or(decade)
}

fn step_at_least(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    STEPS.iter().map(|step| step * decade).find(|step| *step >= value).unwrap_or(decade * 10.0)
}

#[cfg(test)]
mod tests {
    use super::LogScale;

    #[test]
    fn a_scale_ends_at_round_values_around_all() {
        let scale =
            LogScale::over([0.0, 270.0, f64::INFINITY, 4_100.0], 0.0, 100.0).expect("some are positive");
        assert_eq!(scale.ticks(9), [200.0, 500.0, 1_000.0, 2_000.0, 5_000.0]);
        assert_eq!(scale.ticks(4), [1_000.0]);
        assert!((scale.at(200.0), scale.at(5_000.0)) == (0.0, 100.0));
        assert!((scale.at(1_000.0) - 50.0).abs() < 1e-6);
    }

    #[test]
    fn one_value_is_in_the_middle_and_none_has_no_scale() {
        let scale = LogScale::over([1_000.0], 300.0, 0.0).expect("one is positive");
        assert!((100.0..200.0).contains(&scale.at(1_000.0)));
        assert!(LogScale::over([0.0, f64::NAN], 0.0, 1.0).is_none());
    }
}
