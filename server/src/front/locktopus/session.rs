//! State machine of one Locktopus connection, without I/O: client messages and worker events in, reactions out.

use super::message::{Action, Answer, LockSet, Message, MessageError, State};
use super::namespaces::Namespace;
use std::sync::Arc;
use waymaker_protocol::{ErrorCode, LockId};

/// State machine of one connection. The driver must carry out each `Reaction` before it feeds the next message or
/// event.
#[derive(Debug)]
pub(super) struct Session {
    namespace: Arc<Namespace>,
    phase: Phase,
}

/// Phase of a connection. `id` is the lock id that the client sees; `lock` is the id that the worker uses.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Ready,
    /// A lock was requested; the worker has neither granted, queued nor refused it.
    Requested {
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
    /// The release was sent to the worker. Worker events about the lock are ignored from here on.
    Releasing {
        id: u64,
    },
    /// The connection must be closed.
    Over,
}

/// Next action of the driver of a `Session`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Do nothing.
    Wait,
    /// Send this answer to the client.
    Send(Answer),
    /// Request a hold on the whole set from the worker, without a wait limit.
    Acquire(LockSet),
    /// Ask the worker to end this lock, whether it is held or still waiting.
    Release(LockId),
    /// Send the reason or its close code to the client, then close the connection.
    Close(Closing),
}

/// Reason why the server closes a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// The client sent an invalid message, or the worker refused or ended its lock. The server sends this description
    /// of the error to the client before it closes the connection.
    Broken(String),
    /// The client lost its identity or a right, with the reason that is sent to it.
    Denied(String),
    /// The server is shutting down.
    Stopping,
}

/// Reason to reject a message: it is invalid, or its action is not allowed in the current state.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("invalid action [{action}] in state [{state}]")]
    NotNow { action: Action, state: State },
}

impl Session {
    /// Creates the state of a new connection.
    pub(super) fn new(namespace: Arc<Namespace>) -> Self {
        Self { namespace, phase: Phase::Ready }
    }

    /// Returns whether the next message may be read. After an acquire or a release, the session reads the next message
    /// only once the worker has answered, so that requests are served in order. Also false once the connection must be
    /// closed.
    pub(super) fn wants_message(&self) -> bool {
        self.state().is_some()
    }

    /// Returns the state of the client's lock (none, waiting or held) that the client knows or is about to learn.
    /// Returns `None` while a worker has not answered an acquire or a release, and once the connection must be closed.
    fn state(&self) -> Option<State> {
        match self.phase {
            Phase::Ready => Some(State::Ready),
            Phase::Enqueued { .. } => Some(State::Enqueued),
            Phase::Acquired { .. } => Some(State::Acquired),
            Phase::Requested { .. } | Phase::Releasing { .. } | Phase::Over => None,
        }
    }

    /// Handles a message of the client.
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
                self.phase = Phase::Requested { id: self.namespace.next_id() };
                Ok(Reaction::Acquire(set))
            }
            (Action::Release, Phase::Enqueued { id, lock } | Phase::Acquired { id, lock }) => {
                self.phase = Phase::Releasing { id };
                Ok(Reaction::Release(lock))
            }
            (action, _) => Err(Refusal::NotNow { action, state }),
        }
    }

    /// Handles the event that the requested lock was queued.
    pub(super) fn handle_queued(&mut self, lock: LockId) -> Reaction {
        let Phase::Requested { id } = self.phase else { return Reaction::Wait };
        self.phase = Phase::Enqueued { id, lock };
        Reaction::Send(Answer { id, action: Action::Lock, state: State::Enqueued })
    }

    /// Handles the grant of the requested lock.
    pub(super) fn handle_granted(&mut self, lock: LockId) -> Reaction {
        let (Phase::Requested { id } | Phase::Enqueued { id, .. }) = self.phase else {
            return Reaction::Wait;
        };
        self.phase = Phase::Acquired { id, lock };
        Reaction::Send(Answer { id, action: Action::Lock, state: State::Acquired })
    }

    /// Handles the refusal of the requested lock.
    pub(super) fn handle_refused(&mut self, code: ErrorCode, message: &str) -> Reaction {
        if !matches!(self.phase, Phase::Requested { .. } | Phase::Enqueued { .. }) {
            return Reaction::Wait;
        }
        self.end_refused(code, format!("the lock was refused: {message}"))
    }

    /// Handles the loss of a held lock. The protocol has no message for a loss, so the connection is closed.
    pub(super) fn handle_lost(&mut self, how: &str) -> Reaction {
        if !matches!(self.phase, Phase::Acquired { .. }) {
            return Reaction::Wait;
        }
        self.break_off(format!("the lock was lost: {how}"))
    }

    /// Handles the refusal of a release. The protocol has no message for it, so the connection is closed, and the lock
    /// ends with the abandon timeout.
    pub(super) fn handle_release_refused(&mut self, code: ErrorCode, message: &str) -> Reaction {
        self.end_refused(code, format!("the release was refused: {message}"))
    }

    /// Handles the confirmation of a release.
    pub(super) fn handle_released(&mut self) -> Reaction {
        let Phase::Releasing { id } = self.phase else { return Reaction::Wait };
        self.phase = Phase::Ready;
        Reaction::Send(Answer { id, action: Action::Release, state: State::Ready })
    }

    /// Ends the connection after the worker refused a request. A server that stops closes it without `detail`.
    fn end_refused(&mut self, code: ErrorCode, detail: String) -> Reaction {
        if code == ErrorCode::Shutdown {
            self.phase = Phase::Over;
            return Reaction::Close(Closing::Stopping);
        }
        self.break_off(detail)
    }

    fn break_off(&mut self, detail: String) -> Reaction {
        self.phase = Phase::Over;
        Reaction::Close(Closing::Broken(detail))
    }
}
