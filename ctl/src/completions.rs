//! `completions`: what a shell has to know to complete our words.

use clap::{Command, CommandFactory};

use crate::arguments::{Arguments, CompletionsArguments};
use crate::exit::Exit;
use crate::print;

const NAME: &str = "waymaker-ctl";

pub(crate) fn run(arguments: &CompletionsArguments) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut shown(), NAME, &mut script);
    print(&String::from_utf8_lossy(&script));
    Exit::Success
}

/// The command line without what the help hides, which scripts would offer.
fn shown() -> Command {
    let all = Arguments::command();
    let subcommands = all.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments().cloned())
        .subcommands(subcommands)
}
