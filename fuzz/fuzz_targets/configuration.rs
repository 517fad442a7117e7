//! Configuration files of the server.
//!
//! The input is the text of a file. The crate `access` (token files, rules) gets a branch here for each of its parsers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use waymaker_fuzz::memory;
use waymaker_server::fuzzing::read_configuration;

fuzz_target!(|input: &[u8]| {
    memory::bounded(memory::SMALL, || {
        let Ok(text) = std::str::from_utf8(input) else { return };
        match read_configuration(text) {
            Ok(options) => {
                assert!((1..=1024).contains(&options.worker_count));
                let _ = format!("{options:?}");
            }
            Err(error) => assert!(!error.to_string().is_empty(), "an error says what is wrong"),
        }
    });
});
