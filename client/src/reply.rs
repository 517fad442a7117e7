//! Where an answer goes.

use tokio::sync::oneshot;
use waymaker_protocol::ErrorCode;

use crate::error::{Error, Result};
use crate::uncertain::{Outcome, Resolver, Uncertain};

/// Where the answer to a request goes, once.
pub(crate) enum Reply<T> {
    /// Nobody waits for it, or it was given.
    Nobody,
    Caller(oneshot::Sender<Result<T>>),
    /// The caller was told that the outcome is not known, and may want to know it later.
    Uncertain(Resolver),
}

impl<T> Reply<T> {
    /// A reply, and where it arrives.
    pub(crate) fn channel() -> (Self, oneshot::Receiver<Result<T>>) {
        let (sender, receiver) = oneshot::channel();
        (Self::Caller(sender), receiver)
    }

    /// Whether a caller waits for the answer itself.
    pub(crate) fn has_caller(&self) -> bool {
        matches!(self, Self::Caller(_))
    }

    /// Whether anybody wants to know how it ends.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Nobody => false,
            Self::Caller(_) => true,
            Self::Uncertain(resolver) => resolver.is_awaited(),
        }
    }

    /// Gives the answer, whoever waits for it. From then on nobody does.
    pub(crate) fn answer(&mut self, result: Result<T>) {
        match std::mem::replace(self, Self::Nobody) {
            Self::Nobody => {}
            // One who has stopped waiting does not care.
            Self::Caller(sender) => drop(sender.send(result)),
            Self::Uncertain(resolver) => match result.map_err(|error| error.code()) {
                Ok(_) => resolver.resolve(Outcome::Done),
                Err(Some(code)) if code != ErrorCode::Unknown => resolver.resolve(Outcome::NotDone),
                // Not the server's word.
                Err(_) => {}
            },
        }
    }

    /// What was asked for was done and is taken back, since no caller is left.
    pub(crate) fn taken_back(&mut self) {
        if let Self::Uncertain(resolver) = std::mem::replace(self, Self::Nobody) {
            resolver.resolve(Outcome::NotDone);
        }
    }

    /// Tells the caller that the outcome is not known. What comes of it is remembered for who asks later.
    pub(crate) fn leave_uncertain(&mut self, reason: &str) {
        if self.has_caller() {
            let (uncertain, resolver) = Uncertain::new(reason);
            self.answer(Err(Error::Uncertain(uncertain)));
            *self = Self::Uncertain(resolver);
        }
    }
}
