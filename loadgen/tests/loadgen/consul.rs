//! Against a real Consul, and against simulated servers.

use std::io::{Read, Write};
use std::net::TcpStream;

use waymaker_loadgen::system::System;

use crate::foreign::{actor, load, start};
use crate::program::{Server, run, wait_until};

fn response(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn session() -> Vec<u8> {
    response("200 OK", r#"{"ID":"df6f7947-b9e0-2f7f-7d78-0cd20a357c35"}"#)
}

/// Opens sessions, and sends the same response to every request.
fn always(said: Vec<u8>) -> String {
    actor(move |turn, _| Some(if turn == 0 { session() } else { said.clone() }))
}

#[test]
fn pairs_and_contention() {
    let Some(server) = start("consul::pairs_and_contention", System::Consul) else { return };
    let target = server.address.to_string();
    let brief = ["--duration", "500ms", "--warmup", "20ms", "--target", &target];
    for shape in [
        &["--connections", "1"][..],
        // More connections than Consul accepts from one address by default.
        &["--connections", "250", "--threads", "2", "--keys", "1k"],
        &["--connections", "3", "--depth", "8", "--window", "sliding", "--key-size", "33"],
        &["--connections", "8", "--workload", "hot"],
    ] {
        let ended = run(&[&brief[..], shape].concat());
        ended.assert_success();
        assert!(ended.stdout.contains("all checked, none wrong"), "{ended:#?}");
        assert!(!ended.stdout.contains(" 0 /s requests"), "{ended:#?}");
    }
    // Each connection ends its session without waiting for the response.
    wait_until("the end of the sessions", || session_count(&server.address.host_and_port) == 0);
}

/// Number of open sessions, without the sessions that checked whether the server was ready.
fn session_count(address: &str) -> usize {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET /v1/session/list HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer.matches("\"TTL\"").count() - answer.matches("\"TTL\":\"10s\"").count()
}

#[test]
fn recognises_another_protocol() {
    let server = Server::echo(&[]);
    load(System::Consul, &server.address, &[]).assert_refused("not an HTTP/1.1 response");
}

#[test]
fn rejects_a_server_that_opens_no_session() {
    for (said, words) in [
        (response("500 Internal Server Error", "No cluster leader"), "500 No cluster leader"),
        (response("200 OK", "{}"), "cannot open a session"),
        (response("200 OK", r#"{"ID":"a b"}"#), "cannot open a session"),
        (response("200 OK", "{\"ID\":"), "cannot open a session"),
        ([session(), session()].concat(), "more than one HTTP response"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), "without a length"),
    ] {
        let address = actor(move |_, _| Some(said.clone()));
        load(System::Consul, &address, &[]).assert_refused(words);
    }
    let half = actor(|turn, _| (turn == 0).then(|| session()[..30].to_vec()));
    load(System::Consul, &half, &[]).assert_refused("did not answer within");
    load(System::Consul, &actor(|_, _| None), &[])
        .assert_refused("closed the connection without an HTTP response");
}

#[test]
fn wrong_responses_are_named_and_fail_the_run() {
    for (said, words) in [
        (response("200 OK", "false"), "busy, although no other client can hold the key"),
        (response("200 OK", "maybe"), "200 maybe"),
        (response("500 Internal Server Error", "invalid session"), "500 invalid session"),
        (response("200 OK", "true").repeat(2), "a response without a request: 200 true"),
        (b"+OK\r\n".to_vec(), "not an HTTP/1.1 response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n".to_vec(), "an invalid content length"),
    ] {
        load(System::Consul, &always(said), &[]).assert_wrong(words);
    }
    let hangs_up = actor(|turn, _| (turn == 0).then(session));
    load(System::Consul, &hangs_up, &[]).assert_wrong("the server closed the connection");
    let half = actor(|turn, _| match turn {
        0 => Some(session()),
        1 => Some(response("200 OK", "true")[..20].to_vec()),
        _ => Some(Vec::new()),
    });
    load(System::Consul, &half, &[]).assert_wrong("no response within");
    let lost = actor(|turn, _| match turn {
        0 => Some(session()),
        turn => Some(response("200 OK", if turn % 2 == 1 { "true" } else { "false" })),
    });
    load(System::Consul, &lost, &[]).assert_wrong("the hold was lost");
}
