//! What all bare servers have in common: one thread, one task a connection, one line that says where it listens.

use std::io::Write;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

/// A server that does the least that one of its kind can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BareServer<'a> {
    /// What its address is called in the line that says it is ready.
    pub(crate) name: &'a str,
    /// Where it listens.
    pub(crate) listen: &'a str,
    /// It never sleeps while it waits for requests.
    pub(crate) spin: bool,
}

impl BareServer<'_> {
    /// Serves until it is killed. A signal that can be handled lets the caller clean up.
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
            .with_context(|| format!("--listen {listen}: cannot listen there"))?;
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
                // Out of files, or the other side was faster: neither ends the server.
                Err(error) => eprintln!("cannot accept a connection: {error}"),
            }
        }
    }
}
