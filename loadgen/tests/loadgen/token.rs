//! The token of the clients, with servers that record it and refuse the clients.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Request as Message, next_frame};

use crate::program::{Ended, loadgen, run};

const TOKEN: &str = "wm_0001020304050607.CAkKCwwNDg8QERITFBUWFxgZGhscHR4fICEiIyQlJic";

fn token_file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, format!("{TOKEN}\n")).expect("it is written");
    file
}

/// Returns the address of a server that sends the credentials of the first HELLO here, and closes the connection.
fn binary_server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("waymaker://{}", listener.local_addr().expect("an address"));
    let (seen, received) = mpsc::channel();
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        let (mut bytes, mut chunk) = (Vec::new(), [0; 1024]);
        loop {
            if let Some(frame) = next_frame(&bytes, FRAME_LEN_MAX).expect("a frame") {
                let Ok(Message::Hello(hello)) = Message::decode(frame) else { panic!("a HELLO comes first") };
                seen.send(String::from_utf8_lossy(hello.credentials).into_owned()).expect("it is awaited");
                return;
            }
            let count = socket.read(&mut chunk).expect("it sends");
            bytes.extend_from_slice(&chunk[..count]);
        }
    });
    (address, received)
}

/// Returns the address of a server that sends the header `authorization` of the first call here, and refuses the call.
fn grpc_server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("grpc://{}", listener.local_addr().expect("an address"));
    let (seen, received) = mpsc::channel();
    thread::spawn(move || {
        let (socket, _) = listener.accept().expect("a client");
        socket.set_nonblocking(true).expect("a socket");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let socket = TokioIo::new(tokio::net::TcpStream::from_std(socket).expect("a socket"));
            let refuse = service_fn(|request: Request<Incoming>| {
                let header =
                    request.headers().get("authorization").map(|header| header.to_str().expect("text"));
                // The client may have ended meanwhile.
                let _ = seen.send(header.unwrap_or_default().to_owned());
                let refusal = Response::builder()
                    .header("content-type", "application/grpc")
                    .header("grpc-status", "16")
                    .header("grpc-message", "the token is unknown")
                    .body(String::new());
                async { Ok::<_, Infallible>(refusal.expect("a response")) }
            });
            // The end of the connection is no matter of the test.
            let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(socket, refuse).await;
        });
    });
    (address, received)
}

/// Returns the address of a server that sends the head of the first handshake here, and refuses it.
fn web_socket_server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("locktopus://{}", listener.local_addr().expect("an address"));
    let (seen, received) = mpsc::channel();
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        let (mut bytes, mut chunk) = (Vec::new(), [0; 1024]);
        while !bytes.ends_with(b"\r\n\r\n") {
            let count = socket.read(&mut chunk).expect("it sends");
            bytes.extend_from_slice(&chunk[..count]);
        }
        seen.send(String::from_utf8(bytes).expect("text")).expect("it is awaited");
        socket.write_all(b"HTTP/1.1 401 Unauthorized\r\n\r\n").expect("it reads");
    });
    (address, received)
}

#[test]
fn the_handshake_of_a_web_socket_carries_the_token() {
    let file = token_file();
    let (address, received) = web_socket_server();
    let ended = run(&["--target", &address, "--token-file", file.path().to_str().expect("a path of text")]);
    ended.assert_refused("401 Unauthorized");
    let head = received.recv().expect("a handshake");
    assert!(head.contains(&format!("\r\nAuthorization: Bearer {TOKEN}\r\n")), "{head}");
}

#[test]
fn the_handshake_of_the_binary_protocol_carries_the_token() {
    let file = token_file();
    let (address, received) = binary_server();
    let ended = run(&["--target", &address, "--token-file", file.path().to_str().expect("a path of text")]);
    assert_ne!(ended.code, Some(0));
    assert_eq!(received.recv().expect("a HELLO"), TOKEN);
}

#[test]
fn each_grpc_call_carries_the_token() {
    let (address, received) = grpc_server();
    let output = loadgen()
        .args(["--target", &address, "--connections", "1"])
        .env("WAYMAKER_TOKEN", TOKEN)
        .output()
        .expect("it starts");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("the token is unknown"), "{output:?}");
    assert_eq!(received.recv().expect("a call"), format!("Bearer {TOKEN}"));
}

#[test]
fn a_token_is_neither_sent_to_other_systems_nor_read_from_an_empty_file() {
    let file = token_file();
    let refusal = |arguments: &[&str]| -> Ended { run(arguments) };
    refusal(&[
        "--target",
        "redis://127.0.0.1:1",
        "--token-file",
        file.path().to_str().expect("a path of text"),
    ])
    .assert_refused("accepts no tokens");
    refusal(&["--target", "waymaker://127.0.0.1:1", "--token-file", "/dev/null"])
        .assert_refused("/dev/null: the file is empty");
}
