//! The form of a value in the configuration file.

use clap::Arg;

/// The TOML type of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A string.
    Text,
    /// A whole number, or a string such as `none`.
    Number,
    /// `true` or `false`.
    Flag,
    /// An array of strings.
    List,
}

impl Form {
    /// Returns the form of an option.
    pub(super) fn of(option: &Arg) -> Self {
        let name = option.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
        if option.get_value_delimiter().is_some() {
            Self::List
        } else if option.get_num_args().is_some_and(|range| range.min_values() == 0) {
            Self::Flag
        } else if matches!(name, "N" | "BYTES") {
            Self::Number
        } else {
            Self::Text
        }
    }

    /// Names the form in an error.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Number => "a whole number",
            Self::Flag => "true or false",
            Self::List => "an array of strings",
        }
    }
}
