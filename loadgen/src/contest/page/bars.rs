//! Bar plot with one bar per contestant, starting at zero.

use maud::{Markup, html};

use super::drawing::{WIDTH, figure, px, text};
use super::view::{Entrant, shorten};

const ROW_HEIGHT: f64 = 32.0;
const LEFT: f64 = 108.0;
const RIGHT: f64 = WIDTH - 128.0;

/// A row: the contestant, its value, and the value in words.
pub(super) struct Bar<'a> {
    pub(super) entrant: Entrant<'a>,
    pub(super) value: f64,
    pub(super) words: String,
}

/// Returns the plot; `None` if there is nothing to compare.
pub(super) fn plot(title: &str, bars: &[Bar<'_>], below: &Markup) -> Option<Markup> {
    let is_shown = |value: f64| value.is_finite() && value > 0.0;
    let max = bars.iter().map(|bar| bar.value).filter(|value| is_shown(*value)).fold(0.0, f64::max);
    if max == 0.0 {
        return None;
    }
    let height = ROW_HEIGHT * bars.len() as f64 + 8.0;
    let drawn = html! {
        @for (index, Bar { entrant, value, words }) in bars.iter().enumerate() {
            @let y = 4.0 + ROW_HEIGHT * (index as f64 + 0.5);
            @let width = if is_shown(*value) { (value / max * (RIGHT - LEFT)).max(1.5) } else { 0.0 };
            g class=(entrant.look.class()) {
                (text("name", "end", (LEFT - 10.0, y + 4.5), &shorten(&entrant.contestant.name, 11)))
                rect.bar x=(LEFT) y=(px(y - 9.0)) width=(px(width)) height="18" rx="2" {
                    title { (entrant.contestant.name) ": " (words) }
                }
                (text("figure", "start", (LEFT + width + 8.0, y + 4.5), words))
            }
        }
        line.axis x1=(LEFT) x2=(LEFT) y1="2" y2=(px(height - 2.0)) {}
    };
    let said: Vec<String> =
        bars.iter().map(|bar| format!("{}: {}", bar.entrant.contestant.name, bar.words)).collect();
    Some(figure(title, &said.join("; "), height, &drawn, below))
}
