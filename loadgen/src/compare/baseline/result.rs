//! All rounds of one load, and the rows of the table that follow from them.

use anyhow::Result;
use serde::Serialize;

use super::load::Load;
use super::statistics::{Interval, RATIO_MIN, Verdict, median};
use super::yardstick::Yardstick;
use crate::compare::identity::{Build, Identity};
use crate::compare::round::{Round, Rounds, Slice};
use crate::report::{CPU_FULL, Numbers};
use crate::system::System;

/// Number of attempts for each required valid round.
pub const ATTEMPTS_PER_ROUND: u32 = 3;

/// One load with all of its rounds.
#[derive(Clone, Debug, Serialize)]
pub struct LoadResult {
    /// Name in tables.
    pub title: String,
    /// Load that both builds served.
    pub load: Load,
    /// System that the load addresses.
    pub system: System,
    /// Rows of the table; empty until the load is evaluated.
    pub rows: Vec<JudgedRow>,
    /// All attempted rounds.
    pub rounds: Rounds,
}

/// One row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct JudgedRow {
    /// Name of the load and the number, for tables.
    pub title: String,
    /// Number that is compared.
    pub yardstick: Yardstick,
    /// Median of the older build over all valid rounds.
    pub old: Option<f64>,
    /// Median of the newer build over all valid rounds.
    pub new: Option<f64>,
    /// Ratio of every valid round, in the order of measurement. Above 1 the newer build is better.
    pub ratios: Vec<f64>,
    /// Median of the ratios.
    pub median_ratio: Option<f64>,
    /// Confidence interval of the median of the ratios; `None` if there are too few rounds.
    pub interval: Option<Interval>,
    /// Number of attempted rounds, valid or not.
    pub tried_round_count: usize,
    /// The verdict.
    pub verdict: Verdict,
}

/// The numbers of both builds in one valid round.
#[derive(Clone, Copy, Debug)]
struct Paired {
    old: f64,
    new: f64,
    ratio: f64,
}

impl JudgedRow {
    /// Whether the row passed although its interval reaches below the bound.
    pub fn is_unsure(&self) -> bool {
        self.verdict == Verdict::Pass && self.interval.is_some_and(|interval| interval.low < RATIO_MIN)
    }
}

impl LoadResult {
    /// Creates a load without results.
    pub fn new(load: Load, system: System) -> Self {
        Self { title: load.title(), load, system, rows: Vec::new(), rounds: Rounds::default() }
    }

    /// Measures rounds until `round_count_min` of them are valid, or until three times as many were tried. `slice`
    /// measures one build in an attempt. Before each attempt, `progress` gets the numbers of valid and of tried
    /// rounds.
    pub fn measure(
        &mut self,
        round_count_min: u32,
        progress: impl Fn(u32, u32),
        mut slice: impl FnMut(u32, Build) -> Result<Slice>,
    ) -> Result<()> {
        for attempt in 0..ATTEMPTS_PER_ROUND * round_count_min {
            let valid_count = self.valid_round_count();
            if valid_count >= round_count_min {
                break;
            }
            progress(valid_count, attempt);
            // AB, BA, AB, ...: neither build always runs first.
            let builds = match attempt.is_multiple_of(2) {
                true => [Build::Baseline, Build::Current],
                false => [Build::Current, Build::Baseline],
            };
            self.rounds.add_round(builds.len(), |turn| slice(attempt, builds[turn]))?;
        }
        Ok(())
    }

    /// Number of rounds that are valid for every number of this load.
    pub fn valid_round_count(&self) -> u32 {
        let counts = self.load.yardsticks().iter().map(|yardstick| self.paired(*yardstick).count());
        counts.min().unwrap_or(0) as u32
    }

    /// Evaluates every number of this load; a quick run shows them without a verdict.
    pub fn judge(&mut self, round_count_min: u32, is_quick: bool) {
        let judge = |&yardstick: &Yardstick| {
            let paired: Vec<Paired> = self.paired(yardstick).collect();
            let ratios: Vec<f64> = paired.iter().map(|paired| paired.ratio).collect();
            let median_of =
                |number: fn(&Paired) -> f64| median(&paired.iter().map(number).collect::<Vec<f64>>());
            JudgedRow {
                title: format!("{}: {}", self.title, yardstick.name()),
                yardstick,
                old: median_of(|paired| paired.old),
                new: median_of(|paired| paired.new),
                median_ratio: median(&ratios),
                interval: Interval::of_median(&ratios),
                tried_round_count: self.rounds.rounds.len(),
                verdict: if is_quick { Verdict::NotJudged } else { Verdict::of(&ratios, round_count_min) },
                ratios,
            }
        };
        self.rows = self.load.yardsticks().iter().map(judge).collect();
    }

    /// Whether the core of the load was fully busy and the core of the servers was not. Requests per second then
    /// say little about the servers.
    pub fn is_load_bound(&self) -> bool {
        let median_of = |number: fn(&Numbers) -> Option<f64>| {
            let slices = self.valid_rounds().flat_map(|round| &round.slices);
            median(&slices.filter_map(|slice| number(&slice.numbers)).collect::<Vec<f64>>())
        };
        let load_is_full = median_of(|numbers| Some(numbers.cpu.load)).is_some_and(|share| share >= CPU_FULL);
        let server_is_full = median_of(|numbers| numbers.cpu.server).is_some_and(|share| share >= CPU_FULL);
        self.load.yardsticks().contains(&Yardstick::Requests) && load_is_full && !server_is_full
    }

    /// Returns the rounds in which the machine stayed in one state. Each ratio is within one round, so rounds of
    /// both states count.
    fn valid_rounds(&self) -> impl Iterator<Item = &Round> {
        self.rounds.rounds.iter().filter(|round| round.distance.is_some())
    }

    fn paired(&self, yardstick: Yardstick) -> impl Iterator<Item = Paired> {
        self.valid_rounds().filter_map(move |round| {
            let number = |build| yardstick.number(round.numbers(Identity { system: self.system, build })?);
            let (old, new) = (number(Build::Baseline)?, number(Build::Current)?);
            Some(Paired { old, new, ratio: yardstick.ratio(old, new)? })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::{ATTEMPTS_PER_ROUND, LoadResult};
    use crate::compare::baseline::load::Load;
    use crate::compare::baseline::statistics::{ROUND_COUNT_MIN, Verdict};
    use crate::compare::front::Front;
    use crate::compare::identity::Build::{self, Baseline, Current};
    use crate::compare::identity::Identity;
    use crate::compare::options::RowShape;
    use crate::compare::ping_pong::CoreDistance::{self, Far, Near};
    use crate::compare::round::Slice;
    use crate::compare::row::Row;
    use crate::cpu::CpuShares;
    use crate::faults::{FaultKind, Faults};
    use crate::latencies::Percentiles;
    use crate::options::Window;
    use crate::report::Numbers;
    use crate::system::System;

    fn load(front: Option<Front>) -> Load {
        let shape = RowShape { connections: 50, depth: 1 };
        Load::Pairs(Row { shape, window: Window::Burst, busy_poll: false, rate: None, front })
    }

    fn slice(build: Build, distance: Option<CoreDistance>, per_second: f64, cpu: CpuShares) -> Slice {
        Slice {
            identity: Identity { system: System::Waymaker, build },
            core_latency_before_ns: None,
            core_latency_after_ns: None,
            distance,
            numbers: Numbers {
                measured_seconds: 1.0,
                requests_per_second: per_second,
                pairs_per_second: per_second / 2.0,
                polls_per_second: 0.0,
                latency: Percentiles::default(),
                timed_per_second: per_second,
                hand_over: None,
                allowed: None,
                cpu,
                faults: Faults::default(),
            },
        }
    }

    /// Measures a load whose slices have these distances, and evaluates it.
    fn measured(distance: impl Fn(u32, Build) -> Option<CoreDistance>, new_per_second: f64) -> LoadResult {
        let mut result = LoadResult::new(load(None), System::Waymaker);
        let measured = result.measure(
            ROUND_COUNT_MIN,
            |_, _| {},
            |attempt, build| {
                let per_second = if build == Baseline { 100.0 } else { new_per_second };
                Ok(slice(build, distance(attempt, build), per_second, CpuShares::default()))
            },
        );
        measured.expect("no slice fails");
        result.judge(ROUND_COUNT_MIN, false);
        result
    }

    #[test]
    fn neither_build_always_runs_first() {
        let order = RefCell::new(String::new());
        let mut result = LoadResult::new(load(None), System::Waymaker);
        let measured = result.measure(
            4,
            |_, _| {},
            |_, build| {
                order.borrow_mut().push(if build == Baseline { 'A' } else { 'B' });
                Ok(slice(build, Some(Near), 100.0, CpuShares::default()))
            },
        );
        measured.expect("no slice fails");
        assert_eq!(order.into_inner(), "ABBAABBA");
    }

    #[test]
    fn stops_after_the_last_required_round() {
        // In every third attempt the slices have different distances, so the round does not count.
        let differs =
            |attempt: u32, build: Build| Some(if attempt % 3 == 2 && build == Current { Far } else { Near });
        let result = measured(differs, 100.0);
        let row = &result.rows[0];
        assert_eq!((row.ratios.len(), row.tried_round_count), (15, 22));
        assert_eq!((row.median_ratio, row.verdict), (Some(1.0), Verdict::Pass));
    }

    #[test]
    fn rounds_of_both_distances_count() {
        let by_attempt = |attempt: u32, _| Some(if attempt < 5 { Far } else { Near });
        let result = measured(by_attempt, 90.0);
        let row = &result.rows[0];
        assert_eq!((row.ratios.len(), row.tried_round_count, row.verdict), (15, 15, Verdict::Fail));
        assert_eq!((row.old, row.new, row.median_ratio), (Some(100.0), Some(90.0), Some(0.9)));
        assert_eq!(row.title, "50x1: requests");
    }

    #[test]
    fn a_row_without_rounds_of_one_distance_is_inconclusive() {
        let result = measured(|_, build| Some(if build == Baseline { Near } else { Far }), 50.0);
        let row = &result.rows[0];
        assert_eq!((row.ratios.len(), row.verdict), (0, Verdict::Inconclusive));
        assert_eq!(row.tried_round_count, (ATTEMPTS_PER_ROUND * ROUND_COUNT_MIN) as usize);
        let result = measured(|_, _| None, 50.0);
        assert_eq!(result.rows[0].verdict, Verdict::Inconclusive);
        assert_eq!(result.rounds.repeated_slice_count, 90, "each slice is measured twice");
    }

    #[test]
    fn keeps_wrong_responses_of_repeated_slices() {
        let mut result = LoadResult::new(load(None), System::Waymaker);
        let mut slice_count = 0;
        let measured = result.measure(
            1,
            |_, _| {},
            |_, build| {
                slice_count += 1;
                let distance = (slice_count > 1).then_some(Near);
                let mut measured = slice(build, distance, 100.0, CpuShares::default());
                if slice_count == 1 {
                    measured.numbers.faults.add(FaultKind::WrongAnswer, || "wrong".to_owned());
                }
                Ok(measured)
            },
        );
        measured.expect("no slice fails");
        assert_eq!((result.rounds.repeated_slice_count, slice_count), (1, 3));
        assert_eq!(result.rounds.faults().count(), 1);
    }

    #[test]
    fn a_quick_run_shows_numbers_without_a_verdict() {
        let mut result = measured(|_, _| Some(Near), 50.0);
        result.judge(1, true);
        let row = &result.rows[0];
        assert_eq!((row.verdict, row.median_ratio), (Verdict::NotJudged, Some(0.5)));
    }

    #[test]
    fn a_front_end_is_also_compared_by_its_cpu_time_and_needs_both_numbers() {
        let mut result = LoadResult::new(load(Some(Front::Grpc)), System::Waymaker);
        let measured = result.measure(
            ROUND_COUNT_MIN,
            |_, _| {},
            |attempt, build| {
                // The CPU time of the server is unknown in the first two attempts.
                let server = (attempt >= 2).then_some(if build == Baseline { 0.5 } else { 0.6 });
                Ok(slice(build, Some(Near), 100.0, CpuShares { server, load: 0.99, other: None }))
            },
        );
        measured.expect("no slice fails");
        result.judge(ROUND_COUNT_MIN, false);
        let verdicts: Vec<(&str, usize, Verdict)> =
            result.rows.iter().map(|row| (row.title.as_str(), row.ratios.len(), row.verdict)).collect();
        assert_eq!(
            verdicts,
            [("50x1: requests", 17, Verdict::Pass), ("50x1: server CPU per request", 15, Verdict::Fail)]
        );
        assert!(
            result.is_load_bound(),
            "the core of the load is fully busy and the core of the servers is not"
        );
    }
}
