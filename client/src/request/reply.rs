//! Destinations of responses.

use tokio::sync::oneshot;
use waymaker_protocol::ErrorCode;

use crate::clock::BootTime;
use crate::error::{Error, Result};
use crate::uncertain::{Outcome, Resolver, Uncertain};

/// Destination of the response to a request: the caller that waits for it, or the resolver, which stores the outcome
/// for a caller that got [`Error::Uncertain`].
pub(crate) enum Reply<T> {
    /// No caller waits for the response, or it was delivered.
    Nobody,
    Caller {
        sender: oneshot::Sender<Result<T>>,
        /// Latest instant for the answer; then the caller gets an error, but a `close` simply returns.
        /// [`BootTime::NEVER`] for an acquire, which has a timer of its own.
        answer_by: BootTime,
        /// Whether the lane has sent the request before and must send it again, for example because the server process
        /// or the session that got it has ended. The earlier transmission may have been served.
        was_sent: bool,
    },
    /// The caller got [`Error::Uncertain`], and may query the outcome later.
    Uncertain {
        resolver: Resolver,
        /// Whether an earlier transmission of the request may have been served; see `Awaited::was_sent`.
        was_sent: bool,
    },
}

impl<T> Reply<T> {
    /// Returns a reply and the receiver of its result.
    pub(crate) fn channel() -> (Self, oneshot::Receiver<Result<T>>) {
        let (sender, receiver) = oneshot::channel();
        (Self::Caller { sender, answer_by: BootTime::NEVER, was_sent: false }, receiver)
    }

    /// Returns whether a caller still waits for the response. A caller that got [`Error::Uncertain`] does not count.
    pub(crate) fn has_caller(&self) -> bool {
        matches!(self, Self::Caller { .. })
    }

    /// Returns whether a caller waits for the answer or may query the outcome later.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Nobody => false,
            Self::Caller { .. } => true,
            Self::Uncertain { resolver, .. } => resolver.is_awaited(),
        }
    }

    /// Delivers the result to the caller that waits for it. If that caller has already got [`Error::Uncertain`],
    /// reports only the outcome, through the resolver (the sending end of that error value). The reply is
    /// [`Reply::Nobody`] afterwards.
    pub(crate) fn answer(&mut self, result: Result<T>) {
        match std::mem::replace(self, Self::Nobody) {
            Self::Nobody => {}
            // The caller may have dropped the receiver; ignore the error.
            Self::Caller { sender, .. } => drop(sender.send(result)),
            Self::Uncertain { resolver, .. } => match result.map_err(|error| error.code()) {
                Ok(_) => resolver.resolve(Outcome::Done),
                Err(Some(code)) if code != ErrorCode::Unknown => resolver.resolve(Outcome::NotDone),
                // Either the server does not know the outcome of the request, or the error comes from the client and
                // does not show it. The resolver is dropped here, so the caller that got `Error::Uncertain` learns
                // `Outcome::Unknown`.
                Err(_) => {}
            },
        }
    }

    /// Delivers a value that must not be lost. Returns the value if no caller accepts it.
    pub(crate) fn deliver(self, value: T) -> Option<T> {
        match self {
            Self::Caller { sender, .. } => sender.send(Ok(value)).err().and_then(Result::ok),
            Self::Nobody | Self::Uncertain { .. } => Some(value),
        }
    }

    /// Notes that the server granted the acquire and the lane released the holds, because no caller is left. The
    /// outcome of an uncertain acquire is then [`Outcome::NotDone`].
    pub(crate) fn taken_back(&mut self) {
        if let Self::Uncertain { resolver, .. } = std::mem::replace(self, Self::Nobody) {
            resolver.resolve(Outcome::NotDone);
        }
    }
}

/// Operations on a reply that do not depend on the type of the answer.
pub(crate) trait Awaited {
    /// Delivers this error to the caller or the resolver.
    fn fail(&mut self, error: Error);
    /// Returns [`Error::Uncertain`] to a waiting caller, and keeps the sending end (resolver) of that error in this
    /// reply. If the response still arrives, the resolver reports the outcome to the error value.
    fn leave_uncertain(&mut self, reason: &str);
    /// Returns the latest instant for the answer to a waiting caller; [`BootTime::NEVER`] without a caller.
    fn answer_by(&self) -> BootTime;
    /// Sets the latest instant for the answer, if a caller waits.
    fn set_answer_by(&mut self, at: BootTime);
    /// Sets the flag `was_sent` of this reply. The lane calls this function when it must send the request again, for
    /// example because the server process or the session that got it has ended. The earlier transmission may have been
    /// served, so a later failure may leave the outcome uncertain.
    fn note_sent(&mut self);
    /// Returns whether the lane sent the request before and sends it again, because its server process or session has
    /// ended or because its request number is too old. The server may have served the earlier transmission.
    fn was_sent(&self) -> bool;
}

impl<T> Awaited for Reply<T> {
    fn fail(&mut self, error: Error) {
        self.answer(Err(error));
    }

    fn leave_uncertain(&mut self, reason: &str) {
        if let Self::Caller { was_sent, .. } = *self {
            let (uncertain, resolver) = Uncertain::new(reason);
            self.answer(Err(Error::Uncertain(uncertain)));
            *self = Self::Uncertain { resolver, was_sent };
        }
    }

    fn answer_by(&self) -> BootTime {
        match self {
            Self::Caller { answer_by, .. } => *answer_by,
            Self::Nobody | Self::Uncertain { .. } => BootTime::NEVER,
        }
    }

    fn set_answer_by(&mut self, at: BootTime) {
        if let Self::Caller { answer_by, .. } = self {
            *answer_by = at;
        }
    }

    fn note_sent(&mut self) {
        if let Self::Caller { was_sent, .. } | Self::Uncertain { was_sent, .. } = self {
            *was_sent = true;
        }
    }

    fn was_sent(&self) -> bool {
        matches!(self, Self::Caller { was_sent: true, .. } | Self::Uncertain { was_sent: true, .. })
    }
}
