//! Parses the command line, and explains mistakes in it.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};

use crate::command_line::{Command, CommandLine};
use crate::exit::Exit;
use crate::locks::LocksCommand;
use crate::output::{Format, complain};
use crate::{former, missing_dashes, output, text};

/// Parses the command line and checks what depends on more than one argument.
pub(crate) fn parse() -> Result<CommandLine, clap::Error> {
    let mut command = CommandLine::command();
    let matches = command.try_get_matches_from_mut(with_joined_negative_values(std::env::args_os()))?;
    let line = CommandLine::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    let problem = match &line.command {
        Command::Locks { command: LocksCommand::Inspect(arguments) } => arguments.problem(),
        Command::Semaphore(arguments) => arguments.problem(),
        _ => None,
    };
    match problem.or_else(|| line.connection.problem(&matches)) {
        Some(problem) => Err(clap::Error::raw(ErrorKind::ValueValidation, format!("{problem}\n"))),
        None => Ok(line),
    }
}

/// Joins an option and a negative value with `=`. Without `=`, clap takes the value for an option.
fn with_joined_negative_values(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut is_command = false;
    for word in words {
        let is_negative = matches!(text::bytes(&word), [b'-', b'0'..=b'9', ..]);
        is_command |= word == "--";
        match joined.last_mut() {
            Some(option) if is_negative && !is_command && is_option_without_value(option) => {
                option.push("=");
                option.push(word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

fn is_option_without_value(word: &OsStr) -> bool {
    let word = text::bytes(word);
    word.starts_with(b"--") && !word.contains(&b'=')
}

/// Prints the help, the version (clap reports both as errors), or the error in the command line.
pub(crate) fn refuse(mut error: clap::Error) -> Exit {
    if !error.use_stderr() {
        // clap ignores a descriptor that cannot be written to, so an empty write checks that first.
        output::note_written(output::Stdout.write(&[]).and_then(|_| error.print()));
        return Exit::Success;
    }
    let words: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if asks_for_json(&words) {
        output::choose(Format::Json);
    }
    if let Some(replacement) = former::replacement(&words) {
        return complain(&replacement, Exit::Usage);
    }
    // A value that is wrong with other values is still wrong after `--`.
    if error.kind() != ErrorKind::ValueValidation
        && let Some(corrected) = missing_dashes::corrected(&words)
    {
        return complain(&format!("put -- before the command: {corrected}"), Exit::Usage);
    }
    replace_tip(&mut error, &words);
    shorten_usage(&mut error);
    if error.kind() == ErrorKind::InvalidUtf8 {
        return complain(&not_utf8(), Exit::Usage);
    }
    let text = shortened(&error);
    if output::is_json() {
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return complain("the command is incomplete; --help lists the commands", Exit::Usage);
        }
        let (problem, _usage) = text.split_once("\n\n").unwrap_or((&text, ""));
        let words: Vec<_> = problem.trim_start_matches("error: ").split_whitespace().collect();
        return complain(&words.join(" "), Exit::Usage);
    }
    // A write to stderr that fails cannot be reported.
    let _ = io::stderr().write_all(text.as_bytes());
    Exit::Usage
}

/// Replaces the tip of clap about a word that begins with `-`. The tip puts the word after `--`, where the command to run is.
fn replace_tip(error: &mut clap::Error, words: &[String]) {
    let runs_command = error.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains("CMD"));
    if error.kind() != ErrorKind::UnknownArgument || !runs_command {
        return;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return };
    let is_key = words.windows(2).any(|pair| pair[0] == "lock" && pair[1].starts_with(word));
    let tip =
        format!("a key that begins with - can be used only with 'waymaker-ctl locks acquire -- {word}'");
    if error.remove(ContextKind::Suggested).is_some() && is_key {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

/// Names the words that are not UTF-8, with the words in front of them.
fn not_utf8() -> String {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let mut problems = Vec::new();
    for (index, word) in words.iter().enumerate().take_while(|(_, word)| *word != "--") {
        if word.to_str().is_none() {
            let option = index.checked_sub(1).map(|before| text::printable(text::bytes(&words[before])));
            let place = option.map(|option| format!(" after {option}")).unwrap_or_default();
            problems.push(format!("{}{place}", text::printable(text::bytes(word))));
        }
    }
    format!("a value is not UTF-8: {}", problems.join(", "))
}

/// Removes connection options from the usage line. clap treats a value from the environment like a required option.
fn shorten_usage(error: &mut clap::Error) {
    let Some(usage) = error.get(ContextKind::Usage) else { return };
    let mut usage = usage.to_string();
    for option in CommandLine::command().get_arguments().filter(|option| option.is_global_set()) {
        if let (Some(name), Some([value])) = (option.get_long(), option.get_value_names()) {
            usage = usage.replace(&format!(" --{name} <{value}>"), "");
        }
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage.into()));
}

/// Returns the text of an error, in which a long value is cut.
fn shortened(error: &clap::Error) -> String {
    const VALUE_LEN_MAX: usize = 60;
    let text = match io::stderr().is_terminal() && !output::is_json() {
        true => error.render().ansi().to_string(),
        false => error.render().to_string(),
    };
    match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) if value.len() > VALUE_LEN_MAX => {
            let end = value.floor_char_boundary(VALUE_LEN_MAX);
            text.replace(value, &format!("{}...", &value[..end]))
        }
        _ => text,
    }
}

/// Whether a command line that cannot be parsed asks for JSON.
fn asks_for_json(words: &[String]) -> bool {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let words = &words[..end];
    let is_format = |pair: &[String]| pair[0] == "--output" && pair[1] == "json";
    words.iter().any(|word| word == "--json" || word == "--output=json") || words.windows(2).any(is_format)
}
