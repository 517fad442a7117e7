//! Values that must not be printed.

use clap::Arg;

/// Returns whether the value of an option is a secret. `--help` hides such values too.
pub(super) fn is_secret(option: &Arg) -> bool {
    option.is_hide_env_values_set()
}
