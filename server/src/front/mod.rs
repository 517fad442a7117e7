//! Front ends other than the binary one.

pub mod locktopus;
