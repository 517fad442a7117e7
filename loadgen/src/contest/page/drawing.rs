//! What all plots are drawn with.
//!
//! They are SVG by hand: `plotters` writes colours and fonts into every element, and what follows the reader's theme, has
//! tooltips, and is read to those who cannot see it needs classes and titles instead.

use maud::{Markup, html};

use super::look::Look;
use super::scale::LogScale;

/// Of every plot, in its own units; text is 13 of them high, which a phone still shows legibly.
pub(super) const WIDTH: f64 = 420.0;
/// Of one line of text.
pub(super) const LINE_HEIGHT: f64 = 15.0;
const CHAR_WIDTH: f64 = 8.2;

/// Room that a text takes, even a wide and heavy one.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHAR_WIDTH
}

/// A coordinate, to a tenth.
pub(super) fn px(at: f64) -> String {
    let text = format!("{at:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// A plot under its title; `said` is what is read to those who do not see it.
pub(super) fn figure(title: &str, said: &str, height: f64, drawn: &Markup, below: &Markup) -> Markup {
    html! {
        figure {
            figcaption { (title) }
            svg.plot viewBox={ "0 0 " (WIDTH) " " (px(height)) } role="img" aria-label={ (title) ". " (said) } { (drawn) }
            (below)
        }
    }
}

/// A point, with what it says when it is pointed at.
pub(super) fn marker(look: Look, class: &str, (x, y): (f64, f64), title: &str) -> Markup {
    html! {
        path class={ "mark " (class) } d=(look.outline()) transform={ "translate(" (px(x)) " " (px(y)) ")" } {
            title { (title) }
        }
    }
}

/// A line through points.
pub(super) fn line(points: &[(f64, f64)]) -> Markup {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", px(*x), px(*y))).collect();
    html! { polyline class="line" points=(points.join(" ")) {} }
}

/// Room beside a plot for the names of its curves.
pub(super) const MARGIN: f64 = 138.0;

/// The name of a curve in that room, with its point and a thread to its end.
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

/// A text; `anchor` is which end of it is at `x`.
pub(super) fn text(class: &str, anchor: &str, (x, y): (f64, f64), words: &str) -> Markup {
    html! { text class=(class) x=(px(x)) y=(px(y)) text-anchor=(anchor) { (words) } }
}

/// The part of a plot that is between its axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Plane {
    /// Upright lines with what they stand for below, and what all of it is.
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

    /// Lines across with what they stand for at the left, and what all of it is above.
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
