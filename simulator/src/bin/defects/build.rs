//! Cargo, run in the copy of the workspace.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds and tests the copy of the workspace, with a target directory of its own.
#[derive(Debug)]
pub(crate) struct Cargo {
    root: PathBuf,
    target: PathBuf,
}

/// Dependencies that take much of the time of a seed.
const OPTIMIZED: [&str; 4] = ["ahash", "crossbeam-channel", "crossbeam-utils", "rand_chacha"];

/// Seconds that a build or a test may take.
const SECONDS_MAX: &str = "1200";
/// Exit status of `timeout` if the time is over.
const TIMED_OUT: i32 = 124;

/// What became of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) is_ok: bool,
    /// Whether `timeout` ended it.
    pub(crate) hangs: bool,
    /// Standard output and standard error.
    pub(crate) text: String,
}

impl Cargo {
    pub(crate) fn new(root: &Path, target: &Path) -> Self {
        Self { root: root.to_owned(), target: target.to_owned() }
    }

    /// The program that runs seeds.
    pub(crate) fn simulator(&self) -> PathBuf {
        self.target.join("debug/waymaker-simulator")
    }

    /// Builds the program that runs seeds, and the libraries of these crates, each named by its folder.
    pub(crate) fn build(&self, crates: &BTreeSet<&str>) -> Result<Ended> {
        let mut command = self.command("build");
        command.args(["-p", "waymaker-simulator", "--bin", "waymaker-simulator"]);
        if !crates.is_empty() {
            command.arg("--lib");
        }
        for name in crates {
            command.args(["-p", &format!("waymaker-{name}")]);
        }
        self.run(&mut command)
    }

    /// A command for tests of a target, `lib` for unit tests. Arguments for the tests follow.
    pub(crate) fn test(&self, package: &str, target: &str) -> Command {
        let mut command = self.command("test");
        command.args(["-p", package]);
        match target {
            "lib" => command.arg("--lib"),
            target => command.args(["--test", target]),
        };
        command
    }

    /// A command for the tests of a model checker, which need a build of their own.
    pub(crate) fn model(&self, name: &str) -> Command {
        let mut command = cargo();
        command.args(["test", "--quiet", "--locked", "-p", "waymaker-engine", "--profile", "models"]);
        command.args(["--test", name, "--target-dir"]).arg(self.target.join(name)).current_dir(&self.root);
        command.env("RUSTFLAGS", format!("--cfg {name}"));
        command
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = cargo();
        command.args([subcommand, "--quiet", "--locked", "--target-dir"]).arg(&self.target);
        // Most of the first build are dependencies, which take little of the time of a seed.
        command.args(["--config", r#"profile.dev.package."*".opt-level=0"#]);
        for package in OPTIMIZED {
            command.args(["--config", &format!("profile.dev.package.{package}.opt-level=1")]);
        }
        // CI switches this off, but here each build follows a small change.
        command.env("CARGO_INCREMENTAL", "1");
        command.current_dir(&self.root);
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, command: &mut Command) -> Result<Ended> {
        // A defect leaves unused code behind, which is no matter here.
        let output = command.stdin(Stdio::null()).output().context("cannot run cargo")?;
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let (is_ok, hangs) = (output.status.success(), output.status.code() == Some(TIMED_OUT));
        Ok(Ended { is_ok, hangs, text: text.into_owned() })
    }
}

/// Cargo with a limit of time: a defect may keep a test from ending.
fn cargo() -> Command {
    let mut command = Command::new("timeout");
    command.args([SECONDS_MAX, "cargo"]);
    command
}
