//! Programs that are published as source in Go: built once and kept, or built from a checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use super::{on_path, output_of};

/// A module whose root is a program.
#[derive(Debug)]
pub(super) struct GoModule {
    /// Its path, whose end is the name of the program.
    pub path: &'static str,
    /// The version that is built.
    pub version: &'static str,
}

impl GoModule {
    /// The program, if it was built in this folder before.
    pub(super) fn built(&self, cache: &Path) -> Option<PathBuf> {
        Some(self.folder(cache).join(self.name())).filter(|program| program.is_file())
    }

    /// Builds the program in this folder.
    pub(super) fn build_in(&self, cache: &Path) -> Result<PathBuf> {
        let (folder, name) = (self.folder(cache), self.name());
        if on_path("go").is_none() {
            return Err(anyhow!("{name} is built of {} {}, which needs Go on PATH", self.path, self.version));
        }
        eprintln!("building {name} {} with Go, once; it takes some minutes", self.version);
        fs::create_dir_all(&folder)?;
        self.build(&folder, name)
            .with_context(|| format!("{name} {} could not be built with Go", self.version))?;
        Ok(folder.join(name))
    }

    /// Builds the program of a checkout into this folder. Go caches compiled packages by itself.
    pub(super) fn build_checkout(&self, checkout: &Path, cache: &Path) -> Result<PathBuf> {
        let (name, shown) = (self.name(), checkout.display());
        let module = fs::read_to_string(checkout.join("go.mod")).unwrap_or_default();
        if !module.lines().any(|line| line.trim() == format!("module {}", self.path)) {
            bail!("{shown} is no checkout of {}: it has no go.mod of that module", self.path);
        }
        if on_path("go").is_none() {
            bail!("{name} is built of {shown}, which needs Go on PATH");
        }
        eprintln!("building {name} of {shown} with Go");
        let folder = cache.join(format!("{name}-checkout"));
        fs::create_dir_all(&folder)?;
        let program = tempfile::NamedTempFile::new_in(&folder)?.into_temp_path();
        let mut command = Command::new("nice");
        command.args(["-n", "10", "go", "build", "-buildvcs=auto", "-ldflags=-s -w", "-o"]);
        command.arg(&program).arg(".").current_dir(checkout);
        output_of(&mut command)
            .map_err(|why| anyhow!("{name} of {shown} could not be built with Go: {why}"))?;
        // At once, so that half of it is never found.
        program.persist(folder.join(name))?;
        Ok(folder.join(name))
    }

    /// The program, if it was built of a checkout in this folder before.
    pub(super) fn built_checkout(&self, cache: &Path) -> Option<PathBuf> {
        let name = self.name();
        Some(cache.join(format!("{name}-checkout")).join(name)).filter(|program| program.is_file())
    }

    fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    fn folder(&self, cache: &Path) -> PathBuf {
        cache.join(format!("{}-{}", self.name(), self.version))
    }

    /// As a dependency of an empty module: one that replaces modules in its own `go.mod` cannot be installed otherwise.
    fn build(&self, folder: &Path, name: &str) -> Result<()> {
        let work = tempfile::tempdir_in(folder)?;
        let go = |arguments: &[&str]| {
            // It should not be in anybody's way.
            let mut command = Command::new("nice");
            command.args(["-n", "10", "go"]).args(arguments).current_dir(work.path());
            output_of(&mut command).map_err(|why| anyhow!(why))
        };
        go(&["mod", "init", "scratch"])?;
        go(&["get", &format!("{}@{}", self.path, self.version)])?;
        go(&["build", "-ldflags=-s -w", "-o", name, self.path])?;
        // At once, so that half of it is never found.
        Ok(fs::rename(work.path().join(name), folder.join(name))?)
    }
}
