//! Output files of a contest.

use anyhow::{Result, bail};

use super::page;
use super::result::Contest;
use crate::compare::options::CompareOptions;
use crate::output_file::OutputFile;

/// Output files of a contest.
#[derive(Clone, Debug)]
pub struct Output {
    json: Option<OutputFile>,
    html: Option<OutputFile>,
}

impl Output {
    /// Returns an error for files that cannot be written, before the measurement starts.
    pub fn check(options: &CompareOptions) -> Result<Self> {
        let json = OutputFile::check("--json", options.json.as_deref())?;
        let html = OutputFile::check("--html", options.html.as_deref())?;
        if json.is_some() && options.json == options.html {
            bail!("--json and --html: both name the same file; use two files");
        }
        Ok(Self { json, html })
    }

    /// Writes the results so far.
    pub fn write(&self, contest: &Contest) -> Result<()> {
        if let Some(file) = &self.json {
            file.write_json(contest)?;
        }
        if let Some(file) = &self.html {
            file.write(&page::render(contest))?;
        }
        Ok(())
    }
}
