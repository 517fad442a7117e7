//! Credentials of a client, and a server that refuses them.

use waymaker_client::{Credentials, Error, ErrorCode};

use crate::fake::{FakeConnection, FakeServer, Seen, connected_with, still};
use crate::patience::soon;

const TOKEN: &str = "wm_0001020304050607.CAkKCwwNDg8QERITFBUWFxgZGhscHR4fICEiIyQlJic";

/// Accepts a connection and refuses its HELLO.
async fn refuse(server: &FakeServer) -> FakeConnection {
    let mut connection = server.accept().await;
    let (number, seen) = connection.next().await;
    assert!(matches!(seen, Seen::Hello(_)), "{seen:?}");
    connection.refuse(number, ErrorCode::Unauthorized).await;
    connection
}

fn assert_refused<T>(result: Result<T, Error>) {
    let Err(Error::Refused { code: ErrorCode::Unauthorized, field, message, .. }) = result else {
        panic!("the credentials are refused")
    };
    assert_eq!((field.as_str(), message.as_str()), ("credentials", "because"));
}

#[tokio::test]
async fn every_connection_sends_the_credentials() {
    let (client, flat, server) = connected_with(still().credentials(Credentials::new(TOKEN))).await;
    assert_eq!(flat.credentials, TOKEN.as_bytes());
    let pool = client.semaphore("pool", 1);
    let acquire = tokio::spawn(async move { pool.acquire().try_().await.map(drop) });
    let joined = server.join().await;
    assert_eq!(joined.credentials, TOKEN.as_bytes());
    drop(flat);
    assert_eq!(server.resume().await.credentials, TOKEN.as_bytes());
    acquire.abort();
}

#[tokio::test]
async fn a_client_without_credentials_sends_none() {
    let (_client, connection, _server) = connected_with(still()).await;
    assert_eq!(connection.credentials, b"");
}

/// The clock of the client stands still, so without this rule it would try for ever.
#[tokio::test]
async fn connecting_ends_when_the_credentials_are_refused() {
    let server = FakeServer::new();
    let url = server.url();
    let (client, _connection) = tokio::join!(soon(still().credentials(TOKEN).connect(&url)), refuse(&server));
    assert_refused(client);
}

#[tokio::test]
async fn a_call_after_an_outage_ends_when_the_credentials_are_refused() {
    let (client, connection, server) = connected_with(still().credentials(TOKEN)).await;
    drop(connection);
    let mut connection = refuse(&server).await;
    // Each later call causes one attempt.
    for _ in 0..2 {
        assert_eq!(soon(connection.next_or_end()).await, None);
        let (inspected, refused) = tokio::join!(soon(client.inspect("k")), refuse(&server));
        assert_refused(inspected);
        connection = refused;
    }
}

#[tokio::test]
async fn a_watch_ends_when_the_credentials_are_refused() {
    let (client, mut connection, server) = connected_with(still().credentials(TOKEN)).await;
    let watch = tokio::spawn(async move { client.watch("k").await });
    assert_eq!(connection.next().await.1, Seen::Watch(b"k".to_vec()));
    drop(connection);
    let _connection = refuse(&server).await;
    assert!(soon(watch).await.unwrap().is_err());
}

#[test]
fn settings_do_not_show_the_credentials() {
    let settings = format!("{:?}", still().credentials(TOKEN));
    assert!(!settings.contains("wm_") && !settings.contains("119, 109, 95"), "{settings}");
}
