//! Starting servers on one directory, again and again.

use super::checker::violations;
use super::history::Entry;
use crate::harness::{Server, command};
use std::path::Path;
use std::process::{Command, Stdio};

/// How often something is done: as this variable says, or so often.
pub(crate) fn count(variable: &str, short: u64) -> u64 {
    std::env::var(variable)
        .map_or(short, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// The command of a server on this directory, whose drain is over at once.
pub(crate) fn on(directory: &Path, more: &[&str]) -> Command {
    let path = directory.to_str().expect("text");
    let mut command = command(&[&["--data-dir", path, "--drain", "10ms"][..], more].concat());
    command.env("WAYMAKER_LOG_SEGMENT_LEN", "1048576");
    command.env("WAYMAKER_LOG", "error").stderr(Stdio::inherit());
    command
}

/// The same, run by another program.
pub(crate) fn wrap(words: &[&str], command: &Command) -> Command {
    let mut wrapped = Command::new(words[0]);
    wrapped.args(&words[1..]).arg(command.get_program()).args(command.get_args());
    wrapped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    wrapped.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    wrapped
}

/// A server on this directory.
pub(crate) fn start(directory: &Path, more: &[&str]) -> Server {
    Server::start_with(&mut on(directory, more), None)
}

/// Options that differ from start to start: how many workers there are, and how soon segments are full.
pub(crate) fn any_shape() -> [&'static str; 4] {
    use rand::seq::IndexedRandom;
    let random = &mut rand::rng();
    let workers = ["1", "2", "3"].choose(random).expect("some");
    // The shortest one is full after fifteen groups.
    let segment_len = ["65536", "1048576"].choose(random).expect("some");
    ["--workers", workers, "--log-segment-len", segment_len]
}

/// Asserts that no promise was broken, and that there were enough occasions for that.
#[track_caller]
pub(crate) fn judge(name: &str, history: &[Entry]) {
    let wrong = violations(history);
    let count = |is: fn(&Entry) -> bool| history.iter().filter(|entry| is(entry)).count();
    let granted = count(|entry| matches!(entry, Entry::Granted { .. }));
    let seen = count(|entry| matches!(entry, Entry::Seen { fence: Some(_), .. }));
    let found = count(|entry| matches!(entry, Entry::Found { .. }));
    println!("{name}: {granted} grants, {seen} holds looked at, {found} answers of several keys lost");
    assert!(granted > 0, "nothing was granted");
    assert!(wrong.is_empty(), "{} violations:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}

/// Whether mounts can be made, which only root can.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Whether there is such a program.
pub(crate) fn has(program: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("command -v {program}")]).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
