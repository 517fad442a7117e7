//! One connection as a state machine: what it is told, what it says, what it asks of the worker. No I/O.

use super::message::{Action, Answer, LockSet, Message, MessageError, State};
use super::namespaces::Namespace;
use std::sync::Arc;
use waymaker_protocol::{ErrorCode, LockId};

/// What clients and worker make of one connection. Whoever drives it does what it is told before it feeds it again.
#[derive(Debug)]
pub(super) struct Session {
    namespace: Arc<Namespace>,
    phase: Phase,
}

/// Where a connection stands. `id` is what the client calls its lock, `lock` what the worker does.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Ready,
    /// The worker was asked for a lock and has not said whether it waits.
    Asked {
        id: u64,
    },
    Enqueued {
        id: u64,
        lock: LockId,
    },
    Acquired {
        id: u64,
        lock: LockId,
    },
    /// The worker was asked to end the lock. Whatever it says about it meanwhile comes too late.
    Releasing {
        id: u64,
    },
    /// The connection is to be closed.
    Over,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Nothing.
    Wait,
    /// Tell the client.
    Send(Answer),
    /// Ask the worker for a hold on all of this, without end of the wait.
    Acquire(LockSet),
    /// Ask the worker to end this lock, be it held or not.
    Release(LockId),
    /// Tell the client why, and close the connection.
    Close(Closing),
}

/// Why a connection is closed by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// Something went wrong; the client is told what.
    Broken(String),
    /// The client has lost its identity or a right. The reason is for the client.
    Denied(String),
    /// The server is on its way out.
    Stopping,
}

/// What is wrong with a message where the connection stands.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("invalid action [{action}] in state [{state}]")]
    NotNow { action: Action, state: State },
}

impl Session {
    /// A connection that has just been opened.
    pub(super) fn new(namespace: Arc<Namespace>) -> Self {
        Self { namespace, phase: Phase::Ready }
    }

    /// Whether the next message may be read. While one is being served the next waits, so that all are served in order.
    pub(super) fn wants_message(&self) -> bool {
        self.state().is_some()
    }

    /// The state, as the client knows it or is about to learn.
    fn state(&self) -> Option<State> {
        match self.phase {
            Phase::Ready => Some(State::Ready),
            Phase::Enqueued { .. } => Some(State::Enqueued),
            Phase::Acquired { .. } => Some(State::Acquired),
            Phase::Asked { .. } | Phase::Releasing { .. } | Phase::Over => None,
        }
    }

    /// The client sent this.
    pub(super) fn handle_message(&mut self, bytes: &[u8]) -> Reaction {
        match self.serve(bytes) {
            Ok(reaction) => reaction,
            Err(refusal) => self.break_off(refusal.to_string()),
        }
    }

    fn serve(&mut self, bytes: &[u8]) -> Result<Reaction, Refusal> {
        let Some(state) = self.state() else { return Ok(Reaction::Wait) };
        let message = Message::decode(bytes)?;
        match (message.action()?, self.phase) {
            (Action::Lock, Phase::Ready) => {
                let set = message.into_set()?;
                self.phase = Phase::Asked { id: self.namespace.next_id() };
                Ok(Reaction::Acquire(set))
            }
            (Action::Release, Phase::Enqueued { id, lock } | Phase::Acquired { id, lock }) => {
                self.phase = Phase::Releasing { id };
                Ok(Reaction::Release(lock))
            }
            (action, _) => Err(Refusal::NotNow { action, state }),
        }
    }

    /// What it asked for has to wait.
    pub(super) fn handle_queued(&mut self, lock: LockId) -> Reaction {
        let Phase::Asked { id } = self.phase else { return Reaction::Wait };
        self.phase = Phase::Enqueued { id, lock };
        Reaction::Send(Answer { id, action: Action::Lock, state: State::Enqueued })
    }

    /// What it asked for is held.
    pub(super) fn handle_granted(&mut self, lock: LockId) -> Reaction {
        let (Phase::Asked { id } | Phase::Enqueued { id, .. }) = self.phase else { return Reaction::Wait };
        self.phase = Phase::Acquired { id, lock };
        Reaction::Send(Answer { id, action: Action::Lock, state: State::Acquired })
    }

    /// What it asked for was refused.
    pub(super) fn handle_refused(&mut self, code: ErrorCode, message: &str) -> Reaction {
        if !matches!(self.phase, Phase::Asked { .. } | Phase::Enqueued { .. }) {
            return Reaction::Wait;
        }
        if code == ErrorCode::Shutdown {
            self.phase = Phase::Over;
            return Reaction::Close(Closing::Stopping);
        }
        self.break_off(format!("the lock was refused: {message}"))
    }

    /// What it held was taken away. There is no message for that, so the connection ends, which every client notices.
    pub(super) fn handle_lost(&mut self, how: &str) -> Reaction {
        if !matches!(self.phase, Phase::Acquired { .. }) {
            return Reaction::Wait;
        }
        self.break_off(format!("the lock was lost: {how}"))
    }

    /// The lock is over, as was asked.
    pub(super) fn handle_released(&mut self) -> Reaction {
        let Phase::Releasing { id } = self.phase else { return Reaction::Wait };
        self.phase = Phase::Ready;
        Reaction::Send(Answer { id, action: Action::Release, state: State::Ready })
    }

    fn break_off(&mut self, detail: String) -> Reaction {
        self.phase = Phase::Over;
        Reaction::Close(Closing::Broken(detail))
    }
}
