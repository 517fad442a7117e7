//! What can be asked over HTTP, and how a WebSocket begins.

use super::client::{Locker, http, parts, server, socket};
use crate::harness::wait_until;
use std::io::{Read, Write};

const NAMESPACE: &str = "URL parameter 'namespace' is required";
const TIMEOUT: &str = "URL parameter 'abandon-timeout-ms' should be integer value >= 0 representing broken connection \
    timeout (in milliseconds)";
const PORTS: [&str; 2] = ["http", "locktopus"];

#[test]
fn an_invalid_handshake_is_refused_in_the_words_of_the_original() {
    let server = server(&[]);
    let upgrade = "Connection: upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==";
    let without =
        |name: &str| upgrade.lines().filter(|line| !line.starts_with(name)).collect::<Vec<_>>().join("\n");
    for port in PORTS {
        for (request, status, body) in [
            ("GET /v1".to_owned(), 400, NAMESPACE),
            ("GET /v1?namespace=".to_owned(), 400, NAMESPACE),
            ("POST /v1?abandon-timeout-ms=x".to_owned(), 400, NAMESPACE),
            ("GET /v1?namespace=a&abandon-timeout-ms=".to_owned(), 400, TIMEOUT),
            ("GET /v1?namespace=a&abandon-timeout-ms=-1".to_owned(), 400, TIMEOUT),
            ("GET /v1?namespace=a&abandon-timeout-ms=1.5".to_owned(), 400, TIMEOUT),
            ("GET /v1?namespace=a".to_owned(), 400, "Bad Request\n"),
            ("POST /v1?namespace=a".to_owned(), 400, "Bad Request\n"),
            (format!("POST /v1?namespace=a\n{upgrade}"), 405, "Method Not Allowed\n"),
            (format!("GET /v1?namespace=a\n{}", without("Upgrade")), 400, "Bad Request\n"),
            (format!("GET /v1?namespace=a\n{}", without("Sec-WebSocket-Version")), 400, "Bad Request\n"),
            (format!("GET /v1?namespace=a\n{}", without("Sec-WebSocket-Key")), 400, "Bad Request\n"),
            (format!("GET /v1?namespace=a\n{}", upgrade.replace("13", "12")), 400, "Bad Request\n"),
        ] {
            let answer = http(&server, port, &request);
            let (actual_status, head, actual_body) = parts(&answer);
            assert_eq!((actual_status, actual_body), (status, body), "{request}");
            let is_handshake = body.ends_with('\n');
            assert_eq!(head.contains("sec-websocket-version: 13\r\n"), is_handshake, "{request}: {head}");
        }
    }
}

#[test]
fn a_valid_handshake_switches_protocols_without_extensions() {
    let server = server(&["--http-origins", "*"]);
    for port in PORTS {
        let mut socket = socket(&server, port);
        let request = "GET /v1?namespace=a HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\n\
            Upgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
            Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: chat\r\nOrigin: http://a.example\r\n\r\n";
        socket.write_all(request.as_bytes()).expect("it is read");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).expect("an answer");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text").to_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        assert!(
            head.contains("connection: upgrade\r\n") && head.contains("upgrade: websocket\r\n"),
            "{head}"
        );
        assert!(!head.contains("extensions") && !head.contains("sec-websocket-protocol"), "{head}");
        assert!(head.contains("access-control-allow-origin: *"), "{head}");
    }
}

#[test]
fn frames_sent_with_the_handshake_are_served() {
    let server = server(&[]);
    let mut socket = socket(&server, "locktopus");
    let mut bytes =
        b"GET /v1?namespace=a HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            .to_vec();
    bytes.extend([0x89, 0x82, 0, 0, 0, 0]);
    bytes.extend(b"hi");
    socket.write_all(&bytes).expect("it is read");
    let mut answer = Vec::new();
    while !answer.ends_with(&[0x8a, 2, b'h', b'i']) {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("a pong");
        answer.push(byte[0]);
    }
}

#[test]
fn an_invalid_namespace_is_rejected() {
    let server = server(&[]);
    let upgrade = "Connection: upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==";
    let answer = http(&server, "locktopus", &format!("GET /v1?namespace={}\n{upgrade}", "n".repeat(300)));
    let (status, _, body) = parts(&answer);
    assert!(status == 400 && body.contains("namespace"), "{answer}");
}

#[test]
fn a_namespace_may_contain_any_characters() {
    let server = server(&[]);
    let mut locker = Locker::connect_with(&server, "namespace=a%20b%2F%C3%A9%26");
    locker.take("W a");
    let mut same = Locker::connect_with(&server, "namespace=a+b/%C3%A9%26");
    assert!(!same.is_free("W a"));
}

#[test]
fn unknown_paths_are_not_found() {
    let server = server(&[]);
    for port in PORTS {
        for path in ["/v1/", "/v2", "/stats_v1/", "/index.html"] {
            let answer = http(&server, port, &format!("GET {path}?namespace=a"));
            assert_eq!((parts(&answer).0, parts(&answer).2), (404, "404 page not found\n"), "{port} {path}");
        }
    }
}

#[test]
fn the_status_page_lists_open_namespaces() {
    let server = server(&[]);
    let _locker = Locker::connect(&server, "somewhere%0Ain+line");
    for port in PORTS {
        let answer = http(&server, port, "GET /");
        let (status, head, body) = parts(&answer);
        assert!(status == 200 && head.contains("content-type: text/plain; charset=utf-8"), "{answer}");
        assert!(body.contains("/v1") && body.contains("/stats_v1") && body.contains("60000 ms"), "{body}");
        assert!(body.contains("\nsomewhere\\nin line\n"), "{body}");
    }
}

#[test]
fn pages_of_any_origin_may_read_responses_if_all_are_allowed() {
    let server = server(&["--http-origins", "*"]);
    for port in PORTS {
        let allows = |request: &str| {
            let answer = http(&server, port, request);
            let (status, head, _) = parts(&answer);
            (status, head.contains("access-control-allow-origin: *\r\n"))
        };
        let origin = "Origin: http://a.example";
        assert_eq!(allows("GET /"), (200, false));
        assert_eq!(allows(&format!("GET /\n{origin}")), (200, true));
        assert_eq!(allows(&format!("GET /stats_v1?namespace=none\n{origin}")), (404, true));
        let preflight = format!("OPTIONS /v1\n{origin}");
        assert_eq!(allows(&preflight), (400, false));
        assert_eq!(allows(&format!("{preflight}\nAccess-Control-Request-Method: PUT")), (405, false));
        let get = format!("{preflight}\nAccess-Control-Request-Method: GET");
        assert_eq!(allows(&get), (200, true));
        assert_eq!(
            allows(&format!("{get}\nAccess-Control-Request-Headers: accept, Accept-Language")),
            (200, true)
        );
        assert_eq!(allows(&format!("{get}\nAccess-Control-Request-Headers: accept, x-own")), (403, false));
    }
}

#[test]
fn the_http_port_reports_health_and_readiness() {
    let server = server(&["--drain", "1h"]);
    let mut locker = Locker::connect(&server, "test");
    locker.take("W a");
    for path in ["/healthz", "/readyz"] {
        let answer = http(&server, "http", &format!("GET {path}"));
        assert_eq!((parts(&answer).0, parts(&answer).2), (200, "ok"));
        assert_eq!(parts(&http(&server, "locktopus", &format!("GET {path}"))).0, 404);
    }
    // A stopping server accepts nobody, but goes on with whoever is there.
    let mut prober = socket(&server, "http");
    let mut probe = |path: &str| {
        write!(prober, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is read");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") && !answer.ends_with(b"ends soon") {
            let mut byte = [0];
            prober.read_exact(&mut byte).expect("an answer");
            answer.push(byte[0]);
        }
        parts(&String::from_utf8_lossy(&answer)).0
    };
    assert_eq!(probe("/readyz"), 200);
    server.signal("TERM");
    wait_until("a server that is not ready", || probe("/readyz") == 503);
    assert_eq!(probe("/healthz"), 200);
}

#[test]
fn several_requests_can_share_one_connection() {
    let server = server(&[]);
    let mut socket = socket(&server, "http");
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3);
    let last = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    socket.write_all(format!("{request}{last}").as_bytes()).expect("they are read");
    let mut answers = String::new();
    socket.read_to_string(&mut answers).expect("the answers");
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 4, "{answers}");
}
