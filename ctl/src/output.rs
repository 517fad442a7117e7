//! How this run speaks: tables and sentences for people, JSON for programs.
//!
//! Results go to stdout; notes and problems go to stderr. The format is chosen once for the whole process, since problems
//! come from everywhere.

use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use clap::ValueEnum;
use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};
use waymaker_client::Error;

use crate::exit::Exit;
use crate::problem::Problem;

/// The reader of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables and sentences, for people
    Table,
    /// JSON objects, one a line, for programs
    Json,
}

static FORMAT: OnceLock<Format> = OnceLock::new();
/// The first failure of a write to stdout.
static WRITE_FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Chooses the format. Must be called before anything is printed.
pub(crate) fn choose(format: Format) {
    // The first choice stays, and nothing makes another.
    let _ = FORMAT.set(format);
}

/// Whether programs read the output.
pub(crate) fn is_json() -> bool {
    FORMAT.get() == Some(&Format::Json)
}

/// Prints a result: the text for people, or lines of JSON.
pub(crate) fn show(people: impl FnOnce() -> String, programs: impl FnOnce() -> String) {
    print(&if is_json() { programs() } else { people() });
}

/// Writes to stdout. Returns whether that succeeded; [`finish`] reports a failure.
pub(crate) fn print(text: &str) -> bool {
    let mut stdout = io::stdout().lock();
    note_written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Remembers a write to stdout if it failed. Returns whether it succeeded.
pub(crate) fn note_written(written: io::Result<()>) -> bool {
    written.map_err(|error| WRITE_FAILURE.set(error)).is_ok()
}

/// Returns the exit of a run that ended with `exit`, after a report of lost output.
pub(crate) fn finish(exit: Exit) -> Exit {
    match WRITE_FAILURE.get() {
        None => exit,
        // The reader has seen enough, such as `head`. Shells expect this of a program at the front of a pipeline.
        Some(error) if error.kind() == ErrorKind::BrokenPipe => Exit::Signal(Signal::SIGPIPE as u8),
        Some(error) => complain(&format!("cannot write to stdout: {error}"), Exit::Internal),
    }
}

/// Says on stderr what goes on.
pub(crate) fn note(text: &str) {
    say(text, || json!({ "note": text }));
}

/// Prints an error on stderr and returns `exit`.
pub(crate) fn complain(text: &str, exit: Exit) -> Exit {
    report(&Problem::new(exit.name(), text), exit)
}

/// Says on stderr why a call failed.
pub(crate) fn complain_of(error: &Error) -> Exit {
    report(&Problem::from(error), Exit::from(error))
}

/// Says on stderr why a call about `name` failed.
pub(crate) fn complain_about(name: &[u8], error: &Error) -> Exit {
    report(&Problem::from(error).about(name), Exit::from(error))
}

/// Prints a problem on stderr, as JSON if programs read the output, and returns `exit`.
pub(crate) fn report(problem: &Problem, exit: Exit) -> Exit {
    say(&problem.message, || {
        let mut object = Map::new();
        problem.insert_into(&mut object);
        object.insert("exit_code".to_owned(), exit.code().into());
        object.into()
    });
    exit
}

fn say(text: &str, object: impl FnOnce() -> Value) {
    let line = if is_json() { format!("{}\n", object()) } else { format!("waymaker-ctl: {text}\n") };
    // A stderr that is gone takes no report of that.
    let _ = io::stderr().write_all(line.as_bytes());
}
