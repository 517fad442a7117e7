//! The real binary over real sockets.

mod bad_input;
mod harness;
mod leases;
mod lifecycle;
mod limiter;
mod locks;
mod pools;
mod sessions;
mod several_keys;
mod trees;
mod watches;
mod workers;
