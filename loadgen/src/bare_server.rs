//! Common parts of the bare servers: one thread, one task per connection, and a line that prints the listen
//! address.

use std::io::Write;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

/// A server that does the minimum that a server of its kind can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BareServer<'a> {
    /// Name of the address in the line that says the server is ready.
    pub(crate) name: &'a str,
    /// Listen address.
    pub(crate) listen: &'a str,
    /// Whether the server busy-polls instead of sleeping while it waits for requests.
    pub(crate) spin: bool,
}

impl BareServer<'_> {
    /// Serves until it is killed. On a signal that can be handled, the caller gets the chance to clean up.
    pub(crate) fn run<F>(self, serve: impl Fn(TcpStream) -> F) -> Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::select! {
                ended = self.accept(serve) => ended,
                _ = interrupt.recv() => Ok(()),
                _ = terminate.recv() => Ok(()),
            }
        })
    }

    async fn accept<F>(self, serve: impl Fn(TcpStream) -> F) -> Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { name, listen, spin } = self;
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("--listen: cannot listen on {listen}"))?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "ready {name}={}", listener.local_addr()?)?;
        stdout.flush()?;
        if spin {
            // A task that is always ready keeps the runtime from sleeping.
            tokio::spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
        }
        loop {
            match listener.accept().await {
                Ok((stream, _)) if stream.set_nodelay(true).is_ok() => drop(tokio::spawn(serve(stream))),
                Ok(_) => {}
                // Too many open files, or the client closed first; the server continues in both cases.
                Err(error) => eprintln!("cannot accept a connection: {error}"),
            }
        }
    }
}
