//! Runs the examples of the documents and follows their links. The crate's documentation says which fence is run in which way.

mod blocks;
mod documents;
#[path = "../../../loadgen/tests/loadgen/executable.rs"]
mod executable;
mod links;
mod monitoring;
#[allow(dead_code, unused_imports, unused_macros, reason = "the tests of the client use more of it")]
#[path = "../../../client/tests/client/real.rs"]
mod real;
mod rust;
mod server;
#[path = "../../../server/tests/server/skip.rs"]
mod skip;
mod stubs;
mod systems;

use std::path::Path;

/// Returns the root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}
