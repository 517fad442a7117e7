//! The session machine: workers of one node with any clients, in virtual time.
//!
//! The first byte of the input configures the node (`rig`); the rest is a sequence of steps (`step`). All invariants of all shards are
//! checked after each step, and everything that a client hears must be a response of the protocol.
#![no_main]

mod clock;
mod log;
mod rig;
mod step;

use libfuzzer_sys::fuzz_target;
use rig::Rig;
use waymaker_fuzz::bytes::Bytes;
use waymaker_fuzz::memory;

/// Most steps of one input. Each step walks through all records of the node.
const STEP_COUNT_MAX: usize = 128;

fuzz_target!(|input: &[u8]| {
    let mut input = Bytes::new(input);
    memory::bounded(memory::LARGE, || {
        let mut rig = Rig::new(input.u8());
        for _ in 0..STEP_COUNT_MAX {
            if input.is_empty() {
                break;
            }
            step::run(&mut rig, &mut input);
        }
        rig.end();
    });
});
