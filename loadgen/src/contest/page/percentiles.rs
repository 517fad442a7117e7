//! Plot of latency by percentile, with one line per contestant.

use maud::{Markup, html};

use super::drawing::{MARGIN, Plane, WIDTH, figure, line, margin_label, marker};
use super::labels::spread;
use super::numbers::tick_ns;
use super::scale::LogScale;
use super::view::{Load, View};
use crate::contest::result::Distribution;
use crate::units::show_ns;

const HEIGHT: f64 = 330.0;
const PLANE: Plane = Plane { left: 58.0, right: WIDTH - MARGIN, top: 32.0, bottom: HEIGHT - 42.0 };
/// Labels of the axis, as far as the percentiles were measured.
const NAMED: [(f64, &str); 5] = [(50.0, "50"), (90.0, "90"), (99.0, "99"), (99.9, "99.9"), (99.99, "99.99")];

/// Returns the plot of one load; `None` without measurements.
pub(super) fn plot(view: &View<'_>, load: Load, title: &str) -> Option<Markup> {
    let measured = view.all_measured(load);
    let curves: Vec<_> = measured
        .iter()
        .map(|(entrant, measured)| (entrant, *measured, Curve::of(&measured.latency)))
        .filter(|(_, _, curve)| !curve.0.is_empty())
        .collect();
    let all = || curves.iter().flat_map(|(_, _, curve)| curve.0.iter());
    let y_scale = LogScale::over(all().map(|(_, ns)| *ns), PLANE.bottom, PLANE.top)?;
    let first = all().map(|(nines, _)| *nines).fold(f64::INFINITY, f64::min);
    let last = all().map(|(nines, _)| *nines).fold(first + 0.1, f64::max);
    let x_of = |nines: f64| PLANE.left + (PLANE.right - PLANE.left) * (nines - first) / (last - first);
    let named = || NAMED.iter().filter(|(percentile, _)| (first..=last + 1e-6).contains(&nines(*percentile)));
    let at = |(nines, ns): (f64, f64)| (x_of(nines), y_scale.at(ns));

    let wanted: Vec<f64> =
        curves.iter().map(|(_, _, curve)| y_scale.at(curve.0.last().map_or(1.0, |point| point.1))).collect();
    let heights = spread(&wanted, PLANE.top, PLANE.bottom);
    let drawn = html! {
        (PLANE.x_axis(named().map(|(percentile, name)| (x_of(nines(*percentile)), (*name).to_owned())), "percentile"))
        (PLANE.y_axis(y_scale, tick_ns, "latency (log)"))
        @for ((entrant, measured, curve), height) in curves.iter().zip(&heights).rev() {
            @let end = at(curve.0[curve.0.len() - 1]);
            g class=(entrant.look.class()) {
                (line(&curve.0.iter().copied().map(at).collect::<Vec<_>>()))
                (margin_label(entrant.look, end, *height, &entrant.label(measured)))
                @for (percentile, name) in named() {
                    @if let Some(ns) = curve.at(*percentile) {
                        (marker(entrant.look, "", at((nines(*percentile), ns)), &format!("{}, p{name}: {}", entrant.contestant.name, show_ns(ns as u64))))
                    }
                }
            }
        }
    };
    let said: Vec<String> = measured
        .iter()
        .map(|(entrant, measured)| {
            format!("{}: {}", entrant.contestant.name, measured.latency.percentiles.describe())
        })
        .collect();
    Some(figure(title, &said.join("; "), HEIGHT, &drawn, &view.left_out(load)))
}

/// Returns the number of nines of a percentile: 90 has 1, 99.9 has 3. HDR plots use this scale.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// Nines and nanoseconds, both rising, from the median on.
struct Curve(Vec<(f64, f64)>);

impl Curve {
    fn of(distribution: &Distribution) -> Self {
        let known = distribution.percentiles;
        let named = [(50.0, known.p50_ns), (90.0, known.p90_ns), (99.0, known.p99_ns), (99.9, known.p999_ns)];
        let points =
            if distribution.curve.is_empty() && known.count > 0 { &named } else { &distribution.curve[..] };
        // Beyond the last label, the values are mostly chance.
        let is_shown = |(percentile, ns): &&(f64, u64)| (0.0..99.9901).contains(percentile) && *ns > 0;
        let points = points.iter().filter(is_shown).map(|(percentile, ns)| (nines(*percentile), *ns as f64));
        let whole = Self(points.collect());
        let median = whole.at(50.0).map(|ns| (nines(50.0), ns));
        Self(median.into_iter().chain(whole.0.into_iter().filter(|point| point.0 > nines(50.0))).collect())
    }

    /// Interpolates the latency at a percentile between two points, by their logarithms.
    fn at(&self, percentile: f64) -> Option<f64> {
        let wanted = nines(percentile);
        if let Some((_, ns)) = self.0.iter().find(|(nines, _)| (nines - wanted).abs() < 1e-6) {
            return Some(*ns);
        }
        let ends = self.0.windows(2).find(|ends| (ends[0].0..ends[1].0).contains(&wanted))?;
        let share = (wanted - ends[0].0) / (ends[1].0 - ends[0].0);
        Some(ends[0].1 * (ends[1].1 / ends[0].1).powf(share))
    }
}
