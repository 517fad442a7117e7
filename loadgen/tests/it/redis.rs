//! Against a real Redis.

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{Server, run};
use crate::skip::skip;

/// `None`, said loudly, where Redis is not installed.
fn redis(test: &str) -> Option<Server> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let child = Command::new("redis-server")
        .args([
            "--port",
            &address.port().to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        skip(test, "redis-server is not installed (Debian package redis-server)");
        return None;
    };
    let server = Server::started(child, address.to_string());
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(server)
}

#[test]
fn pairs_and_contention() {
    let Some(server) = redis("redis::pairs_and_contention") else { return };
    let target = format!("redis://{}", server.address);
    let brief = ["--duration", "200ms", "--warmup", "20ms", "--target", &target];
    for shape in [
        &["--connections", "2", "--depth", "1"][..],
        &["--connections", "10", "--depth", "64", "--keys", "1k", "--threads", "2"],
        &["--connections", "10", "--depth", "64", "--window", "sliding", "--key-size", "33"],
    ] {
        run(&[&brief[..], shape].concat()).assert_success();
    }
    let ended = run(&[&brief[..], &["--workload", "hot", "--connections", "8", "--threads", "2"]].concat());
    ended.assert_success();
    assert!(ended.stdout.contains("hand-over   p50"), "{ended:#?}");
    assert!(ended.stdout.contains("polls"), "{ended:#?}");
}

#[test]
fn a_key_that_somebody_else_holds_is_a_wrong_answer() {
    use std::io::{Read, Write};
    let Some(server) = redis("redis::a_key_that_somebody_else_holds_is_a_wrong_answer") else { return };
    let mut stream = TcpStream::connect(&server.address).expect("it listens");
    stream.write_all(b"SET waymaker00000000 x\r\n").expect("sent");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("answered");
    assert_eq!(&answer, b"+OK\r\n");
    let target = format!("redis://{}", server.address);
    let arguments =
        ["--target", &target, "--duration", "100ms", "--warmup", "0s", "--connections", "1", "--keys", "1"];
    run(&arguments).assert_wrong("busy although nobody can hold the key");
}

#[test]
fn another_protocol_is_recognised() {
    let Some(server) = redis("redis::another_protocol_is_recognised") else { return };
    let target = format!("waymaker://{}", server.address);
    let ended = run(&["--target", &target]);
    assert_eq!(ended.code, Some(2), "{ended:#?}");
}
