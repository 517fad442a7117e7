//! The channel from the workers to the quorum thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use waymaker_engine::{QuorumQuestion, QuorumState};

/// An order for the quorum thread.
#[derive(Debug)]
pub enum QuorumOrder {
    /// Count the fences of these questions.
    Count(Vec<QuorumQuestion>),
    /// Stop the thread. No order may follow.
    Stop,
}

/// The sending end for questions to the cluster. Sending never blocks.
#[derive(Clone, Debug)]
pub struct QuorumPort {
    sender: UnboundedSender<QuorumOrder>,
    status: Arc<QuorumStatus>,
}

/// The availability of the cluster, as the quorum thread last saw it.
#[derive(Debug, Default)]
pub struct QuorumStatus {
    is_unavailable: AtomicBool,
}

impl QuorumPort {
    /// Returns a port and its receiving end.
    pub fn new() -> (Self, UnboundedReceiver<QuorumOrder>) {
        let (sender, receiver) = unbounded_channel();
        (Self { sender, status: Arc::default() }, receiver)
    }

    /// Sends questions to the quorum thread. With a log, the caller must first have posted the records of their
    /// grants to the log.
    pub fn ask(&self, questions: Vec<QuorumQuestion>) {
        self.tell(QuorumOrder::Count(questions));
    }

    /// Sends an order to the quorum thread.
    pub fn tell(&self, order: QuorumOrder) {
        // Cannot fail: the quorum thread ends after all workers.
        let _ = self.sender.send(order);
    }

    /// Returns the availability of the cluster.
    pub fn status(&self) -> &Arc<QuorumStatus> {
        &self.status
    }
}

impl QuorumStatus {
    /// Returns the availability of the cluster as last set by the quorum thread; `Ready` at the start.
    #[inline]
    pub fn state(&self) -> QuorumState {
        if self.is_unavailable.load(Ordering::Relaxed) {
            QuorumState::Unavailable
        } else {
            QuorumState::Ready
        }
    }

    /// Sets the availability of the cluster.
    pub fn set_unavailable(&self, is_unavailable: bool) {
        self.is_unavailable.store(is_unavailable, Ordering::Relaxed);
    }
}
