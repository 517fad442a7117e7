//! Minimum cost of a WebSocket server: the library alone, with the buffer sizes of waymaker-server, and a constant
//! response of the same length as its responses.

use anyhow::Result;
use axum::Router;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::routing::any;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tonic::codegen::Service;

use crate::bare_server::BareServer;
use crate::options::BareServerOptions;
use crate::system::System;

/// Buffer of one WebSocket in bytes, as in waymaker-server.
const READ_BUFFER_LEN: usize = 1 << 10;
/// Buffer of a connection during the HTTP phase in bytes, as in waymaker-server.
const HTTP_BUFFER_LEN: usize = 8 << 10;
/// Response to a lock; the response to a release has the same length.
const ANSWER: Utf8Bytes =
    Utf8Bytes::from_static("{\"id\":\"1234567\",\"action\":\"lock\",\"state\":\"acquired\"}\n");

/// Serves until it is killed.
pub fn run(options: &BareServerOptions) -> Result<()> {
    let router = Router::new().route("/v1", any(upgrade));
    let server =
        BareServer { name: System::WebSocketEcho.ready_name(), listen: &options.listen, spin: false };
    server.run(|stream| serve(stream, router.clone()))
}

async fn serve(stream: TcpStream, router: Router) {
    let service = service_fn(|request| router.clone().call(request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .max_buf_size(HTTP_BUFFER_LEN)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // The client closed the connection or speaks another protocol.
    let _ = connection.await;
}

async fn upgrade(upgrade: WebSocketUpgrade) -> axum::response::Response {
    upgrade.read_buffer_size(READ_BUFFER_LEN).write_buffer_size(0).on_upgrade(answer)
}

async fn answer(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        let is_asked = matches!(message, Message::Text(_) | Message::Binary(_));
        if is_asked && socket.send(Message::Text(ANSWER)).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use waymaker_server::limits;

    use super::*;

    #[test]
    fn settings_match_waymaker_server() {
        assert_eq!(READ_BUFFER_LEN, limits::WEBSOCKET_BUFFER_LEN);
        assert_eq!(HTTP_BUFFER_LEN, limits::HTTP_BUFFER_LEN);
    }

    #[test]
    fn responses_have_the_same_length() {
        let release = "{\"id\":\"1234567\",\"action\":\"release\",\"state\":\"ready\"}\n";
        assert_eq!(ANSWER.len(), release.len());
    }
}
