//! Cost of the Rust client library: pairs of one connection, one request at a time, through the library and
//! through the raw connection of this program, in turn on the same server.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use super::round::{Rounds, Spread};
use super::row::slice_plan;
use super::session::{Contestant, Session};
use super::table::{show_float_ns, show_spread};
use crate::load;
use crate::options::WorkloadName;
use crate::report::Numbers;
use crate::system::System;
use crate::units::{show_percent, show_rate};

/// Slices of one round.
const TURNS: [(&str, WorkloadName); 2] =
    [("raw connection", WorkloadName::Pair), ("client library", WorkloadName::Guard)];

/// Slices of the raw connection and of the library, in turn.
#[derive(Clone, Debug, Serialize)]
pub struct Library {
    /// In each round, first the slice of the raw connection, then the slice of the library.
    pub rounds: Rounds,
}

impl Library {
    /// Number of slices in one round.
    pub const SLICE_COUNT: u64 = TURNS.len() as u64;

    /// Measures Waymaker.
    pub fn measure(session: &Session<'_>, contestants: &[Contestant]) -> Result<Self> {
        let ours = contestants.iter().find(|one| one.identity.system == System::Waymaker);
        let ours = ours.context("--library needs the target waymaker")?;
        let rounds = Rounds::take_turns(session.options.round_count(), TURNS.len(), |attempt, turn| {
            let mut plan =
                slice_plan(&ours.address, session.options, session.seed.wrapping_add(u64::from(attempt)))?;
            plan.workload = TURNS[turn].1;
            session.slice_of(ours, &plan, || load::run(&plan, ours.process, &session.stop, &|_, _| {}))
        })?;
        Ok(Self { rounds })
    }

    /// Returns the ratio of the library's requests to the requests of the raw connection, within each round.
    pub fn ratio(&self) -> Option<Spread> {
        let ratios = self.rounds.counting().into_iter().filter_map(|round| {
            let [raw, library] = round.slices.as_slice() else { return None };
            let ratio = library.numbers.requests_per_second / raw.numbers.requests_per_second;
            ratio.is_finite().then_some(ratio)
        });
        Spread::of(ratios.collect())
    }

    /// Formats the results as Markdown.
    pub fn describe(&self) -> String {
        let mut text =
            "\n| 1x1 by | requests | p50 | p99 | server CPU | load CPU |\n|---|---|---|---|---|---|\n"
                .to_owned();
        for (turn, (title, _)) in TURNS.iter().enumerate() {
            let median = |number: fn(&Numbers) -> Option<f64>, show: fn(f64) -> String| {
                self.rounds.median_of_turn(turn, number).map_or("-".to_owned(), show)
            };
            let _ = writeln!(
                text,
                "| {title} | {} | {} | {} | {} | {} |",
                median(|numbers| Some(numbers.requests_per_second), show_rate),
                median(|numbers| Some(numbers.latency.p50_ns as f64), show_float_ns),
                median(|numbers| Some(numbers.latency.p99_ns as f64), show_float_ns),
                median(|numbers| numbers.cpu.server, show_percent),
                median(|numbers| Some(numbers.cpu.load), show_percent),
            );
        }
        let _ = writeln!(
            text,
            "\n{} of {} rounds count. The library has {} x the requests of the raw connection.",
            self.rounds.counting().len(),
            self.rounds.rounds.len(),
            self.ratio().map_or("-".to_owned(), show_spread)
        );
        text
    }
}
