//! The trace of a run: a hash over all events and, on request, the events as text.

use std::collections::VecDeque;

/// Number of lines that are kept for a report.
const LINE_COUNT_MAX: usize = 400;

/// Trace of a run. Every decision and every byte changes the hash, so two runs are equal if their hashes are
/// equal. Text is produced only on request; a run that fails is repeated to get its text.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    keeps_text: bool,
    prints: bool,
    lines: VecDeque<String>,
}

impl Trace {
    pub(crate) fn new(keeps_text: bool, prints: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, keeps_text, prints, lines: VecDeque::new() }
    }

    fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    /// Adds an event to the hash, and to the text if text is kept.
    pub(crate) fn note(&mut self, now_us: u64, what: u64, which: u64, text: impl FnOnce() -> String) {
        self.mix(now_us);
        self.mix(what << 32 ^ which);
        self.describe(now_us, text);
    }

    /// Adds a line of text without changing the hash, because earlier events determine the line.
    pub(crate) fn describe(&mut self, now_us: u64, text: impl FnOnce() -> String) {
        if self.keeps_text {
            let line = format!("{:>9}.{:03} ms  {}", now_us / 1000, now_us % 1000, text());
            if self.prints {
                println!("{line}");
            }
            if self.lines.len() == LINE_COUNT_MAX {
                self.lines.pop_front();
            }
            self.lines.push_back(line);
        }
    }

    /// Returns whether text is kept.
    pub(crate) fn keeps_text(&self) -> bool {
        self.keeps_text
    }

    /// Adds bytes that arrived somewhere to the hash.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}
