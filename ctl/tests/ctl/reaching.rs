//! Servers that cannot be reached, or that are still starting.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketType};

use crate::fake::FakeServer;
use crate::program::{Running, ctl, output, soon, stderr};

/// Upper bound of a wait of one second on a busy machine; shorter than the default of --connect-timeout.
const SECOND_MAX: Duration = Duration::from_millis(4_500);

/// Accepts connections and answers nothing.
fn silent_listener() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("waymaker://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || stream.unwrap().read_to_end(&mut Vec::new()));
        }
    });
    url
}

/// A listener that accepts no connection and whose backlog is full.
struct FullListener {
    url: String,
    _listener: OwnedFd,
    _streams: Vec<TcpStream>,
}

impl FullListener {
    fn start() -> Self {
        let listener = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        net::listen(&listener, 0).unwrap();
        let address = SocketAddr::try_from(net::getsockname(&listener).unwrap()).unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
        let streams = std::iter::from_fn(|| connect().ok()).collect();
        Self { url: format!("waymaker://{address}"), _listener: listener, _streams: streams }
    }
}

#[test]
fn a_wait_ends_in_time_with_an_unresponsive_server() {
    let (silent, full, greeter) = (silent_listener(), FullListener::start(), FakeServer::start());
    greeter.only_greet();
    thread::scope(|scope| {
        for (case, url) in [("silent", silent.as_str()), ("full", &full.url), ("greets only", greeter.url())]
        {
            for words in [&["lock", "k"][..], &["semaphore", "k", "--capacity", "1"]] {
                scope.spawn(move || {
                    let words = [words, &["--wait", "1s", "--", "true"]].concat();
                    let begin = Instant::now();
                    let output = output(ctl(url, &words));
                    let elapsed = begin.elapsed();
                    assert_eq!(output.status.code(), Some(122), "{case}: {words:?}: {}", stderr(&output));
                    let said = stderr(&output);
                    assert!(
                        said.contains("no response") || said.contains("did not respond"),
                        "{case}: {said}"
                    );
                    assert!(elapsed < SECOND_MAX, "{case}: {words:?} took {elapsed:?}");
                });
            }
        }
    });
}

#[test]
fn an_explicit_connect_timeout_overrides_a_shorter_wait() {
    let words = ["lock", "k", "--wait", "0s", "--connect-timeout", "1500ms", "--", "true"];
    let begin = Instant::now();
    assert_eq!(output(ctl(&silent_listener(), &words)).status.code(), Some(122));
    assert!(begin.elapsed() >= Duration::from_millis(1500));
}

/// The server closes connections, is unavailable, and then serves again.
#[test]
fn a_restarted_server_is_reached_within_the_connect_timeout() {
    for words in [&["lock", "k"][..], &["elect", "k"]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let words = [words, &["--connect-timeout", "1h", "--", "echo", "ran"]].concat();
        let mut running = Running::start(ctl(&format!("waymaker://{address}"), &words));
        for _ in 0..2 {
            let listener = listener.try_clone().unwrap();
            soon(move || listener.accept().unwrap());
        }
        drop(listener);
        let _server = FakeServer::start_at(address);
        assert_eq!(running.line().as_deref(), Some("ran"));
        assert_eq!(running.wait().code(), Some(0));
    }
}
