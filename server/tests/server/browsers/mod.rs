//! Web pages in a browser that reaches the server: only pages of known origins and names are served.

mod chromium;
mod site;

use crate::harness::Server;
use crate::locktopus::{http, parts, socket};
use std::io::{Read, Write};

const PORTS: [&str; 2] = ["http", "locktopus"];
const PATHS: [&str; 5] = ["/", "/v1?namespace=a", "/stats_v1?namespace=a", "/metrics", "/unknown"];

fn server(arguments: &[&str]) -> Server {
    let ports =
        ["--grpc-listen", "--http-listen", "--locktopus-listen"].map(|option| [option, "127.0.0.1:0"]);
    Server::start(&[ports.as_flattened(), arguments].concat())
}

#[test]
fn a_request_for_an_unknown_name_is_refused_with_the_option_that_allows_it() {
    let server = server(&[]);
    for port in PORTS {
        for path in PATHS {
            let answer = http(&server, port, &format!("GET {path}\nHost: evil.example:7422"));
            let (status, head, body) = parts(&answer);
            assert_eq!(status, 421, "{port} {path}: {answer}");
            assert!(body.contains("\"evil.example\"") && body.contains("--http-hosts"), "{body}");
            assert!(head.contains("content-type: text/plain"), "{head}");
        }
    }
    for path in ["/healthz", "/readyz"] {
        let answer = http(&server, "http", &format!("GET {path}\nHost: waymaker.default.svc:7422"));
        assert_eq!((parts(&answer).0, parts(&answer).2), (200, "ok"), "{path}");
    }
}

#[test]
fn names_of_the_option_are_served() {
    for (option, name) in
        [("--http-hosts=a.example,B.example", "b.example"), ("--http-hosts=*", "evil.example")]
    {
        let server = server(&[option]);
        let answer = http(&server, "http", &format!("GET /metrics\nHost: {name}:7422"));
        assert_eq!(parts(&answer).0, 200, "{option}: {answer}");
    }
}

#[test]
fn a_page_of_another_origin_is_refused_with_the_option_that_allows_it() {
    let server = server(&[]);
    let upgrade = "Connection: upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==";
    for port in PORTS {
        for path in PATHS {
            for method in ["GET", "POST", "OPTIONS"] {
                let answer = http(
                    &server,
                    port,
                    &format!("{method} {path}\nOrigin: http://127.0.0.1:3000\n{upgrade}"),
                );
                let (status, head, body) = parts(&answer);
                assert_eq!(status, 403, "{port} {method} {path}: {answer}");
                assert!(
                    body.contains("\"http://127.0.0.1:3000\"") && body.contains("--http-origins"),
                    "{body}"
                );
                assert!(!head.contains("access-control-"), "{head}");
            }
            let image = "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: image";
            let answer = http(&server, port, &format!("GET {path}\n{image}"));
            assert_eq!(parts(&answer).0, 403, "{port} {path}: {answer}");
        }
    }
}

#[test]
fn a_page_of_an_allowed_origin_may_read_responses() {
    let server = server(&["--http-origins", "https://app.example,http://b.example"]);
    for (port, path) in [("http", "/metrics"), ("http", "/stats_v1?namespace=a"), ("locktopus", "/")] {
        let answer = http(&server, port, &format!("GET {path}\nOrigin: https://app.example"));
        let (status, head, _) = parts(&answer);
        assert_ne!(status, 403, "{port} {path}: {answer}");
        assert!(head.contains("access-control-allow-origin: https://app.example\r\n"), "{head}");
        assert!(head.contains("vary: origin\r\n"), "{head}");
        let answer = http(&server, port, &format!("GET {path}\nOrigin: https://other.example"));
        assert_eq!(parts(&answer).0, 403, "{port} {path}: {answer}");
    }
    let preflight = "OPTIONS /v1\nOrigin: http://b.example\nAccess-Control-Request-Method: GET";
    let answer = http(&server, "http", preflight);
    let (status, head, _) = parts(&answer);
    assert!(status == 200 && head.contains("access-control-allow-origin: http://b.example\r\n"), "{answer}");
}

/// A browser sends HTTP/1 to every port without TLS.
#[test]
fn http_1_is_not_served_on_the_port_of_grpc() {
    let server = server(&[]);
    for path in ["/waymaker.v1.OperatorService/ForceRelease", "/"] {
        let mut socket = socket(&server, "grpc");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n"
        );
        socket.write_all(format!("{head}\0\0\0\0\0").as_bytes()).expect("it is read");
        let mut answer = Vec::new();
        // The server may reset the connection, because it does not read the rest.
        let _ = socket.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1"), "{path}: {}", answer.escape_ascii());
    }
    server.assert_serves();
}
