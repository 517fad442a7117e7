//! The files in `simulator/defects/`. Each describes one defect.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// A deliberate defect: the promise that it breaks, and the replacements of source text that cause it.
#[derive(Clone, Debug)]
pub(crate) struct Defect {
    /// Name of the file without its extension.
    pub(crate) name: String,
    /// The promise that the defect breaks, as a sentence.
    pub(crate) promise: String,
    /// The checks that must find the defect.
    pub(crate) found_by: Vec<Finder>,
    /// Why the simulator does not find the defect; `None` if it must find it.
    pub(crate) missed_because: Option<String>,
    pub(crate) edits: Vec<Edit>,
}

/// A replacement of text in one source file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// Path from the root of the workspace.
    pub(crate) file: String,
    /// Text that occurs exactly once in the file.
    pub(crate) old: String,
    /// Replacement text.
    pub(crate) new: String,
}

/// A check that can find a defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finder {
    /// Seeds of the simulator, judged by its auditor.
    Simulator,
    /// The linearizability checker, with the auditor silent.
    Linearizability,
    /// A model checker of the engine: `loom` or `shuttle`.
    Model(String),
    /// The tests of a package.
    Test {
        package: String,
        /// Name of the test target, or `lib` for the unit tests.
        target: String,
        /// Filter for test names: a part of the name.
        filter: String,
    },
}

impl Finder {
    fn parse(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        Ok(match words[..] {
            ["simulator"] => Self::Simulator,
            ["linearizability"] => Self::Linearizability,
            ["loom" | "shuttle"] => Self::Model(text.to_owned()),
            [package, target, filter] => {
                Self::Test { package: package.into(), target: target.into(), filter: filter.into() }
            }
            _ => anyhow::bail!(
                "found_by is {text:?}; it must be simulator, linearizability, loom, shuttle, or PACKAGE TARGET FILTER"
            ),
        })
    }
}

impl std::fmt::Display for Finder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Simulator => formatter.write_str("simulator"),
            Self::Linearizability => formatter.write_str("linearizability"),
            Self::Model(name) => formatter.write_str(name),
            Self::Test { package, target, filter } => write!(formatter, "{package} {target} {filter}"),
        }
    }
}

/// Contents of a defect file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    promise: String,
    #[serde(default)]
    found_by: Vec<String>,
    /// `missed` if the simulator does not find the defect yet.
    expected: Option<String>,
    /// Why the defect is missed.
    reason: Option<String>,
    edit: Vec<Edit>,
}

impl Defect {
    fn parse(name: &str, text: &str) -> Result<Self> {
        let File { promise, found_by, expected, reason, edit } = toml::from_str(text)?;
        ensure!(
            !promise.is_empty() && !promise.contains(['\n', '|']),
            "promise must be one line without `|`"
        );
        ensure!(!edit.is_empty(), "the defect has no edit");
        ensure!(edit.iter().all(|edit| edit.old != edit.new), "an edit changes nothing");
        let is_missed = match expected.as_deref() {
            None => false,
            Some("missed") => true,
            Some(other) => anyhow::bail!("expected is {other:?}; it can only be \"missed\""),
        };
        ensure!(
            is_missed == reason.is_some(),
            "a defect needs `reason` if, and only if, it has expected = \"missed\""
        );
        let mut found_by = found_by.iter().map(|text| Finder::parse(text)).collect::<Result<Vec<_>>>()?;
        if found_by.is_empty() {
            found_by.push(Finder::Simulator);
        }
        Ok(Self { name: name.to_owned(), promise, found_by, missed_because: reason, edits: edit })
    }

    /// Returns whether the seeds of the simulator must find the defect.
    pub(crate) fn is_quick(&self) -> bool {
        self.missed_because.is_none() && self.found_by.contains(&Finder::Simulator)
    }
}

/// Reads all defects of a folder, ordered by name.
///
/// # Errors
/// If a file cannot be read or does not describe a defect. The error names the file.
pub(crate) fn read_all(folder: &Path) -> Result<Vec<Defect>> {
    let mut defects = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = fs::read_to_string(&path)?;
            defects.push(Defect::parse(name, &text).with_context(|| format!("{}", path.display()))?);
        }
    }
    defects.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(defects)
}

/// Chooses `count` of the defects that the simulator must find, to be searched for by the simulator alone.
/// The same seed chooses the same defects. Over many seeds each defect is chosen equally often.
pub(crate) fn sample(defects: Vec<Defect>, count: usize, seed: &str) -> Vec<Defect> {
    let mut chosen: Vec<Defect> = defects.into_iter().filter(Defect::is_quick).collect();
    chosen.sort_by_cached_key(|defect| {
        let mut hasher = DefaultHasher::new();
        (seed, &defect.name).hash(&mut hasher);
        hasher.finish()
    });
    chosen.truncate(count);
    // The other checks need builds of their own.
    chosen.iter_mut().for_each(|defect| defect.found_by = vec![Finder::Simulator]);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDIT: &str = "[[edit]]\nfile = 'a.rs'\nold = 'a'\nnew = 'b'\n";

    #[test]
    fn a_defect_without_found_by_must_be_found_by_the_simulator() {
        let defect = Defect::parse("name", &format!("promise = 'It holds.'\n{EDIT}")).unwrap();
        assert_eq!(defect.found_by, [Finder::Simulator]);
        assert!(defect.is_quick());
    }

    #[test]
    fn only_a_missed_defect_has_a_reason() {
        let text = |lines: &str| format!("promise = 'It holds.'\n{lines}{EDIT}");
        assert!(Defect::parse("name", &text("expected = 'missed'\n")).is_err());
        assert!(Defect::parse("name", &text("reason = 'No disk is full.'\n")).is_err());
        assert!(Defect::parse("name", &text("expected = 'never'\nreason = 'x'\n")).is_err());
        let missed =
            Defect::parse("name", &text("expected = 'missed'\nreason = 'No disk is full.'\n")).unwrap();
        assert!(!missed.is_quick());
    }

    #[test]
    fn a_defect_that_changes_nothing_is_rejected() {
        assert!(Defect::parse("name", "promise = 'It holds.'\nedit = []\n").is_err());
        assert!(
            Defect::parse("name", "promise = 'x'\n[[edit]]\nfile = 'a'\nold = 'a'\nnew = 'a'\n").is_err()
        );
    }

    #[test]
    fn a_finder_is_displayed_as_it_is_parsed() {
        for text in ["simulator", "linearizability", "loom", "shuttle", "waymaker-engine lib tree::"] {
            assert_eq!(Finder::parse(text).unwrap().to_string(), text);
        }
        assert!(Finder::parse("nobody").is_err());
    }

    #[test]
    fn a_sample_depends_only_on_its_seed() {
        let defect = |name: &str| Defect::parse(name, &format!("promise = 'x'\n{EDIT}")).unwrap();
        let all: Vec<Defect> = ["a", "b", "c", "d", "e", "f"].map(defect).into();
        let names = |seed: &str| {
            sample(all.clone(), 3, seed).into_iter().map(|defect| defect.name).collect::<Vec<_>>()
        };
        assert_eq!(names("1"), names("1"));
        assert_eq!(names("1").len(), 3);
        assert!((0..20).any(|seed| names(&seed.to_string()) != names("1")));
    }
}
