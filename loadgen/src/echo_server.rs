//! Server that sends back all received bytes: the minimum cost of a server on a tokio runtime. With `--sync` it
//! also writes and syncs before each response: the minimum cost of a durable server.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bare_server::BareServer;
use crate::options::EchoServerOptions;
use crate::sync_file::SyncFile;
use crate::system::System;

/// Large enough to read all requests of a deep window in one call.
const BUFFER_LEN: usize = 64 << 10;

/// File to which every batch is written before its response.
type Disk = Option<Arc<Mutex<SyncFile>>>;

/// Serves until it is killed. A signal that can be handled also removes the file.
pub fn run(options: &EchoServerOptions) -> Result<()> {
    let disk = options.sync.as_deref().map(SyncFile::create).transpose()?;
    let disk: Disk = disk.map(|file| Arc::new(Mutex::new(file)));
    let server = BareServer { name: System::Echo.ready_name(), listen: &options.listen, spin: options.spin };
    server.run(|stream| echo(stream, disk.clone()))
}

async fn echo(mut stream: TcpStream, disk: Disk) {
    let mut buffer = vec![0; BUFFER_LEN];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if let Some(file) = &disk {
            // The single thread waits for the disk, as the simplest durable server would.
            let written = file.lock().unwrap_or_else(PoisonError::into_inner).write_block();
            if let Err(error) = written {
                eprintln!("--sync: {error}; the write was not synced, so the connection is closed");
                return;
            }
        }
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
