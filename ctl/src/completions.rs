//! `completions`: completion scripts for shells.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Exit;
use crate::output::print;

const NAME: &str = "waymaker-ctl";

pub(crate) const HELP: &str = "\
The shell reads the script when it starts.

Examples:
  bash, with the package bash-completion:
      mkdir -p ~/.local/share/bash-completion/completions
      waymaker-ctl completions bash \\
          > ~/.local/share/bash-completion/completions/waymaker-ctl
  zsh, with `fpath=(~/.zfunc $fpath)` before `compinit` in ~/.zshrc:
      mkdir -p ~/.zfunc
      waymaker-ctl completions zsh > ~/.zfunc/_waymaker-ctl
  fish:
      waymaker-ctl completions fish > ~/.config/fish/completions/waymaker-ctl.fish
  The current bash only:
      source <(waymaker-ctl completions bash)
";

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// Shell that runs the script
    shell: Shell,
}

/// Prints the script for all commands of the command line, except hidden ones.
pub(crate) fn run(arguments: &CompletionsArguments, all: &Command) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut visible(all), NAME, &mut script);
    print(&String::from_utf8_lossy(&script));
    Exit::Success
}

/// Returns the command line without hidden commands, which scripts would offer.
fn visible(all: &Command) -> Command {
    let subcommands = all.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments().cloned())
        .subcommands(subcommands)
}
