//! Reading of the options from all sources.

use super::Options;
use super::file::{self, FileContents, FileValue};
use super::problem::OptionsError;
use crate::limits::CONFIG_FILE_LEN_MAX;
use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The options with the source of each.
#[derive(Debug)]
pub struct Configuration {
    /// Effective options.
    pub options: Options,
    pub(super) command: Command,
    pub(super) matches: ArgMatches,
    in_file: Vec<String>,
}

/// The source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Flag,
    Variable,
    File,
    Default,
}

/// Reads a file of at most `CONFIG_FILE_LEN_MAX` bytes. Without this maximum, reading an endless file such as
/// `/dev/zero` would not end.
fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(CONFIG_FILE_LEN_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > CONFIG_FILE_LEN_MAX {
        let message = format!("it has more than {CONFIG_FILE_LEN_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

impl Configuration {
    /// Reads the options of a process with these arguments. The first argument is the name of the program.
    ///
    /// # Errors
    /// Returns an error if a flag, a variable or the file is wrong, or if the arguments ask for help or the version.
    pub fn read<I, T>(arguments: I) -> Result<Self, OptionsError>
    where
        I: IntoIterator<Item = T>,
        T: Into<OsString>,
    {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        let command = Options::command();
        let matches = command.clone().try_get_matches_from(&arguments)?;
        let Some(path) = matches.get_one::<PathBuf>("config") else {
            return Self::new(command, &arguments, FileContents::default());
        };
        let text = read_file(path).map_err(|error| OptionsError::Unreadable { path: path.clone(), error })?;
        let contents = file::parse(&command, &text)
            .map_err(|problems| OptionsError::BadFile { path: path.clone(), problems })?;
        Self::new(command, &arguments, contents)
    }

    /// Reads the options from the text of a file, without flags and variables.
    ///
    /// # Errors
    /// Returns an error if the file is wrong.
    pub fn from_text(text: &str) -> Result<Self, OptionsError> {
        let command = command_without_variables();
        let contents = file::parse(&command, text)
            .map_err(|problems| OptionsError::BadFile { path: PathBuf::new(), problems })?;
        Self::new(command, &["waymaker-server".into()], contents)
    }

    fn new(command: Command, arguments: &[OsString], contents: FileContents) -> Result<Self, OptionsError> {
        let FileContents { values, namespaces } = contents;
        let in_file = values.iter().map(|value| value.id.clone()).collect();
        let with_defaults = |command: Command, FileValue { id, texts }| {
            command.mut_arg(id, |option| option.default_values(texts))
        };
        let matches =
            values.into_iter().fold(command.clone(), with_defaults).try_get_matches_from(arguments)?;
        let options = Options { namespaces, ..Options::from_arg_matches(&matches)? };
        Ok(Self { options, command, matches, in_file })
    }

    /// Returns the source of an option.
    pub(super) fn source(&self, option: &Arg) -> Source {
        let id = option.get_id().as_str();
        match self.matches.value_source(id) {
            Some(ValueSource::CommandLine) => Source::Flag,
            Some(ValueSource::EnvVariable) => Source::Variable,
            _ if self.in_file.iter().any(|known| known == id) => Source::File,
            _ => Source::Default,
        }
    }
}

impl Default for Options {
    /// Returns the defaults, regardless of the environment.
    fn default() -> Self {
        let matches = command_without_variables().get_matches_from(["waymaker-server"]);
        Self::from_arg_matches(&matches).expect("the defaults are valid")
    }
}

fn command_without_variables() -> Command {
    Options::command().mut_args(|option| option.env(Resettable::Reset))
}
