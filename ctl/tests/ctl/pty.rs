//! An interactive shell on its own pseudo-terminal.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};

use crate::program::{SOON, ctl};

/// Ctrl-C, Ctrl-Z and Ctrl-D as a keyboard sends them.
pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_Z: &str = "\x1a";
pub(crate) const CTRL_D: &str = "\x04";

/// A shell with job control. Its terminal is the controlling terminal of its session.
pub(crate) struct Shell {
    shell: Child,
    master: File,
    chunks: mpsc::Receiver<Vec<u8>>,
    /// Output after the last text that `expect` found.
    unread: String,
}

impl Shell {
    /// Starts the shell. `$CTL` is waymaker-ctl, which finds the server at `url`.
    pub(crate) fn start(words: &[&str], url: &str) -> Self {
        // Other tests start processes at the same time. A process that inherited an end would prevent the hang-up of this terminal.
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NOCTTY.bits())
            .open(ptsname_r(&master).unwrap())
            .unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        // `ctl` removes variables that name another server.
        let template = ctl(url, &[]);
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).args(words).env("CTL", template.get_program()).env("PS1", "");
        for (name, value) in template.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let shell = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let master = File::from(OwnedFd::from(master));
        let mut reader = master.try_clone().unwrap();
        let (sender, chunks) = mpsc::channel();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            loop {
                match reader.read(&mut chunk) {
                    Ok(count @ 1..) if sender.send(chunk[..count].to_vec()).is_ok() => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    _ => return,
                }
            }
        });
        Self { shell, master, chunks, unread: String::new() }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line. The terminal echoes it, so it must not contain a text that is expected later.
    pub(crate) fn type_line(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Waits for this text in the output and skips it.
    pub(crate) fn expect(&mut self, text: &str) {
        assert!(self.sees(text, SOON), "{text:?} is missing in {:?}", self.unread);
    }

    /// Waits for the text `end` and returns whether `text` came before it.
    pub(crate) fn expect_before(&mut self, text: &str, end: &str) -> bool {
        let before = self.pass_over(end, SOON);
        before.unwrap_or_else(|| panic!("{end:?} is missing in {:?}", self.unread)).contains(text)
    }

    /// Waits for this text for a limited time and skips it. Returns whether it came.
    pub(crate) fn sees(&mut self, text: &str, wait: Duration) -> bool {
        self.pass_over(text, wait).is_some()
    }

    /// Waits for this text, skips it and returns the text before it.
    fn pass_over(&mut self, text: &str, wait: Duration) -> Option<String> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(place) = self.unread.find(text) {
                let before = self.unread[..place].to_owned();
                self.unread.drain(..place + text.len());
                return Some(before);
            }
            let chunk = self.chunks.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?;
            self.unread.push_str(&String::from_utf8_lossy(&chunk));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The hang-up of the terminal ends the shell's jobs.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
