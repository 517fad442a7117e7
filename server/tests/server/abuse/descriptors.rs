//! More connections than the process may have descriptors for.

use super::PORTS;
use super::good_client::Abuse;
use super::http2::Http2;
use super::process::core_share;
use super::web_socket::WebSocket;
use crate::harness::{QUIET, Server};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use waymaker_proto::waymaker::{MultiLockRequest, MultiLockResponse};

/// Which part of a core a server may take that has no room. One that is built for debugging takes twice as long for everything.
const CORE_SHARE_MAX: f64 = if cfg!(debug_assertions) { 0.4 } else { 0.2 };

/// A server that may have so few descriptors.
fn server_with(descriptors: u32) -> Server {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors} && exec \"$0\" --listen 127.0.0.1:0 --workers 1 \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_waymaker-server")]).args(PORTS).envs(QUIET);
    command.env("WAYMAKER_LOG", "error").stdin(Stdio::null()).stdout(Stdio::piped());
    Server::start_with(&mut command, None)
}

fn call(client: &mut Http2) {
    let answer: MultiLockResponse =
        client.ask("/waymaker.WaymakerService/MultiLock", &MultiLockRequest::default());
    assert_eq!(answer.result_code, "no_keys");
}

/// Whether a new connection to the port for HTTP is served.
fn is_served(server: &Server) -> bool {
    let Ok(mut socket) = TcpStream::connect(server.address("http")) else { return false };
    // One that is not accepted waits.
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
    let mut answer = String::new();
    let _ = socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let _ = socket.read_to_string(&mut answer);
    answer.starts_with("HTTP/1.1 200")
}

/// Connects to all ports as fast as it is let, and keeps so many of the connections. Those of a server that refuses are
/// replaced for ever; where they are left waiting, who is gone would stand in front of who comes.
fn flood(server: &Server, abuse: &Abuse, count_max: usize, is_refused: bool) {
    let mut kept = std::collections::VecDeque::new();
    while abuse.goes_on() {
        if kept.len() >= count_max && !is_refused {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        }
        for port in ["grpc", "http", "locktopus"] {
            kept.extend(TcpStream::connect(server.address(port)));
        }
        if kept.len() > count_max {
            kept.drain(..3);
        }
    }
}

#[test]
fn a_full_server_serves_whom_it_has_rests_and_lets_in_whoever_comes_when_there_is_room() {
    // So few that the server refuses by its own limit, and fewer: the system lets it have no more.
    for (descriptors, count, is_refused) in [(64, 100, true), (24, 12, false)] {
        let server = server_with(descriptors);
        let mut grpc = Http2::connect(&server);
        call(&mut grpc);
        let mut locktopus = WebSocket::connect(&server, "old");
        let mut others: Vec<Http2> = (0..6).map(|_| Http2::connect(&server)).collect();
        others.iter_mut().take(2).for_each(call);
        let flood = |abuse: &Abuse| flood(&server, abuse, count, is_refused);
        let share = Abuse::meanwhile(flood, || {
            std::thread::sleep(Duration::from_millis(300));
            let share = core_share(&server, Duration::from_secs(1));
            call(&mut grpc);
            locktopus.pair();
            share
        });
        assert!(share <= CORE_SHARE_MAX, "{descriptors} descriptors: {share} of a core");
        assert!(!is_served(&server), "there is no room");
        drop(others);
        let room = Instant::now();
        while !is_served(&server) {
            assert!(room.elapsed() < Duration::from_secs(1), "{descriptors} descriptors: nobody is let in");
        }
        call(&mut grpc);
        locktopus.pair();
    }
}
