//! Encrypted connections to a real server.

use waymaker_client::{Client, Error, Tls, Unavailable};

use crate::authority::Authority;
use crate::patience::{patient, soon};
use crate::real::server;
use crate::relay::Relay;

async fn connect(url: &str, tls: Tls) -> waymaker_client::Result<Client> {
    soon(patient().tls(tls).connect(url)).await
}

#[tokio::test]
async fn a_client_that_trusts_the_ca_is_served() {
    let authority = Authority::new();
    let issued = authority.issue("server");
    let server = server!(None, &["--tls-cert", issued.cert(), "--tls-key", issued.key()]);
    let pem = std::fs::read(authority.ca()).unwrap();
    for tls in [Tls::new().ca_file(authority.ca()), Tls::new().ca_pem(pem).server_name("localhost")] {
        let client = connect(&server.tls_url(), tls).await.unwrap();
        let lock = soon(client.write("key").into_future()).await.unwrap();
        lock.release().await.unwrap();
        // The other connections of the client also use TLS.
        let permit = soon(client.semaphore("pool", 1).acquire().into_future()).await.unwrap();
        permit.release().await.unwrap();
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_survives_the_loss_of_an_encrypted_connection() {
    let authority = Authority::new();
    let issued = authority.issue("server");
    let server = server!(None, &["--tls-cert", issued.cert(), "--tls-key", issued.key(), "--workers", "2"]);
    let relay = Relay::to(server.url()).await;
    let url = relay.url().replacen("waymaker://", "waymaker+tls://", 1);
    let client = connect(&url, Tls::new().ca_file(authority.ca())).await.unwrap();
    let lock = soon(client.write("key").into_future()).await.unwrap();
    for _ in 0..3 {
        relay.cut();
        assert_eq!(soon(client.inspect("key")).await.unwrap().holders.len(), 1);
    }
    assert!(lock.is_held());
    soon(lock.release()).await.unwrap();
}

#[tokio::test]
async fn an_untrusted_ca_and_a_wrong_server_name_are_reported() {
    let (authority, another) = (Authority::new(), Authority::new());
    let issued = authority.issue("server");
    let server = server!(None, &["--tls-cert", issued.cert(), "--tls-key", issued.key()]);
    let error = connect(&server.tls_url(), Tls::new().ca_file(another.ca())).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(Unavailable::Unreachable { .. })));
    assert!(error.to_string().contains("no trusted CA signed the certificate of the server"), "{error}");
    let elsewhere = Tls::new().ca_file(authority.ca()).server_name("elsewhere.example");
    let error = connect(&server.tls_url(), elsewhere).await.unwrap_err();
    assert!(error.to_string().contains("elsewhere.example"), "{error}");
}

#[tokio::test]
async fn a_server_with_a_client_ca_admits_only_trusted_clients() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (issued, ca) = (authority.issue("server"), clients.ca());
    let ca = ca.to_str().unwrap();
    let server =
        server!(None, &["--tls-cert", issued.cert(), "--tls-key", issued.key(), "--tls-client-ca", ca]);
    let tls = || Tls::new().ca_file(authority.ca());
    let error = connect(&server.tls_url(), tls()).await.unwrap_err();
    assert!(error.to_string().contains("requires a client certificate"), "{error}");
    let identity = clients.issue("client");
    let files = tls().identity_files(identity.cert(), identity.key());
    let read = |path| std::fs::read(path).unwrap();
    let pem = tls().identity_pem(read(identity.cert()), read(identity.key()));
    for tls in [files, pem] {
        connect(&server.tls_url(), tls).await.unwrap().close().await.unwrap();
    }
}

#[tokio::test]
async fn a_mismatch_of_tls_and_plain_tcp_gives_a_hint() {
    let authority = Authority::new();
    let issued = authority.issue("server");
    let plain = server!();
    let error = connect(&plain.tls_url(), Tls::new().ca_file(authority.ca())).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(Unavailable::Unreachable { .. })), "{error}");
    let encrypting = server!(None, &["--tls-cert", issued.cert(), "--tls-key", issued.key()]);
    let error = soon(patient().connect(encrypting.url())).await.unwrap_err();
    assert!(error.to_string().contains("waymaker+tls://"), "{error}");
}

#[tokio::test]
async fn unusable_tls_files_are_named_in_the_error() {
    let authority = Authority::new();
    let (one, other) = (authority.issue("one"), authority.issue("other"));
    let tls = || Tls::new().ca_file(authority.ca());
    for (tls, words) in [
        (Tls::new().ca_file("/nonexistent.pem"), &["CA", "/nonexistent.pem"][..]),
        (Tls::new().ca_file(one.key()), &["CA", one.key()]),
        (Tls::new().ca_pem("nothing"), &["CA", "given as text"]),
        (tls().identity_files(one.key(), one.key()), &["client certificate", one.key()]),
        (tls().identity_files(one.cert(), one.cert()), &["client key", one.cert()]),
        (tls().identity_files(one.cert(), other.key()), &["client certificate with its key"]),
        (tls().server_name("no name"), &["no name"]),
    ] {
        let error = connect("waymaker+tls://127.0.0.1:1", tls).await.unwrap_err();
        assert!(matches!(error, Error::Tls(_)), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("tls: ") && words.iter().all(|word| text.contains(word)), "{text}");
    }
}
