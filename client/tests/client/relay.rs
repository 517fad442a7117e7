//! A wire between client and server that a test can cut.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) struct Relay {
    url: String,
    accepting: JoinHandle<()>,
    wires: Arc<Mutex<Vec<JoinHandle<()>>>>,
    passed: Arc<Passed>,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toward {
    Server,
    Client,
}

/// How many bytes of the first connection have passed, by direction.
type Passed = [AtomicU64; 2];

impl Relay {
    pub(crate) async fn to(server_url: &str) -> Self {
        Self::start(server_url, None).await
    }

    /// A relay that cuts its first connection as soon as so many bytes have passed in this direction. Later connections
    /// are left alone.
    pub(crate) async fn cutting_once(server_url: &str, toward: Toward, after: u64) -> Self {
        Self::start(server_url, Some((toward, after))).await
    }

    async fn start(server_url: &str, mut cut: Option<(Toward, u64)>) -> Self {
        let server = server_url.trim_start_matches("waymaker://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("waymaker://{}", listener.local_addr().unwrap());
        let (wires, passed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Passed::default()));
        let accepting = tokio::spawn({
            let (wires, passed) = (Arc::clone(&wires), Arc::clone(&passed));
            async move {
                loop {
                    let (mut client, _) = listener.accept().await.unwrap();
                    let (server, cut, passed) = (server.clone(), cut.take(), Arc::clone(&passed));
                    let wire = tokio::spawn(async move {
                        let Ok(mut server) = TcpStream::connect(server).await else { return };
                        // However it ends, both sides see the end.
                        if let Some((toward, after)) = cut {
                            pass_until(client, server, toward, after, &passed).await;
                        } else {
                            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                        }
                    });
                    wires.lock().unwrap().push(wire);
                }
            }
        });
        Self { url, accepting, wires, passed }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// How many bytes of the first connection have passed in this direction. Only counted where it is to be cut.
    pub(crate) fn passed(&self, toward: Toward) -> u64 {
        self.passed[toward as usize].load(Ordering::Relaxed)
    }

    /// Cuts every connection there is. New ones work.
    pub(crate) fn cut(&self) {
        for wire in self.wires.lock().unwrap().drain(..) {
            wire.abort();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn pass_until(client: TcpStream, server: TcpStream, toward: Toward, after: u64, passed: &Passed) {
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let left = |direction| if direction == toward { after } else { u64::MAX };
    let [to_server_count, to_client_count] = passed;
    tokio::select! {
        () = pass(from_client, to_server, left(Toward::Server), to_server_count) => {}
        () = pass(from_server, to_client, left(Toward::Client), to_client_count) => {}
    }
}

/// Passes on so many bytes, and no more.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut left: u64, passed: &AtomicU64) {
    let mut buffer = [0; 4096];
    while left > 0 {
        let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let Ok(len) = from.read(&mut buffer[..room]).await else { return };
        // Before anybody can have read them.
        passed.fetch_add(len as u64, Ordering::Relaxed);
        if len == 0 || to.write_all(&buffer[..len]).await.is_err() {
            return;
        }
        left -= len as u64;
    }
}
