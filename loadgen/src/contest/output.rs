//! The files that are written: each beside its place first, then moved there, so that whoever reads one sees a whole one.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::NamedTempFile;

use super::page;
use super::result::Contest;
use crate::compare::options::CompareOptions;

/// Where a contest is written.
#[derive(Clone, Debug)]
pub struct Output {
    json: Option<PathBuf>,
    html: Option<PathBuf>,
}

impl Output {
    /// Refuses what could not be written in the end, before anything is measured.
    pub fn check(options: &CompareOptions) -> Result<Self> {
        for (option, path) in [("--json", &options.json), ("--html", &options.html)] {
            let Some(path) = path else { continue };
            can_write(path).with_context(|| format!("{option}: cannot write {}", path.display()))?;
        }
        if options.json.is_some() && options.json == options.html {
            bail!("--json and --html: both are the same file");
        }
        Ok(Self { json: options.json.clone(), html: options.html.clone() })
    }

    /// Writes what there is.
    pub fn write(&self, contest: &Contest) -> Result<()> {
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(contest)? + "\n";
            replace(path, &text).with_context(|| format!("--json: cannot write {}", path.display()))?;
        }
        if let Some(path) = &self.html {
            replace(path, &page::render(contest))
                .with_context(|| format!("--html: cannot write {}", path.display()))?;
        }
        Ok(())
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

/// Such as `/dev/stdout`, which is not to be replaced by a file.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|known| !known.is_file() && !known.is_dir())
}

/// A file in the same directory, gone unless it is moved.
fn beside(path: &Path) -> Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    // As others that this program writes: what may be read is up to the umask.
    let permissions = fs::Permissions::from_mode(0o666);
    Ok(tempfile::Builder::new().prefix(".waymaker-loadgen-").permissions(permissions).tempfile_in(folder)?)
}
