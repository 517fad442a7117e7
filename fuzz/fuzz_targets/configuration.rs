//! Configuration files of the server, files of rules, of tokens and of access keys.
//!
//! The input is the text of a file. Each parser gets it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use waymaker_access::{AccessKeys, Rules, Token, parse_token_file};
use waymaker_fuzz::memory;
use waymaker_server::fuzzing::read_configuration;

fuzz_target!(|input: &[u8]| {
    memory::bounded(memory::SMALL, || {
        match parse_token_file("tokens", input) {
            Ok(records) => records.iter().for_each(|record| drop(record.check())),
            Err(error) => assert!(!error.to_string().is_empty(), "an error says what is wrong"),
        }
        if let Some(token) = Token::parse(input) {
            assert_eq!(token.text().as_bytes(), input, "a token has one text");
        }
        let Ok(text) = std::str::from_utf8(input) else { return };
        if let Err(error) = Rules::parse(text) {
            assert!(!error.to_string().is_empty(), "an error says what is wrong");
        }
        if let Err(error) = AccessKeys::parse(text) {
            assert!(!error.to_string().is_empty(), "an error says what is wrong");
        }
        match read_configuration(text) {
            Ok(options) => {
                assert!((1..=1024).contains(&options.worker_count()));
                let _ = format!("{options:?}");
            }
            Err(error) => assert!(!error.to_string().is_empty(), "an error says what is wrong"),
        }
    });
});
