//! More connections than a server may have.

use crate::harness::{Client, QUIET, Server, default_hello, wait_until};
use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use waymaker_protocol::{ErrorCode, Request, Response};

/// A server that may have so few descriptors that it takes no more than eight connections.
fn server_for_eight() -> Server {
    let mut command = Command::new("sh");
    let script = "ulimit -n 64 && exec \"$0\" --listen 127.0.0.1:0 --workers 1";
    command.args(["-c", script, env!("CARGO_BIN_EXE_waymaker-server")]);
    command.envs(QUIET);
    command.env("WAYMAKER_LOG", "error").stdin(Stdio::null()).stdout(Stdio::piped());
    Server::start_with(&mut command, None)
}

#[test]
fn a_connection_beyond_the_limit_is_refused_and_the_others_continue() {
    let server = server_for_eight();
    let mut clients: Vec<Client<_>> = (0..8).map(|_| server.client("one of eight")).collect();
    for _ in 0..3 {
        let mut ninth = server.stranger();
        let refused = ninth.receive();
        assert_eq!((refused.number(), refused.refusal()), (0, (ErrorCode::Overloaded, "connections", 8)));
        assert!(ninth.try_receive().is_none(), "the connection is closed");
    }
    for client in &mut clients {
        let granted = client.acquire(b"key", 0);
        client.release(granted.id);
    }
    drop(clients.pop());
    // Until the server has seen that, it refuses.
    let mut hello = Vec::new();
    Request::Hello(default_hello()).encode(1, &mut hello);
    let is_welcome = |client: &mut Client<TcpStream>| {
        let _ = client.socket.write_all(&hello);
        client.try_receive().is_some_and(|first| matches!(first.response(), Response::Welcome(_)))
    };
    wait_until("the welcome of a client for which there is room", || is_welcome(&mut server.stranger()));
}
