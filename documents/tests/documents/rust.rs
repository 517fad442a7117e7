//! Rust blocks, each against a server of its own.

use std::cell::RefCell;
use std::error::Error;
use std::fmt::Debug;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use waymaker_client::Client;

use crate::server::{self, Addresses};

/// Time after which an example counts as hanging.
const WATCHDOG: Duration = Duration::from_secs(60);

#[allow(warnings, clippy::all, reason = "examples are written for readers")]
mod examples {
    include!(concat!(env!("OUT_DIR"), "/rust_blocks.rs"));
}

/// Names that a block without `fn main` may use.
#[allow(unused_imports, reason = "not every block uses them all")]
pub(crate) mod prelude {
    pub(crate) use std::time::Duration;

    pub(crate) use waymaker_client::{Client, Error, FenceScope};
}

thread_local! {
    /// Addresses of the example's server.
    static SERVER: RefCell<Option<Addresses>> = const { RefCell::new(None) };
}

/// Returns an address of a document with the port of the example's server.
pub(crate) fn address(text: &str) -> String {
    SERVER.with_borrow(|addresses| {
        addresses.as_ref().expect("an example asks for its address in its main task").put_into(text)
    })
}

/// How an example ends.
pub(crate) trait Ended {
    fn assert_ended_well(self);
}

impl Ended for () {
    fn assert_ended_well(self) {}
}

impl<E: Debug> Ended for Result<(), E> {
    fn assert_ended_well(self) {
        self.unwrap();
    }
}

/// Runs a complete program.
pub(crate) fn program<T: Ended>(main: impl FnOnce() -> T + Send + 'static) {
    let data = tempfile::tempdir().unwrap();
    let (_server, addresses) = server::start(data.path());
    let (done, ended) = mpsc::channel();
    let example = thread::spawn(move || {
        SERVER.set(Some(addresses));
        main().assert_ended_well();
        done.send(()).unwrap();
    });
    match ended.recv_timeout(WATCHDOG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the example does not end"),
        // Also if it panicked: then this passes the panic on.
        _ => example.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Runs the body of an async function, which gets a client.
pub(crate) fn body<F>(example: fn(Client) -> F)
where
    F: Future<Output = Result<(), Box<dyn Error>>> + 'static,
{
    program(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let url = address("waymaker://127.0.0.1:7420");
        runtime.block_on(async { example(Client::connect(&url).await?).await })
    });
}
