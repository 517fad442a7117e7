//! Runs the examples of the documents and follows their links. The crate's documentation says which fence is run in which way.

mod blocks;
mod documents;
mod links;
#[path = "../../../client/tests/client/real.rs"]
mod real;
mod rust;
#[path = "../../../server/tests/server/skip.rs"]
mod skip;
mod stubs;
mod systems;

use std::path::Path;

/// Returns the root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}
