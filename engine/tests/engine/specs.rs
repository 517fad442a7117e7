//! Runs the files of `tests/spec`. `WAYMAKER_REWRITE_SPECS=1` writes what the engine says into them; read the diff.

use crate::spec_language::Stage;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// What the file would be if all it expects were right.
fn run(text: &str) -> String {
    let mut stage = Stage::new();
    let mut out = String::new();
    let mut said = String::new();
    let mut expected = false;
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() {
            expected = false;
            out.push('\n');
        } else if expected {
            // What stands here is what is checked: the engine's own words were written instead.
        } else if line == "----" {
            expected = true;
            let _ = writeln!(out, "----");
            out.push_str(&std::mem::take(&mut said));
        } else {
            let _ = writeln!(out, "{line}");
            let command = line.split('#').next().unwrap_or_default().trim();
            if !command.is_empty() {
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.run(command)));
                said.push_str(&outcome.unwrap_or_else(|_| panic!("line {}: {line}", number + 1)));
            }
        }
    }
    assert!(said.is_empty(), "the last block does not say what is expected");
    out
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/spec");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// The first line that differs, with what was expected and what was said.
fn difference(expected: &str, said: &str) -> Option<String> {
    let (mut expected, mut said) = (expected.lines(), said.lines());
    for number in 1.. {
        let (expected, said) = match (expected.next(), said.next()) {
            (None, None) => return None,
            (expected, said) => (expected.unwrap_or("(end)"), said.unwrap_or("(end)")),
        };
        if expected != said {
            return Some(format!("line {number}\n  expected {expected}\n  said     {said}"));
        }
    }
    None
}

#[test]
fn the_engine_matches_the_spec_files() {
    let rewrite = std::env::var_os("WAYMAKER_REWRITE_SPECS").is_some();
    let mut failures = String::new();
    for file in files() {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let Ok(said) = std::panic::catch_unwind(|| run(&text)) else {
            let _ = writeln!(failures, "{name}: a command failed, see above");
            continue;
        };
        if rewrite {
            fs::write(&file, &said).unwrap_or_else(|error| panic!("{name}: {error}"));
        } else if let Some(difference) = difference(&text, &said) {
            let _ = writeln!(failures, "{name}: {difference}");
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

#[test]
fn there_are_spec_files() {
    assert!(files().len() >= 20);
}
