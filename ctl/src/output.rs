//! Output: tables and sentences for people, JSON for programs.
//!
//! Results go to stdout, errors and notes to stderr. The format is chosen once for the process.

use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nix::sys::signal::Signal;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::Error;

use crate::exit::Exit;
use crate::problem::{ErrorObject, Problem};
use crate::text;

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArguments {
    /// Output format: table for people, or json, one JSON object per line, for programs
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "table",
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    output: Format,
    /// The same as --output json
    #[arg(long, global = true)]
    json: bool,
}

impl OutputArguments {
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output }
    }
}

/// Format of the output: tables and sentences for people, or one JSON object per line for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

/// A note on stderr about the progress of a command.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(title = "Note")]
pub(crate) struct NoteObject {
    /// Text of the note.
    pub(crate) note: String,
    /// Key, pool or election that the command waits for. Present only in a note about a wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Hexadecimal digits of the key. Present only if the key is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_hex: Option<String>,
    /// Owner of the first hold in the way. Present only if the owner is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<String>,
    /// Hexadecimal digits of the holder. Present only if the holder is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder_hex: Option<String>,
    /// Age of that hold in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held_ms: Option<u64>,
}

static FORMAT: OnceLock<Format> = OnceLock::new();
/// The first failure of a write to stdout.
static WRITE_FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Chooses the format. Must be called before the first output.
pub(crate) fn choose(format: Format) {
    // Only one call is made.
    let _ = FORMAT.set(format);
}

/// Whether the output is JSON.
pub(crate) fn is_json() -> bool {
    FORMAT.get() == Some(&Format::Json)
}

/// Prints a result: the text, or one JSON object per line. Returns whether that succeeded; [`finish`] reports a failure.
pub(crate) fn show<T: Serialize>(
    text: impl FnOnce() -> String,
    objects: impl IntoIterator<Item = T>,
) -> bool {
    if is_json() {
        print(&objects.into_iter().map(|object| line(&object)).collect::<String>())
    } else {
        print(&text())
    }
}

/// Returns an object as one line of JSON.
pub(crate) fn line(object: &impl Serialize) -> String {
    let mut line = serde_json::to_string(object).expect("objects have text keys only");
    line.push('\n');
    line
}

/// Writes to stdout. Returns whether that succeeded; [`finish`] reports a failure.
pub(crate) fn print(text: &str) -> bool {
    note_written(Stdout.write_all(text.as_bytes()))
}

/// The descriptor of stdout, without a buffer. The standard library ignores a descriptor that cannot be written to; this type does not.
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Remembers a write to stdout if it failed. Returns whether it succeeded.
pub(crate) fn note_written(written: io::Result<()>) -> bool {
    written.map_err(|error| WRITE_FAILURE.set(error)).is_ok()
}

/// Reports lost output, if there is any. Returns the final exit of a run that ended with `exit`.
pub(crate) fn finish(exit: Exit) -> Exit {
    match WRITE_FAILURE.get() {
        None => exit,
        // The reader, such as `head`, closed the pipe. Shells expect the exit of SIGPIPE then.
        Some(error) if error.kind() == ErrorKind::BrokenPipe => Exit::Signal(Signal::SIGPIPE as u8),
        Some(error) => complain(&format!("cannot write to stdout: {error}"), Exit::Internal),
    }
}

/// Prints a note on stderr.
pub(crate) fn note(text: &str) {
    note_object(&NoteObject { note: text.to_owned(), ..NoteObject::default() });
}

/// Prints a note about a lease that is shorter than `option` asked for.
pub(crate) fn note_shorter_lease(key: &[u8], lease: Duration, option: &str) {
    let (key, lease) = (text::printable(key), text::pause(lease));
    note(&format!("{key}: the server granted a lease of {lease}, which is shorter than {option}"));
}

/// Prints a note with more members on stderr.
pub(crate) fn note_object(note: &NoteObject) {
    say(&note.note, note);
}

/// Prints an error on stderr and returns `exit`.
pub(crate) fn complain(text: &str, exit: Exit) -> Exit {
    report(&Problem::new(exit.name(), text), exit)
}

/// Prints the error of a request on stderr and returns its exit.
pub(crate) fn complain_of(error: &Error) -> Exit {
    report(&Problem::from(error), Exit::from(error))
}

/// Prints the error of a request about `name` on stderr and returns its exit.
pub(crate) fn complain_about(name: &[u8], error: &Error) -> Exit {
    report(&Problem::from(error).about(name), Exit::from(error))
}

/// Prints a problem on stderr and returns `exit`.
pub(crate) fn report(problem: &Problem, exit: Exit) -> Exit {
    say(&problem.message, &ErrorObject::new(problem, exit));
    exit
}

fn say(text: &str, object: &impl Serialize) {
    let line = if is_json() { line(object) } else { format!("waymaker-ctl: {text}\n") };
    // A write to stderr that fails cannot be reported.
    let _ = io::stderr().write_all(line.as_bytes());
}
