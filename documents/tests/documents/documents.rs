//! All blocks of a document but those in Rust, in their order.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use waymaker_documents::{Block, blocks};

use crate::real::RealServer;
use crate::real::server_program::{server_program, up_to_date};
use crate::root;
use crate::server::{self, Addresses};
use crate::skip::skip;
use crate::stubs::Stubs;
use crate::systems::{Running, System, on_path};

include!(concat!(env!("OUT_DIR"), "/documents.rs"));

/// Time after which a block counts as hanging.
const WATCHDOG: Duration = Duration::from_secs(120);
/// Value of the parameter `:fence` in SQL.
const FENCE: &str = "41";
/// Data directories in the documents: of an installed server, and the default.
const DATA_DIRS: [&str; 2] = ["/var/lib/waymaker", "waymaker-data"];

/// A document while its blocks run.
struct Run {
    stubs: Stubs,
    server: RealServer,
    addresses: Addresses,
    systems: Vec<(System, Running)>,
    data: tempfile::TempDir,
    _directory: tempfile::TempDir,
}

/// Runs all blocks of a document.
pub(crate) fn run(document: &str) {
    let (directory, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ctl = up_to_date(server_program().with_file_name("waymaker-ctl")).unwrap();
    let (server, addresses) = server::start(data.path());
    let mut run = Run {
        stubs: Stubs::new(directory.path(), &ctl, server_program()),
        server,
        addresses,
        systems: Vec::new(),
        data,
        _directory: directory,
    };
    for block in blocks(root(), document).into_iter().filter(|block| !block.has("other")) {
        let needed = System::ALL.into_iter().find(|system| block.has(system.flag()));
        if let Some(why) = needed.and_then(System::missing) {
            skip(&block.place(), &why);
            continue;
        }
        if let Some(system) = needed {
            run.start(system);
        }
        run.block(&block);
    }
}

impl Run {
    fn start(&mut self, system: System) {
        if self.systems.iter().any(|(started, _)| *started == system) {
            return;
        }
        let running = Running::start(system);
        if system == System::Redis {
            self.stubs.add_redis(&running, &on_path("redis-cli").expect("it was found"));
        }
        self.systems.push((system, running));
    }

    fn block(&mut self, block: &Block) {
        match block.language.as_str() {
            "sh" => self.shell(block, &block.text),
            "crontab" => self.shell(block, &commands_of_crontab(&block.text)),
            "ini" => self.shell(block, &commands_of_unit(&block.text)),
            "console" => self.console(block),
            "sql" => self.sql(block),
            // Other suites run the rest; `blocks.rs` checks it.
            _ => {}
        }
    }

    /// Runs a block with bash. It must succeed and call each program `./NAME` in it.
    fn shell(&self, block: &Block, text: &str) {
        let called = self.stubs.prepare(text);
        let output = self.bash(&["-eu", "-o", "pipefail", "-c"], text);
        let said = said(&output);
        assert!(output.status.success(), "{}: {}\n{said}", block.place(), output.status);
        for name in called {
            assert!(self.stubs.was_called(&name), "{}: ./{name} was not called\n{said}", block.place());
        }
    }

    /// Runs the lines after `$ ` and compares their output.
    fn console(&self, block: &Block) {
        self.stubs.prepare(&block.text);
        let mut lines = block.text.lines().peekable();
        while let Some(line) = lines.next() {
            let command = line.strip_prefix("$ ");
            let command = command.unwrap_or_else(|| panic!("{}: no command before {line:?}", block.place()));
            let mut command = command.to_owned();
            while command.ends_with('\\') {
                command.push('\n');
                command.push_str(lines.next().expect("the command goes on"));
            }
            let mut expected = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                expected.push(line);
            }
            let said = said(&self.bash(&["-c"], &command));
            let said: Vec<_> = said.lines().collect();
            let place = block.place();
            assert!(matches(&expected, &said), "{place}: {command}\nexpected {expected:#?}\nsaid {said:#?}");
        }
    }

    /// Runs a block with SQLite and PostgreSQL.
    fn sql(&mut self, block: &Block) {
        if !block.has(System::PostgreSql.flag()) {
            match on_path("sqlite3") {
                Some(_) => {
                    let parameter = format!(".bail on\n.parameter init\n.parameter set :fence {FENCE}\n");
                    let script = format!("sqlite3 document.db <<'SQL'\n{parameter}{}SQL\n", block.text);
                    self.shell(block, &script);
                }
                None => skip(&block.place(), "sqlite3 is not installed"),
            }
            if let Some(why) = System::PostgreSql.missing() {
                return skip(&block.place(), &why);
            }
            self.start(System::PostgreSql);
        }
        let options = format!("--no-psqlrc --quiet --set ON_ERROR_STOP=1 --set fence={FENCE}");
        self.shell(block, &format!("psql {options} <<'SQL'\n{}SQL\n", block.text));
    }

    /// Runs bash in the directory of the document. Kills it, and all that it has started, if it does not end.
    fn bash(&self, options: &[&str], text: &str) -> Output {
        let mut command = Command::new("bash");
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .args(options)
            .arg(self.with_addresses(text))
            .current_dir(&self.stubs.work)
            .env("PATH", format!("{}:{path}", self.stubs.bin.display()))
            .env("WAYMAKER_SERVER", self.server.url())
            .env("DATA_DIR", self.data.path())
            .env("HOSTNAME", "host-1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        for name in ["NAMESPACE", "OWNER", "TLS_CA", "TLS_CERT", "TLS_KEY", "DATA_DIR"] {
            command.env_remove(format!("WAYMAKER_{name}"));
        }
        for (_, system) in &self.systems {
            command.envs(system.environment.iter().map(|(name, value)| (name, value)));
        }
        let child = command.spawn().unwrap();
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let (sender, ended) = mpsc::channel();
        let waiting = thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
        let output = ended.recv_timeout(WATCHDOG).unwrap_or_else(|_| {
            let _ = kill_process_group(group, Signal::KILL);
            panic!("does not end:\n{text}");
        });
        waiting.join().unwrap().unwrap();
        output
    }

    /// Replaces the addresses and the data directory of the documents by the values of the test's server.
    fn with_addresses(&self, text: &str) -> String {
        let text = self.addresses.put_into(text);
        let directory = self.data.path().display().to_string();
        DATA_DIRS.iter().fold(text, |text, name| text.replace(name, &directory))
    }
}

/// Returns the commands of a crontab: each line without its five fields of time.
fn commands_of_crontab(text: &str) -> String {
    let commands = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    commands.map(|line| line.splitn(6, ' ').nth(5).expect("six fields").to_owned() + "\n").collect()
}

/// Returns the commands of a unit of systemd. Programs are found on PATH.
fn commands_of_unit(text: &str) -> String {
    let commands = text.lines().filter_map(|line| line.strip_prefix("ExecStart="));
    commands.map(|command| command.replace("/usr/local/bin/", "") + "\n").collect()
}

/// Returns the text of both outputs of a process.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Returns whether the lines match the expected ones. `...` alone stands for any lines, and within a line for any text.
fn matches(expected: &[&str], said: &[&str]) -> bool {
    match (expected, said) {
        ([], []) => true,
        (["...", rest @ ..], _) => (0..=said.len()).any(|skipped| matches(rest, &said[skipped..])),
        ([line, rest @ ..], [first, others @ ..]) => line_matches(line, first) && matches(rest, others),
        _ => false,
    }
}

fn line_matches(expected: &str, line: &str) -> bool {
    match expected.split_once("...") {
        None => expected.trim_end() == line.trim_end(),
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|rest| line_matches(after, rest)))
        }),
    }
}

#[test]
fn dots_stand_for_any_text() {
    assert!(matches(&["a ... c", "...", "z"], &["a b c", "x", "y", "z"]));
    assert!(matches(&["..."], &[]));
    assert!(!matches(&["a ... c"], &["a b d"]));
    assert!(!matches(&["a"], &["a", "b"]));
}

#[test]
fn schedules_and_units_have_commands() {
    assert_eq!(commands_of_crontab("# nightly\n30 2 * * * a -- b c\n"), "a -- b c\n");
    assert_eq!(commands_of_unit("[Service]\nExecStart=/usr/local/bin/a b\nRestart=always\n"), "a b\n");
}
