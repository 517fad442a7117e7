//! Whether the auditor finds what was planted for it.

use crate::simulation::{Options, Outcome, judge};
use waymaker_engine::planted::{Bug, plant};

/// Runs seeds with this defect until one finds it. `None`: none of them does.
pub fn first_to_find(bug: Bug, seed_count: u64) -> Option<Outcome> {
    plant(Some(bug));
    let found = (0..seed_count)
        .map(|seed| judge(seed, &Options::default()))
        .find(|outcome| outcome.failure.is_some());
    plant(None);
    found
}
