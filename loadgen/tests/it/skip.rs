//! Tests that need what this machine may lack.

/// Says loudly that a test is left out; where `CI` is `true` nothing may be.
pub(crate) fn skip(test: &str, why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{test} may not be skipped in CI: {why}");
    eprintln!("\n*** SKIPPED: {test}: {why}\n");
}
