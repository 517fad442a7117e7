//! The real binary over real sockets.

mod abuse;
mod authority;
mod bad_claims;
mod bad_input;
mod crowded;
mod durable;
mod grpc_v1;
mod harness;
mod kinds;
mod leases;
mod lifecycle;
mod limiter;
mod locks;
mod locktopus;
mod operators;
mod pools;
mod registries;
mod rigs;
mod sessions;
mod several_keys;
mod taken_up;
mod tls;
mod trees;
mod watches;
mod workers;
