//! Tables with all numbers.

use maud::{Markup, html};

use super::glance::with_ratio;
use super::numbers::{show_integer, show_us};
use super::view::{Entrant, Load, View, shape_title};
use crate::contest::result::{ContestShape, Distribution, Measured, Outcome};
use crate::latencies::Percentiles;
use crate::units::{show_ns, show_rate};

/// Returns a table of all loads of a shape; `None` if there are none.
pub(super) fn figures(view: &View<'_>, shape: ContestShape) -> Option<Markup> {
    let loads = view.loads(shape);
    if loads.is_empty() {
        return None;
    }
    let any = |has: fn(&Measured) -> bool| {
        loads.iter().any(|load| view.all_measured(*load).iter().any(|(_, measured)| has(measured)))
    };
    let columns = Columns {
        hand_over: any(|measured| measured.hand_over.is_some()),
        renewal: any(|measured| measured.renewal.is_some()),
        server_cpu: any(|measured| measured.server_cpu_us_per_request.is_some()),
    };
    let title = shape_title(shape);
    Some(html! {
        div.scroll tabindex="0" role="region" aria-label={ "Figures: " (title) } {
            table.figures {
                caption { (title) ". Ratios are to " (view.reference().map_or("", |first| &first.contestant.name)) ", under the same load." }
                thead {
                    tr {
                        th scope="col" { "System" }
                        th scope="col" { "Throughput" }
                        th scope="col" { "Rounds, min to max" }
                        th scope="col" { "p50" }
                        th scope="col" { "p90" }
                        th scope="col" { "p99" }
                        th scope="col" { "p99.9" }
                        th scope="col" { "Max" }
                        th scope="col" { "Responses" }
                        @if columns.hand_over {
                            th scope="col" { "Hand-over p50" }
                            th scope="col" { "Hand-over p99" }
                            th scope="col" { "Hand-over p99.9" }
                        }
                        @if columns.renewal {
                            th scope="col" { "Renewal p50" }
                            th scope="col" { "Renewal p99" }
                            th scope="col" { "Renewal p99.9" }
                        }
                        @if columns.server_cpu { th scope="col" { "Server CPU time per response" } }
                    }
                }
                @for load in &loads {
                    tbody {
                        tr { th.load colspan=(columns.count()) scope="rowgroup" { (load.describe()) } }
                        @for entrant in view.present() { (row(view, *load, entrant, &columns)) }
                    }
                }
            }
        }
    })
}

/// Columns that only some tables have.
struct Columns {
    hand_over: bool,
    renewal: bool,
    server_cpu: bool,
}

impl Columns {
    fn count(&self) -> usize {
        9 + 3 * (usize::from(self.hand_over) + usize::from(self.renewal)) + usize::from(self.server_cpu)
    }
}

fn row(view: &View<'_>, load: Load, entrant: Entrant<'_>, columns: &Columns) -> Markup {
    let reference = view.reference_of(load);
    let words = |class: &str, words: &str| html! { td class={ "words " (class) } colspan=(columns.count() - 1) { (words) } };
    html! {
        tr class=(entrant.look.class()) {
            th scope="row" { (entrant.look.swatch()) (entrant.contestant.name) }
            @match view.outcome(load, entrant) {
                Some(Outcome::Measured(measured)) => {
                    td { (with_ratio(&show_rate(measured.requests_per_s), measured.requests_per_s, reference.map(|reference| reference.requests_per_s))) }
                    td { (spread(&measured.rounds)) }
                    (latencies(Some(&measured.latency), reference.map(|reference| &reference.latency)))
                    td { (show_integer(measured.latency.percentiles.count)) }
                    @if columns.hand_over {
                        (tail(measured.hand_over.as_ref(), reference.and_then(|reference| reference.hand_over.as_ref())))
                    }
                    @if columns.renewal {
                        (tail(measured.renewal.as_ref(), reference.and_then(|reference| reference.renewal.as_ref())))
                    }
                    @if columns.server_cpu {
                        td {
                            @match measured.server_cpu_us_per_request {
                                Some(us) => (with_ratio(&show_us(us), us, reference.and_then(|reference| reference.server_cpu_us_per_request))),
                                None => { span.none { "unknown" } }
                            }
                        }
                    }
                }
                Some(Outcome::NotOffered(why)) => (words("none", &format!("not offered: {why}"))),
                Some(Outcome::Failed(why)) => (words("fault", &format!("failed: {why}"))),
                None => (words("none", "not measured")),
            }
        }
        @if let Some(measured) = view.measured(load, entrant).filter(|measured| !measured.faults.is_empty()) {
            tr {
                td {}
                td.words.fault colspan=(columns.count() - 1) { "wrong responses: " (measured.faults.join("; ")) }
            }
        }
    }
}

fn tail(own: Option<&Distribution>, reference: Option<&Distribution>) -> Markup {
    html! {
        (latency(own, reference, |known| known.p50_ns))
        (latency(own, reference, |known| known.p99_ns))
        (latency(own, None, |known| known.p999_ns))
    }
}

fn latencies(own: Option<&Distribution>, reference: Option<&Distribution>) -> Markup {
    html! {
        (latency(own, reference, |known| known.p50_ns))
        (latency(own, None, |known| known.p90_ns))
        (latency(own, reference, |known| known.p99_ns))
        (latency(own, None, |known| known.p999_ns))
        (latency(own, None, |known| known.max_ns))
    }
}

fn latency(
    own: Option<&Distribution>,
    reference: Option<&Distribution>,
    of: fn(&Percentiles) -> u64,
) -> Markup {
    let Some(known) = own.map(|own| own.percentiles).filter(|known| known.count > 0) else {
        return html! { td.none { "none" } };
    };
    html! {
        td { (with_ratio(&show_ns(of(&known)), of(&known) as f64, reference.map(|reference| of(&reference.percentiles) as f64))) }
    }
}

fn spread(rounds: &[f64]) -> String {
    let least = rounds.iter().copied().reduce(f64::min);
    let most = rounds.iter().copied().reduce(f64::max);
    least
        .zip(most)
        .map_or_else(|| "none".into(), |(least, most)| format!("{} to {}", show_rate(least), show_rate(most)))
}

/// Returns a table of the systems and their versions.
pub(super) fn contestants(view: &View<'_>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Systems" {
            table {
                caption { "The systems in the requested order. Ratios are to the first that takes part." }
                thead {
                    tr {
                        th scope="col" { "System" }
                        th scope="col" { "Version" }
                        th scope="col" { "How a lock is acquired and released" }
                        th scope="col" { "A lock survives" }
                    }
                }
                tbody {
                    @for entrant in &view.entrants {
                        @let contestant = entrant.contestant;
                        tr class=(entrant.look.class()) {
                            th scope="row" { (entrant.look.swatch()) (contestant.name) }
                            @if let Some(why) = &contestant.absent {
                                td.words.none colspan="3" { "absent: " (why) }
                            } @else {
                                td.words { (contestant.version) }
                                td.words { (contestant.lock) }
                                td.words { (contestant.outlives) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns a table of memory, with the number of locks.
pub(super) fn memory(view: &View<'_>) -> Option<Markup> {
    let first = view.reference().and_then(|first| view.memory_of(first));
    (!view.contest.memory.is_empty()).then(|| {
        html! {
            div.scroll tabindex="0" role="region" aria-label="Memory" {
                table {
                    caption { "Memory: growth of the server's resident memory per held lock." }
                    thead {
                        tr {
                            th scope="col" { "System" }
                            th scope="col" { "Bytes per lock" }
                            th scope="col" { "Locks held" }
                        }
                    }
                    tbody {
                        @for (entrant, memory) in view.present().filter_map(|entrant| Some((entrant, view.memory_of(entrant)?))) {
                            tr class=(entrant.look.class()) {
                                th scope="row" { (entrant.look.swatch()) (entrant.contestant.name) }
                                td { (with_ratio(&format!("{:.1}", memory.bytes_per_lock), memory.bytes_per_lock, first.map(|first| first.bytes_per_lock))) }
                                td { (show_integer(memory.lock_count)) }
                            }
                        }
                    }
                }
            }
        }
    })
}
