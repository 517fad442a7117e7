//! Slices in turn, and their statistics.

use std::sync::atomic::Ordering;

use anyhow::bail;
use serde::Serialize;

use super::identity::Identity;
use super::ping_pong::{CoreDistance, core_latency_ns};
use super::session::{Contestant, Session};
use crate::faults::Faults;
use crate::load;
use crate::plan::Plan;
use crate::programs::server::Server;
use crate::report::Numbers;
use crate::threads::Outcome;

/// One slice of one target, between two measurements of the core latency.
#[derive(Clone, Debug, Serialize)]
pub struct Slice {
    /// Identity of the target.
    #[serde(flatten)]
    pub identity: Identity,
    /// Core latency (round trip) before the slice.
    pub core_latency_before_ns: Option<u64>,
    /// Core latency (round trip) after the slice.
    pub core_latency_after_ns: Option<u64>,
    /// Core distance during the slice; `None` if it changed.
    pub distance: Option<CoreDistance>,
    /// Results of the slice.
    pub numbers: Numbers,
}

/// One slice of each target, in direct succession.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// Core distance of all its slices; `None` if they differ, and the round then does not count.
    pub distance: Option<CoreDistance>,
    /// Slices in the order of measurement.
    pub slices: Vec<Slice>,
}

/// All rounds of one row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rounds {
    /// All rounds, counting or not.
    pub rounds: Vec<Round>,
    /// Number of slices that were repeated because the distance changed.
    pub repeated_slice_count: u32,
}

impl Rounds {
    /// Measures until there are enough rounds of one distance, or until half as many again were tried.
    pub fn measure(
        session: &Session<'_>,
        contestants: &[&Contestant],
        count: u32,
        plan: impl Fn(&Contestant, u64) -> anyhow::Result<Plan>,
    ) -> anyhow::Result<Self> {
        Self::take_turns(count, contestants.len(), |attempt, turn| {
            let plan = plan(contestants[turn], session.seed.wrapping_add(u64::from(attempt)))?;
            session.slice(contestants[turn], &plan)
        })
    }

    /// Like `measure`, for anything that takes turns: `slice` measures the slice of a turn in an attempt.
    pub fn take_turns(
        count: u32,
        turn_count: usize,
        mut slice: impl FnMut(u32, usize) -> anyhow::Result<Slice>,
    ) -> anyhow::Result<Self> {
        let mut all = Self::default();
        for attempt in 0..count + count.div_ceil(2) {
            all.add_round(turn_count, |turn| slice(attempt, turn))?;
            if all.counting().len() >= count as usize {
                break;
            }
        }
        Ok(all)
    }

    /// Measures the slice of each turn and adds them as a round. Repeats a slice once if the distance between the
    /// two cores changed during it.
    pub fn add_round(
        &mut self,
        turn_count: usize,
        mut slice: impl FnMut(usize) -> anyhow::Result<Slice>,
    ) -> anyhow::Result<()> {
        let mut slices = Vec::new();
        for turn in 0..turn_count {
            let mut measured = slice(turn)?;
            if measured.distance.is_none() {
                self.repeated_slice_count += 1;
                let repeated = slice(turn)?;
                let first = std::mem::replace(&mut measured, repeated);
                // A wrong response counts even in a slice that is repeated.
                measured.numbers.faults.merge(first.numbers.faults);
            }
            slices.push(measured);
        }
        let first = slices.first().and_then(|slice| slice.distance);
        let distance = first.filter(|_| slices.iter().all(|slice| slice.distance == first));
        self.rounds.push(Round { distance, slices });
        Ok(())
    }

    /// Returns the distance of most rounds.
    pub fn distance(&self) -> Option<CoreDistance> {
        let count_of = |distance| self.rounds.iter().filter(|round| round.distance == Some(distance)).count();
        [CoreDistance::Near, CoreDistance::Far, CoreDistance::Unknown]
            .into_iter()
            .filter(|distance| count_of(*distance) > 0)
            .max_by_key(|distance| count_of(*distance))
    }

    /// Returns the rounds of that distance, which count.
    pub fn counting(&self) -> Vec<&Round> {
        let distance = self.distance();
        self.rounds.iter().filter(|round| round.distance.is_some() && round.distance == distance).collect()
    }

    /// Returns the median of a number over the slices of this turn.
    pub fn median_of_turn(&self, turn: usize, number: impl Fn(&Numbers) -> Option<f64>) -> Option<f64> {
        let slices = self.counting().into_iter().filter_map(|round| round.slices.get(turn));
        Spread::of(slices.filter_map(|slice| number(&slice.numbers)).collect()).map(|spread| spread.median)
    }

    /// Returns the median of a number of one target.
    pub fn median(
        &self,
        target: impl Into<Identity>,
        number: impl Fn(&Numbers) -> Option<f64>,
    ) -> Option<f64> {
        let target = target.into();
        let values = self.counting().iter().filter_map(|round| number(round.numbers(target)?)).collect();
        Spread::of(values).map(|spread| spread.median)
    }

    /// Returns the ratio of two targets within each round.
    pub fn ratio(
        &self,
        target: impl Into<Identity>,
        reference: impl Into<Identity>,
        number: impl Fn(&Numbers) -> Option<f64>,
    ) -> Option<Spread> {
        let (target, reference) = (target.into(), reference.into());
        let ratio_of = |round: &&Round| {
            let reference = number(round.numbers(reference)?)?;
            Some(number(round.numbers(target)?)? / reference).filter(|ratio| ratio.is_finite())
        };
        Spread::of(self.counting().iter().filter_map(ratio_of).collect())
    }

    /// Returns the difference of two targets within each round.
    pub fn difference(
        &self,
        target: impl Into<Identity>,
        reference: impl Into<Identity>,
        number: impl Fn(&Numbers) -> Option<f64>,
    ) -> Option<Spread> {
        let (target, reference) = (target.into(), reference.into());
        let difference_of =
            |round: &&Round| Some(number(round.numbers(target)?)? - number(round.numbers(reference)?)?);
        Spread::of(self.counting().iter().filter_map(difference_of).collect())
    }

    /// Returns all slices, including slices of rounds that do not count.
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.rounds.iter().flat_map(|round| &round.slices)
    }

    /// Returns the wrong responses of all slices.
    pub fn faults(&self) -> Faults {
        let mut faults = Faults::default();
        self.slices().for_each(|slice| faults.merge(slice.numbers.faults.clone()));
        faults
    }
}

impl Round {
    /// Returns the results of one target.
    pub fn numbers(&self, target: impl Into<Identity>) -> Option<&Numbers> {
        let target = target.into();
        self.slices.iter().find(|slice| slice.identity == target).map(|slice| &slice.numbers)
    }
}

/// Median, minimum and maximum of several values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Spread {
    /// Returns the spread; `None` without values.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let upper = values[values.len() / 2];
        let lower = values[(values.len() - 1) / 2];
        Some(Self { median: f64::midpoint(lower, upper), min, max })
    }
}

impl Session<'_> {
    /// Measures one slice with new connections.
    pub fn slice(&self, contestant: &Contestant, plan: &Plan) -> anyhow::Result<Slice> {
        self.slice_of(contestant, plan, || load::run(plan, contestant.process, &self.stop, &|_, _| {}))
    }

    /// Measures one slice in which `measure` runs the load of this plan.
    pub fn slice_of(
        &self,
        contestant: &Contestant,
        plan: &Plan,
        measure: impl FnOnce() -> anyhow::Result<Outcome>,
    ) -> anyhow::Result<Slice> {
        let before = core_latency_ns(self.options.server_core, self.options.load_core)?;
        let outcome = measure();
        // Ctrl-C reaches the servers too, so it may be the reason why they ended.
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        if let Some(end) = contestant.server.as_ref().and_then(Server::describe_end) {
            let Plan { connections, depth, .. } = plan;
            bail!(
                "while measuring {} with {connections} connections x depth {depth}: {end}",
                contestant.identity
            );
        }
        let outcome = outcome?;
        let after = core_latency_ns(self.options.server_core, self.options.load_core)?;
        self.bar.inc(1);
        let numbers = Numbers::from_outcome(&outcome);
        // A quick run only checks that everything works, so it ignores the core distance.
        let distance = if self.options.quick { CoreDistance::Unknown } else { CoreDistance::of(before) };
        Ok(Slice {
            identity: contestant.identity,
            core_latency_before_ns: before,
            core_latency_after_ns: after,
            distance: (self.options.quick || CoreDistance::of(after) == distance).then_some(distance),
            numbers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(Spread::of(vec![]), None);
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(vec![4.0, 1.0]).map(|spread| spread.median), Some(2.5));
    }
}
