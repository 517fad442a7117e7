//! The least that a server of WebSockets costs: the library alone, with buffers as in our server, and the same answer to
//! every message, as long as ours.

use anyhow::Result;
use axum::Router;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::routing::any;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tonic::codegen::Service;

use crate::address::System;
use crate::bare_server::BareServer;
use crate::options::BareServerOptions;

/// Bytes that one WebSocket buffers, as in our server.
const READ_BUFFER_LEN: usize = 1 << 10;
/// Bytes that a connection buffers while it still speaks HTTP, as in our server.
const HTTP_BUFFER_LEN: usize = 8 << 10;
/// The answer to a lock; that to a release is as long.
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
    // The other side is gone, or speaks something else.
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
    fn the_settings_are_those_of_our_server() {
        assert_eq!(READ_BUFFER_LEN, limits::WEBSOCKET_BUFFER_LEN);
        assert_eq!(HTTP_BUFFER_LEN, limits::HTTP_BUFFER_LEN);
    }

    #[test]
    fn one_answer_is_as_long_as_the_other() {
        let release = "{\"id\":\"1234567\",\"action\":\"release\",\"state\":\"ready\"}\n";
        assert_eq!(ANSWER.len(), release.len());
    }
}
