//! How this run speaks: tables and sentences for people, JSON for programs.
//!
//! That is said once for the whole process, since complaints come from everywhere.

use std::io::Write;
use std::sync::OnceLock;

use clap::ValueEnum;
use serde_json::json;
use waymaker_client::Error;

use crate::exit::Exit;

/// For whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables and sentences, for people
    Table,
    /// JSON objects, one a line, for programs
    Json,
}

static FORMAT: OnceLock<Format> = OnceLock::new();

/// Said once, before anything else is.
pub(crate) fn choose(format: Format) {
    // The first choice stays, and nobody makes another.
    let _ = FORMAT.set(format);
}

/// Programs read this.
pub(crate) fn is_json() -> bool {
    FORMAT.get() == Some(&Format::Json)
}

/// Prints a result as it was asked for: the text for people, or lines of JSON.
pub(crate) fn show(people: impl FnOnce() -> String, programs: impl FnOnce() -> String) {
    print(&if is_json() { programs() } else { people() });
}

/// Writes to stdout. A reader that has seen enough, such as `head`, is no failure.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Says on stderr who speaks and what goes on.
pub(crate) fn note(text: &str) {
    match is_json() {
        true => eprintln!("{}", json!({ "note": text })),
        false => eprintln!("waymaker-ctl: {text}"),
    }
}

/// Says on stderr who speaks and what is wrong.
pub(crate) fn complain(text: &str, exit: Exit) -> Exit {
    match is_json() {
        true => eprintln!("{}", json!({ "error": text, "exit_code": exit.code() })),
        false => eprintln!("waymaker-ctl: {text}"),
    }
    exit
}

/// The same for what a call failed with.
pub(crate) fn complain_of(error: &Error) -> Exit {
    complain(&error.to_string(), Exit::from(error))
}
