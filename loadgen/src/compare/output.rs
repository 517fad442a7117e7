//! Output of a comparison.

use anyhow::{Result, bail};
use serde::Serialize;

use super::options::CompareOptions;
use crate::output_file::OutputFile;

/// Standard output, and the files of `--markdown` and `--json`.
#[derive(Debug)]
pub(super) struct Output {
    markdown: Option<OutputFile>,
    json: Option<OutputFile>,
}

impl Output {
    /// Returns an error for files that cannot be written, before the measurement starts.
    pub(super) fn check(options: &CompareOptions) -> Result<Self> {
        let markdown = OutputFile::check("--markdown", options.markdown.as_deref())?;
        let json = OutputFile::check("--json", options.json.as_deref())?;
        if markdown.is_some() && options.markdown == options.json {
            bail!("--markdown and --json: both name the same file; use two files");
        }
        Ok(Self { markdown, json })
    }

    /// Prints the tables and writes the files.
    pub(super) fn publish(&self, tables: &str, comparison: &impl Serialize) -> Result<()> {
        print!("{tables}");
        if let Some(file) = &self.markdown {
            file.write(tables)?;
        }
        self.json.as_ref().map_or(Ok(()), |file| file.write_json(comparison))
    }
}
