//! Entry points of the fuzz targets in `fuzz/`: functions over bytes from outside that are private otherwise.
//!
//! Only the feature `fuzzing` compiles this module. No program of the server enables that feature.

pub use crate::front::dynamodb_fuzzing::read as read_dynamodb;
pub use crate::front::locktopus_fuzzing::{decode_message, note_frames};

use crate::driver;
use crate::driver::Port;
use crate::front::FrontConfig;
use crate::options::{Configuration, Options, OptionsError};
use std::sync::{Arc, LazyLock};

static FRONTS: LazyLock<FrontConfig> =
    LazyLock::new(|| FrontConfig::new(&Options::default()).expect("the contracts are valid"));

/// Serves one connection of a front end: sends these pieces one after the other, then closes its side, and returns the
/// output of the server. A new worker serves the connection, in virtual time, without a network.
///
/// # Panics
/// If the server panics, if the connection does not end, or if the shard breaks an invariant.
pub fn serve(port: Port, pieces: &[&[u8]]) -> Vec<u8> {
    driver::fuzzing::serve(&Arc::new(FRONTS.of_another_server()), port, pieces)
}

/// Parses a configuration file and completes it with the defaults.
///
/// # Errors
/// As a server that starts with this file.
pub fn read_configuration(text: &str) -> Result<Options, OptionsError> {
    Configuration::from_text(text).map(|configuration| configuration.options)
}
