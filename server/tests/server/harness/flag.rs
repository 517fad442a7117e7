//! Stops the threads of a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, so threads that run until the flag is set end even if the test fails.
#[derive(Debug)]
pub(crate) struct SetWhenDropped<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
