//! Options with which two builds cannot be compared, and defaults of the other options.

use std::path::Path;

use anyhow::{Result, bail};

use super::statistics::ROUND_COUNT_MIN;
use crate::compare::options::CompareOptions;
use crate::scope::Scope;

/// Fills in defaults. Refuses options that have no meaning beside `--baseline-bin`, and a file that does not exist.
pub fn complete(options: &CompareOptions, baseline_bin: &Path) -> Result<CompareOptions> {
    if !options.targets.is_empty() {
        bail!(
            "--targets: with --baseline-bin both targets are builds of waymaker-server, which are started here; leave out \
             --targets"
        );
    }
    if options.html.is_some() {
        bail!(
            "--html: a comparison of two builds has no page; leave out --html, and use --markdown or --json"
        );
    }
    if options.library {
        bail!(
            "--library: the client library is part of waymaker-loadgen, not of the server that --baseline-bin names; leave \
             out one of the two"
        );
    }
    if options.scope == Scope::Quorum {
        bail!(
            "--scope quorum: most of each acquire is the time of etcd, which would hide a loss of the server; leave out \
             --scope, or use --scope local"
        );
    }
    if options.dir.is_some() && options.scope != Scope::Local {
        bail!(
            "--dir: with --baseline-bin servers write to a disk only with --scope local; add that, or leave out --dir"
        );
    }
    if let Some(round_count @ ..ROUND_COUNT_MIN) = options.rounds
        && !options.quick
    {
        bail!(
            "--rounds {round_count}: a verdict needs at least {ROUND_COUNT_MIN} rounds; leave out --rounds, or use --quick to \
             see only whether everything works"
        );
    }
    let rounds = options.rounds.or(Some(ROUND_COUNT_MIN));
    let completed = CompareOptions { spawn: true, rounds, ..options.clone() }.complete()?;
    if !baseline_bin.is_file() {
        bail!(
            "--baseline-bin: there is no file {}; bench/baseline builds the baseline and prints its path",
            baseline_bin.display()
        );
    }
    Ok(completed)
}
