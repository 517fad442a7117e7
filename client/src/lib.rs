//! The Rust client of Waymaker: guards, renewal, loss.
