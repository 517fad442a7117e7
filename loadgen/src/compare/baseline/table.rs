//! The comparison of two builds as Markdown.

use std::fmt::Write;

use super::BaselineComparison;
use super::binary::Binary;
use super::outcome::Outcome;
use super::result::{ATTEMPTS_PER_ROUND, JudgedRow};
use super::statistics::{RATIO_MIN, Verdict};
use crate::compare::table::{disturbance, head};
use crate::units::show_percent;

/// Formats the whole report.
pub fn markdown(comparison: &BaselineComparison) -> String {
    let mut text = head(&comparison.machine, &comparison.configuration);
    text.push_str("| build | waymaker-server | --version | SHA-256 |\n|---|---|---|---|\n");
    let [old, new] = columns(comparison);
    for (build, binary) in [(old, &comparison.binaries.baseline), (new, &comparison.binaries.current)] {
        let Binary { path, sha256, version } = binary;
        let _ = writeln!(text, "| {build} | {} | {version} | {sha256} |", path.display());
    }
    let _ = writeln!(
        text,
        "\n| row | {old} | {new} | median ratio | interval | rounds valid/tried | verdict |\n|---|---|---|---|---|---|---|",
    );
    for row in comparison.rows() {
        put_row(&mut text, row);
    }
    let _ = writeln!(
        text,
        "\nA ratio compares the two slices of one round; above 1 the {new} server is better. The interval contains the true median \
         of the ratios with at least 95 %. A row fails if its whole interval lies below {RATIO_MIN}.",
    );
    let unsure: Vec<&str> =
        comparison.rows().filter(|row| row.is_unsure()).map(|row| row.title.as_str()).collect();
    if !unsure.is_empty() {
        let _ = writeln!(
            text,
            "\nThe interval reaches below {RATIO_MIN} in: {}. A larger loss is possible there, but these rounds \
             do not prove one. More \
             rounds narrow the interval.",
            unsure.join("; ")
        );
    }
    let load_bound: Vec<&str> =
        comparison.loads.iter().filter(|load| load.is_load_bound()).map(|load| load.title.as_str()).collect();
    if !load_bound.is_empty() {
        let _ = writeln!(
            text,
            "\nIn these rows the core of the load was fully busy and the core of the servers was not: {}. \
             There, requests per \
             second say little about the servers.",
            load_bound.join(", ")
        );
    }
    text.push_str(&disturbance(comparison.slices()));
    for note in &comparison.notes {
        let _ = writeln!(text, "\n{note}");
    }
    let _ = writeln!(text, "\n{}", describe_outcome(comparison));
    text
}

fn put_row(text: &mut String, row: &JudgedRow) {
    let show = |number: Option<f64>| number.map_or("-".to_owned(), |number| row.yardstick.show(number));
    let ratio = row.median_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
    let interval = row
        .interval
        .map_or("-".to_owned(), |interval| format!("{:.3} to {:.3}", interval.low, interval.high));
    let _ = writeln!(
        text,
        "| {} | {} | {} | {ratio} | {interval} | {}/{} | {} |",
        row.title,
        show(row.old),
        show(row.new),
        row.ratios.len(),
        row.tried_round_count,
        row.verdict.name()
    );
}

/// Returns the names of the baseline and of the server under test.
fn columns(comparison: &BaselineComparison) -> [&'static str; 2] {
    if comparison.has_rights { ["open", "restricted"] } else { ["old", "new"] }
}

/// Describes the outcome in one paragraph.
pub fn describe_outcome(comparison: &BaselineComparison) -> String {
    let titles_of = |verdict: Verdict| {
        let rows = comparison.rows().filter(move |row| row.verdict == verdict);
        rows.map(|row| row.title.as_str()).collect::<Vec<&str>>()
    };
    let row_count = comparison.rows().count();
    let wrong_count = comparison.wrong_answer_count;
    let round_count_min = comparison.configuration.round_count;
    let loss = show_percent(1.0 - RATIO_MIN);
    match comparison.outcome {
        Outcome::Passed => format!("All {row_count} rows passed: none shows a loss of more than {loss}."),
        Outcome::Failed if wrong_count > 0 => format!("**FAILED: {wrong_count} responses were wrong.**"),
        Outcome::Failed => {
            let failed = titles_of(Verdict::Fail);
            let count = failed.len();
            format!(
                "**FAILED: {count} of {row_count} rows are slower by more than {loss}: {}.**",
                failed.join("; ")
            )
        }
        Outcome::Inconclusive => format!(
            "**INCONCLUSIVE: {} attempts did not give {round_count_min} valid rounds of: {}.** A round is valid \
             if the core distance \
             stayed the same during both of its slices and both gave a number. Measure again on a quieter machine.",
            ATTEMPTS_PER_ROUND * round_count_min,
            titles_of(Verdict::Inconclusive).join("; ")
        ),
        Outcome::Incomplete => "**INCOMPLETE: not every row was measured.**".to_owned(),
        Outcome::NotJudged => {
            "Quick run: no verdict. The slices are too short for meaningful numbers.".to_owned()
        }
    }
}
