//! Cargo, run in the copy of the workspace.

use super::switch::VARIABLE;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds and tests the copy of the workspace in a target directory of its own.
#[derive(Debug)]
pub(crate) struct Cargo {
    root: PathBuf,
    target: PathBuf,
    /// Name of the active defect; `None` if no defect is active.
    chosen: Option<String>,
}

/// Dependencies that take much of the run time of a seed. Only these are optimized.
const OPTIMIZED: [&str; 4] = ["ahash", "crossbeam-channel", "crossbeam-utils", "rand_chacha"];

/// Time limit of a build or a test, in seconds.
const SECONDS_MAX: &str = "1200";
/// Exit status of `timeout` when the time limit is exceeded.
const TIMED_OUT: i32 = 124;

/// Result of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) is_ok: bool,
    /// True if `timeout` ended the command.
    pub(crate) hangs: bool,
    /// Standard output and standard error.
    pub(crate) text: String,
}

impl Cargo {
    pub(crate) fn new(root: &Path, target: &Path) -> Self {
        Self { root: root.to_owned(), target: target.to_owned(), chosen: None }
    }

    /// Activates one of the planted defects. Before the first call no defect is active.
    pub(crate) fn choose(&mut self, defect: &str) {
        self.chosen = Some(defect.to_owned());
    }

    /// Returns the program that runs seeds.
    pub(crate) fn simulator(&self) -> Simulator {
        Simulator { path: self.target.join("debug/waymaker-simulator"), chosen: self.chosen.clone() }
    }

    /// Builds the program that runs seeds. Each message of the compiler is one line.
    pub(crate) fn build(&self) -> Result<CommandResult> {
        let mut command = self.command("build");
        command.args([
            "--message-format",
            "short",
            "-p",
            "waymaker-simulator",
            "--bin",
            "waymaker-simulator",
        ]);
        self.run(&mut command)
    }

    /// Returns a command that runs the tests of a target, or the unit tests if the target is `lib`. The
    /// caller appends arguments for the tests.
    pub(crate) fn test(&self, package: &str, target: &str) -> Command {
        let mut command = self.command("test");
        command.args(["-p", package]);
        match target {
            "lib" => command.arg("--lib"),
            target => command.args(["--test", target]),
        };
        command
    }

    /// Returns a command that runs the tests of a model checker, which need a build of their own.
    pub(crate) fn model(&self, name: &str) -> Command {
        let mut command = cargo();
        command.args(["test", "--quiet", "--locked", "-p", "waymaker-engine", "--profile", "models"]);
        command.args(["--test", name, "--target-dir"]).arg(self.target.join(name)).current_dir(&self.root);
        command.env("RUSTFLAGS", format!("--cfg {name}"));
        set_variable(&mut command, self.chosen.as_deref());
        command
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = cargo();
        command.args([subcommand, "--quiet", "--locked", "--target-dir"]).arg(&self.target);
        // Most of the first build is dependencies, which take little of the run time of a seed.
        command.args(["--config", r#"profile.dev.package."*".opt-level=0"#]);
        for package in OPTIMIZED {
            command.args(["--config", &format!("profile.dev.package.{package}.opt-level=1")]);
        }
        set_variable(&mut command, self.chosen.as_deref());
        command.current_dir(&self.root);
        command
    }

    /// Runs a command and waits for its end.
    pub(crate) fn run(&self, command: &mut Command) -> Result<CommandResult> {
        // The warnings do not matter: a defect leaves unused code behind.
        let output = command.stdin(Stdio::null()).output().context("cannot run cargo")?;
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let (is_ok, hangs) = (output.status.success(), output.status.code() == Some(TIMED_OUT));
        Ok(CommandResult { is_ok, hangs, text: text.into_owned() })
    }
}

/// The program that runs seeds.
#[derive(Debug)]
pub(crate) struct Simulator {
    pub(crate) path: PathBuf,
    chosen: Option<String>,
}

impl Simulator {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        set_variable(&mut command, self.chosen.as_deref());
        command
    }
}

fn set_variable(command: &mut Command, chosen: Option<&str>) {
    match chosen {
        Some(name) => command.env(VARIABLE, name),
        None => command.env_remove(VARIABLE),
    };
}

/// Returns a cargo command with a time limit, because a defect can make a test hang.
fn cargo() -> Command {
    let mut command = Command::new("timeout");
    command.args([SECONDS_MAX, "cargo"]);
    command
}
