//! What our client library costs: pairs of one connection, one request at a time, by it and by the raw connection of this
//! program, in turn on the same server.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use super::round::{Rounds, Spread};
use super::row::slice_plan;
use super::session::{Contestant, Session};
use super::table::{show_float_ns, show_spread};
use crate::address::System;
use crate::load;
use crate::options::WorkloadName;
use crate::report::Numbers;
use crate::units::{show_percent, show_rate};

/// The turns of a round.
const TURNS: [(&str, WorkloadName); 2] =
    [("raw connection", WorkloadName::Pair), ("client library", WorkloadName::Guard)];

/// Slices of the raw connection and of the library, in turn.
#[derive(Clone, Debug, Serialize)]
pub struct Library {
    /// In each round the slice of the raw connection, then the one of the library.
    pub rounds: Rounds,
}

impl Library {
    /// How many slices one round has.
    pub const SLICE_COUNT: u64 = TURNS.len() as u64;

    /// Measures our server.
    pub fn measure(session: &Session<'_>, contestants: &[Contestant]) -> Result<Self> {
        let ours = contestants.iter().find(|one| one.identity.system == System::Waymaker);
        let ours = ours.context("--library: only our server has this library")?;
        let rounds = Rounds::take_turns(session.options.round_count(), TURNS.len(), |attempt, turn| {
            let mut plan =
                slice_plan(&ours.address, session.options, session.seed.wrapping_add(u64::from(attempt)))?;
            plan.workload = TURNS[turn].1;
            session.slice_of(ours, &plan, || load::run(&plan, ours.process, &session.stop, &|_, _| {}))
        })?;
        Ok(Self { rounds })
    }

    /// The requests of the library against those of the raw connection, each within one round.
    pub fn ratio(&self) -> Option<Spread> {
        let ratios = self.rounds.counting().into_iter().filter_map(|round| {
            let [raw, library] = round.slices.as_slice() else { return None };
            let ratio = library.numbers.requests_per_second / raw.numbers.requests_per_second;
            ratio.is_finite().then_some(ratio)
        });
        Spread::of(ratios.collect())
    }

    /// As Markdown.
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
