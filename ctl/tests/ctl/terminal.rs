//! Commands that use the terminal, and shells that stop and continue them.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::fake::FakeServer;
use crate::program::{Running, ctl, eventually, output, soon, stdout};
use crate::pty::{CTRL_C, CTRL_D, CTRL_Z, Shell};
use crate::real::server;

/// Interactive shells with different job control. Commands do not fork while a key is pressed: if a process that dash has forked is
/// stopped before it runs its program, dash does not stop.
const SHELLS: [&[&str]; 2] = [&["bash", "--norc", "--noprofile", "--noediting", "-i"], &["dash", "-i"]];

fn in_each_shell(test: impl Fn(&mut Shell, &FakeServer)) {
    for words in SHELLS {
        println!("in {}", words[0]);
        let server = FakeServer::start();
        test(&mut Shell::start(words, server.url()), &server);
    }
}

/// Waits until the lock of a command that has ended is released.
fn expect_release(server: &FakeServer) {
    eventually(|| !server.released().is_empty());
}

/// Waits until the shell reads the terminal again. It discards lines that were typed before an interrupted job had ended.
fn expect_prompt(shell: &mut Shell) {
    eventually(|| {
        shell.type_line("echo prompt-$((1+1))");
        shell.sees("prompt-2", Duration::from_millis(200))
    });
}

/// Waits until the shell lists a stopped job.
fn expect_stopped_job(shell: &mut Shell) {
    eventually(|| {
        shell.type_line("jobs; echo j-$((1+1))");
        shell.expect_before("Stopped", "j-2")
    });
}

#[test]
fn a_command_with_piped_input_reads_the_terminal() {
    in_each_shell(|shell, server| {
        shell.type_line(
            "echo piped | $CTL lock k -- sh -c 'echo ask-$((1+1)); read a </dev/tty; read b; echo got $a-$b.'",
        );
        shell.expect("ask-2");
        shell.type_line("hello");
        shell.expect("got hello-piped.");
        expect_release(server);
    });
}

/// ssh, sudo and psql do this before they ask for a password.
#[test]
fn a_command_with_piped_input_changes_the_settings_of_the_terminal() {
    in_each_shell(|shell, server| {
        shell.type_line(
            "echo piped | $CTL lock k -- sh -c 'stty -echo </dev/tty; read a </dev/tty; stty echo </dev/tty; echo got-$((1+1))-$a.'",
        );
        shell.type_line("secret");
        shell.expect("got-2-secret.");
        expect_release(server);
    });
}

/// A script has no job control that would take the terminal back.
#[test]
fn a_script_gets_the_terminal_back() {
    in_each_shell(|shell, server| {
        shell.type_line(
            "sh -c 'echo piped | $CTL lock k -- sh -c \"read a </dev/tty\"; echo over-$((1+1)); read b </dev/tty; echo back $b.'",
        );
        shell.type_line("one");
        shell.expect("over-2");
        shell.type_line("two");
        shell.expect("back two.");
        expect_release(server);
    });
}

/// A pager reads keys from the terminal, while the command only writes to the pager.
#[test]
fn another_process_of_the_pipeline_reads_the_terminal() {
    in_each_shell(|shell, server| {
        shell.type_line(
            "$CTL lock k -- echo data | sh -c 'read a; echo page-$((1+1)); read key </dev/tty; echo $key of $a.'",
        );
        shell.expect("page-2");
        shell.type_line("key");
        shell.expect("key of data.");
        expect_release(server);
    });
}

#[test]
fn the_command_and_a_pager_read_the_terminal_in_turn() {
    in_each_shell(|shell, server| {
        shell.type_line(
            "$CTL lock k -- sh -c 'read a </dev/tty; echo $a; exec sleep 1000' | \
             sh -c 'read a; echo page-$((1+1)); read key </dev/tty; echo $key of $a.'",
        );
        shell.type_line("password");
        shell.expect("page-2");
        shell.type_line("key");
        shell.expect("key of password.");
        shell.press(CTRL_C);
        expect_release(server);
    });
}

#[test]
fn a_suspended_command_continues_in_the_foreground() {
    for input in ["", "echo piped | "] {
        in_each_shell(|shell, server| {
            shell.type_line(&format!(
                "{input}$CTL lock k -- sh -c 'echo begun-$((1+1)); read a </dev/tty; echo got $a.'"
            ));
            shell.expect("begun-2");
            shell.press(CTRL_Z);
            shell.expect("Stopped");
            assert!(server.released().is_empty());
            shell.type_line("echo prompt-$((1+1)); fg");
            shell.expect("prompt-2");
            shell.type_line("hello");
            shell.expect("got hello.");
            expect_release(server);
        });
    }
}

/// Ctrl-Z goes to waymaker-ctl instead of the command if the command never used the terminal.
#[test]
fn a_suspended_command_that_never_used_the_terminal_continues_too() {
    in_each_shell(|shell, server| {
        shell.type_line(
            "echo piped | $CTL lock k -- bash -c 'while sleep 0.02; do echo beat-$((1+1)); done' | cat",
        );
        shell.expect("beat-2");
        shell.press(CTRL_Z);
        shell.expect("Stopped");
        shell.type_line("fg");
        shell.expect("beat-2");
        shell.press(CTRL_C);
        expect_release(server);
        expect_prompt(shell);
    });
}

#[test]
fn a_background_job_that_uses_the_terminal_stops_until_it_is_in_the_foreground() {
    in_each_shell(|shell, server| {
        shell.type_line("$CTL lock k -- sh -c 'echo begun-$((1+1)); read a </dev/tty; echo got $a.' &");
        shell.expect("begun-2");
        expect_stopped_job(shell);
        shell.type_line("fg");
        shell.type_line("hello");
        shell.expect("got hello.");
        expect_release(server);
    });
}

/// The shell that started the job has ended, so no shell can move the job to the foreground.
#[test]
fn a_command_that_cannot_get_the_terminal_is_stopped() {
    in_each_shell(|shell, server| {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let command = format!("read go <{}; exec cat </dev/tty", fifo.display());
        shell.type_line(&format!("($CTL lock k -- sh -c '{command}' &)"));
        // Until the shell has the terminal again, the job is in the foreground.
        expect_prompt(shell);
        soon(move || std::fs::write(fifo, "go\n").unwrap());
        shell.expect("cannot get into the foreground");
        expect_release(server);
        expect_prompt(shell);
    });
}

#[test]
fn a_signal_ends_a_stopped_job_and_releases_its_lock() {
    in_each_shell(|shell, server| {
        shell.type_line("$CTL lock k -- sh -c 'echo begun-$((1+1)); read a </dev/tty' &");
        shell.expect("begun-2");
        expect_stopped_job(shell);
        // bash continues a stopped job that it sends a signal to; others do not.
        shell.type_line("kill %1; kill -CONT %1");
        expect_release(server);
        expect_prompt(shell);
    });
}

#[test]
fn the_interrupt_key_ends_the_command_that_has_the_terminal() {
    for input in ["", "echo piped | "] {
        in_each_shell(|shell, server| {
            shell
                .type_line(&format!("{input}$CTL lock k -- sh -c 'echo begun-$((1+1)); exec cat </dev/tty'"));
            shell.expect("begun-2");
            shell.press(CTRL_C);
            expect_release(server);
            expect_prompt(shell);
        });
    }
}

/// A shell moves itself to the foreground first.
#[test]
fn an_interactive_shell_runs_under_a_lock() {
    in_each_shell(|shell, server| {
        shell.type_line("$CTL lock k -- bash --norc --noprofile --noediting -i");
        shell.type_line("sh -c 'echo inner-$((1+1)); exec sleep 1000'");
        shell.expect("inner-2");
        shell.press(CTRL_Z);
        shell.expect("Stopped");
        shell.type_line("kill %1; echo still-$((1+1))");
        shell.expect("still-2");
        assert!(server.released().is_empty());
        shell.press(CTRL_D);
        shell.type_line("exit");
        expect_release(server);
    });
}

#[test]
fn a_command_of_a_presence_reads_the_terminal_and_is_suspended() {
    let server = server!();
    let mut shell = Shell::start(SHELLS[0], server.url());
    shell.type_line(
        "echo piped | $CTL presence set w -- sh -c 'echo begun-$((1+1)); read a </dev/tty; echo got $a.'",
    );
    shell.expect("begun-2");
    shell.press(CTRL_Z);
    shell.expect("Stopped");
    shell.type_line("fg");
    shell.type_line("hello");
    shell.expect("got hello.");
    expect_prompt(&mut shell);
}

/// The command is continued before TERM can reach it.
#[test]
fn every_ending_signal_ends_a_stopped_command() {
    let server = FakeServer::start();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let script = "echo started; kill -STOP $$; sleep 1000";
        let mut running = Running::start(ctl(server.url(), &["lock", "k", "--", "sh", "-c", script]));
        assert_eq!(running.line().unwrap(), "started");
        running.signal(signal);
        assert_eq!(running.line(), None);
        assert_eq!(running.wait().code(), Some(128 + signal as i32));
        assert_eq!(server.released().len(), 1);
    }
}

/// Under cron and systemd there is no terminal, and no shell continues a stopped process.
#[test]
fn a_command_that_stops_without_a_terminal_is_continued() {
    let server = FakeServer::start();
    let template = ctl(server.url(), &[]);
    let mut command = std::process::Command::new("setsid");
    command.arg("--wait").arg(template.get_program()).env("WAYMAKER_SERVER", server.url());
    command.args(["lock", "k", "--", "sh", "-c", "kill -TSTP $$; echo went on"]);
    let output = output(command);
    assert_eq!(stdout(&output), "went on\n");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(server.released().len(), 1);
}

#[test]
fn the_command_blocks_no_signals() {
    let server = FakeServer::start();
    let words = ["lock", "k", "--", "grep", "SigBlk", "/proc/self/status"];
    assert_eq!(stdout(&output(ctl(server.url(), &words))), "SigBlk:\t0000000000000000\n");
}

/// `nohup` ignores HUP.
#[test]
fn signals_ignored_at_the_start_stay_ignored() {
    let server = FakeServer::start();
    let template = ctl(server.url(), &[]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(template.get_program());
    command.env("WAYMAKER_SERVER", server.url());
    command.args(["lock", "k", "--", "sh", "-c", "echo started; read go; echo went on"]);
    command.stdin(std::process::Stdio::piped());
    let mut running = Running::start(command);
    assert_eq!(running.line().unwrap(), "started");
    running.signal(Signal::SIGHUP);
    running.close_input();
    assert_eq!(running.line(), Some("went on".to_owned()));
    assert_eq!(running.wait().code(), Some(0));
}
