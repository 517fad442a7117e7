//! The files into which a contest is written.

use anyhow::{Result, bail};

use super::page;
use super::result::Contest;
use crate::compare::options::CompareOptions;
use crate::output_file::OutputFile;

/// Where a contest is written.
#[derive(Clone, Debug)]
pub struct Output {
    json: Option<OutputFile>,
    html: Option<OutputFile>,
}

impl Output {
    /// Refuses what could not be written in the end, before anything is measured.
    pub fn check(options: &CompareOptions) -> Result<Self> {
        let json = OutputFile::check("--json", options.json.as_deref())?;
        let html = OutputFile::check("--html", options.html.as_deref())?;
        if json.is_some() && options.json == options.html {
            bail!("--json and --html: both are the same file");
        }
        Ok(Self { json, html })
    }

    /// Writes what there is.
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
