//! Identity of a contestant: its system and its build.

use std::fmt;

use serde::Serialize;

use crate::system::System;

/// A build of a server, or one of two ways to start the same build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Build {
    /// The build of Waymaker under test; for other systems the only build.
    #[default]
    Current,
    /// The older build of Waymaker, from `--baseline-bin`; with `--rights` the server without rights.
    Baseline,
}

/// Identity of a contestant, unique within a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// System that is measured.
    pub system: System,
    /// Build of that system.
    pub build: Build,
}

impl From<System> for Identity {
    fn from(system: System) -> Self {
        Self { system, build: Build::Current }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.build {
            Build::Current => formatter.write_str(self.system.name()),
            Build::Baseline => write!(formatter, "{} (baseline)", self.system.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Build, Identity};
    use crate::system::System;

    #[test]
    fn two_builds_of_one_system_are_two_contestants() {
        let current = Identity::from(System::Waymaker);
        let baseline = Identity { build: Build::Baseline, ..current };
        assert_ne!(current, baseline);
        assert_eq!(
            (current.to_string(), baseline.to_string()),
            ("waymaker".into(), "waymaker (baseline)".into())
        );
    }
}
