//! What Waymaker's engine and codec cost, piece by piece.
//!
//! Each topic is a module with plain functions that do a stated amount of work and give a check value. The tests run
//! them tiny and know the value; `benches/bench.rs` runs them in full under criterion; `src/bin/instructions.rs` runs a
//! few of them under callgrind. So what is measured is also what is tested.

pub mod chosen_keys;
pub mod codec;
pub mod expiry;
pub mod hash_map;
pub mod hot_key;
pub mod keys;
pub mod kinds;
pub mod lane;
pub mod pairs;
pub mod recovery;
pub mod resident;
pub mod turns;
