//! Sends back what it gets: the least that a server on a tokio runtime costs. With `--sync` it writes and syncs before:
//! the least that a durable one costs.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::address::System;
use crate::bare_server::BareServer;
use crate::options::EchoServerOptions;
use crate::sync_file::SyncFile;

/// Takes the requests of a deep window in one call.
const BUFFER_LEN: usize = 64 << 10;

/// What every batch is written to before it is answered.
type Disk = Option<Arc<Mutex<SyncFile>>>;

/// Serves until it is killed. A signal that can be handled removes the file.
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
            // The one thread waits for the disk, as the simplest durable server would.
            let written = file.lock().unwrap_or_else(PoisonError::into_inner).write_block();
            if let Err(error) = written {
                eprintln!("--sync: {error}; the connection ends, since nothing was made durable");
                return;
            }
        }
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
