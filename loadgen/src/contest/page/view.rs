//! Results in the form that plots and tables need.

use maud::{Markup, html};

use super::look::Look;
use super::numbers::show_integer;
use crate::contest::result::{
    Contest, ContestShape, Contestant, Distribution, Measured, Measurement, Memory, Outcome,
};
use crate::units::show_rate;

/// All results, and the look of each contestant.
pub(super) struct View<'a> {
    pub(super) contest: &'a Contest,
    /// Contestants in the order of the contest.
    pub(super) entrants: Vec<Entrant<'a>>,
}

/// A contestant and its look.
#[derive(Clone, Copy)]
pub(super) struct Entrant<'a> {
    pub(super) contestant: &'a Contestant,
    pub(super) look: Look,
}

/// A load that every contestant got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Load {
    pub(super) shape: ContestShape,
    pub(super) connections: u32,
    pub(super) depth: u32,
    pub(super) rate: Option<u64>,
}

impl<'a> View<'a> {
    pub(super) fn new(contest: &'a Contest) -> Self {
        let looks = Look::of_each(contest.contestants.iter().map(|contestant| contestant.name.as_str()));
        let entrants = contest.contestants.iter().zip(looks);
        Self { contest, entrants: entrants.map(|(contestant, look)| Entrant { contestant, look }).collect() }
    }

    /// Returns the contestants that take part.
    pub(super) fn present(&self) -> impl Iterator<Item = Entrant<'a>> {
        self.entrants.iter().copied().filter(|entrant| entrant.contestant.absent.is_none())
    }

    /// Returns the contestant that the others are compared with: the first that takes part.
    pub(super) fn reference(&self) -> Option<Entrant<'a>> {
        self.present().next()
    }

    /// Returns the loads of a shape, in the order of measurement.
    pub(super) fn loads(&self, shape: ContestShape) -> Vec<Load> {
        let mut loads = Vec::new();
        for measurement in self.contest.measurements.iter().filter(|measurement| measurement.shape == shape) {
            let load = Load::of(measurement);
            if !loads.contains(&load) {
                loads.push(load);
            }
        }
        loads
    }

    /// Returns the headline load: pairs of 50 connections with one request each, otherwise the first load of
    /// pairs.
    pub(super) fn headline(&self) -> Option<Load> {
        let loads = self.loads(ContestShape::Pair);
        let is_usual = |load: &&Load| load.connections == 50 && load.depth == 1 && load.rate.is_none();
        loads.iter().find(is_usual).or_else(|| loads.first()).copied()
    }

    /// Returns the outcome of a load for one contestant.
    pub(super) fn outcome(&self, load: Load, entrant: Entrant<'_>) -> Option<&'a Outcome> {
        let found = self.contest.measurements.iter().find(|measurement| {
            measurement.contestant == entrant.contestant.name && Load::of(measurement) == load
        });
        found.map(|measurement| &measurement.outcome)
    }

    /// Returns the numbers of a load for one contestant, if it was measured.
    pub(super) fn measured(&self, load: Load, entrant: Entrant<'_>) -> Option<&'a Measured> {
        match self.outcome(load, entrant) {
            Some(Outcome::Measured(measured)) => Some(measured),
            _ => None,
        }
    }

    /// Returns the contestants with numbers for a load.
    pub(super) fn all_measured(&self, load: Load) -> Vec<(Entrant<'a>, &'a Measured)> {
        self.present().filter_map(|entrant| Some((entrant, self.measured(load, entrant)?))).collect()
    }

    /// Returns the numbers of the reference contestant.
    pub(super) fn reference_of(&self, load: Load) -> Option<&'a Measured> {
        self.measured(load, self.reference()?)
    }

    /// Returns the memory of its locks.
    pub(super) fn memory_of(&self, entrant: Entrant<'_>) -> Option<&'a Memory> {
        self.contest.memory.iter().find(|memory| memory.contestant == entrant.contestant.name)
    }

    /// Returns the text below a plot that names the missing contestants and the reasons.
    pub(super) fn left_out(&self, load: Load) -> Markup {
        let reasons: Vec<_> = self
            .present()
            .filter_map(|entrant| {
                let reason = match self.outcome(load, entrant) {
                    Some(Outcome::Measured(_)) => return None,
                    Some(Outcome::NotOffered(_)) => "not offered",
                    Some(Outcome::Failed(_)) => "failed",
                    None => "not measured",
                };
                Some(format!("{}: {reason}", entrant.contestant.name))
            })
            .collect();
        html! {
            @if !reasons.is_empty() { p.left-out { (reasons.join("; ")) } }
        }
    }
}

impl Entrant<'_> {
    /// Returns its name in a plot, with a mark if responses were wrong.
    pub(super) fn label(&self, measured: &Measured) -> String {
        self.label_if(measured.faults.is_empty())
    }

    /// Returns its name in a plot of several loads, with a mark if responses were wrong.
    pub(super) fn label_if(&self, is_right: bool) -> String {
        let name = &self.contestant.name;
        if is_right { shorten(name, 11) } else { shorten(name, 7) + " (!)" }
    }
}

/// Shortens a text to the available space.
pub(super) fn shorten(text: &str, char_count_max: usize) -> String {
    if text.chars().count() <= char_count_max {
        return text.to_owned();
    }
    text.chars().take(char_count_max - 1).chain(['…']).collect()
}

impl Load {
    /// Returns the load of one measurement.
    pub(super) fn of(measurement: &Measurement) -> Self {
        let Measurement { shape, connections, depth, rate, .. } = *measurement;
        Self { shape, connections, depth, rate }
    }

    /// Describes the load in words; a single request in flight is not mentioned.
    pub(super) fn describe(self) -> String {
        let connections = match self.connections {
            1 => "1 connection".to_owned(),
            count => format!("{} connections", show_integer(u64::from(count))),
        };
        let depth = match self.depth {
            1 => String::new(),
            depth => format!(", {depth} requests in flight on each"),
        };
        let rate = self.rate.map(|rate| format!(", fixed rate {}", show_rate(rate as f64)));
        connections + &depth + &rate.unwrap_or_default()
    }
}

/// Returns the name of a shape, as a title.
pub(super) fn shape_title(shape: ContestShape) -> &'static str {
    match shape {
        ContestShape::Pair => "Uncontended pair",
        ContestShape::HandOver => "Hand-over",
        ContestShape::ReadMostly => "Read-mostly",
        ContestShape::ManyWaiters => "Many waiters",
        ContestShape::Renewals => "Renewals",
    }
}

/// Returns a description of the shape.
pub(super) fn shape_story(shape: ContestShape) -> &'static str {
    match shape {
        ContestShape::Pair => "each connection acquires a random key and releases it, without contention.",
        ContestShape::HandOver => "all connections contend for one key.",
        ContestShape::ReadMostly => "many readers and few writers on few keys.",
        ContestShape::ManyWaiters => "many connections wait for one key.",
        ContestShape::Renewals => "many leases are renewed at a fixed rate while pairs run.",
    }
}

/// Returns the latencies that a plot of this shape shows; `None` if they were not measured.
pub(super) fn shown_latency(shape: ContestShape, measured: &Measured) -> Option<&Distribution> {
    let shown = match shape {
        ContestShape::HandOver | ContestShape::ManyWaiters => measured.hand_over.as_ref(),
        ContestShape::Renewals => measured.renewal.as_ref(),
        ContestShape::Pair | ContestShape::ReadMostly => Some(&measured.latency),
    };
    shown.filter(|distribution| distribution.percentiles.count > 0)
}

/// Returns the axis title of these latencies.
pub(super) fn shown_name(shape: ContestShape) -> &'static str {
    match shape {
        ContestShape::HandOver | ContestShape::ManyWaiters => "from release to next grant (log)",
        ContestShape::Renewals => "from due time to renewal (log)",
        ContestShape::Pair | ContestShape::ReadMostly => "latency (log)",
    }
}
