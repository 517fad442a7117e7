//! Tasks that run until a signal stops them.

use std::error::Error;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Any error.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Runs until the signal or until it fails, and reports once that it is ready.
///
/// Every `FnOnce(CancellationToken, oneshot::Sender<()>) -> Future` is a runner too.
pub trait Runner: Send + 'static {
    /// Runs. Returns without an error some time after the signal.
    fn run(
        self,
        signal: CancellationToken,
        ready: oneshot::Sender<()>,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;
}

impl<F, R> Runner for F
where
    F: FnOnce(CancellationToken, oneshot::Sender<()>) -> R + Send + 'static,
    R: Future<Output = Result<(), BoxError>> + Send,
{
    fn run(
        self,
        signal: CancellationToken,
        ready: oneshot::Sender<()>,
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        self(signal, ready)
    }
}
