//! What was wrong with the answers.

use std::collections::BTreeMap;

use serde::Serialize;

/// Kinds of wrong answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// An answer to no request in flight, or of the wrong kind for its request.
    WrongAnswer,
    /// An error where none can be.
    UnexpectedError,
    /// Busy although nobody can hold the key.
    ImpossibleBusy,
    /// The fence of a grant did not rise.
    FenceNotRising,
    /// A grant that conflicts with a hold.
    ConflictingGrant,
    /// A bucket gave more than it can have had.
    TooMuchAllowed,
    /// Something is not over that should be, or not counted as it happened.
    WrongCount,
    /// The connection was lost or its stream made no sense.
    ConnectionLost,
    /// No answer came.
    Unanswered,
}

/// Wrong answers, counted, with a few examples of each kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Faults {
    kinds: BTreeMap<FaultKind, FaultsOfKind>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct FaultsOfKind {
    count: u64,
    examples: Vec<String>,
}

/// Examples kept of each kind.
const EXAMPLES_MAX: usize = 3;

impl Faults {
    /// Counts one; the example is only made where it will be kept.
    #[cold]
    pub fn add(&mut self, kind: FaultKind, example: impl FnOnce() -> String) {
        let faults = self.kinds.entry(kind).or_default();
        faults.count += 1;
        if faults.examples.len() < EXAMPLES_MAX {
            faults.examples.push(example());
        }
    }

    /// Takes over those of another thread.
    pub fn merge(&mut self, other: Self) {
        for (kind, others) in other.kinds {
            let faults = self.kinds.entry(kind).or_default();
            faults.count += others.count;
            let room = EXAMPLES_MAX.saturating_sub(faults.examples.len());
            faults.examples.extend(others.examples.into_iter().take(room));
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.kinds.values().map(|faults| faults.count).sum()
    }

    /// How many there are of one kind.
    pub fn count_of(&self, kind: FaultKind) -> u64 {
        self.kinds.get(&kind).map_or(0, |faults| faults.count)
    }

    /// One line a kind, then its examples.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (kind, faults) in &self.kinds {
            text.push_str(&format!("{} x {}\n", faults.count, kind.describe()));
            for example in &faults.examples {
                text.push_str(&format!("    {example}\n"));
            }
        }
        text
    }
}

impl FaultKind {
    fn describe(self) -> &'static str {
        match self {
            Self::WrongAnswer => "an answer that no request asked for",
            Self::UnexpectedError => "an error where none can be",
            Self::ImpossibleBusy => "busy although nobody can hold the key",
            Self::FenceNotRising => "a fence that did not rise",
            Self::ConflictingGrant => "a grant that conflicts with a hold",
            Self::TooMuchAllowed => "a bucket that gave more than it can have had",
            Self::WrongCount => "a count that is not what happened",
            Self::ConnectionLost => "a connection lost",
            Self::Unanswered => "a request without an answer",
        }
    }
}
