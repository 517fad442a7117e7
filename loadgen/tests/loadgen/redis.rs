//! Against a real Redis.

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use waymaker_loadgen::system::System;

use crate::foreign::{actor, load};
use crate::program::{Server, run, wait_until};
use crate::skip::skip;

/// Starts Redis. Returns `None` and reports the test as skipped if Redis is not installed.
pub(crate) fn redis(test: &str) -> Option<Server> {
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
        skip(test, "redis-server is not installed; install it with: waymaker-loadgen obtain redis");
        return None;
    };
    let server = Server::started(child, address.to_string());
    wait_until("redis-server listens", || TcpStream::connect(address).is_ok());
    Some(server)
}

#[test]
fn pairs_and_contention() {
    let Some(server) = redis("redis::pairs_and_contention") else { return };
    let target = format!("redis://{}", server.address);
    let brief = ["--duration", "500ms", "--warmup", "20ms", "--target", &target];
    for shape in [
        &["--connections", "2", "--depth", "1"][..],
        &["--connections", "10", "--depth", "64", "--keys", "1k", "--threads", "2"],
        &["--connections", "10", "--depth", "64", "--window", "sliding", "--key-size", "33"],
        &["--connections", "10", "--depth", "64", "--redis-release", "del"],
    ] {
        run(&[&brief[..], shape].concat()).assert_success();
    }
    let ended = run(&[&brief[..], &["--workload", "hot", "--connections", "8", "--threads", "2"]].concat());
    ended.assert_success();
    assert!(ended.stdout.contains("hand-over   p50"), "{ended:#?}");
    assert!(ended.stdout.contains("polls"), "{ended:#?}");
}

#[test]
fn a_key_held_by_another_client_is_a_wrong_response() {
    use std::io::{Read, Write};
    let Some(server) = redis("redis::a_key_held_by_another_client_is_a_wrong_response") else { return };
    let mut stream = TcpStream::connect(&server.address).expect("it listens");
    let key = waymaker_loadgen::key::KeyIndex(0).key(16);
    let request = [b"*3\r\n$3\r\nSET\r\n$16\r\n", &key[..], b"\r\n$1\r\nx\r\n"].concat();
    stream.write_all(&request).expect("sent");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("answered");
    assert_eq!(&answer, b"+OK\r\n");
    let target = format!("redis://{}", server.address);
    let arguments =
        ["--target", &target, "--duration", "500ms", "--warmup", "0s", "--connections", "1", "--keys", "1"];
    run(&arguments).assert_wrong("busy, although no other client can hold the key");
}

/// A response line; always ends with CR LF.
fn line(said: &str) -> Option<Vec<u8>> {
    Some(format!("{said}\r\n").into_bytes())
}

#[test]
fn a_release_without_a_key_is_a_lost_hold() {
    for (release, words) in [("script", "the script found no key of its owner"), ("del", "DEL found no key")]
    {
        let address = actor(|_, request| match request {
            request if request.ends_with(b"PING\r\n") => line("+PONG"),
            request if request.windows(4).any(|word| word == b"LOAD") => {
                line(&format!("$40\r\n{}", "ab".repeat(20)))
            }
            request if request.windows(3).any(|word| word == b"SET") => line("+OK"),
            _ => line(":0"),
        });
        load(System::Redis, &address, &["--redis-release", release]).assert_wrong(words);
    }
}

#[test]
fn reports_a_script_that_cannot_be_loaded() {
    for said in ["-ERR unknown command 'SCRIPT'", "$3\r\nabc", "+OK\r\n"] {
        let address = actor(move |turn, _| if turn == 0 { line("+PONG") } else { line(said) });
        load(System::Redis, &address, &[]).assert_refused("unexpected response to SCRIPT LOAD");
    }
}

#[test]
fn recognises_another_protocol() {
    let Some(server) = redis("redis::recognises_another_protocol") else { return };
    let target = format!("waymaker://{}", server.address);
    let ended = run(&["--target", &target]);
    assert_eq!(ended.code, Some(2), "{ended:#?}");
}
