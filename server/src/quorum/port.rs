//! How workers reach the thread that asks the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use waymaker_engine::{QuorumQuestion, QuorumState};

/// What the thread is told.
#[derive(Debug)]
pub enum QuorumOrder {
    /// Have these counted.
    Count(Vec<QuorumQuestion>),
    /// Nothing comes after this.
    Stop,
}

/// Where workers leave what the cluster is to count. Nobody ever waits here.
#[derive(Clone, Debug)]
pub struct QuorumPort {
    sender: UnboundedSender<QuorumOrder>,
    status: Arc<QuorumStatus>,
}

/// What the thread says of the cluster.
#[derive(Debug, Default)]
pub struct QuorumStatus {
    is_unavailable: AtomicBool,
}

impl QuorumPort {
    /// A port, and its other end.
    pub fn new() -> (Self, UnboundedReceiver<QuorumOrder>) {
        let (sender, receiver) = unbounded_channel();
        (Self { sender, status: Arc::default() }, receiver)
    }

    /// Leaves questions behind what was recorded of them.
    pub fn ask(&self, questions: Vec<QuorumQuestion>) {
        self.tell(QuorumOrder::Count(questions));
    }

    /// Tells the thread something.
    pub fn tell(&self, order: QuorumOrder) {
        // The thread ends after all workers.
        let _ = self.sender.send(order);
    }

    /// What the thread says of the cluster.
    pub fn status(&self) -> &Arc<QuorumStatus> {
        &self.status
    }
}

impl QuorumStatus {
    /// What may be expected of the cluster. Until the first question fails that is the best.
    #[inline]
    pub fn state(&self) -> QuorumState {
        if self.is_unavailable.load(Ordering::Relaxed) {
            QuorumState::Unavailable
        } else {
            QuorumState::Ready
        }
    }

    /// Says whether it answers from here on.
    pub fn set_unavailable(&self, is_unavailable: bool) {
        self.is_unavailable.store(is_unavailable, Ordering::Relaxed);
    }
}
