//! A comparison as Markdown.

use std::fmt::Write;

use super::cost::put_costs;
use super::round::{Rounds, Slice, Spread};
use super::row::Row;
use super::{Comparison, Configuration, RowResult};
use crate::compare::goals::server_ns_per_request;
use crate::footprint::show_mebibytes;
use crate::machine::Machine;
use crate::report::{Numbers, OTHER_CPU_MAX, RATE_REACHED};
use crate::scope::Scope;
use crate::system::System;
use crate::units::{show_ns, show_percent, show_rate};

/// Formats the whole comparison.
pub fn markdown(comparison: &Comparison) -> String {
    let configuration = &comparison.configuration;
    let mut text = head(&comparison.machine, configuration);
    put_rows(&mut text, comparison);
    if configuration.front.is_some() {
        put_costs(&mut text, comparison);
    }
    put_memory(&mut text, comparison);
    put_hot(&mut text, comparison);
    if let Some(beside) = &comparison.beside {
        text.push_str(&beside.describe());
    }
    if let Some(library) = &comparison.library {
        text.push_str(&library.describe());
    }
    put_goals(&mut text, comparison);
    put_disturbance(&mut text, comparison);
    for note in &comparison.notes {
        let _ = writeln!(text, "\n{note}");
    }
    text
}

/// Formats the lines above all tables: the machine and the load.
pub(super) fn head(machine: &Machine, configuration: &Configuration) -> String {
    let mut text = String::new();
    let subject = match configuration.front {
        Some(front) => format!("{}: acquire", front.describe()),
        None => match configuration.scope {
            Scope::Quorum => "Fences that etcd counts, and puts of etcd: acquire".to_owned(),
            Scope::Local => "Durable locks: acquire".to_owned(),
            Scope::Ephemeral => "Acquire".to_owned(),
        },
    };
    let _ = writeln!(text, "{}\n", machine.describe());
    let _ = writeln!(
        text,
        "{subject} and release of {} random keys of {} bytes, lease 30 s; {} rounds of {} ms slices, new connections \
         each; servers on core {}, load on core {}; seed {}.\n",
        configuration.key_count,
        configuration.key_size,
        configuration.round_count,
        configuration.slice_ms,
        configuration.server_core,
        configuration.load_core,
        configuration.seed
    );
    text
}

fn put_rows(text: &mut String, comparison: &Comparison) {
    if comparison.rows.is_empty() {
        return;
    }
    let configuration = &comparison.configuration;
    let is_durable = configuration.scope != Scope::Ephemeral;
    let references = comparison.references();
    text.push_str("| load | target | requests | p50 | p99 | server CPU | load CPU |");
    references.iter().for_each(|reference| text.push_str(&format!(" x {} |", reference.name())));
    let _ = writeln!(text, "\n|---|---|---|---|---|---|---|{}", "---|".repeat(references.len()));
    for result in &comparison.rows {
        put_row(text, result, &comparison.systems, references);
    }
    let of_what = if is_durable || configuration.front.is_some() {
        "of requests"
    } else {
        "of requests; in busy-polling rows of p50; at a fixed rate of the server's CPU time per request"
    };
    let _ = writeln!(
        text,
        "\nMedians of the rounds that count. A ratio is the median of the ratios within each round, with the smallest \
         and the largest; {of_what}.\n",
    );
    for result in &comparison.rows {
        let _ = writeln!(text, "- {}: {}", result.row.title(), describe_rounds(result, &comparison.systems));
    }
}

fn put_row(text: &mut String, result: &RowResult, systems: &[System], references: &[System]) {
    let RowResult { row, rounds } = result;
    // The number whose ratio this row reports.
    let number: fn(&Numbers) -> Option<f64> = if row.rate.is_some() {
        server_ns_per_request
    } else if row.busy_poll {
        |numbers| Some(numbers.latency.p50_ns as f64)
    } else {
        |numbers| Some(numbers.timed_per_second)
    };
    for &system in systems.iter().filter(|system| row.includes(**system)) {
        let median = |number: fn(&Numbers) -> Option<f64>, show: fn(f64) -> String| {
            rounds.median(system, number).map_or("-".to_owned(), show)
        };
        let server_cpu = if row.rate.is_some() {
            median(server_ns_per_request, |ns| format!("{ns:.0} ns/request"))
        } else {
            median(|numbers| numbers.cpu.server, show_percent)
        };
        let ratios = references.iter().map(|&reference| {
            rounds
                .ratio(system, reference, number)
                .filter(|_| system != reference)
                .map_or("-".to_owned(), show_spread)
        });
        let ratios: Vec<String> = ratios.collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {server_cpu} | {} | {} |",
            row.title(),
            system.name(),
            median(|numbers| Some(numbers.timed_per_second), show_rate),
            median(|numbers| Some(numbers.latency.p50_ns as f64), show_float_ns),
            median(|numbers| Some(numbers.latency.p99_ns as f64), show_float_ns),
            median(|numbers| Some(numbers.cpu.load), show_percent),
            ratios.join(" | "),
        );
    }
}

fn describe_rounds(result: &RowResult, systems: &[System]) -> String {
    let RowResult { row, rounds } = result;
    let counting = rounds.counting();
    let mut latencies: Vec<u64> = counting
        .iter()
        .flat_map(|round| &round.slices)
        .flat_map(|slice| [slice.core_latency_before_ns, slice.core_latency_after_ns])
        .flatten()
        .collect();
    latencies.sort_unstable();
    let cores = match (rounds.distance(), latencies.first(), latencies.last()) {
        (Some(distance), Some(first), Some(last)) => {
            format!("cores {} ({first} to {last} ns round trip)", distance.name())
        }
        _ => "core distance unknown".to_owned(),
    };
    format!(
        "{} of {} rounds count, {cores}; {} slices repeated because the core distance changed{}",
        counting.len(),
        rounds.rounds.len(),
        rounds.repeated_slice_count,
        describe_rate(row, rounds, systems)
    )
}

/// Names the systems that did not reach a fixed rate.
fn describe_rate(row: &Row, rounds: &Rounds, systems: &[System]) -> String {
    let Some(rate) = row.rate else { return String::new() };
    let is_slow = |system: &System| {
        let reached = rounds.median(*system, |numbers| Some(numbers.requests_per_second));
        reached.is_some_and(|reached| reached < RATE_REACHED * rate as f64)
    };
    let slow: Vec<&str> = systems.iter().copied().filter(is_slow).map(System::name).collect();
    if slow.is_empty() { String::new() } else { format!("; the rate was not reached by {}", slow.join(", ")) }
}

fn put_memory(text: &mut String, comparison: &Comparison) {
    if comparison.memory.is_empty() {
        return;
    }
    text.push_str("\n| memory | item | count | resident before | resident after | bytes each |\n|---|---|---|---|---|---|\n");
    for memory in &comparison.memory {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {:.1} |",
            memory.system,
            memory.what,
            memory.footprint.count,
            show_mebibytes(memory.footprint.before_bytes),
            show_mebibytes(memory.footprint.after_bytes),
            memory.footprint.bytes_each
        );
    }
}

fn put_hot(text: &mut String, comparison: &Comparison) {
    let Some(hot) = &comparison.hot else { return };
    text.push_str(
        "\n| hot key, 64 connections | hand-over p50 | hand-over p99 | round trip p50 | acquire p50 | grants | polls |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for &system in comparison.systems.iter().filter(|system| **system != System::Echo) {
        let show = |value: Option<f64>, show: fn(f64) -> String| value.map_or("-".to_owned(), show);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            system.name(),
            show(hot.hand_over_p50_ns(system), show_float_ns),
            show(hot.hand_over_p99_ns(system), show_float_ns),
            show(hot.round_trip_p50_ns(system), show_float_ns),
            show(hot.hot.median(system, |numbers| Some(numbers.latency.p50_ns as f64)), show_float_ns),
            show(hot.hot.median(system, |numbers| Some(numbers.pairs_per_second)), show_rate),
            show(hot.hot.median(system, |numbers| Some(numbers.polls_per_second)), show_rate),
        );
    }
    text.push_str(
        "\nWaymaker queues its waiters. Redis has no queue, so its clients poll without a pause.\n",
    );
}

fn put_goals(text: &mut String, comparison: &Comparison) {
    text.push_str("\n| goal | measured | |\n|---|---|---|\n");
    for goal in &comparison.goals {
        let measured = goal.measured.map_or("-".to_owned(), |measured| {
            if measured < 100.0 { format!("{measured:.3}") } else { format!("{measured:.0}") }
        });
        let _ = writeln!(text, "| {} | {measured} | {} |", goal.what, goal.verdict());
    }
}

/// Appends how much CPU time other processes used.
fn put_disturbance(text: &mut String, comparison: &Comparison) {
    let rounds = comparison.rows.iter().map(|result| &result.rounds);
    let rounds = rounds.chain(comparison.library.iter().map(|library| &library.rounds));
    text.push_str(&disturbance(rounds.flat_map(Rounds::counting).flat_map(|round| &round.slices)));
}

/// Formats the CPU time that other processes used during these slices; empty if it is unknown.
pub(super) fn disturbance<'a>(slices: impl Iterator<Item = &'a Slice>) -> String {
    let Some(other) = Spread::of(slices.filter_map(|slice| slice.numbers.cpu.other).collect()) else {
        return String::new();
    };
    let mut text = format!(
        "\nOther processes used {} of one core during the run (median of all slices; maximum {}).\n",
        show_percent(other.median),
        show_percent(other.max)
    );
    if other.median > OTHER_CPU_MAX {
        text.push_str("**Other processes kept the machine busy: these numbers are unreliable.**\n");
    }
    text
}

pub(super) fn show_spread(spread: Spread) -> String {
    format!("{:.2} ({:.2} to {:.2})", spread.median, spread.min, spread.max)
}

pub(super) fn show_float_ns(ns: f64) -> String {
    show_ns(ns as u64)
}
