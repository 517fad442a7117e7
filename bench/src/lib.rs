//! Costs of Waymaker's engine, codec, worker, inlet and client, piece by piece.
//!
//! Each topic is a module of plain functions that do a stated amount of work and return a check value. The tests
//! run them with small inputs and compare the value. `benches/bench.rs` runs them in full under criterion, and the
//! programs `src/bin/instructions*.rs` run some of them under callgrind. So the tests check the measured code.

pub mod chosen_keys;
pub mod client_lane;
pub mod codec;
pub mod cost;
pub mod follow_up;
pub mod growth;
pub mod hash_map;
pub mod hot_key;
pub mod inlet;
mod instant_log;
pub mod keys;
pub mod kinds;
pub mod lane;
mod node;
pub mod opcodes;
pub mod pairs;
pub mod recovery;
pub mod resident;
pub mod turns;
pub mod worker;
