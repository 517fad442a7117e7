//! Checks and defaults of the options of a comparison of two builds.

use anyhow::{Result, bail};

use super::statistics::ROUND_COUNT_MIN;
use crate::compare::options::CompareOptions;
use crate::scope::Scope;

/// Fills in defaults. Returns an error for options that do not work with a comparison of two builds, and for a missing
/// file.
pub fn complete(options: &CompareOptions) -> Result<CompareOptions> {
    let name = if options.rights { "--rights" } else { "--baseline-bin" };
    if !options.targets.is_empty() {
        bail!(
            "--targets does not work with {name}, which starts two servers of Waymaker; leave out --targets"
        );
    }
    if options.html.is_some() {
        bail!("--html does not work with {name}; leave out --html, and use --markdown or --json");
    }
    if options.library {
        bail!(
            "--library does not work with {name}, because the client library is not part of the server; \
             leave \
             out one of the two"
        );
    }
    if options.scope == Scope::Quorum {
        bail!(
            "--scope quorum does not work with {name}: etcd takes most of the time, which would hide a \
             loss of the server; leave out \
             --scope, or use --scope local"
        );
    }
    if options.dir.is_some() && options.scope != Scope::Local {
        bail!(
            "--dir has no effect: with {name}, servers write to a disk only with --scope local; add \
             --scope local, or leave out --dir"
        );
    }
    if let Some(round_count @ ..ROUND_COUNT_MIN) = options.rounds
        && !options.quick
    {
        bail!(
            "--rounds is {round_count}, but a verdict needs at least {ROUND_COUNT_MIN} rounds; leave out \
             --rounds, or use --quick to \
             only check that everything works"
        );
    }
    let rounds = options.rounds.or(Some(ROUND_COUNT_MIN));
    let completed = CompareOptions { spawn: true, rounds, ..options.clone() }.complete()?;
    if let Some(baseline_bin) = options.baseline_bin.as_ref().filter(|path| !path.is_file()) {
        bail!(
            "--baseline-bin: the file {} does not exist; bench/baseline builds the baseline and prints its path",
            baseline_bin.display()
        );
    }
    Ok(completed)
}
