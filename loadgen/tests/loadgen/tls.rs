//! Over TLS: Waymaker, with each of its protocols.

use std::process::Command;

use crate::authority::{Authority, Issued};
use crate::program::{Ended, Server, assert_death_is_noticed, loadgen, read_json, run};
use crate::waymaker::server_program;

const BRIEF: [&str; 4] = ["--duration", "500ms", "--warmup", "20ms"];

/// Starts a server with TLS; `port` is the name of the port in the line that says the server is ready.
fn server(issued: &Issued, port: &str, more: &[&str]) -> Server {
    let mut command = Command::new(server_program());
    command
        .args(["--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"])
        .args(["--data-dir", "none", "--tls-cert", issued.cert(), "--tls-key", issued.key()])
        .args(more);
    Server::start(command, port)
}

/// Returns the CA file that makes clients trust this authority.
fn ca(authority: &Authority) -> String {
    authority.ca().to_str().expect("a path of text").to_owned()
}

/// Runs a short load of a target as a client that trusts this authority.
fn load(target: &str, authority: &Authority, more: &[&str]) -> Ended {
    run(&[&BRIEF[..], &["--target", target, "--tls-ca", &ca(authority)], more].concat())
}

#[test]
fn all_responses_of_every_workload_are_correct() {
    let authority = Authority::new();
    let server = server(&authority.issue("server"), "binary", &["--workers", "2"]);
    let target = format!("waymaker+tls://{}", server.address);
    for shape in [
        &["--connections", "1"][..],
        &["--connections", "10", "--depth", "64", "--threads", "2"],
        &["--connections", "10", "--depth", "64", "--window", "sliding", "--keys", "640"],
        // More than TLS or a socket accepts at once.
        &["--connections", "3", "--depth", "1024", "--key-size", "1024"],
        &["--connections", "4", "--depth", "4", "--rate", "5k"],
        &["--workload", "hot", "--connections", "4", "--depth", "16"],
        &["--workload", "rw", "--connections", "8", "--depth", "16", "--keys", "50"],
        &["--workload", "tree", "--connections", "4", "--items", "3"],
        &["--workload", "multi", "--connections", "4", "--depth", "4"],
        &["--workload", "semaphore", "--connections", "4", "--depth", "4"],
        &["--workload", "throttle", "--connections", "4", "--depth", "4"],
        &["--workload", "churn", "--connections", "2", "--sessions"],
        &["--workload", "idle", "--connections", "10"],
        &["--workload", "readers-storm", "--readers", "2k", "--rate", "500", "--connections", "2"],
        &[
            "--workload",
            "expiry-storm",
            "--keys",
            "2k",
            "--lease",
            "2s",
            "--rate",
            "500",
            "--connections",
            "2",
        ],
    ] {
        let ended = load(&target, &authority, shape);
        ended.assert_success();
        assert!(ended.stdout.contains("all checked, none wrong"), "{ended:#?}");
        assert!(ended.stdout.contains(" on waymaker+tls://127.0.0.1:"), "{ended:#?}");
    }
}

#[test]
fn loads_the_front_ends_too() {
    let authority = Authority::new();
    let issued = authority.issue("server");
    for (scheme, port, shape) in [
        ("grpc+tls", "grpc", &["--connections", "2", "--depth", "3"][..]),
        ("grpc+tls", "grpc", &["--connections", "2", "--workload", "stream"]),
        ("grpc+tls", "grpc", &["--connections", "2", "--workload", "held-streams", "--streams", "20"]),
        ("locktopus+tls", "http", &["--connections", "3"]),
        ("locktopus+tls", "http", &["--connections", "3", "--workload", "idle"]),
    ] {
        let server = server(&issued, port, &["--workers", "1"]);
        let ended = load(&format!("{scheme}://{}", server.address), &authority, shape);
        ended.assert_success();
        assert!(ended.stdout.contains("all checked, none wrong"), "{ended:#?}");
    }
}

#[test]
fn names_the_target_as_given_in_the_report() {
    let authority = Authority::new();
    let server = server(&authority.issue("server"), "binary", &["--workers", "1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let target = format!("waymaker+tls://{}", server.address.replace("127.0.0.1", "localhost"));
    load(&target, &authority, &["--json", path.to_str().expect("text")]).assert_success();
    assert_eq!(read_json(&path)["plan"]["target"], target);
}

#[test]
fn rejects_a_server_with_an_untrusted_certificate() {
    let (authority, another) = (Authority::new(), Authority::new());
    let issued = authority.issue("server");
    for (scheme, port) in [("waymaker+tls", "binary"), ("grpc+tls", "grpc"), ("locktopus+tls", "http")] {
        let server = server(&issued, port, &["--workers", "1"]);
        let target = format!("{scheme}://{}", server.address);
        load(&target, &another, &[])
            .assert_refused(&target)
            .assert_refused("no trusted CA signed the certificate of the server");
    }
    let server = server(&issued, "binary", &["--workers", "1"]);
    let target = format!("waymaker+tls://{}", server.address);
    load(&target, &another, &["--workload", "churn"])
        .assert_refused("no trusted CA signed the certificate of the server");
    // The system's CAs did not sign the certificate.
    assert_eq!(run(&["--target", &target]).code, Some(2));
}

#[test]
fn shows_a_client_certificate_to_a_server_that_requires_one() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (issued, identity) = (authority.issue("server"), clients.issue("client"));
    let shown = ["--tls-cert", identity.cert(), "--tls-key", identity.key()];
    for (scheme, port) in [("waymaker+tls", "binary"), ("grpc+tls", "grpc"), ("locktopus+tls", "http")] {
        let server = server(&issued, port, &["--workers", "1", "--tls-client-ca", &ca(&clients)]);
        let target = format!("{scheme}://{}", server.address);
        load(&target, &authority, &["--connections", "1"])
            .assert_refused("the server requires a client certificate that its CA signed");
        load(&target, &authority, &[&shown[..], &["--connections", "2"]].concat()).assert_success();
        let of_environment = loadgen()
            .args(BRIEF)
            .args(["--target", &target])
            .env("WAYMAKER_TLS_CA", ca(&authority))
            .env("WAYMAKER_TLS_CERT", identity.cert())
            .env("WAYMAKER_TLS_KEY", identity.key())
            .output()
            .expect("it starts");
        assert!(of_environment.status.success(), "{of_environment:?}");
    }
}

#[test]
fn tells_encrypted_and_unencrypted_peers_apart() {
    let authority = Authority::new();
    let plain = crate::waymaker::server(&["--workers", "1"]);
    let target = format!("waymaker+tls://{}", plain.address);
    load(&target, &authority, &[]).assert_refused("then the address has no +tls");
    let encrypted = server(&authority.issue("server"), "binary", &["--workers", "1"]);
    let target = format!("waymaker://{}", encrypted.address);
    load(&target, &authority, &[]).assert_refused(&target);
}

#[test]
fn reports_a_server_that_dies() {
    let authority = Authority::new();
    let server = server(&authority.issue("server"), "binary", &["--workers", "1"]);
    let target = format!("waymaker+tls://{}", server.address);
    assert_death_is_noticed(server, &target, &["--tls-ca", &ca(&authority)]);
}

#[test]
fn names_files_that_cannot_be_used() {
    let target = ["--target", "waymaker+tls://127.0.0.1:1"];
    for (arguments, words) in [
        (["--tls-ca", "/nonexistent.pem"], "/nonexistent.pem"),
        (["--tls-cert", "client.pem"], "--tls-key"),
        (["--tls-key", "client.key"], "--tls-cert"),
    ] {
        run(&[target, arguments].concat()).assert_refused(words);
    }
    let ended = run(&["compare", "--targets", "waymaker+tls://127.0.0.1:1"]);
    ended.assert_refused("compare does not support TLS");
    let authority = Authority::new();
    load("waymaker+tls://127.0.0.1:1", &authority, &[])
        .assert_refused("waymaker-server --listen 127.0.0.1:1 --tls-cert FILE --tls-key FILE");
}
