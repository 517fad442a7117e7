//! Lock servers of all kinds against each other: the same shapes of load for each, as far as it offers them.

pub mod result;
