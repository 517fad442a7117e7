//! Ends what a test does on the side.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, also if the test fails: a thread that runs until the flag is set ends in any case.
#[derive(Debug)]
pub(crate) struct SetWhenDropped<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
