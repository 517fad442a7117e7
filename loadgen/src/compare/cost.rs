//! CPU time of the server per request, compared with other servers. This number matters for front ends, whose
//! libraries do most of the work.

use std::fmt::Write;

use super::goals::server_ns_per_request;
use super::table::show_spread;
use super::{Comparison, RowResult};

/// Appends one line for each row and target, as Markdown.
pub fn put_costs(text: &mut String, comparison: &Comparison) {
    let references = comparison.references();
    text.push_str("\n| load | target | server CPU per request |");
    references.iter().for_each(|reference| text.push_str(&format!(" x {} |", reference.name())));
    let _ = writeln!(text, "\n|---|---|---|{}", "---|".repeat(references.len()));
    for RowResult { row, rounds } in &comparison.rows {
        for &system in comparison.systems.iter().filter(|system| row.includes(**system)) {
            let cost = rounds
                .median(system, server_ns_per_request)
                .map_or("-".to_owned(), |ns| format!("{ns:.0} ns"));
            let ratio_of = |&reference| {
                rounds
                    .ratio(system, reference, server_ns_per_request)
                    .filter(|_| system != reference)
                    .map_or("-".to_owned(), show_spread)
            };
            let ratios: Vec<String> = references.iter().map(ratio_of).collect();
            let _ =
                writeln!(text, "| {} | {} | {cost} | {} |", row.title(), system.name(), ratios.join(" | "));
        }
    }
}
