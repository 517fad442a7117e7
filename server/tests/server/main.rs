//! The real binary over real sockets.

mod abuse;
mod authority;
mod bad_claims;
mod bad_input;
mod contradictions;
mod crowded;
mod durable;
#[path = "../../../engine/tests/log/fixture.rs"]
mod fixture;
mod grpc_v1;
mod grpc_waymaker;
mod harness;
mod kinds;
mod large_claims;
mod leases;
mod lifecycle;
mod limiter;
mod locks;
mod locktopus;
mod log_fixtures;
mod losses;
mod neighbours;
mod operators;
mod parity;
mod pools;
mod quorum;
mod registries;
mod rigs;
mod sessions;
mod several_keys;
mod skip;
mod taken_up;
mod tls;
mod trees;
mod watches;
mod workers;
