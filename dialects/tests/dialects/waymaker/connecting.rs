//! Addresses and certificates.

use super::fake::FakeServer;
use super::*;
use crate::authority::Authority;
use crate::nowhere::Nowhere;
use waymaker_client::{Credentials, Tls};
use waymaker_dialects::ConnectError;

#[tokio::test]
async fn an_invalid_address_is_rejected_with_an_example() {
    for address in [
        "",
        "127.0.0.1:7421",
        "waymaker://127.0.0.1:7421",
        "http://",
        "http://host:x",
        "http://host:65536",
        "http://user@host",
        "http://host/path",
    ] {
        let error = Waymaker::connect(address).await.expect_err(address);
        assert!(matches!(error, ConnectError::Address { .. }), "{error}");
        assert!(error.to_string().contains("expected http://HOST:PORT"), "{error}");
    }
}

#[tokio::test]
async fn the_error_names_an_unreachable_address() {
    let nowhere = Nowhere::new();
    let address = format!("http://{}", nowhere.address());
    let error = Waymaker::connect(&address).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot reach {address}: ")), "{error}");
    assert!(error.contains("refused"), "{error}");
}

#[tokio::test]
async fn a_tls_connection_authenticates_the_server_and_the_client() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (issued, ca) = (authority.issue("server"), clients.ca());
    let files =
        ["--tls-cert", issued.cert(), "--tls-key", issued.key(), "--tls-client-ca", ca.to_str().unwrap()];
    let server = server!(None, &[GRPC, &files].concat());
    let address = format!("https://{}", server.listener("grpc"));
    let tls = || Tls::new().ca_file(authority.ca());
    let identity = clients.issue("client");
    let known = tls().identity_files(identity.cert(), identity.key());
    let client = Waymaker::connect_with(&address, &known).await.unwrap();
    client.acquire(patient("k")).await.unwrap().unlock().await.unwrap();

    let stranger = Waymaker::connect_with(&address, &Tls::new().ca_file(clients.ca())).await;
    let error = stranger.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    let nobody = Waymaker::connect_with(&address, &tls().server_name("no name")).await;
    assert!(matches!(nobody, Err(ConnectError::Tls(_))));
}

/// Connects to the fake server with these credentials.
async fn connect_as(server: &FakeServer, credentials: &str) -> Waymaker {
    Waymaker::connect_as(&server.address, &Tls::new(), &Credentials::new(credentials)).await.unwrap()
}

#[tokio::test]
async fn each_call_carries_the_credentials() {
    let server = FakeServer::start().await;
    for (credentials, header) in [("wm_x.y", "Bearer wm_x.y"), ("", "")] {
        let client = connect_as(&server, credentials).await;
        let Err(Error::Transport(status)) = client.list_acquired_locks("").await else { panic!("a refusal") };
        assert_eq!((status.code(), status.message()), (tonic::Code::Unauthenticated, header));
        assert!(!format!("{client:?}").contains("wm_"), "{client:?}");
    }
}

#[tokio::test]
async fn a_lock_ends_when_the_credentials_are_refused() {
    let server = FakeServer::start().await;
    let client = connect_as(&server, "wm_refused").await;
    let Err(Error::Transport(status)) = soon(client.acquire(patient("k"))).await else { panic!("a refusal") };
    assert_eq!(status.message(), "the token is unknown");
}

#[tokio::test]
async fn credentials_that_no_header_can_carry_are_rejected() {
    let server = FakeServer::start().await;
    let credentials = Credentials::new("wm_\n");
    let refused = Waymaker::connect_as(&server.address, &Tls::new(), &credentials).await;
    assert!(matches!(refused, Err(ConnectError::Credentials)));
}
