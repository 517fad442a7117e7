//! A signal before the server serves.

use super::site::{has, on, wrap};
use crate::durable::Place;
use crate::harness::wait_until;
use crate::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// The first record of the new server would discard the ephemeral state of a clean stop.
#[test]
fn a_signal_while_the_log_is_read_ends_the_server_before_it_serves() {
    if !has("strace") {
        return skip("a signal while the log is read", "there is no strace");
    }
    let place = Place::new();
    let mut server = place.start(&[]);
    let held = server.client("somebody").acquire(b"ephemeral", 60_000);
    server.signal("TERM");
    assert!(server.wait().success());
    let path = place.path();
    let lock = Path::new(&path).join("LOCK");
    std::fs::remove_file(&lock).expect("the lock of the stopped server");
    // Reading the log begins with a look at the file system.
    let strace = ["strace", "-D", "-f", "-o", "/dev/null", "-e", "trace=statfs"];
    let strace = [&strace[..], &["-e", "inject=statfs:delay_enter=1000000"]].concat();
    let mut server = wrap(&strace, &on(path.as_ref(), &[])).spawn().expect("strace runs");
    wait_until("the server has the data directory", || lock.exists());
    // The rest of the second in which it looks.
    std::thread::sleep(Duration::from_millis(300));
    kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM).expect("the server runs");
    assert!(server.wait().expect("the server").success());
    let mut said = String::new();
    server.stdout.take().expect("standard output").read_to_string(&mut said).expect("text");
    assert_eq!(said, "", "it does not serve");
    let server = place.start(&[]);
    assert!(server.client("another").is_held(held.id));
}
