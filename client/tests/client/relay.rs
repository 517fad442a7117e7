//! A wire between client and server that a test can cut.

use std::sync::Mutex;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) struct Relay {
    url: String,
    accepting: JoinHandle<()>,
    wires: std::sync::Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Relay {
    pub(crate) async fn to(server_url: &str) -> Self {
        let server = server_url.trim_start_matches("waymaker://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("waymaker://{}", listener.local_addr().unwrap());
        let wires = std::sync::Arc::new(Mutex::new(Vec::new()));
        let accepting = tokio::spawn({
            let wires = std::sync::Arc::clone(&wires);
            async move {
                loop {
                    let (mut client, _) = listener.accept().await.unwrap();
                    let server = server.clone();
                    let wire = tokio::spawn(async move {
                        if let Ok(mut server) = TcpStream::connect(server).await {
                            // However it ends, both sides see the end.
                            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                        }
                    });
                    wires.lock().unwrap().push(wire);
                }
            }
        });
        Self { url, accepting, wires }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
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
