//! The two server binaries, described so that readers of the report can identify them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use ring::digest;
use serde::Serialize;

use crate::compare::identity::Build;
use crate::compare::session::Session;
use crate::programs::output_within;
use crate::system::System;

/// Time limit for a binary to print its version.
const VERSION_TIME_MAX: Duration = Duration::from_secs(10);

/// One server binary.
#[derive(Clone, Debug, Serialize)]
pub struct Binary {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// Output of `--version`.
    pub version: String,
}

/// The two binaries of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Binaries {
    /// The older build.
    pub baseline: Binary,
    /// The build under test.
    pub current: Binary,
}

impl Binaries {
    /// Reads both files and runs both with `--version`.
    pub fn of(session: &Session<'_>) -> Result<Self> {
        let inspect = |build| {
            let path = session.programs_of(build)?.program(System::Waymaker).map_err(|why| anyhow!(why))?;
            Binary::inspect(&path)
        };
        let option = if session.options.rights { "--server-bin" } else { "--baseline-bin" };
        let baseline = inspect(Build::Baseline).context(option)?;
        Ok(Self { baseline, current: inspect(Build::Current).context("--server-bin")? })
    }

    /// Whether both files have the same content.
    pub fn are_same(&self) -> bool {
        self.baseline.sha256 == self.current.sha256
    }
}

impl Binary {
    fn inspect(path: &Path) -> Result<Self> {
        let sha256 = sha256_of(path).with_context(|| format!("cannot read {}", path.display()))?;
        let version =
            output_within(VERSION_TIME_MAX, Command::new(path).arg("--version")).map_err(|why| {
                anyhow!("{} does not print a version, so it is not a waymaker-server: {why}", path.display())
            })?;
        Ok(Self { path: path.to_owned(), sha256, version: version.trim().to_owned() })
    }
}

fn sha256_of(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let mut context = digest::Context::new(&digest::SHA256);
    let mut chunk = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        context.update(&chunk[..count]);
    }
    Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::sha256_of;

    #[test]
    fn hashes_with_sha_256_in_hexadecimal_digits() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "abc").expect("written");
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of(&path).expect("readable"), expected);
    }
}
