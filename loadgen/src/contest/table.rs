//! A contest as text.

use std::fmt::Write;

use super::loads::{Load, RENEWAL_RATE, shape_title};
use super::result::{Contest, ContestShape, Distribution, Measured, Measurement, Outcome};
use crate::units::{show_ns, show_rate};

/// Maximum number of columns of a line.
const WIDTH: usize = 120;
/// Widths of the columns except the last two.
const LOAD_WIDTH: usize = 18;

/// Formats the whole contest.
pub fn text(contest: &Contest) -> String {
    let mut text = String::new();
    let machine = &contest.machine;
    let _ = writeln!(text, "{}\n{}\n", machine.describe(), contest.command);
    if contest.is_partial {
        text.push_str("PARTIAL: the contest was interrupted.\n\n");
    }
    put_contestants(&mut text, contest);
    for shape in [
        ContestShape::Pair,
        ContestShape::HandOver,
        ContestShape::ReadMostly,
        ContestShape::ManyWaiters,
        ContestShape::Renewals,
    ] {
        put_shape(&mut text, contest, shape);
    }
    put_memory(&mut text, contest);
    for note in &contest.notes {
        text.push_str(&wrapped(note, "- ", "  "));
    }
    let _ = writeln!(
        text,
        "\n{} rounds of {} ms slices; took {:.0} s",
        contest.rounds, contest.slice_ms, contest.took_s
    );
    text
}

fn put_contestants(text: &mut String, contest: &Contest) {
    let width = name_width(contest);
    for one in &contest.contestants {
        match &one.absent {
            Some(why) => {
                text.push_str(&wrapped(&format!("{:width$}  absent: {why}", one.name), "", "    "));
            }
            None => {
                let about = format!("{}: {}; a lock survives: {}", one.version, one.lock, one.outlives);
                text.push_str(&wrapped(&format!("{:width$}  {about}", one.name), "", "    "));
            }
        }
    }
}

fn put_shape(text: &mut String, contest: &Contest, shape: ContestShape) {
    let measurements: Vec<&Measurement> =
        contest.measurements.iter().filter(|one| one.shape == shape).collect();
    if measurements.is_empty() {
        return;
    }
    let reference = contest.contestants.first().map_or("", |one| &one.name);
    let (what, points) = about(shape);
    text.push('\n');
    text.push_str(&wrapped(&format!("{}: {what}", shape_title(shape)), "", "    "));
    let width = name_width(contest);
    let _ = writeln!(
        text,
        "\n  {:LOAD_WIDTH$} {:width$} {:>11} {:>10} {:>10} {:>10} {:>10}  x {reference}",
        "load", "", "requests", "p50", "p99", "p99.9", points
    );
    let mut last = None;
    for one in &measurements {
        let load = load_of(one);
        let title = if last == Some(load) { String::new() } else { load.describe() };
        last = Some(load);
        let _ = write!(text, "  {title:LOAD_WIDTH$} {:width$} ", one.contestant);
        match &one.outcome {
            Outcome::NotOffered(why) => put_words(text, &format!("not offered: {why}"), width),
            Outcome::Failed(why) => put_words(text, &format!("FAILED: {why}"), width),
            Outcome::Measured(measured) => {
                let first =
                    measurements.iter().find(|other| other.contestant == reference && load_of(other) == load);
                let ratio = match first.map(|other| &other.outcome) {
                    Some(Outcome::Measured(first)) => ratio(one, measured, first),
                    _ => "-".to_owned(),
                };
                put_measured(text, one, measured, &ratio);
            }
        }
    }
}

/// Returns the description of a shape, and the title of its last column.
fn about(shape: ContestShape) -> (String, &'static str) {
    let closed = "each connection sends the next request after a response";
    match shape {
        ContestShape::Pair => (
            format!(
                "acquire a random key and release it, without contention. Connections x requests in flight; \
                 {closed}, unless \
                 a total rate is given. The ratio is of requests; at a fixed rate, of p99."
            ),
            "server CPU",
        ),
        ContestShape::HandOver => (
            format!(
                "all connections contend for one key; {closed}. p50 to p99.9 are of the hand-over, from sending a \
                 release to reading the next grant. The ratio is of the hand-over's p50."
            ),
            "acquire p99",
        ),
        ContestShape::ReadMostly => (
            format!(
                "9 of 10 acquires of 100 keys are shared; {closed}. Latencies are of acquires. The ratio is of \
                 requests."
            ),
            "server CPU",
        ),
        ContestShape::ManyWaiters => (
            "like hand-over, with many connections. The ratio is of the hand-over's p50.".to_owned(),
            "acquire p99",
        ),
        ContestShape::Renewals => (
            format!(
                "pairs run while leases are held and {RENEWAL_RATE} of them are renewed per second (last \
                 column: p99 of the \
                 renewals). Latencies are of the pairs. The ratio is of p99."
            ),
            "renew p99",
        ),
    }
}

fn put_measured(text: &mut String, one: &Measurement, measured: &Measured, ratio: &str) {
    let shown = match &measured.hand_over {
        Some(hand_over) => hand_over,
        None => &measured.latency,
    };
    let known = shown.percentiles;
    let p99 = |distribution: &Distribution| show_ns(distribution.percentiles.p99_ns);
    let last = match one.shape {
        ContestShape::Pair | ContestShape::ReadMostly => {
            measured.server_cpu_us_per_request.map_or("-".to_owned(), |us| format!("{us:.2} us"))
        }
        ContestShape::HandOver | ContestShape::ManyWaiters => p99(&measured.latency),
        ContestShape::Renewals => measured.renewal.as_ref().map_or("-".to_owned(), p99),
    };
    let _ = writeln!(
        text,
        "{:>11} {:>10} {:>10} {:>10} {last:>10}  {ratio}",
        show_rate(measured.requests_per_s),
        show_ns(known.p50_ns),
        show_ns(known.p99_ns),
        show_ns(known.p999_ns),
    );
    for fault in &measured.faults {
        text.push_str(&wrapped(&format!("WRONG: {fault}"), "    ", "      "));
    }
}

/// Returns the ratio to the first contestant.
fn ratio(one: &Measurement, measured: &Measured, first: &Measured) -> String {
    let number = |of: &Measured| match (one.shape, one.rate) {
        (ContestShape::Pair, Some(_)) | (ContestShape::Renewals, _) => of.latency.percentiles.p99_ns as f64,
        (ContestShape::Pair | ContestShape::ReadMostly, _) => of.requests_per_s,
        (ContestShape::HandOver | ContestShape::ManyWaiters, _) => {
            of.hand_over.as_ref().map_or(f64::NAN, |known| known.percentiles.p50_ns as f64)
        }
    };
    let ratio = number(measured) / number(first);
    if ratio.is_finite() { format!("{ratio:.2}") } else { "-".to_owned() }
}

fn put_memory(text: &mut String, contest: &Contest) {
    if contest.memory.is_empty() {
        text.push('\n');
        return;
    }
    text.push_str("\nmemory: resident memory of a new server per held lock\n\n");
    let reference = contest.contestants.first().map_or("", |one| &one.name);
    let first = contest.memory.iter().find(|one| one.contestant == reference);
    let width = name_width(contest);
    for one in &contest.memory {
        let ratio = first.map_or(f64::NAN, |first| one.bytes_per_lock / first.bytes_per_lock);
        let ratio = if ratio.is_finite() { format!("{ratio:.2}") } else { "-".to_owned() };
        let _ = writeln!(
            text,
            "  {:width$} {:>9.0} bytes of {} locks, {ratio} x {reference}",
            one.contestant, one.bytes_per_lock, one.lock_count
        );
    }
    text.push('\n');
}

fn load_of(one: &Measurement) -> Load {
    Load { shape: one.shape, connections: one.connections, depth: one.depth, rate: one.rate }
}

fn name_width(contest: &Contest) -> usize {
    contest.contestants.iter().map(|one| one.name.chars().count()).max().unwrap_or(0)
}

/// Appends the rest of a row after the load and the contestant.
fn put_words(text: &mut String, words: &str, name_width: usize) {
    let indent = LOAD_WIDTH + name_width + 4;
    let lines = wrapped(words, &" ".repeat(indent), &" ".repeat(indent));
    text.push_str(lines.trim_start());
}

/// Wraps text to lines of the maximum width.
fn wrapped(words: &str, first_indent: &str, indent: &str) -> String {
    let mut text = String::new();
    let mut line = first_indent.to_owned();
    for piece in words.split_inclusive(char::is_whitespace) {
        let piece_len = piece.trim_end().chars().count();
        if line.chars().count() + piece_len > WIDTH && line.trim() != "" {
            text.push_str(line.trim_end());
            text.push('\n');
            line = indent.to_owned();
        }
        line.push_str(&piece.replace('\n', " "));
    }
    text.push_str(line.trim_end());
    text.push('\n');
    text
}
