//! Messages that the real server does not send on demand, from a server that follows a script.

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_async, accept_hdr_async};
use waymaker_client::{Credentials, Tls};
use waymaker_dialects::locktopus::{CloseReason, LocktopusClient, LocktopusError};

use super::set;
use crate::patience::soon;

/// A client, and the server's side of its connection.
async fn connected() -> (LocktopusClient, Scripted) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/v1?namespace=test", listener.local_addr().unwrap());
    let accept = async { accept_async(listener.accept().await.unwrap().0).await.unwrap() };
    let (client, socket) = soon(async { tokio::join!(LocktopusClient::connect(&url), accept) }).await;
    (client.unwrap(), Scripted { socket })
}

struct Scripted {
    socket: WebSocketStream<TcpStream>,
}

impl Scripted {
    /// Returns the next message of the client.
    async fn receive(&mut self) -> Message {
        soon(self.socket.next()).await.expect("the client is there").unwrap()
    }

    async fn expect(&mut self, text: &str) {
        assert_eq!(self.receive().await, Message::text(text));
    }

    async fn expect_close(&mut self, code: u16) {
        let Message::Close(Some(frame)) = self.receive().await else { panic!("it closes with a code") };
        assert_eq!((u16::from(frame.code), &*frame.reason), (code, ""));
    }

    async fn send(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    async fn answer(&mut self, action: &str, state: &str) {
        self.send(format!("{{\"id\":\"7\",\"action\":\"{action}\",\"state\":\"{state}\"}}\n")).await;
    }
}

const LOCK: &str = r#"{"action":"lock","resources":[{"type":"write","path":["a"]}]}"#;
const RELEASE: &str = r#"{"action":"release"}"#;

#[tokio::test]
async fn a_lock_and_its_release_exchange_four_messages() {
    let (client, mut server) = connected().await;
    let script = async move {
        server.expect(LOCK).await;
        server.answer("lock", "acquired").await;
        server.expect(RELEASE).await;
        server.answer("release", "ready").await;
        server.expect_close(1000).await;
    };
    let calls = async {
        assert_eq!(client.lock(&set("W a")).await, Ok(true));
        assert_eq!(client.release().await, Ok(()));
        client.close().await;
    };
    tokio::join!(script, calls);
}

#[tokio::test]
async fn an_acquired_message_that_crosses_the_release_is_ignored() {
    let (client, mut server) = connected().await;
    let script = async {
        server.expect(LOCK).await;
        server.answer("lock", "enqueued").await;
        server.expect(RELEASE).await;
        server.answer("lock", "acquired").await;
        server.answer("release", "ready").await;
        server.expect(LOCK).await;
        server.answer("lock", "acquired").await;
    };
    let calls = async {
        assert_eq!(client.lock(&set("W a")).await, Ok(false));
        let (acquired, released) = tokio::join!(client.acquire(), client.release());
        assert_eq!((acquired, released), (Err(LocktopusError::ReleasedBeforeAcquired), Ok(())));
        assert!(!client.is_acquired());
        assert_eq!(client.lock(&set("W a")).await, Ok(true));
    };
    tokio::join!(script, calls);
}

#[tokio::test]
async fn an_unexpected_message_closes_the_connection_with_code_3000() {
    for (text, what) in [
        (r#"{"id":"7","action":"release","state":"ready"}"#, "another action"),
        (r#"{"id":"7","action":"lock","state":"ready"}"#, "another state"),
        (r#"{"id":"8","action":"lock","state":"acquired"}"#, "another id"),
        (r#"{"id":"7","action":"seize","state":"acquired"}"#, "an unknown action"),
        (r#"{"id":"7","action":"lock","state":"lost"}"#, "an unknown state"),
        (r#"{"id":7,"action":"lock","state":"acquired"}"#, "an id of another type"),
        (r#"{"id":"7"}"#, "too little"),
        ("hello", "no JSON"),
        ("", "nothing"),
    ] {
        let (client, mut server) = connected().await;
        let enqueued = tokio::sync::Notify::new();
        let script = async {
            server.expect(LOCK).await;
            server.answer("lock", "enqueued").await;
            enqueued.notified().await;
            server.send(text).await;
            server.expect_close(3000).await;
        };
        let unexpected = CloseReason::Unexpected(text.to_owned());
        let calls = async {
            assert_eq!(client.lock(&set("W a")).await, Ok(false), "{what}");
            enqueued.notify_one();
            assert_eq!(client.acquire().await, Err(LocktopusError::Closed(unexpected.clone())), "{what}");
            assert_eq!(client.closed().await, unexpected);
        };
        tokio::join!(script, calls);
    }
}

#[tokio::test]
async fn a_server_error_is_reported_with_its_text() {
    let (client, mut server) = connected().await;
    let script = async {
        server.expect(LOCK).await;
        server.send("communication error: the disk is wet").await;
    };
    let reason = CloseReason::Communication("the disk is wet".to_owned());
    let (result, ()) = soon(async { tokio::join!(async { client.lock(&set("W a")).await }, script) }).await;
    assert_eq!(result, Err(LocktopusError::Closed(reason.clone())));
    assert_eq!(
        result.unwrap_err().to_string(),
        "the connection has ended: communication error: the disk is wet"
    );
    assert_eq!(client.closed().await, reason);
}

#[tokio::test]
async fn a_broken_connection_is_reported_as_lost() {
    let (client, server) = connected().await;
    let closed = client.closed();
    drop(server);
    assert!(matches!(soon(closed).await, CloseReason::Lost(_)));
}

/// No byte of a server makes the client panic.
#[tokio::test]
async fn invalid_websocket_bytes_end_the_connection() {
    use tokio::io::AsyncWriteExt;
    for bytes in
        [&[0xff; 16][..], &[0x81, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], &[b'H'; 128]]
    {
        let (client, mut server) = connected().await;
        server.socket.get_mut().write_all(bytes).await.unwrap();
        assert!(matches!(soon(client.closed()).await, CloseReason::Lost(_)));
    }
}

#[tokio::test]
async fn the_handshake_carries_the_credentials() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/v1?namespace=test", listener.local_addr().unwrap());
    let (tls, credentials) = (Tls::new(), Credentials::new("wm_x.y"));
    let mut header = String::new();
    let accept = async {
        #[expect(clippy::result_large_err, reason = "the library gives the type")]
        let look = |request: &Request, response: Response| {
            header = request.headers()["authorization"].to_str().unwrap().to_owned();
            Ok(response)
        };
        accept_hdr_async(listener.accept().await.unwrap().0, look).await.unwrap()
    };
    let connect = LocktopusClient::connect_as(&url, &tls, &credentials);
    let (client, _socket) = soon(async { tokio::join!(connect, accept) }).await;
    client.unwrap();
    assert_eq!(header, "Bearer wm_x.y");
}

#[tokio::test]
async fn refused_credentials_end_the_attempt_with_the_status() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/v1?namespace=test", listener.local_addr().unwrap());
    let (tls, credentials) = (Tls::new(), Credentials::new("wm_x.y"));
    let refuse = async {
        let mut socket = listener.accept().await.unwrap().0;
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            socket.read_buf(&mut request).await.unwrap();
        }
        let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 20\r\n\r\nthe token is unknown";
        socket.write_all(answer.as_bytes()).await.unwrap();
        socket
    };
    let connect = LocktopusClient::connect_as(&url, &tls, &credentials);
    let (client, _socket) = soon(async { tokio::join!(connect, refuse) }).await;
    let Err(LocktopusError::Refused { status, message, .. }) = client else { panic!("a refusal") };
    assert_eq!((status, message.as_str()), (401, "the token is unknown"));
}
