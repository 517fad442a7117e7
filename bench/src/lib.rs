//! Criterion benches of Waymaker's engine and codec.
