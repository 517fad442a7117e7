//! Result file of an option. It is written under a temporary name and then renamed, so that readers never see a
//! partial file.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tempfile::NamedTempFile;

/// A file that was writable when the program started.
#[derive(Clone, Debug)]
pub struct OutputFile {
    option: &'static str,
    path: PathBuf,
}

impl OutputFile {
    /// Returns an error for a path that cannot be written, before the measurement starts.
    pub fn check(option: &'static str, path: Option<&Path>) -> Result<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        can_write(path).with_context(|| format!("{option}: cannot write {}", path.display()))?;
        Ok(Some(Self { option, path: path.to_owned() }))
    }

    /// Replaces the content.
    pub fn write(&self, text: &str) -> Result<()> {
        replace(&self.path, text)
            .with_context(|| format!("{}: cannot write {}", self.option, self.path.display()))
    }

    /// Replaces the content with this value as JSON.
    pub fn write_json(&self, value: &impl Serialize) -> Result<()> {
        self.write(&(serde_json::to_string_pretty(value)? + "\n"))
    }
}

fn can_write(path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!("it is a directory");
    }
    if is_special(path) {
        return Ok(());
    }
    beside(path).map(drop)
}

fn replace(path: &Path, text: &str) -> Result<()> {
    if is_special(path) {
        return Ok(fs::write(path, text)?);
    }
    let mut file = beside(path)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

/// Whether the path is a device such as `/dev/stdout`, which must not be replaced by a regular file.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|known| !known.is_file() && !known.is_dir())
}

/// Creates a temporary file in the same directory.
fn beside(path: &Path) -> Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    // The umask decides who may read the file, as for all files that this program writes.
    let permissions = fs::Permissions::from_mode(0o666);
    Ok(tempfile::Builder::new().prefix(".waymaker-loadgen-").permissions(permissions).tempfile_in(folder)?)
}
