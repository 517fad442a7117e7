//! Costs of Waymaker's engine, codec, worker, inlet and client, piece by piece.
//!
//! Each topic is a module with plain functions that do a stated amount of work and give a check value. The tests run
//! them tiny and know the value; `benches/bench.rs` runs them in full under criterion; the programs
//! `src/bin/instructions*.rs` run a few of them under callgrind. So tests check the measured code.

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
