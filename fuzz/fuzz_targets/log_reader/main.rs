//! The reader of the durable log: superblock, snapshot and segments.
//!
//! The first byte of the input selects the meaning of the rest:
//! - 0: bytes of files (`files`)
//! - 1: changes of the data directory of a released server (`fixtures`)
//! - 2: records, from which an intact log is made (`records`)
//!
//! A log must either be refused, or restore a node whose shards keep all invariants.
#![no_main]

mod files;
mod fixtures;
mod records;
mod restore;

use libfuzzer_sys::fuzz_target;
use waymaker_fuzz::bytes::Bytes;
use waymaker_fuzz::memory;

fuzz_target!(|input: &[u8]| {
    let mut input = Bytes::new(input);
    let mode = input.below(3);
    fixtures::load();
    memory::bounded(memory::RESTORED, || {
        let files = match mode {
            0 => files::any(input),
            1 => fixtures::changed(input),
            _ => records::log(input),
        };
        if let Some(image) = files.read() {
            restore::check(image);
        }
    });
});
