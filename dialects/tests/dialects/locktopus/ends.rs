//! Servers that refuse, stop or are not there.

use waymaker_dialects::locktopus::{CloseReason, LocktopusClient, LocktopusError};

use super::{connect, locktopus_server, set, url};
use crate::patience::soon;

async fn refusal(url: &str) -> LocktopusError {
    LocktopusClient::connect(url).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn an_invalid_address_is_rejected_with_an_example() {
    for url in [
        "",
        "127.0.0.1:7422",
        "http://127.0.0.1/v1?namespace=a",
        "https://locks/v1?namespace=a",
        "ws://",
        "ws://a b",
        "ws://127.0.0.1:65536/v1?namespace=a",
        "wss://[::1]:99999/v1?namespace=a",
    ] {
        let error = refusal(url).await;
        assert!(matches!(error, LocktopusError::Url { .. }), "{error:?}");
        assert!(error.to_string().contains("expected ws://HOST:PORT/v1?namespace=NAME"), "{error}");
    }
}

#[tokio::test]
async fn the_error_names_an_unreachable_server() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refusal(&format!("ws://127.0.0.1:{port}/v1?namespace=a")).await;
    assert!(error.to_string().contains(&port.to_string()), "{error}");
    assert!(matches!(error, LocktopusError::Connect { .. }), "{error:?}");
}

#[tokio::test]
async fn a_refused_connection_reports_the_servers_reason() {
    let server = locktopus_server!();
    for (url, expected_status, text) in [
        (url(&server, ""), 400, "URL parameter 'namespace' is required"),
        (format!("{}&abandon-timeout-ms=soon", url(&server, "a")), 400, "'abandon-timeout-ms'"),
        (url(&server, "a").replace("/v1", "/v2"), 404, "404 page not found"),
    ] {
        let error = refusal(&url).await;
        let LocktopusError::Refused { status, message, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*status, expected_status);
        assert!(message.contains(text), "{message}");
    }
}

#[tokio::test]
async fn a_set_above_the_server_limit_fails_with_the_servers_message() {
    let server = locktopus_server!();
    let client = connect(&server).await;
    let many: Vec<_> = (0..1025).flat_map(|number| set(&format!("W {number}"))).collect();
    let text = "cannot build resource lock: more than 1024 resources".to_owned();
    let error = LocktopusError::Closed(CloseReason::Communication(text));
    assert_eq!(soon(client.lock(&many)).await, Err(error));
}

#[tokio::test]
async fn a_lock_is_lost_when_the_server_dies() {
    let mut server = locktopus_server!();
    let client = connect(&server).await;
    assert_eq!(client.lock(&set("W a")).await, Ok(true));
    let closed = client.closed();
    server.kill();
    let reason = soon(closed).await;
    assert!(matches!(reason, CloseReason::Lost(_)), "{reason:?}");
    assert!(!client.is_acquired());
    assert_eq!(client.release().await, Err(LocktopusError::Closed(reason)));
}

#[test]
fn connections_close_when_their_runtime_shuts_down() {
    let server = locktopus_server!();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let client = first.block_on(connect(&server));
    drop(first);
    let reason = runtime().block_on(soon(client.closed()));
    assert_eq!(reason.to_string(), "connection lost: the runtime of the connection has shut down");
}

#[tokio::test]
async fn connecting_to_a_silent_server_times_out() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/v1?namespace=a", listener.local_addr().unwrap());
    let error = soon(refusal(&url)).await;
    assert!(error.to_string().contains("no response in time"), "{error}");
}
