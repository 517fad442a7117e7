//! Page with the results of a contest: one file that loads no other files and runs no scripts.
//!
//! ```text
//! contest -> view (loads, looks) -> glance, percentiles, throughput, spans, bars, tables -> page
//!                                   '-> scale, labels -> drawing (SVG)
//! ```
//!
//! All HTML is written by templates that escape external input.

mod bars;
mod drawing;
mod glance;
mod labels;
mod look;
mod numbers;
mod percentiles;
mod scale;
mod spans;
mod tables;
#[cfg(test)]
mod tests;
mod throughput;
mod view;

use std::time::Duration;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::bars::Bar;
use self::numbers::{show_bytes, show_integer, show_ratio, show_us};
use self::view::{Load, View, shape_story, shape_title, shorten};
use super::result::{Contest, ContestShape};
use crate::units::show_ns;

/// Content security policy: the browser may only show the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

const SHAPES: [ContestShape; 5] = [
    ContestShape::Pair,
    ContestShape::HandOver,
    ContestShape::ManyWaiters,
    ContestShape::ReadMostly,
    ContestShape::Renewals,
];

/// Renders the page.
pub fn render(contest: &Contest) -> String {
    let view = View::new(contest);
    let title =
        match view.entrants.iter().map(|entrant| entrant.contestant.name.as_str()).collect::<Vec<_>>()[..] {
            [] => "Lock servers compared".to_owned(),
            ref names => format!("Lock servers compared: {}", names.join(", ")),
        };
    let sections = sections(&view);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                header {
                    h1 { "Lock servers compared" }
                    p.where { (contest.machine.cpu_model) ", " (contest.machine.core_count) " cores, Linux " (contest.machine.kernel) ", " time datetime=(contest.machine.date) { (contest.machine.date) } }
                    (chips(&view))
                }
                nav aria-label="Sections" {
                    @for section in &sections { a href={ "#" (section.id) } { (section.title) } }
                }
                main {
                    (warnings(&view))
                    @for Section { id, title, body } in &sections {
                        section id=(id) aria-labelledby={ (id) "-title" } {
                            h2 id={ (id) "-title" } { (title) }
                            (body)
                        }
                    }
                }
            }
        }
    };
    page.into_string()
}

/// A part of the page with its own heading.
struct Section {
    id: &'static str,
    title: &'static str,
    body: Markup,
}

/// Returns all sections that have contents.
fn sections(view: &View<'_>) -> Vec<Section> {
    let mut sections = vec![Section { id: "glance", title: "At a glance", body: glance::glance(view) }];
    let mut add = |id, title, story: &str, plots: Vec<Markup>| {
        if !plots.is_empty() {
            let body = html! {
                p { (story) }
                div.plots { @for plot in plots { (plot) } }
            };
            sections.push(Section { id, title, body });
        }
    };
    add(
        "latency",
        "Latency",
        &(capitalised(shape_story(ContestShape::Pair))
            + " Each line shows, for each percentile, the latency that this percentage of responses does not exceed. Lower is better; a line that stays flat longer has fewer slow responses."),
        latency_plots(view),
    );
    add(
        "throughput",
        "Throughput against latency",
        "Each curve connects the results for different numbers of connections. Further right and further down \
         is better; where a curve turns up, more connections only increase the waiting time.",
        throughput::plots(view),
    );
    for (id, title, shapes) in [
        ("contention", "Contention", [ContestShape::HandOver, ContestShape::ManyWaiters]),
        ("readers", "Readers and renewals", [ContestShape::ReadMostly, ContestShape::Renewals]),
    ] {
        let shapes = shapes.into_iter().filter(|shape| !view.loads(*shape).is_empty());
        let stories: Vec<String> =
            shapes.clone().map(|shape| format!("{}: {}", shape_title(shape), shape_story(shape))).collect();
        let loads = shapes.flat_map(|shape| view.loads(shape));
        let plot = |load: Load| {
            spans::plot(view, load, &format!("{}: {}", shape_title(load.shape), load.describe()))
        };
        add(id, title, &stories.join(" "), loads.filter_map(plot).collect());
    }
    add("cost", "Resource use", "Less is better.", cost_plots(view));
    let figures: Vec<Markup> = SHAPES.iter().filter_map(|shape| tables::figures(view, *shape)).collect();
    let figures = html! {
        @if figures.is_empty() { p { "Nothing was measured." } }
        @for table in figures { (table) }
        @if let Some(memory) = tables::memory(view) { (memory) }
    };
    sections.push(Section { id: "figures", title: "All figures", body: figures });
    sections.push(Section { id: "systems", title: "The systems", body: tables::contestants(view) });
    sections.push(Section { id: "method", title: "Method", body: method(view.contest) });
    sections
}

/// Returns the headline load first, then the others.
fn latency_plots(view: &View<'_>) -> Vec<Markup> {
    let headline = view.headline();
    let others = view.loads(ContestShape::Pair).into_iter().filter(|load| Some(*load) != headline);
    let plot = |load: Load| percentiles::plot(view, load, &capitalised(&load.describe()));
    headline.into_iter().chain(others).filter_map(plot).collect()
}

fn cost_plots(view: &View<'_>) -> Vec<Markup> {
    let first = view.reference().and_then(|first| view.memory_of(first)).map(|memory| memory.bytes_per_lock);
    let mut lock_counts: Vec<u64> = view.contest.memory.iter().map(|memory| memory.lock_count).collect();
    lock_counts.dedup();
    let memory = view.present().filter_map(|entrant| {
        let value = view.memory_of(entrant)?.bytes_per_lock;
        Some(Bar { entrant, value, words: beside_ratio(&show_bytes(value), value, first) })
    });
    let held = match lock_counts[..] {
        [count] => format!("With {} locks held.", show_integer(count)),
        _ => "The number of held locks is in the table below.".to_owned(),
    };
    let cpu = |load: Load| {
        let first = view.reference_of(load).and_then(|measured| measured.server_cpu_us_per_request);
        let bars = view.all_measured(load).into_iter().filter_map(|(entrant, measured)| {
            let value = measured.server_cpu_us_per_request?;
            Some(Bar { entrant, value, words: beside_ratio(&show_us(value), value, first) })
        });
        let below = html! { p.left-out { "Uncontended pair, " (load.describe()) "." } };
        bars::plot("CPU time of the server per response", &bars.collect::<Vec<_>>(), &below)
    };
    let held = html! { p.left-out { (held) } };
    let plots =
        [bars::plot("Memory per lock", &memory.collect::<Vec<_>>(), &held), view.headline().and_then(cpu)];
    plots.into_iter().flatten().collect()
}

fn beside_ratio(words: &str, value: f64, reference: Option<f64>) -> String {
    let ratio = reference.and_then(|reference| show_ratio(value, reference));
    ratio.map_or_else(|| words.to_owned(), |ratio| format!("{words} ({ratio})"))
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Returns the compared systems with version and marker.
fn chips(view: &View<'_>) -> Markup {
    html! {
        ul.chips aria-label="Systems" {
            @for entrant in &view.entrants {
                @let contestant = entrant.contestant;
                li class=(entrant.look.class()) {
                    (entrant.look.swatch())
                    strong { (contestant.name) }
                    @if contestant.absent.is_some() { " " span.none { "absent" } } @else { " " (shorten(&contestant.version, 24)) }
                }
            }
        }
    }
}

/// Returns warnings that affect all numbers.
fn warnings(view: &View<'_>) -> Markup {
    let wrong: Vec<_> = view
        .contest
        .measurements
        .iter()
        .filter_map(|measurement| match &measurement.outcome {
            super::result::Outcome::Measured(measured) if !measured.faults.is_empty() => {
                Some((measurement, &measured.faults))
            }
            _ => None,
        })
        .collect();
    html! {
        @if view.contest.is_partial {
            p.warning { strong { "Interrupted." } " The page shows the results so far; some planned measurements are missing." }
        }
        @if !wrong.is_empty() {
            div.warning role="note" {
                p { strong { "Wrong responses." } " The other numbers of the same measurement are not trustworthy; plots mark them with (!)." }
                ul {
                    @for (measurement, faults) in wrong {
                        li { (measurement.contestant) ", " (shape_title(measurement.shape).to_lowercase()) ", " (Load::of(measurement).describe()) ": " (shorten(&faults.join("; "), 160)) }
                    }
                }
            }
        }
    }
}

/// Returns the information that is needed to repeat the contest.
fn method(contest: &Contest) -> Markup {
    let machine = &contest.machine;
    let took = Duration::try_from_secs_f64(contest.took_s.round()).unwrap_or_default();
    html! {
        dl {
            dt { "Machine" } dd { (machine.cpu_model) ", " (machine.core_count) " cores" }
            dt { "Kernel" } dd { "Linux " (machine.kernel) }
            dt { "Date" } dd { (machine.date) }
            dt { "Measured by" } dd { "waymaker-loadgen " (machine.loadgen_version) }
            dt { "Command" } dd { code { (contest.command) } }
            dt { "Seed" } dd { (contest.seed) }
            dt { "Rounds" } dd { (contest.rounds) ", in each of which every system has one slice of " (show_ns(contest.slice_ms.saturating_mul(1_000_000))) " under each load" }
            dt { "Duration" } dd { (humantime::format_duration(took)) @if contest.is_partial { ", interrupted" } }
        }
        p { "Throughput is the median of all rounds. Latencies cover all rounds together, from a request to its response. Unless stated otherwise, a connection has one request in flight." }
        @if !contest.notes.is_empty() {
            h3 { "Notes" }
            ul { @for note in &contest.notes { li { (note) } } }
        }
    }
}
