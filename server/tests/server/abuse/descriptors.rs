//! More connections than the process may have descriptors for.

use super::PORTS;
use super::http2::Http2;
use super::web_socket::WebSocket;
use crate::harness::{
    Client, LOOK, QUIET, Server, SetWhenDropped, WATCHDOG, Witness, is_nothing_yet, processor_time, wait_for,
    wait_until, wait_until_rested,
};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use waymaker_proto::waymaker::{MultiLockRequest, MultiLockResponse};
use waymaker_protocol::{Namespaces, Request, Response, SessionRequest};

/// The ports of front ends for locks.
const LOCK_PORTS: [&str; 2] = ["grpc", "locktopus"];
const LOCK_PORT_COUNT: u32 = LOCK_PORTS.len() as u32;
/// Connections that the server refuses at one port before it rests there, and for how long.
const REFUSALS_PER_REST: u32 = 32;
const REFUSALS_REST: Duration = Duration::from_millis(10);
/// How long the server rests at a port after the system had no descriptor for a connection.
const EXHAUSTED_REST: Duration = Duration::from_millis(100);

/// A server that may have so few descriptors.
fn server_with(descriptors: u32, more: &[&str]) -> Server {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors} && exec \"$0\" --listen 127.0.0.1:0 --workers 1 \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_waymaker-server")]).args(PORTS).args(more).envs(QUIET);
    command.env("WAYMAKER_LOG", "error").stdin(Stdio::null()).stdout(Stdio::piped());
    Server::start_with(&mut command, None)
}

fn call(client: &mut Http2) {
    let answer: MultiLockResponse =
        client.ask("/waymaker.WaymakerService/MultiLock", &MultiLockRequest::default());
    assert_eq!(answer.result_code, "no_keys");
}

/// Returns whether a new connection to the port of Locktopus is served. A full server closes it, or does not accept it.
fn is_served(server: &Server, patience: Duration) -> bool {
    get(server, "locktopus", "/stats_v1?namespace=x", patience)
        .is_some_and(|answer| answer.starts_with("HTTP/1.1 "))
}

/// Returns the answer of a new connection, or `None` if there is no connection. It is empty if the server closes the connection.
fn get(server: &Server, port: &str, path: &str, patience: Duration) -> Option<String> {
    let mut socket = TcpStream::connect(server.address(port)).ok()?;
    socket.set_read_timeout(Some(patience)).expect("a socket");
    let mut answer = String::new();
    let _ = write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let _ = socket.read_to_string(&mut answer);
    Some(answer)
}

fn assert_is_ok(server: &Server, path: &str) {
    let answer = get(server, "http", path, WATCHDOG).expect("the server accepts");
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer:?}");
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
        let server = server_with(descriptors, &[]);
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
fn a_server_at_its_connection_limit_refuses_more_cheaply_and_rests() {
    // Connections that the flood has not found closed yet, and refusals that are measured.
    const KEPT: usize = 30;
    const MEASURED: u32 = 3_000;
    let mut full = Full::new(64);
    let refusals = AtomicU32::new(0);
    let is_over = AtomicBool::new(false);
    let (work, elapsed, count) = std::thread::scope(|scope| {
        let _over = SetWhenDropped(&is_over);
        for port in LOCK_PORTS {
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
    let at_each_port = (count - LOCK_PORT_COUNT * (KEPT as u32 + 1)) / LOCK_PORT_COUNT;
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

/// As many clients as the server lets in at the ports for locks, and some that it does not.
fn fill_lock_ports(server: &Server) -> Vec<TcpStream> {
    let sockets: Vec<TcpStream> = (0..40)
        .map(|number| {
            let port = LOCK_PORTS[number % LOCK_PORTS.len()];
            TcpStream::connect(server.address(port)).expect("the system accepts")
        })
        .collect();
    wait_until("the server is full", || !is_served(server, WATCHDOG));
    sockets
}

#[test]
fn health_and_metrics_are_served_while_clients_have_all_connections() {
    let server = server_with(64, &[]);
    let _clients = fill_lock_ports(&server);
    for _ in 0..20 {
        assert_is_ok(&server, "/healthz");
        assert_is_ok(&server, "/readyz");
        assert_is_ok(&server, "/metrics");
    }
    let locktopus = get(&server, "http", "/v1?namespace=x", WATCHDOG).expect("the server accepts");
    assert!(locktopus.starts_with("HTTP/1.1 503"), "only health and metrics: {locktopus:?}");
    assert!(!is_served(&server, WATCHDOG), "the other ports have no reserve");
}

#[test]
fn operators_can_use_the_unix_socket_while_clients_have_all_connections() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let server = server_with(64, &["--unix", path.to_str().expect("text")]);
    let _clients = fill_lock_ports(&server);
    let connect = || {
        let mut client = Client::new(UnixStream::connect(&path).expect("the system accepts"));
        client.hello("operator", SessionRequest::None);
        client
    };
    let mut operators: Vec<_> = (0..16).map(|_| connect()).collect();
    for operator in &mut operators {
        let answer = operator.ask(Request::Namespaces(Namespaces::default()));
        assert!(matches!(answer.response(), Response::NamespacesListed(_)), "{answer:?}");
    }
    drop(operators);
    assert_is_ok(&server, "/healthz");
    connect();
}

#[test]
fn a_flood_of_the_http_port_holds_the_reserve_only_briefly() {
    // Longer than a connection of the reserve may be silent, shorter than others may.
    const RESERVE_IS_FREE_WITHIN: Duration = Duration::from_secs(4);
    let server = server_with(64, &[]);
    let own = server.client("witness");
    let _clients = fill_lock_ports(&server);
    let silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.address("http")).expect("the system accepts")).collect();
    own.socket.set_read_timeout(Some(LOOK)).expect("a socket");
    let mut witness = Witness::begin(own, RESERVE_IS_FREE_WITHIN);
    witness.assert_before_end("the reserve is free again", || {
        get(&server, "http", "/healthz", WATCHDOG).is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    });
    drop(silent);
}

#[test]
fn a_server_without_free_descriptors_rests_until_one_is_available() {
    let mut full = Full::new(24);
    // They stay open: the server would have to accept closed connections before it finds a new one.
    let waiting: Vec<TcpStream> = (0..12)
        .map(|number| {
            let port = LOCK_PORTS[number % LOCK_PORTS.len()];
            TcpStream::connect(full.server.address(port)).expect("the system accepts")
        })
        .collect();
    full.assert_serves_old_connections();
    let (begun, work_before) = (Instant::now(), processor_time(&full.server));
    std::thread::sleep(10 * EXHAUSTED_REST);
    let (work, elapsed) = (processor_time(&full.server) - work_before, begun.elapsed());
    println!("{work:?} of work within {elapsed:?}");
    // Without a rest it would try all the time, and use at least a tenth of a busy processor.
    assert!(work <= elapsed / 20, "{work:?} within {elapsed:?}: there was no rest");
    full.assert_serves_old_connections();
    drop(waiting);
    full.assert_lets_in_when_there_is_room();
}
