//! The simulator's own promises: it finds nothing in a good server, everything in a bad one, and the same twice.

#[cfg(feature = "planted-bugs")]
mod planted;
mod replay;
mod seeds;
