//! Every dialect over mutual TLS. Waymaker and Locktopus have more tests of their own.

use waymaker_client::Tls;
use waymaker_dialects::clever::{AcquireLockInput, Locker};
use waymaker_dialects::databend::Semaphore;
use waymaker_dialects::locket::{Locket, Resource, TypeCode};
use waymaker_dialects::locktopus::{self, LocktopusClient};
use waymaker_dialects::waymaker::{LockRequest, Waymaker};

use crate::authority::Authority;
use crate::patience::{LEASE, patient, soon};
use crate::real::server;

#[tokio::test]
async fn every_dialect_is_served_over_mutual_tls() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (issued, identity, client_ca) = (authority.issue("server"), clients.issue("client"), clients.ca());
    let ports = ["--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let files = ["--tls-cert", issued.cert(), "--tls-key", issued.key()];
    let client_ca = ["--tls-client-ca", client_ca.to_str().unwrap()];
    let server = server!(None, &[&ports[..], &files, &client_ca].concat());
    let tls = Tls::new().ca_file(authority.ca()).identity_files(identity.cert(), identity.key());

    let client = soon(patient().tls(tls.clone()).connect(&server.tls_url())).await.unwrap();
    let permit = soon(Semaphore::new_acquired(client.clone(), "pool", 1, "id", LEASE)).await.unwrap();
    drop(permit);
    let locker = Locker::new(client);
    let input = AcquireLockInput {
        key: "clever".to_owned(),
        owner: "me".to_owned(),
        lease_duration: Some(LEASE),
        ..AcquireLockInput::default()
    };
    let lock = soon(locker.acquire_lock(input)).await.unwrap();
    soon(locker.release_lock(&lock)).await.unwrap();

    let grpc = format!("https://{}", server.listener("grpc"));
    let locket = soon(Locket::connect_with(&grpc, &tls)).await.unwrap();
    let resource = Resource {
        key: "locket".to_owned(),
        owner: "me".to_owned(),
        type_code: TypeCode::Lock.into(),
        ..Resource::default()
    };
    soon(locket.lock(resource.clone(), 60)).await.unwrap();
    soon(locket.release(resource)).await.unwrap();
    let waymaker = soon(Waymaker::connect_with(&grpc, &tls)).await.unwrap();
    let held = soon(waymaker.acquire(LockRequest::new("waymaker"))).await.unwrap();
    soon(held.unlock()).await.unwrap();

    let url = format!("wss://{}/v1?namespace=test", server.listener("http"));
    let locktopus = soon(LocktopusClient::connect_tls(&url, &tls)).await.unwrap();
    assert_eq!(soon(locktopus.lock(&[locktopus::Resource::write(["a"])])).await, Ok(true));
    assert_eq!(soon(locktopus.release()).await, Ok(()));
}
