//! The values of a configuration file, found by the names of the flags.

use super::declared;
use super::form::Form;
use super::nearest::{nearest, suggestion};
use super::problem::Problem;
use super::secret::is_secret;
use crate::namespaces::DeclaredNamespace;
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};
use std::error::Error as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Tables of the file. The flags of a table's options begin with the table's name.
const TABLES: [&str; 3] = ["limits", "locket", "quorum"];
/// Options that a file must not set.
const ONLY_FLAGS: [&str; 5] = ["config", "check-config", "print-config", "help", "version"];

/// The key of an option in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileKey {
    /// Name of the table; empty for an option outside a table.
    pub table: &'static str,
    /// Name of the key in its table.
    pub name: String,
}

impl FileKey {
    /// Returns the key with its table, such as `quorum.user`.
    pub fn dotted(&self) -> String {
        dotted(self.table, &self.name)
    }
}

/// Returns the key of an option in the file, or `None` if the file cannot set it.
pub fn file_key(option: &Arg) -> Option<FileKey> {
    let flag = option.get_long().filter(|flag| !ONLY_FLAGS.contains(flag))?;
    let in_table =
        TABLES.iter().find_map(|table| Some((*table, flag.strip_prefix(table)?.strip_prefix('-')?)));
    let (table, name) = in_table.unwrap_or(("", flag));
    Some(FileKey { table, name: name.replace('-', "_") })
}

/// A value of the file.
#[derive(Clone, Debug)]
pub(super) struct FileValue {
    /// Identifier of the option.
    pub(super) id: String,
    /// Value as text in the form of the flag; a list has several.
    pub(super) texts: Vec<String>,
}

/// The contents of a configuration file.
#[derive(Debug, Default)]
pub(super) struct FileContents {
    /// Values of options.
    pub(super) values: Vec<FileValue>,
    /// The declared namespaces.
    pub(super) namespaces: Vec<DeclaredNamespace>,
}

/// Parses a configuration file.
///
/// # Errors
/// Returns the first syntax error, or all other problems: unknown keys, wrong values, and wrong declarations of
/// namespaces.
pub(super) fn parse(command: &Command, text: &str) -> Result<FileContents, Vec<Problem>> {
    let table = DeTable::parse(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        vec![Problem { line: line(text, start), message: error.message().to_owned() }]
    })?;
    let mut reader = Reader { command, text, contents: FileContents::default(), problems: Vec::new() };
    reader.read_table("", table.get_ref());
    if reader.problems.is_empty() {
        return Ok(reader.contents);
    }
    reader.problems.sort_by_key(|problem| problem.line);
    Err(reader.problems)
}

struct Reader<'a> {
    command: &'a Command,
    text: &'a str,
    contents: FileContents,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    fn read_table(&mut self, table: &str, entries: &DeTable<'_>) {
        for (name, value) in entries {
            let key = dotted(table, name.get_ref());
            let is_table = table.is_empty() && TABLES.contains(&key.as_str());
            match (value.get_ref(), self.option(&key)) {
                (_, None) if key == declared::KEY => match declared::parse(self.text, value) {
                    Ok(namespaces) => self.contents.namespaces = namespaces,
                    Err(problems) => self.problems.extend(problems),
                },
                (DeValue::Table(entries), None) if is_table => self.read_table(&key, entries),
                (_, None) if is_table => self.report(value, format!("{key}: use a table")),
                (_, None) => {
                    let suggestion = suggestion(self.nearest_key(&key).as_deref());
                    self.report(name, format!("unknown key `{key}`{suggestion}"));
                }
                (_, Some(option)) => match read_value(option, &key, value.get_ref()) {
                    Ok(texts) => {
                        self.contents.values.push(FileValue { id: option.get_id().to_string(), texts });
                    }
                    Err(message) => self.report(value, message),
                },
            }
        }
    }

    fn option(&self, key: &str) -> Option<&'a Arg> {
        self.command
            .get_arguments()
            .find(|option| file_key(option).is_some_and(|known| known.dotted() == key))
    }

    fn nearest_key(&self, key: &str) -> Option<String> {
        let keys: Vec<_> =
            self.command.get_arguments().filter_map(|option| Some(file_key(option)?.dotted())).collect();
        let tables = TABLES.into_iter().chain([declared::KEY]);
        nearest(key, keys.iter().map(String::as_str).chain(tables)).map(str::to_owned)
    }

    fn report<T>(&mut self, at: &Spanned<T>, message: String) {
        self.problems.push(Problem { line: line(self.text, at.span().start), message });
    }
}

/// Returns a whole number, or `None` for other values.
pub(super) fn read_number(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Returns a value as text in the form of the flag.
fn read_value(option: &Arg, key: &str, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let form = Form::of(option);
    let wrong_form = || format!("{key}: use {}", form.name());
    let texts = match (form, value) {
        (Form::Flag, DeValue::Boolean(flag)) => vec![flag.to_string()],
        (Form::Number, DeValue::Integer(_)) => {
            vec![read_number(value).ok_or_else(wrong_form)?.to_string()]
        }
        (Form::Text | Form::Number, DeValue::String(text)) => vec![text.to_string()],
        (Form::List, DeValue::Array(elements)) => {
            let text = |element: &Spanned<DeValue<'_>>| {
                // Reject commas in an element: the value is checked in the form of the flag, where a comma separates
                // two elements.
                element.get_ref().as_str().filter(|text| !text.contains(',')).map(str::to_owned)
            };
            elements.iter().map(text).collect::<Option<Vec<_>>>().ok_or_else(wrong_form)?
        }
        _ => return Err(wrong_form()),
    };
    for text in &texts {
        check(option, key, text)?;
    }
    Ok(texts)
}

/// Checks a value from the file with the parser of its flag.
fn check(option: &Arg, key: &str, text: &str) -> Result<(), String> {
    let flag = option.get_long().expect("an option of the file has a flag");
    let option = option.clone().env(Resettable::Reset);
    // Remove the default, so that only the checked value can cause the error.
    let option = option.default_value(Resettable::Reset);
    let command = Command::new("").no_binary_name(true).arg(option.clone());
    let Err(error) = command.try_get_matches_from([format!("--{flag}={text}")]) else { return Ok(()) };
    let value = if is_secret(&option) { String::new() } else { format!("{text:?} ") };
    Err(format!("{key}: {value}is not valid; {}", reason(&error)))
}

/// Returns the valid values of an option, as a text for the operator, from the error with which clap rejected a value.
/// If the option has a parser of its own, returns the message of that parser.
fn reason(error: &clap::Error) -> String {
    if let Some(source) = error.source() {
        return source.to_string();
    }
    let words = |kind| match error.get(kind) {
        Some(ContextValue::Strings(words)) => words.clone(),
        Some(ContextValue::String(word)) => vec![word.clone()],
        _ => Vec::new(),
    };
    let valid: Vec<_> = words(ContextKind::ValidValue).iter().map(|word| format!("`{word}`")).collect();
    let suggested = words(ContextKind::SuggestedValue);
    format!("use {}{}", valid.join(" or "), suggestion(suggested.first().map(String::as_str)))
}

fn dotted(table: &str, name: &str) -> String {
    if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") }
}

/// Returns the line of this byte in the file.
pub(super) fn line(text: &str, byte: usize) -> usize {
    1 + text.as_bytes().iter().take(byte).filter(|byte| **byte == b'\n').count()
}
