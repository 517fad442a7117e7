//! Several runners as one.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxFuture;

use super::runner::{BoxError, Runner};

/// Runs several runners in order: each starts when the previous one is ready. Every runner except the first must be ready in
/// time. The joint lock is ready when all runners are. When one of them ends, for any reason, the others are stopped.
#[must_use = "it does nothing until it runs"]
pub struct JointLock {
    start_timeout: Duration,
    members: Vec<Member>,
}

struct Member {
    name: String,
    run: Box<dyn FnOnce(CancellationToken, oneshot::Sender<()>) -> Running + Send>,
}

type Running = BoxFuture<(), BoxError>;

/// Reason why several runners ended.
#[derive(Debug, thiserror::Error)]
pub enum JointError {
    /// A runner was not ready in time.
    #[error("{name}: failed to start in time")]
    FailedToStartInTime {
        /// Which.
        name: String,
    },
    /// A runner ended with an error.
    #[error("{name}: {error}")]
    Failed {
        /// Which.
        name: String,
        /// With which.
        error: BoxError,
    },
}

/// Name and result of a member that ended.
type Ended = (String, Result<(), BoxError>);

impl JointLock {
    /// Creates a joint lock without runners; such a lock is ready at once and waits for the signal. Every runner except the
    /// first must be ready within `start_timeout`.
    pub fn new(start_timeout: Duration) -> Self {
        Self { start_timeout, members: Vec::new() }
    }

    /// Adds a runner behind the others. Errors contain its name.
    pub fn member(mut self, name: impl Into<String>, runner: impl Runner) -> Self {
        let run = Box::new(move |signal, ready| -> Running { Box::pin(runner.run(signal, ready)) });
        self.members.push(Member { name: name.into(), run });
        self
    }

    /// Runs until the signal, or until one of the runners ends.
    ///
    /// # Errors
    /// Returns the error of the first runner that ended, or the name of a runner that was not ready in time. All other runners
    /// have ended by then.
    pub async fn run(self, signal: CancellationToken, ready: oneshot::Sender<()>) -> Result<(), JointError> {
        // The token of the members is cancelled with the signal of the caller, and when a member ends.
        let stop = signal.child_token();
        let mut running = JoinSet::new();
        let ended = run_until_end(self, &stop, ready, &mut running).await;
        stop.cancel();
        while let Some(member) = running.join_next().await {
            if let Ok((name, Err(error))) = member {
                tracing::warn!(name, %error, "a runner failed while it was stopping");
            }
        }
        ended
    }
}

/// Runs until the signal, or until a member ends; the other members go on.
async fn run_until_end(
    JointLock { start_timeout, members }: JointLock,
    stop: &CancellationToken,
    ready: oneshot::Sender<()>,
    running: &mut JoinSet<Ended>,
) -> Result<(), JointError> {
    for (index, Member { name, run }) in members.into_iter().enumerate() {
        let (tell, is_ready) = oneshot::channel();
        let member = run(stop.clone(), tell);
        running.spawn({
            let name = name.clone();
            async move { (name, member.await) }
        });
        // The first runner has no time limit.
        let limit = if index == 0 { Duration::MAX } else { start_timeout };
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            // A runner that ends before it is ready drops the sender, and the next branch handles its end.
            Ok(()) = is_ready => {}
            Some(ended) = running.join_next() => return outcome(ended),
            () = tokio::time::sleep(limit) => return Err(JointError::FailedToStartInTime { name }),
        }
    }
    // The receiver may be dropped; ignore the error.
    let _ = ready.send(());
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        Some(ended) = running.join_next() => outcome(ended),
        else => Ok(()),
    }
}

fn outcome(ended: Result<Ended, JoinError>) -> Result<(), JointError> {
    match ended {
        Ok((_, Ok(()))) => Ok(()),
        Ok((name, Err(error))) => Err(JointError::Failed { name, error }),
        Err(error) => Err(JointError::Failed { name: "a runner".to_owned(), error: error.into() }),
    }
}

impl Runner for JointLock {
    async fn run(self, signal: CancellationToken, ready: oneshot::Sender<()>) -> Result<(), BoxError> {
        Ok(self.run(signal, ready).await?)
    }
}
