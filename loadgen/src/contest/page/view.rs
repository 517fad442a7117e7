//! What was found, as plots and tables ask for it.

use maud::{Markup, html};

use super::look::Look;
use super::numbers::show_integer;
use crate::contest::result::{
    Contest, ContestShape, Contestant, Distribution, Measured, Measurement, Memory, Outcome,
};
use crate::units::show_rate;

/// All that was found, and how each contestant looks.
pub(super) struct View<'a> {
    pub(super) contest: &'a Contest,
    /// In the order of the contest.
    pub(super) entrants: Vec<Entrant<'a>>,
}

/// A contestant and how it looks.
#[derive(Clone, Copy)]
pub(super) struct Entrant<'a> {
    pub(super) contestant: &'a Contestant,
    pub(super) look: Look,
}

/// What every contestant was given to do at one time.
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

    /// Who takes part.
    pub(super) fn present(&self) -> impl Iterator<Item = Entrant<'a>> {
        self.entrants.iter().copied().filter(|entrant| entrant.contestant.absent.is_none())
    }

    /// Whom the others are compared with: the first that takes part.
    pub(super) fn reference(&self) -> Option<Entrant<'a>> {
        self.present().next()
    }

    /// The loads of a shape, as they were measured.
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

    /// The load that stands for all: pairs of 50 connections with one request each, or else the first of pairs.
    pub(super) fn headline(&self) -> Option<Load> {
        let loads = self.loads(ContestShape::Pair);
        let is_usual = |load: &&Load| load.connections == 50 && load.depth == 1 && load.rate.is_none();
        loads.iter().find(is_usual).or_else(|| loads.first()).copied()
    }

    /// What came of a load for one contestant.
    pub(super) fn outcome(&self, load: Load, entrant: Entrant<'_>) -> Option<&'a Outcome> {
        let found = self.contest.measurements.iter().find(|measurement| {
            measurement.contestant == entrant.contestant.name && Load::of(measurement) == load
        });
        found.map(|measurement| &measurement.outcome)
    }

    /// The same where there are figures.
    pub(super) fn measured(&self, load: Load, entrant: Entrant<'_>) -> Option<&'a Measured> {
        match self.outcome(load, entrant) {
            Some(Outcome::Measured(measured)) => Some(measured),
            _ => None,
        }
    }

    /// Who has figures of a load.
    pub(super) fn all_measured(&self, load: Load) -> Vec<(Entrant<'a>, &'a Measured)> {
        self.present().filter_map(|entrant| Some((entrant, self.measured(load, entrant)?))).collect()
    }

    /// The figures of the one that others are compared with.
    pub(super) fn reference_of(&self, load: Load) -> Option<&'a Measured> {
        self.measured(load, self.reference()?)
    }

    /// What its locks take.
    pub(super) fn memory_of(&self, entrant: Entrant<'_>) -> Option<&'a Memory> {
        self.contest.memory.iter().find(|memory| memory.contestant == entrant.contestant.name)
    }

    /// Under a plot: who is not in it, and why.
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
    /// Its name in a plot, with a warning where it answered wrongly.
    pub(super) fn label(&self, measured: &Measured) -> String {
        self.label_if(measured.faults.is_empty())
    }

    /// The same, for one who was right or wrong in any of several loads.
    pub(super) fn label_if(&self, is_right: bool) -> String {
        let name = &self.contestant.name;
        if is_right { shorten(name, 11) } else { shorten(name, 7) + " (!)" }
    }
}

/// As much of a text as there is room for.
pub(super) fn shorten(text: &str, char_count_max: usize) -> String {
    if text.chars().count() <= char_count_max {
        return text.to_owned();
    }
    text.chars().take(char_count_max - 1).chain(['…']).collect()
}

impl Load {
    /// That of one measurement.
    pub(super) fn of(measurement: &Measurement) -> Self {
        let Measurement { shape, connections, depth, rate, .. } = *measurement;
        Self { shape, connections, depth, rate }
    }

    /// In words; one request in flight goes without saying.
    pub(super) fn describe(self) -> String {
        let connections = match self.connections {
            1 => "1 connection".to_owned(),
            count => format!("{} connections", show_integer(u64::from(count))),
        };
        let depth = match self.depth {
            1 => String::new(),
            depth => format!(", {depth} requests in flight on each"),
        };
        let rate = self.rate.map(|rate| format!(", {} asked for", show_rate(rate as f64)));
        connections + &depth + &rate.unwrap_or_default()
    }
}

/// The name of a shape, as a title.
pub(super) fn shape_title(shape: ContestShape) -> &'static str {
    match shape {
        ContestShape::Pair => "Uncontended pair",
        ContestShape::HandOver => "Hand-over",
        ContestShape::ReadMostly => "Read-mostly",
        ContestShape::ManyWaiters => "Many waiters",
        ContestShape::Renewals => "Renewals",
    }
}

/// What the connections do there.
pub(super) fn shape_story(shape: ContestShape) -> &'static str {
    match shape {
        ContestShape::Pair => "each connection acquires a random key and releases it; nobody is in the way.",
        ContestShape::HandOver => "all connections contend for one key.",
        ContestShape::ReadMostly => "readers and few writers over few keys.",
        ContestShape::ManyWaiters => "many wait for one key.",
        ContestShape::Renewals => "many leases are renewed at a fixed rate while pairs go on.",
    }
}

/// The latencies that a plot of this shape shows; `None` where they were not measured.
pub(super) fn shown_latency(shape: ContestShape, measured: &Measured) -> Option<&Distribution> {
    let shown = match shape {
        ContestShape::HandOver | ContestShape::ManyWaiters => measured.hand_over.as_ref(),
        ContestShape::Renewals => measured.renewal.as_ref(),
        ContestShape::Pair | ContestShape::ReadMostly => Some(&measured.latency),
    };
    shown.filter(|distribution| distribution.percentiles.count > 0)
}

/// What these are.
pub(super) fn shown_name(shape: ContestShape) -> &'static str {
    match shape {
        ContestShape::HandOver | ContestShape::ManyWaiters => "from release to next grant (log)",
        ContestShape::Renewals => "from due to renewed (log)",
        ContestShape::Pair | ContestShape::ReadMostly => "latency (log)",
    }
}
