//! What runs until it is told to stop.

use std::error::Error;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Any error.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Runs until the signal comes or it fails, and tells once when it is ready.
///
/// Every `FnOnce(CancellationToken, oneshot::Sender<()>) -> Future` is one too.
pub trait Runner: Send + 'static {
    /// Runs. Ends without an error some time after the signal.
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
