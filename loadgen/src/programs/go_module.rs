//! Programs that are published as Go source: built once and kept, or built from a checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use super::{on_path, output_of};

/// A Go module whose root is a program.
#[derive(Debug)]
pub(super) struct GoModule {
    /// Module path; its last segment is the name of the program.
    pub path: &'static str,
    /// Version to build.
    pub version: &'static str,
}

impl GoModule {
    /// Returns the program if it was already built in this folder.
    pub(super) fn built(&self, cache: &Path) -> Option<PathBuf> {
        Some(self.folder(cache).join(self.name())).filter(|program| program.is_file())
    }

    /// Builds the program in this folder.
    pub(super) fn build_in(&self, cache: &Path) -> Result<PathBuf> {
        let (folder, name) = (self.folder(cache), self.name());
        if on_path("go").is_none() {
            return Err(anyhow!("building {name} from {} {} needs Go on PATH", self.path, self.version));
        }
        eprintln!("building {name} {} with Go; this is done once and takes some minutes", self.version);
        fs::create_dir_all(&folder)?;
        self.build(&folder, name)
            .with_context(|| format!("{name} {} could not be built with Go", self.version))?;
        Ok(folder.join(name))
    }

    /// Builds the program of a checkout into this folder. Go caches compiled packages itself.
    pub(super) fn build_checkout(&self, checkout: &Path, cache: &Path) -> Result<PathBuf> {
        let (name, shown) = (self.name(), checkout.display());
        let module = fs::read_to_string(checkout.join("go.mod")).unwrap_or_default();
        if !module.lines().any(|line| line.trim() == format!("module {}", self.path)) {
            bail!("{shown} is not a checkout of {}; it has no go.mod of that module", self.path);
        }
        if on_path("go").is_none() {
            bail!("building {name} from {shown} needs Go on PATH");
        }
        eprintln!("building {name} from {shown} with Go");
        let folder = cache.join(format!("{name}-checkout"));
        fs::create_dir_all(&folder)?;
        let program = tempfile::NamedTempFile::new_in(&folder)?.into_temp_path();
        let mut command = Command::new("nice");
        command.args(["-n", "10", "go", "build", "-buildvcs=auto", "-ldflags=-s -w", "-o"]);
        command.arg(&program).arg(".").current_dir(checkout);
        output_of(&mut command).map_err(|why| anyhow!("cannot build {name} from {shown} with Go: {why}"))?;
        // Renames the finished file, so that no other process finds an incomplete program.
        program.persist(folder.join(name))?;
        Ok(folder.join(name))
    }

    /// Returns the program if it was already built from a checkout in this folder.
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

    /// Builds as a dependency of an empty module, because Go cannot install a module that replaces modules in its
    /// own `go.mod`.
    fn build(&self, folder: &Path, name: &str) -> Result<()> {
        let work = tempfile::tempdir_in(folder)?;
        let go = |arguments: &[&str]| {
            // The build must not slow down other processes.
            let mut command = Command::new("nice");
            command.args(["-n", "10", "go"]).args(arguments).current_dir(work.path());
            output_of(&mut command).map_err(|why| anyhow!(why))
        };
        go(&["mod", "init", "scratch"])?;
        go(&["get", &format!("{}@{}", self.path, self.version)])?;
        go(&["build", "-ldflags=-s -w", "-o", name, self.path])?;
        // Renames the finished file, so that no other process finds an incomplete program.
        Ok(fs::rename(work.path().join(name), folder.join(name))?)
    }
}
