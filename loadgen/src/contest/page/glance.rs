//! Summary table of the results.

use maud::{Markup, html};

use super::numbers::show_ratio;
use super::scale::LogScale;
use super::view::{View, shorten};
use crate::contest::result::{Measured, Outcome};
use crate::latencies::Percentiles;
use crate::units::{show_ns, show_rate};

/// Returns one sentence and a table: throughput and latency of the uncontended pair for each contestant.
pub(super) fn glance(view: &View<'_>) -> Markup {
    let Some(load) = view.headline() else {
        return html! { p { "Uncontended pairs were not measured." } };
    };
    let measured = view.all_measured(load);
    let rate_max = measured.iter().map(|(_, measured)| measured.requests_per_s).fold(0.0, f64::max);
    let percentiles = measured.iter().map(|(_, measured)| measured.latency.percentiles);
    let scale =
        LogScale::over(percentiles.flat_map(|known| [known.p50_ns as f64, known.p99_ns as f64]), 0.0, 100.0);
    let reference = view.reference_of(load);
    html! {
        (sentence(view, &measured.iter().map(|(entrant, measured)| (entrant.contestant.name.as_str(), *measured)).collect::<Vec<_>>()))
        div.scroll tabindex="0" role="region" aria-label="Summary" {
            table.glance {
                caption { "Uncontended pair, " (load.describe()) ". Ratios are to " (view.reference().map_or("", |first| &first.contestant.name)) "." }
                thead {
                    tr {
                        th scope="col" { "System" }
                        th scope="col" { "Throughput" span.hint { "more is better" } }
                        th scope="col" { "p50" span.hint { "less is better, log" } }
                        th scope="col" { "p99" span.hint { "less is better, log" } }
                        th scope="col" { "A lock survives" }
                    }
                }
                tbody {
                    @for entrant in &view.entrants {
                        @let contestant = entrant.contestant;
                        tr class=(entrant.look.class()) {
                            th scope="row" { (entrant.look.swatch()) (contestant.name) }
                            @match (&contestant.absent, view.outcome(load, *entrant)) {
                                (Some(why), _) => { td.none colspan="3" { "absent: " (why) } }
                                (None, Some(Outcome::Measured(measured))) => {
                                    td {
                                        div.track aria-hidden="true" { div.fill style={ "width:" (share(measured.requests_per_s, rate_max)) "%" } {} }
                                        (with_ratio(&show_rate(measured.requests_per_s), measured.requests_per_s, reference.map(|reference| reference.requests_per_s)))
                                        @if !measured.faults.is_empty() { " " strong.fault { "wrong responses" } }
                                    }
                                    (latency(scale, measured, reference, |known| known.p50_ns))
                                    (latency(scale, measured, reference, |known| known.p99_ns))
                                }
                                (None, Some(Outcome::NotOffered(why))) => { td.none colspan="3" { "not offered: " (why) } }
                                (None, Some(Outcome::Failed(why))) => { td.fault colspan="3" { "failed: " (why) } }
                                (None, None) => { td.none colspan="3" { "not measured" } }
                            }
                            td.words { (shorten(&contestant.outlives, 120)) }
                        }
                    }
                }
            }
        }
    }
}

fn latency(
    scale: Option<LogScale>,
    measured: &Measured,
    reference: Option<&Measured>,
    of: fn(&Percentiles) -> u64,
) -> Markup {
    let known = measured.latency.percentiles;
    let ns = of(&known);
    if known.count == 0 {
        return html! { td.none { "none" } };
    }
    html! {
        td {
            @if let Some(scale) = scale {
                div.strip aria-hidden="true" { div.dot style={ "left:" (format!("{:.1}", scale.at(ns as f64))) "%" } {} }
            }
            (with_ratio(&show_ns(ns), ns as f64, reference.map(|reference| of(&reference.latency.percentiles) as f64)))
        }
    }
}

/// Returns a value, followed by its ratio to the reference.
pub(super) fn with_ratio(words: &str, value: f64, reference: Option<f64>) -> Markup {
    html! {
        span.value { (words) }
        @if let Some(ratio) = reference.and_then(|reference| show_ratio(value, reference)) { " " span.ratio { (ratio) } }
    }
}

fn share(value: f64, max: f64) -> String {
    let share = value / max * 100.0;
    format!("{:.1}", if share.is_finite() { share } else { 0.0 })
}

/// Describes the first contestant, and how the others compare.
fn sentence(view: &View<'_>, measured: &[(&str, &Measured)]) -> Markup {
    let Some((first, others)) = measured.split_first() else {
        return html! {};
    };
    if view.reference().is_none_or(|reference| reference.contestant.name != first.0) {
        return html! {};
    }
    let known = first.1.latency.percentiles;
    let mut rates: Vec<f64> = others.iter().map(|(_, measured)| measured.requests_per_s).collect();
    rates.sort_by(f64::total_cmp);
    let ratio =
        |rate: f64| show_ratio(rate, first.1.requests_per_s).unwrap_or_else(|| "an unknown share".into());
    html! {
        p.lead {
            strong { (first.0) } " reaches " strong { (show_rate(first.1.requests_per_s)) }
            " responses; half of them arrive within " strong { (show_ns(known.p50_ns)) }
            " and 99 of 100 within " strong { (show_ns(known.p99_ns)) } ". "
            @match rates[..] {
                [] => {}
                [only] => { "The other system reaches " strong { (ratio(only)) } " of its throughput." }
                [low, .., high] => { "The other systems reach " strong { (ratio(low)) } " to " strong { (ratio(high)) } " of its throughput." }
            }
        }
    }
}
