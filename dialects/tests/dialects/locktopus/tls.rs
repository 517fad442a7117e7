//! Encrypted connections, to the real server.

use waymaker_client::Tls;
use waymaker_dialects::locktopus::{ConnectionOptions, LocktopusClient, LocktopusError};

use super::{locktopus_server, options, set, url};
use crate::authority::{Authority, Issued};
use crate::patience::soon;
use crate::real::{RealServer, server};

/// Options of a server that encrypts with this certificate and serves Locktopus on both of its ports.
fn arguments(issued: &Issued) -> Vec<&str> {
    let ports = ["--http-listen", "127.0.0.1:0", "--locktopus-listen", "127.0.0.1:0"];
    [&ports[..], &["--tls-cert", issued.cert(), "--tls-key", issued.key()]].concat()
}

fn wss(server: &RealServer, port: &str) -> String {
    format!("wss://{}/v1?namespace=test", server.listener(port))
}

async fn assert_serves(client: LocktopusClient) {
    assert_eq!(soon(client.lock(&set("W a/b"))).await, Ok(true));
    assert_eq!(soon(client.release()).await, Ok(()));
    client.close().await;
}

async fn problem(url: &str, tls: &Tls) -> LocktopusError {
    soon(LocktopusClient::connect_tls(url, tls)).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn a_client_that_trusts_the_ca_is_served_on_every_port() {
    let authority = Authority::new();
    let issued = authority.issue("server");
    let server = server!(None, &arguments(&issued));
    let tls = Tls::new().ca_file(authority.ca());
    for port in ["http", "locktopus"] {
        assert_serves(soon(LocktopusClient::connect_tls(&wss(&server, port), &tls)).await.unwrap()).await;
    }
    let options: ConnectionOptions = options(&server, "test").tls(tls);
    assert_serves(soon(LocktopusClient::connect_with(&options)).await.unwrap()).await;
}

#[tokio::test]
async fn a_server_with_a_client_ca_admits_only_trusted_clients() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (issued, client_ca) = (authority.issue("server"), clients.ca());
    let client_ca = ["--tls-client-ca", client_ca.to_str().unwrap()];
    let server = server!(None, &[&arguments(&issued)[..], &client_ca].concat());
    let address = wss(&server, "http");
    let tls = || Tls::new().ca_file(authority.ca());
    let error = problem(&address, &tls()).await;
    assert!(error.to_string().contains("requires a client certificate"), "{error}");
    let identity = clients.issue("client");
    let known = tls().identity_files(identity.cert(), identity.key());
    assert_serves(soon(LocktopusClient::connect_tls(&address, &known)).await.unwrap()).await;
}

#[tokio::test]
async fn an_untrusted_server_and_unusable_settings_are_reported() {
    let (authority, another) = (Authority::new(), Authority::new());
    let issued = authority.issue("server");
    let server = server!(None, &arguments(&issued));
    let address = wss(&server, "http");
    let error = problem(&address, &Tls::new().ca_file(another.ca())).await;
    assert!(matches!(error, LocktopusError::Connect { .. }), "{error}");
    assert!(error.to_string().contains("no trusted CA signed the certificate of the server"), "{error}");
    let elsewhere = Tls::new().ca_file(authority.ca()).server_name("elsewhere.example");
    let error = problem(&address, &elsewhere).await;
    assert!(error.to_string().contains("elsewhere.example"), "{error}");
    let error = problem(&address, &Tls::new().ca_file("/nonexistent.pem")).await;
    assert!(matches!(error, LocktopusError::Tls { .. }), "{error}");
    assert!(
        error.to_string().starts_with("tls: ") && error.to_string().contains("/nonexistent.pem"),
        "{error}"
    );
}

#[tokio::test]
async fn a_mismatch_of_ws_and_wss_is_explained() {
    let authority = Authority::new();
    let issued = authority.issue("server");
    let plain = locktopus_server!();
    let error = problem(&wss(&plain, "http"), &Tls::new().ca_file(authority.ca())).await;
    assert!(error.to_string().contains("then use ws://"), "{error}");
    let encrypting = server!(None, &arguments(&issued));
    let error = problem(&url(&encrypting, "test"), &Tls::new()).await;
    assert!(error.to_string().contains("speaks TLS"), "{error}");
}
