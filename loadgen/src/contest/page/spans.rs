//! Plot with one row per contestant, from its median to its 99th percentile.

use maud::{Markup, html};

use super::drawing::{Plane, WIDTH, figure, marker, px, text};
use super::numbers::tick_ns;
use super::scale::LogScale;
use super::view::{Load, View, shorten, shown_latency, shown_name};
use crate::contest::result::Outcome;
use crate::units::{show_ns, show_rate};

const ROW_HEIGHT: f64 = 42.0;
const LEFT: f64 = 108.0;
const RIGHT: f64 = WIDTH - 118.0;
const TOP: f64 = 8.0;

/// Returns the plot of one load; `None` without measurements.
pub(super) fn plot(view: &View<'_>, load: Load, title: &str) -> Option<Markup> {
    let rows: Vec<_> = view.present().map(|entrant| (entrant, view.outcome(load, entrant))).collect();
    let shown = |outcome: Option<&Outcome>| match outcome {
        Some(Outcome::Measured(measured)) => {
            shown_latency(load.shape, measured).map(|shown| shown.percentiles)
        }
        _ => None,
    };
    let all = rows.iter().filter_map(|(_, outcome)| shown(*outcome));
    let scale = LogScale::over(
        all.flat_map(|known| [known.p50_ns, known.p99_ns, known.p999_ns].map(|ns| ns as f64)),
        LEFT,
        RIGHT,
    )?;
    let plane = Plane { left: LEFT, right: RIGHT, top: TOP, bottom: TOP + ROW_HEIGHT * rows.len() as f64 };
    let said: Vec<String> = rows
        .iter()
        .filter_map(|(entrant, outcome)| {
            Some(format!("{}: {}", entrant.contestant.name, shown(*outcome)?.describe()))
        })
        .collect();
    let drawn = html! {
        (plane.x_axis(scale.ticks(4).into_iter().map(|ns| (scale.at(ns), tick_ns(ns))), shown_name(load.shape)))
        @for (index, (entrant, outcome)) in rows.iter().enumerate() {
            @let y = TOP + ROW_HEIGHT * (index as f64 + 0.5);
            @let name = &entrant.contestant.name;
            g class=(entrant.look.class()) {
                @match outcome {
                    Some(Outcome::Measured(measured)) => {
                        (text("name", "end", (LEFT - 10.0, y - 2.0), &entrant.label(measured)))
                        (text("count", "end", (LEFT - 10.0, y + 13.0), &show_rate(measured.requests_per_s)))
                        @if let Some(known) = shown(*outcome) {
                            @let at = |ns: u64| scale.at(ns as f64);
                            line.tail x1=(px(at(known.p99_ns))) x2=(px(at(known.p999_ns))) y1=(px(y)) y2=(px(y)) {}
                            line.tail x1=(px(at(known.p999_ns))) x2=(px(at(known.p999_ns))) y1=(px(y - 5.0)) y2=(px(y + 5.0)) {
                                title { (name) ", p99.9: " (show_ns(known.p999_ns)) }
                            }
                            line.span x1=(px(at(known.p50_ns))) x2=(px(at(known.p99_ns))) y1=(px(y)) y2=(px(y)) {}
                            (marker(entrant.look, "hollow", (at(known.p99_ns), y), &format!("{name}, p99: {}", show_ns(known.p99_ns))))
                            (marker(entrant.look, "", (at(known.p50_ns), y), &format!("{name}, p50: {}", show_ns(known.p50_ns))))
                            (text("figure", "end", (WIDTH - 4.0, y - 2.0), &format!("p50 {}", show_ns(known.p50_ns))))
                            (text("figure", "end", (WIDTH - 4.0, y + 13.0), &format!("p99 {}", show_ns(known.p99_ns))))
                        } @else {
                            (text("none", "start", (LEFT + 8.0, y + 4.5), "not measured"))
                        }
                    }
                    other => {
                        (text("name", "end", (LEFT - 10.0, y + 4.5), &shorten(name, 11)))
                        (text("none", "start", (LEFT + 8.0, y + 4.5), match other {
                            Some(Outcome::NotOffered(_)) => "not offered",
                            Some(Outcome::Failed(_)) => "failed",
                            _ => "not measured",
                        }))
                    }
                }
            }
        }
    };
    let below = html! { p.left-out { "Filled marker: p50. Hollow marker: p99. Tick: p99.9. Below the names: throughput." } };
    Some(figure(title, &said.join("; "), plane.bottom + 42.0, &drawn, &below))
}
