//! Sends back what it gets: the least that a server on a tokio runtime costs. With `--sync` it writes and syncs before:
//! the least that a durable one costs.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

use crate::options::EchoServerOptions;
use crate::sync_file::SyncFile;

/// Takes the requests of a deep window in one call.
const BUFFER_LEN: usize = 64 << 10;

/// What every batch is written to before it is answered.
type Disk = Option<Arc<Mutex<SyncFile>>>;

/// Serves until it is killed; one thread, one task a connection. A signal that can be handled removes the file.
pub fn run(options: &EchoServerOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            ended = serve(options) => ended,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    })
}

async fn serve(options: &EchoServerOptions) -> Result<()> {
    let disk = options.sync.as_deref().map(SyncFile::create).transpose()?;
    let disk: Disk = disk.map(|file| Arc::new(Mutex::new(file)));
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
            Ok((stream, _)) => drop(tokio::spawn(echo(stream, disk.clone()))),
            // Out of files, or the other side was faster: neither ends the server.
            Err(error) => eprintln!("cannot accept a connection: {error}"),
        }
    }
}

async fn echo(mut stream: TcpStream, disk: Disk) {
    let mut buffer = vec![0; BUFFER_LEN];
    if stream.set_nodelay(true).is_err() {
        return;
    }
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
