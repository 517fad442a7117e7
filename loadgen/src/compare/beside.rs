//! Cost of durable locks for requests for locks in memory: such requests at a fixed rate, alone and beside a load
//! of durable locks that keeps the disk of the same server busy.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::options::CompareOptions;
use super::other_load::OtherLoad;
use super::round::{Rounds, Spread};
use super::row::slice_plan;
use super::session::{Contestant, Session};
use super::table::{show_float_ns, show_spread};
use crate::load;
use crate::options::Window;
use crate::plan::Plan;
use crate::report::{CPU_FULL, Numbers};
use crate::scope::Scope;
use crate::system::System;
use crate::units::{show_percent, show_rate};

/// Ephemeral requests per second: far below the capacity of the server, so that a delay is not caused by a queue.
const RATE: u64 = 2_000;
/// Connections of the ephemeral load, and requests in flight on each; enough that a short stall never blocks the
/// client.
const EPHEMERAL: (u32, u32) = (4, 16);
/// Ephemeral keys are longer than durable keys, so no key belongs to both loads.
const EPHEMERAL_KEY_SIZE: u16 = 18;
/// Connections and depth of the durable load. Some request always waits for the next sync, and yet the core that
/// both loads share has time for both.
const LOCAL: (u32, u32) = (8, 16);
/// Time limit for the first response to the durable load.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Slices of one round.
const TURNS: [&str; 2] = ["alone", "beside local"];

/// Slices alone and beside the durable load, in turn.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// Results of the ephemeral load: in each round first the slice alone, then the slice beside the durable load.
    pub rounds: Rounds,
    /// Results of the durable load, each time it ran.
    pub local: Vec<Numbers>,
}

impl Beside {
    /// Measures Waymaker, if it is among the contestants.
    pub fn measure(session: &Session<'_>, contestants: &[Contestant]) -> Result<Option<Self>> {
        let Some(ours) = contestants.iter().find(|one| one.identity.system == System::Waymaker) else {
            return Ok(None);
        };
        let mut local = Vec::new();
        let rounds = Rounds::take_turns(session.options.round_count(), TURNS.len(), |attempt, turn| {
            let seed = session.seed.wrapping_add(u64::from(attempt));
            let plan = ephemeral_plan(ours, session.options, seed)?;
            session.slice_of(ours, &plan, || {
                let measure = || load::run(&plan, ours.process, &session.stop, &|_, _| {});
                if turn == 0 {
                    return measure();
                }
                let durable = OtherLoad::start(local_plan(ours, session.options, seed)?, ANSWER_TIME_MAX)?;
                let outcome = measure();
                local.push(Numbers::from_outcome(&durable.end()?));
                outcome
            })
        })?;
        Ok(Some(Self { rounds, local }))
    }

    /// Returns the number of slices that this takes.
    pub fn slice_count(options: &CompareOptions, contestants: &[Contestant]) -> u64 {
        let is_measured = contestants.iter().any(|one| one.identity.system == System::Waymaker);
        u64::from(is_measured) * u64::from(options.round_count()) * TURNS.len() as u64
    }

    /// Returns the ratio of the 99th percentiles, beside the durable load to alone, within each round.
    pub fn p99_ratio(&self) -> Option<Spread> {
        let ratios = self.rounds.counting().into_iter().filter_map(|round| {
            let [alone, beside] = round.slices.as_slice() else { return None };
            let ratio = beside.numbers.latency.p99_ns as f64 / alone.numbers.latency.p99_ns as f64;
            ratio.is_finite().then_some(ratio)
        });
        Spread::of(ratios.collect())
    }

    /// Formats the results as Markdown.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "\n| ephemeral at {} | requests | p50 | p99 | max | server CPU | load CPU |\n|---|---|---|---|---|---|---|\n",
            show_rate(RATE as f64)
        );
        for (turn, title) in TURNS.iter().enumerate() {
            let median = |number: fn(&Numbers) -> Option<f64>, show: fn(f64) -> String| {
                self.rounds.median_of_turn(turn, number).map_or("-".to_owned(), show)
            };
            let _ = writeln!(
                text,
                "| {title} | {} | {} | {} | {} | {} | {} |",
                median(|numbers| Some(numbers.requests_per_second), show_rate),
                median(|numbers| Some(numbers.latency.p50_ns as f64), show_float_ns),
                median(|numbers| Some(numbers.latency.p99_ns as f64), show_float_ns),
                median(|numbers| Some(numbers.latency.max_ns as f64), show_float_ns),
                median(|numbers| numbers.cpu.server, show_percent),
                median(|numbers| Some(numbers.cpu.load), show_percent),
            );
        }
        let local = Spread::of(self.local.iter().map(|numbers| numbers.requests_per_second).collect());
        let _ = writeln!(
            text,
            "\nThe durable load beside it: {}x{} sliding, {} requests. p99 beside it is {} x p99 alone.",
            LOCAL.0,
            LOCAL.1,
            local.map_or("-".to_owned(), |spread| show_rate(spread.median)),
            self.p99_ratio().map_or("-".to_owned(), show_spread)
        );
        let beside = self.rounds.counting().into_iter().filter_map(|round| round.slices.get(1));
        if beside.into_iter().any(|slice| slice.numbers.cpu.load >= CPU_FULL) {
            text.push_str(
                "**The core of the two loads was fully busy in some slices: there, ephemeral requests waited for the \
                 durable load before they reached the server.**\n",
            );
        }
        text
    }
}

fn ephemeral_plan(ours: &Contestant, options: &CompareOptions, seed: u64) -> Result<Plan> {
    let plan = Plan {
        scope: Scope::Ephemeral,
        connections: EPHEMERAL.0,
        depth: EPHEMERAL.1,
        rate: Some(RATE),
        window: Window::Sliding,
        key_size: EPHEMERAL_KEY_SIZE,
        // Sleeps between requests, because the durable load shares the core.
        keeps_samples: true,
        ..slice_plan(&ours.address, options, seed)?
    };
    plan.check().map(|()| plan)
}

fn local_plan(ours: &Contestant, options: &CompareOptions, seed: u64) -> Result<Plan> {
    let plan = Plan {
        scope: Scope::Local,
        connections: LOCAL.0,
        depth: LOCAL.1,
        window: Window::Sliding,
        ..slice_plan(&ours.address, options, seed)?
    };
    plan.check().map(|()| plan)
}
