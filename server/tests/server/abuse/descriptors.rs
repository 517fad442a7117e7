//! More connections than the process may have descriptors for.

use super::PORTS;
use super::http2::Http2;
use super::web_socket::WebSocket;
use crate::harness::{
    QUIET, Server, SetWhenDropped, WATCHDOG, is_nothing_yet, processor_time, wait_for, wait_until,
    wait_until_rested,
};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use waymaker_proto::waymaker::{MultiLockRequest, MultiLockResponse};

const FRONT_PORTS: [&str; 3] = ["grpc", "http", "locktopus"];
/// Connections that the server refuses at one port before it rests there, and for how long.
const REFUSALS_PER_REST: u32 = 32;
const REFUSALS_REST: Duration = Duration::from_millis(10);
/// How long the server rests at a port after the system had no descriptor for a connection.
const EXHAUSTED_REST: Duration = Duration::from_millis(100);

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

/// Returns whether a new connection to the port for HTTP is served. A full server closes it, or does not accept it.
fn is_served(server: &Server, patience: Duration) -> bool {
    let Ok(mut socket) = TcpStream::connect(server.address("http")) else { return false };
    socket.set_read_timeout(Some(patience)).expect("a socket");
    let mut answer = String::new();
    let _ = socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let _ = socket.read_to_string(&mut answer);
    answer.starts_with("HTTP/1.1 200")
}

/// Processor time that the server needs for one connection, from its beginning to its end.
fn work_of_connection(server: &Server) -> Duration {
    const COUNT: u32 = 50;
    wait_until_rested(server);
    let before = processor_time(server);
    (0..COUNT).for_each(|_| assert!(is_served(server, WATCHDOG)));
    wait_until_rested(server);
    (processor_time(server) - before) / COUNT
}

/// A server without room for a connection more, and clients that it serves.
struct Full {
    server: Server,
    grpc: Http2,
    locktopus: WebSocket,
    others: Vec<Http2>,
    work_of_connection: Duration,
}

impl Full {
    fn new(descriptors: u32) -> Self {
        let server = server_with(descriptors);
        let work_of_connection = work_of_connection(&server);
        let mut grpc = Http2::connect(&server);
        call(&mut grpc);
        let locktopus = WebSocket::connect(&server, "old");
        let mut others: Vec<Http2> = (0..6).map(|_| Http2::connect(&server)).collect();
        others.iter_mut().take(2).for_each(call);
        Self { server, grpc, locktopus, others, work_of_connection }
    }

    fn assert_serves_old_connections(&mut self) {
        call(&mut self.grpc);
        self.locktopus.pair();
    }

    fn assert_lets_in_when_there_is_room(mut self) {
        assert!(!is_served(&self.server, Duration::from_millis(300)), "there is no room");
        drop(self.others.drain(..));
        let begun = Instant::now();
        wait_until("a new connection is served", || is_served(&self.server, WATCHDOG));
        println!("a new connection was served {:?} after there was room", begun.elapsed());
        self.assert_serves_old_connections();
    }
}

#[test]
fn a_server_with_as_many_connections_as_it_may_have_refuses_more_cheaply_and_rests() {
    // Connections that the flood has not found closed yet, and refusals that are measured.
    const KEPT: usize = 30;
    const MEASURED: u32 = 3_000;
    let mut full = Full::new(64);
    let refusals = AtomicU32::new(0);
    let is_over = AtomicBool::new(false);
    let (work, elapsed, count) = std::thread::scope(|scope| {
        let _over = SetWhenDropped(&is_over);
        for port in FRONT_PORTS {
            let (server, refusals, is_over) = (&full.server, &refusals, &is_over);
            scope.spawn(move || flood_refused(server, port, KEPT, refusals, is_over));
        }
        let wait = |count| wait_until("more refusals", || refusals.load(Ordering::Relaxed) >= count);
        wait(1);
        let (begun, work_before) = (Instant::now(), processor_time(&full.server));
        let count_before = refusals.load(Ordering::Relaxed);
        wait(count_before + MEASURED);
        let count = refusals.load(Ordering::Relaxed) - count_before;
        (processor_time(&full.server) - work_before, begun.elapsed(), count)
    });
    println!(
        "{count} refusals within {elapsed:?} were {work:?} of work; a connection is {:?}",
        full.work_of_connection
    );
    assert!(work / count <= full.work_of_connection, "{work:?} for {count} refusals");
    // The first of them were refused before the measurement began, and after the last of them no rest was due yet.
    let at_each_port = (count - 3 * (KEPT as u32 + 1)) / 3;
    let rests = at_each_port / REFUSALS_PER_REST - 1;
    assert!(elapsed >= rests * REFUSALS_REST, "{count} refusals within {elapsed:?}: there was no rest");
    full.assert_serves_old_connections();
    full.assert_lets_in_when_there_is_room();
}

/// Connects to a port as fast as it is let, and counts how many of the connections it finds closed.
fn flood_refused(server: &Server, port: &str, kept_max: usize, refusals: &AtomicU32, is_over: &AtomicBool) {
    let mut kept = VecDeque::new();
    while !is_over.load(Ordering::Relaxed) {
        kept.extend(TcpStream::connect(server.address(port)));
        if kept.len() > kept_max {
            let mut oldest: TcpStream = kept.pop_front().expect("there are some");
            oldest.set_read_timeout(Some(WATCHDOG)).expect("a socket");
            let read = wait_for("the end of a refused connection", || match oldest.read(&mut [0]) {
                Err(error) if is_nothing_yet(&error) => None,
                read => Some(read),
            });
            assert!(read.map_or(true, |len| len == 0), "nobody is served");
            refusals.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_server_for_which_the_system_has_no_descriptor_rests_until_it_has_one() {
    let mut full = Full::new(24);
    // They stay open: the server would have to accept closed connections before it finds a new one.
    let waiting: Vec<TcpStream> = (0..12)
        .map(|number| {
            TcpStream::connect(full.server.address(FRONT_PORTS[number % 3])).expect("the system accepts")
        })
        .collect();
    full.assert_serves_old_connections();
    let (begun, work_before) = (Instant::now(), processor_time(&full.server));
    std::thread::sleep(10 * EXHAUSTED_REST);
    let (work, elapsed) = (processor_time(&full.server) - work_before, begun.elapsed());
    // At each port one connection may be tried after each rest, which is less work than to serve it.
    let tries = 3 * ((elapsed.as_millis() / EXHAUSTED_REST.as_millis()) as u32 + 1);
    println!("{work:?} of work within {elapsed:?}; a connection is {:?}", full.work_of_connection);
    assert!(work <= tries * full.work_of_connection, "{work:?} within {elapsed:?}: there was no rest");
    full.assert_serves_old_connections();
    drop(waiting);
    full.assert_lets_in_when_there_is_room();
}
