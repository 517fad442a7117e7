//! The options of the log.

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Default of `--log`. The HTTP/2 library logs a warning for each reset stream, so clients could otherwise fill the
/// log.
pub(super) const LOG_LEVELS: &str = "info,h2=error";

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// JSON lines for programs.
    Json,
}

/// Parses the value of `--log`. An empty text means the default, so that an empty variable is no error.
pub(super) fn parse_levels(text: &str) -> Result<Targets, String> {
    let text = if text.is_empty() { LOG_LEVELS } else { text };
    // Check the levels: the library takes an unknown level for a target (the name of a module), so a misspelled level
    // would disable the log.
    let mut levels = text.split(',').map(|directive| match directive.split_once('=') {
        Some((target, level)) if !target.is_empty() => level,
        _ => directive,
    });
    let are_levels = levels.all(|level| !level.is_empty() && level.parse::<LevelFilter>().is_ok());
    text.parse().ok().filter(|_| are_levels).ok_or_else(|| {
        "use off, error, warn, info, debug or trace, or a list such as info,waymaker_server::driver=debug"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::{LOG_LEVELS, parse_levels};

    #[test]
    fn a_list_of_levels_and_targets_is_accepted_and_a_misspelt_level_is_not() {
        assert_eq!(parse_levels(""), parse_levels(LOG_LEVELS));
        for text in ["warn", "off", "INFO", "info,waymaker_server::driver=debug,audit=off"] {
            assert!(parse_levels(text).is_ok(), "{text}");
        }
        for text in ["wran", "info,", "info,=", "=info", "waymaker_server", "waymaker_server=loud"] {
            assert!(parse_levels(text).is_err(), "{text}");
        }
    }
}
