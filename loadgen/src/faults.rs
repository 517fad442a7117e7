//! Wrong responses.

use std::collections::BTreeMap;

use serde::Serialize;

/// Kinds of wrong responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A response without a matching request in flight, or of the wrong kind for its request.
    WrongAnswer,
    /// An error that the request cannot cause.
    UnexpectedError,
    /// Busy although no other client can hold the key.
    ImpossibleBusy,
    /// The fence of a grant did not rise.
    FenceNotRising,
    /// A grant that conflicts with a hold.
    ConflictingGrant,
    /// A bucket allowed more than its rate and burst permit.
    TooMuchAllowed,
    /// A claim or count that differs from the events that were sent.
    WrongCount,
    /// The connection was lost, or its data could not be decoded.
    ConnectionLost,
    /// A request without a response.
    Unanswered,
}

/// Number of wrong responses, with a few examples of each kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Faults {
    kinds: BTreeMap<FaultKind, FaultsOfKind>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct FaultsOfKind {
    count: u64,
    examples: Vec<String>,
}

/// Maximum number of examples kept of each kind.
const EXAMPLES_MAX: usize = 3;

impl Faults {
    /// Counts one fault. The example is only created if it is kept.
    #[cold]
    pub fn add(&mut self, kind: FaultKind, example: impl FnOnce() -> String) {
        let faults = self.kinds.entry(kind).or_default();
        faults.count += 1;
        if faults.examples.len() < EXAMPLES_MAX {
            faults.examples.push(example());
        }
    }

    /// Adds the faults of another thread.
    pub fn merge(&mut self, other: Self) {
        for (kind, others) in other.kinds {
            let faults = self.kinds.entry(kind).or_default();
            faults.count += others.count;
            let room = EXAMPLES_MAX.saturating_sub(faults.examples.len());
            faults.examples.extend(others.examples.into_iter().take(room));
        }
    }

    /// Returns the total number of faults.
    pub fn count(&self) -> u64 {
        self.kinds.values().map(|faults| faults.count).sum()
    }

    /// Returns the number of faults of one kind.
    pub fn count_of(&self, kind: FaultKind) -> u64 {
        self.kinds.get(&kind).map_or(0, |faults| faults.count)
    }

    /// Formats one line for each kind, followed by its examples.
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
            Self::WrongAnswer => "a response without a matching request",
            Self::UnexpectedError => "an error that the request cannot cause",
            Self::ImpossibleBusy => "busy, although no other client can hold the key",
            Self::FenceNotRising => "a fence that did not rise",
            Self::ConflictingGrant => "a grant that conflicts with a hold",
            Self::TooMuchAllowed => "a bucket that allowed more than its rate and burst permit",
            Self::WrongCount => "a count that differs from the events",
            Self::ConnectionLost => "a lost connection",
            Self::Unanswered => "a request without a response",
        }
    }
}
