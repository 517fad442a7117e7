//! `log`: reads a data directory without a server.
//!
//! Nothing is changed and nothing is locked, so a server may run on the directory at the same time. `directory` explains why the bytes
//! that are read are a state that a crash could have left. `look` reads the log by the rules of the engine, as a server that starts
//! does. `page` and `objects` print the result for people and for programs.

mod arguments;
pub(crate) mod directory;
mod fields;
mod lease;
pub(crate) mod look;
mod objects;
mod page;
mod problem;
mod reader;
mod schema;

use std::io::Write;

use crate::exit::Exit;
use crate::output::{self, complain, show};

pub(crate) use arguments::{HELP, LogCommand};
pub(crate) use look::progress_bar;
pub(crate) use schema::LogObject;

use arguments::{InspectArguments, VerifyArguments};
use look::Look;
use reader::RecordSink;

pub(crate) fn run(command: &LogCommand) -> Exit {
    match command {
        LogCommand::Inspect(arguments) => inspect(arguments),
        LogCommand::Verify(arguments) => verify(arguments),
    }
}

fn inspect(arguments: &InspectArguments) -> Exit {
    let sink = arguments.records.then(|| record_sink(output::is_json()));
    let look = match Look::at(&arguments.directory, sink) {
        Ok(look) => look,
        Err(error) => return unreadable(&arguments.directory, &error),
    };
    show(|| page::whole(&look), objects::all(&look));
    if look.problem().is_some() { Exit::Damaged } else { Exit::Success }
}

fn verify(arguments: &VerifyArguments) -> Exit {
    let look = match Look::at(&arguments.directory, None) {
        Ok(look) => look,
        Err(error) => return unreadable(&arguments.directory, &error),
    };
    match look.problem() {
        None => {
            show(|| page::summary(&look), [objects::directory(&look)]);
            Exit::Success
        }
        Some(problem) => complain(&format!("{}: {problem}", arguments.directory.display()), Exit::Damaged),
    }
}

fn unreadable(directory: &std::path::Path, error: &std::io::Error) -> Exit {
    complain(&format!("{} cannot be read: {error}", directory.display()), Exit::Internal)
}

/// Returns a sink that prints each record when it is read. Memory does not grow with the length of the log.
fn record_sink(json: bool) -> RecordSink {
    let mut out = Some(Records(std::io::BufWriter::new(output::Stdout)));
    Box::new(move |place, fields| {
        let line = if json { objects::record(place, fields) } else { page::record(place, fields) };
        if out.as_mut().is_some_and(|out| !output::note_written(out.0.write_all(line.as_bytes()))) {
            out = None;
        }
    })
}

/// Buffered records for stdout.
struct Records(std::io::BufWriter<output::Stdout>);

impl Drop for Records {
    fn drop(&mut self) {
        output::note_written(self.0.flush());
    }
}
