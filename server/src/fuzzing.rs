//! Entry points of the fuzz targets in `fuzz/`, for functions on untrusted input that are otherwise private.
//!
//! Only the feature `fuzzing` compiles this module. No server binary enables that feature.

pub use crate::front::dynamodb_fuzzing::read as read_dynamodb;
pub use crate::front::locktopus_fuzzing::{decode_message, note_frames};

use crate::driver;
use crate::front::FrontConfig;
use crate::options::{Configuration, Options, OptionsError};
use crate::port::Port;
use std::sync::{Arc, LazyLock};

static FRONTS: LazyLock<FrontConfig> =
    LazyLock::new(|| FrontConfig::new(&Options::default().fronts()).expect("the contracts are valid"));

/// Serves one connection of a front end on a new worker, with timers in virtual time and without a network. Sends these
/// pieces in order, then closes the client's side. Returns the output of the server.
///
/// # Panics
/// Panics if the server panics, if the connection does not end, or if a shard violates an invariant.
pub fn serve(port: Port, pieces: &[&[u8]]) -> Vec<u8> {
    driver::fuzzing::serve(&Arc::new(FRONTS.of_another_server()), port, pieces)
}

/// Parses a configuration file and adds the defaults.
///
/// # Errors
/// Returns the error of a server that starts with this file.
pub fn read_configuration(text: &str) -> Result<Options, OptionsError> {
    Configuration::from_text(text).map(|configuration| configuration.options)
}
