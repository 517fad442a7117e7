//! Compares what was heard with what a file expects.

use super::pace::Pace;
use super::script::Said;
use super::words::nanos;
use std::fmt::Write;

const TICKET: &str = "ticket=";
const WAITS: &str = "(waits)";
const WAITED: &str = "waited=";

/// Whether all of it was heard, and nothing else. With `in_order` also that each lane heard it in this order.
pub(super) fn is_same(expected: &[Said], heard: &[Said], in_order: bool, pace: &Pace) -> bool {
    if expected.len() != heard.len() {
        return false;
    }
    let mut left: Vec<&Said> = heard.iter().collect();
    for expected in expected {
        let same =
            |heard: &&&Said| heard.lane == expected.lane && is_same_text(&expected.text, &heard.text, pace);
        let of_lane = |heard: &&&Said| heard.lane == expected.lane && heard.text != WAITS;
        // Lists have no order of their own, and that an acquire waits is what was not heard of it.
        let found = if in_order && !expected.lane.starts_with('(') && expected.text != WAITS {
            left.iter().find(of_lane).filter(same)
        } else {
            left.iter().find(same)
        };
        let Some(found) = found.copied() else { return false };
        left.retain(|heard| !std::ptr::eq(*heard, found));
    }
    true
}

/// Whether two lines are the same word by word, except that lengths of time are but near each other. Tickets of one line
/// have but the same order: whoever else waited in the same part of the server took some too.
fn is_same_text(expected: &str, heard: &str, pace: &Pace) -> bool {
    if ranks_of_tickets(expected) != ranks_of_tickets(heard) {
        return false;
    }
    let (mut expected, mut heard) =
        (expected.split_whitespace().peekable(), heard.split_whitespace().peekable());
    loop {
        // A wait of no length is not told, and in real time there is none.
        let waited = |word: &&str| word.starts_with(WAITED);
        if heard.peek().is_some_and(waited) && !expected.peek().is_some_and(waited) {
            let length = heard.next().and_then(length_ns);
            if !length.is_some_and(|(_, length)| pace.matches(0, length)) {
                return false;
            }
        }
        match (expected.next(), heard.next()) {
            (None, None) => return true,
            (Some(expected), Some(heard)) if is_same_word(expected, heard, pace) => {}
            _ => return false,
        }
    }
}

fn is_same_word(expected: &str, heard: &str, pace: &Pace) -> bool {
    if expected == heard || (expected.starts_with(TICKET) && heard.starts_with(TICKET)) {
        return true;
    }
    match (length_ns(expected), length_ns(heard)) {
        (Some((name, expected)), Some((other, heard))) => name == other && pace.matches(expected, heard),
        _ => false,
    }
}

/// Which place each ticket of a line has among all of them.
fn ranks_of_tickets(text: &str) -> Vec<usize> {
    let tickets = text.split_whitespace().filter_map(|word| word.strip_prefix(TICKET)?.parse::<u64>().ok());
    let tickets: Vec<u64> = tickets.collect();
    tickets.iter().map(|ticket| tickets.iter().filter(|other| *other < ticket).count()).collect()
}

/// The length of time in a word such as `remaining=5s`, and what it is the length of.
fn length_ns(word: &str) -> Option<(&str, i128)> {
    let (name, value) = word.split_once('=')?;
    let digits = value.strip_prefix('-').unwrap_or(value);
    let sign = if digits.len() == value.len() { 1 } else { -1 };
    let is_length = digits.starts_with(|first: char| first.is_ascii_digit()) && digits.ends_with(['s', 'h']);
    is_length.then(|| (name, sign * i128::from(nanos(digits))))
}

/// What was expected beside what was heard.
pub(super) fn difference(expected: &[Said], heard: &[Said]) -> String {
    let mut text = String::new();
    for (title, lines) in [("expected", expected), ("heard", heard)] {
        let _ = writeln!(text, "  {title}");
        for Said { lane, text: line } in lines {
            let _ = writeln!(text, "    {lane}: {}", line.replace('\n', "\n      "));
        }
    }
    text
}
