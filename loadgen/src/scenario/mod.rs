//! tmp
use crate::plan::Plan;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
/// tmp
pub fn run(_plan: &Plan, _json: Option<&Path>, _stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    unimplemented!()
}
