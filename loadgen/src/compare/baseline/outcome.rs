//! Outcome of a comparison of two builds, and its exit code.

use serde::Serialize;

use super::statistics::Verdict;

/// Outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every row passed.
    Passed,
    /// A row failed, or a response was wrong.
    Failed,
    /// No row failed, but a row has too few valid rounds.
    Inconclusive,
    /// No row failed, but not every row was measured.
    Incomplete,
    /// A quick run ended with only correct responses.
    NotJudged,
}

impl Outcome {
    /// Returns the outcome of these verdicts. A failure takes precedence over everything unknown.
    pub fn of(verdicts: &[Verdict], has_wrong_answers: bool, is_complete: bool) -> Self {
        if has_wrong_answers || verdicts.contains(&Verdict::Fail) {
            Self::Failed
        } else if !is_complete || verdicts.is_empty() {
            Self::Incomplete
        } else if verdicts.contains(&Verdict::Inconclusive) {
            Self::Inconclusive
        } else if verdicts.contains(&Verdict::NotJudged) {
            Self::NotJudged
        } else {
            Self::Passed
        }
    }

    /// Returns the exit code: 0; 1 for a failure; 2 if there is no result.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Passed | Self::NotJudged => 0,
            Self::Failed => 1,
            Self::Inconclusive | Self::Incomplete => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;
    use super::Verdict::{Fail, Inconclusive, NotJudged, Pass};

    #[test]
    fn exit_code_is_0_only_if_every_row_passed_or_in_a_quick_run() {
        for (verdicts, has_wrong_answers, is_complete, outcome, exit_code) in [
            (&[Pass, Pass][..], false, true, Outcome::Passed, 0),
            (&[NotJudged, NotJudged], false, true, Outcome::NotJudged, 0),
            (&[Pass, Fail], false, true, Outcome::Failed, 1),
            (&[Fail, Inconclusive], false, false, Outcome::Failed, 1),
            (&[Pass, Pass], true, true, Outcome::Failed, 1),
            (&[NotJudged], true, true, Outcome::Failed, 1),
            (&[Pass, Inconclusive], false, true, Outcome::Inconclusive, 2),
            (&[Pass, Inconclusive], false, false, Outcome::Incomplete, 2),
            (&[Pass], false, false, Outcome::Incomplete, 2),
            (&[], false, true, Outcome::Incomplete, 2),
        ] {
            let found = Outcome::of(verdicts, has_wrong_answers, is_complete);
            assert_eq!((found, found.exit_code()), (outcome, exit_code), "{verdicts:?}");
        }
    }
}
