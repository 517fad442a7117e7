//! Plot of throughput against latency, with one curve per contestant through its numbers of connections.

use maud::{Markup, html};

use super::drawing::{MARGIN, Plane, WIDTH, figure, line, margin_label, marker, text};
use super::labels::{Room, spread};
use super::numbers::{tick_ns, tick_rate};
use super::scale::LogScale;
use super::view::View;
use crate::contest::result::{ContestShape, Measured};
use crate::latencies::Percentiles;
use crate::units::{show_ns, show_rate};

const HEIGHT: f64 = 340.0;
const PLANE: Plane = Plane { left: 58.0, right: WIDTH - MARGIN, top: 32.0, bottom: HEIGHT - 42.0 };

/// Selects a percentile, in nanoseconds.
type Percentile = fn(&Percentiles) -> u64;

/// Returns a plot of the median and a plot of the 99th percentile for each number of requests in flight.
pub(super) fn plots(view: &View<'_>) -> Vec<Markup> {
    let loads = view.loads(ContestShape::Pair);
    let mut depths: Vec<u32> =
        loads.iter().filter(|load| load.rate.is_none()).map(|load| load.depth).collect();
    depths.sort_unstable();
    // A curve needs more than one number of connections.
    let mut curved: Vec<u32> =
        depths.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    curved.dedup();
    depths.dedup();
    let depths = if curved.is_empty() { depths } else { curved };
    let each: [(&str, Percentile); 2] =
        [("p50", |percentiles| percentiles.p50_ns), ("p99", |percentiles| percentiles.p99_ns)];
    depths.iter().flat_map(|depth| each.iter().filter_map(|each| plot(view, *depth, *each))).collect()
}

fn plot(view: &View<'_>, depth: u32, (name, of): (&str, Percentile)) -> Option<Markup> {
    let mut loads = view.loads(ContestShape::Pair);
    loads.retain(|load| load.rate.is_none() && load.depth == depth);
    loads.sort_by_key(|load| load.connections);
    let latency = |measured: &Measured| of(&measured.latency.percentiles) as f64;
    let is_shown = |measured: &&Measured| {
        measured.requests_per_s.is_finite() && measured.requests_per_s > 0.0 && latency(measured) > 0.0
    };
    let curves: Vec<_> = view
        .present()
        .map(|entrant| {
            let points = loads
                .iter()
                .filter_map(|load| Some((load.connections, view.measured(*load, entrant).filter(is_shown)?)));
            (entrant, points.collect::<Vec<_>>())
        })
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let all = || curves.iter().flat_map(|(_, points)| points.iter().map(|(_, measured)| *measured));
    let x_scale = LogScale::over(all().map(|measured| measured.requests_per_s), PLANE.left, PLANE.right)?;
    let y_scale = LogScale::over(all().map(latency), PLANE.bottom, PLANE.top)?;
    let at = |measured: &Measured| (x_scale.at(measured.requests_per_s), y_scale.at(latency(measured)));

    let mut room = Room::new(PLANE);
    let places: Vec<Vec<(f64, f64)>> =
        curves.iter().map(|(_, points)| points.iter().map(|(_, measured)| at(measured)).collect()).collect();
    places.iter().for_each(|places| room.take_line(places));
    let mut counts = Vec::new();
    let names = curves.iter().map(|(entrant, points)| {
        let is_right = points.iter().all(|(_, measured)| measured.faults.is_empty());
        entrant.label_if(is_right)
    });
    let ends = places.iter().map(|places| places[places.len() - 1]);
    let (mut beside, mut in_margin) = (Vec::new(), Vec::new());
    for (((entrant, _), end), name) in curves.iter().zip(ends).zip(names) {
        match room.place(&name, end) {
            Some(start) => beside.push((start, name)),
            None => in_margin.push((entrant.look, end, name)),
        }
    }
    let wanted: Vec<f64> = in_margin.iter().map(|(_, (_, y), _)| *y).collect();
    let heights = spread(&wanted, PLANE.top, PLANE.bottom);
    for ((_, end, _), height) in in_margin.iter().zip(&heights) {
        room.take_line(&[*end, (PLANE.right, *height)]);
    }
    // Labels the points of the first contestant as far as there is space; the other points have tooltips.
    for ((connections, _), place) in curves[0].1.iter().zip(&places[0]) {
        counts.extend(room.place(&connections.to_string(), *place).map(|start| (start, connections)));
    }
    let ticks = x_scale.ticks(7).into_iter().map(|rate| (x_scale.at(rate), tick_rate(rate)));
    let drawn = html! {
        (PLANE.x_axis(ticks, "throughput (log)"))
        (PLANE.y_axis(y_scale, tick_ns, &format!("{name} latency (log)")))
        @for ((entrant, points), places) in curves.iter().zip(&places).rev() {
            g class=(entrant.look.class()) {
                (line(places))
                @for ((connections, measured), place) in points.iter().zip(places) {
                    (marker(entrant.look, "", *place, &format!(
                        "{}, {connections} connections: {}, {name} {}",
                        entrant.contestant.name,
                        show_rate(measured.requests_per_s),
                        show_ns(latency(measured) as u64),
                    )))
                }
            }
        }
        @for (start, connections) in &counts { (text("count", "start", *start, &connections.to_string())) }
        @for (start, name) in &beside { (text("name", "start", *start, name)) }
        @for ((look, end, name), height) in in_margin.iter().zip(&heights) { (margin_label(*look, *end, *height, name)) }
    };
    let said: Vec<String> = curves
        .iter()
        .flat_map(|(entrant, points)| {
            points.iter().map(|(connections, measured)| {
                let rate = show_rate(measured.requests_per_s);
                format!(
                    "{}, {connections} connections: {rate}, {}",
                    entrant.contestant.name,
                    show_ns(latency(measured) as u64)
                )
            })
        })
        .collect();
    let connections: Vec<String> = loads.iter().map(|load| load.connections.to_string()).collect();
    let below = html! {
        p.left-out { "Points: " (connections.join(", ")) " connections." }
    };
    let each = if depth == 1 { String::new() } else { format!(", {depth} requests in flight on each") };
    Some(figure(&format!("{name} by throughput{each}"), &said.join("; "), HEIGHT, &drawn, &below))
}
