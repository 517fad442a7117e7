//! Sends back what it gets: the least that a server on a tokio runtime costs.

use std::io::Write;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::options::EchoServerOptions;

/// Takes the requests of a deep window in one call.
const BUFFER_LEN: usize = 64 << 10;

/// Serves until it is killed; one thread, one task a connection.
pub fn run(options: &EchoServerOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&options.listen)
            .await
            .with_context(|| format!("--listen {}: cannot listen there", options.listen))?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "ready echo={}", listener.local_addr()?)?;
        stdout.flush()?;
        if options.spin {
            // A task that is always ready keeps the runtime from sleeping.
            tokio::spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
        }
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(echo(stream))),
                // Out of files, or the other side was faster: neither ends the server.
                Err(error) => eprintln!("cannot accept a connection: {error}"),
            }
        }
    })
}

async fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; BUFFER_LEN];
    if stream.set_nodelay(true).is_err() {
        return;
    }
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
