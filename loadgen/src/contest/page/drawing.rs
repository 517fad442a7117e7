//! Drawing functions of all plots.
//!
//! The SVG is written by hand. `plotters` writes colours and fonts into every element; a page that follows the
//! reader's theme, has tooltips and works with screen readers needs classes and titles instead.

use maud::{Markup, html};

use super::look::Look;
use super::scale::LogScale;

/// Width of every plot in its own units. Text is 13 units high, which stays legible on a phone.
pub(super) const WIDTH: f64 = 420.0;
/// Height of one line of text.
pub(super) const LINE_HEIGHT: f64 = 15.0;
const CHAR_WIDTH: f64 = 8.2;

/// Upper bound of the width of a text.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHAR_WIDTH
}

/// Formats a coordinate with one decimal place.
pub(super) fn px(at: f64) -> String {
    let text = format!("{at:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Returns a plot below its title; `said` is the text for screen readers.
pub(super) fn figure(title: &str, said: &str, height: f64, drawn: &Markup, below: &Markup) -> Markup {
    html! {
        figure {
            figcaption { (title) }
            svg.plot viewBox={ "0 0 " (WIDTH) " " (px(height)) } role="img" aria-label={ (title) ". " (said) } { (drawn) }
            (below)
        }
    }
}

/// Returns a point with its tooltip.
pub(super) fn marker(look: Look, class: &str, (x, y): (f64, f64), title: &str) -> Markup {
    html! {
        path class={ "mark " (class) } d=(look.outline()) transform={ "translate(" (px(x)) " " (px(y)) ")" } {
            title { (title) }
        }
    }
}

/// Returns a line through points.
pub(super) fn line(points: &[(f64, f64)]) -> Markup {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", px(*x), px(*y))).collect();
    html! { polyline class="line" points=(points.join(" ")) {} }
}

/// Width of the margin beside a plot for the names of its curves.
pub(super) const MARGIN: f64 = 138.0;

/// Returns the name of a curve in the margin, with its marker and a leader line to the end of the curve.
pub(super) fn margin_label(look: Look, (end_x, end_y): (f64, f64), height: f64, name: &str) -> Markup {
    let x = WIDTH - MARGIN + 18.0;
    let thread =
        format!("{},{} {},{} {},{}", px(end_x), px(end_y), px(x - 10.0), px(height), px(x), px(height));
    html! {
        g class=(look.class()) {
            polyline class="leader" points=(thread) {}
            (marker(look, "", (x, height), name))
            (text("name", "start", (x + 9.0, height + 4.5), name))
        }
    }
}

/// Returns a text; `anchor` says which end of it is at `x`.
pub(super) fn text(class: &str, anchor: &str, (x, y): (f64, f64), words: &str) -> Markup {
    html! { text class=(class) x=(px(x)) y=(px(y)) text-anchor=(anchor) { (words) } }
}

/// Area of a plot between its axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Plane {
    /// Returns vertical grid lines with their labels below, and the name of the axis.
    pub(super) fn x_axis(self, ticks: impl IntoIterator<Item = (f64, String)>, name: &str) -> Markup {
        let Self { left, right, top, bottom } = self;
        html! {
            @for (x, label) in ticks {
                line.grid x1=(px(x)) x2=(px(x)) y1=(px(top)) y2=(px(bottom)) {}
                (text("tick", "middle", (x, bottom + 17.0), &label))
            }
            line.axis x1=(px(left)) x2=(px(right)) y1=(px(bottom)) y2=(px(bottom)) {}
            (text("axis-name", "end", (right, bottom + 36.0), name))
        }
    }

    /// Returns horizontal grid lines with their labels at the left, and the name of the axis above.
    pub(super) fn y_axis(self, scale: LogScale, show: fn(f64) -> String, name: &str) -> Markup {
        html! {
            @for value in scale.ticks(9) {
                line.grid x1=(px(self.left)) x2=(px(self.right)) y1=(px(scale.at(value))) y2=(px(scale.at(value))) {}
                (text("tick", "end", (self.left - 7.0, scale.at(value) + 4.5), &show(value)))
            }
            (text("axis-name", "start", (2.0, self.top - 12.0), name))
        }
    }
}
