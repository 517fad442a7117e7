//! Pauses a server at the moment when it answers.

use crate::harness::{Server, workers};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::Command;

/// Makes the kernel stop a server with one worker whenever data arrives at this socket. The worker stops at the end of the system
/// call that writes the data, so its processor time counts all work up to this answer and none after it.
///
/// A test must not block in a read of this socket: the kernel sends no signal to the server while a reader waits.
///
/// perl sets these options because Rust has no safe call for them. They belong to the socket and stay when perl exits.
pub(super) fn pause_at_answers(server: &Server, socket: &TcpStream) {
    // F_SETOWN_EX with a thread, F_SETSIG with SIGSTOP, and F_SETFL with O_ASYNC.
    let set = "fcntl(STDIN, 15, pack('ii', 0, $ARGV[0])) or die $!; fcntl(STDIN, 10, 19) or die $!; \
               my $flags = fcntl(STDIN, 3, 0) or die $!; fcntl(STDIN, 4, $flags | 020000) or die $!;";
    let socket: OwnedFd = socket.try_clone().expect("a socket").into();
    let status = Command::new("perl").args(["-e", set, &worker(server)]).stdin(socket).status();
    assert!(status.expect("perl runs").success());
}

/// Returns the thread of the only worker of a server.
fn worker(server: &Server) -> String {
    let worker = workers(server).next().expect("the server has a worker");
    worker.file_name().and_then(|name| name.to_str()).expect("a number").to_owned()
}
