//! Requests whose outcome is unknown, and the means to learn it later.

use std::fmt;

use tokio::sync::watch;

/// A request whose outcome is unknown, in [`Error::Uncertain`](crate::Error::Uncertain): it was sent, but the client
/// has got no response that tells the outcome.
///
/// As long as this value lives and the client is open, the client keeps trying to get the response. When the connection
/// is restored, the client repeats the request under its number. As long as the session lives, a running server that
/// has already served the request repeats its response, and does not serve it twice.
///
/// ```
/// # use waymaker_client::{Error, Outcome};
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
/// match client.semaphore("exports", 4).set_capacity(6).await {
///     Err(Error::Uncertain(uncertain)) => match uncertain.resolve().await {
///         Outcome::Done => println!("it was set after all"),
///         Outcome::NotDone => println!("it was not set"),
///         Outcome::Unknown => println!("nobody knows: look"),
///     },
///     answer => println!("it was {:?}", answer?),
/// }
/// # Ok(())
/// # });
/// ```
#[derive(Clone)]
pub struct Uncertain {
    reason: String,
    outcome: watch::Receiver<Option<Outcome>>,
}

/// Outcome of a request, as [`Uncertain::resolve`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request took effect.
    Done,
    /// The server refused the request. Or the request was an acquire that the server granted after its caller got
    /// [`Error::Uncertain`](crate::Error::Uncertain); the client releases its hold.
    NotDone,
    /// The outcome can no longer be determined. For example the session ended, the client was closed, or the server
    /// failed while it served the request. A remaining lock ends with its lease;
    /// [`Client::inspect`](crate::Client::inspect) shows it.
    Unknown,
}

/// Sender of the outcome. The lane keeps it with the request and reports the outcome when the response arrives.
#[derive(Debug)]
pub(crate) struct Resolver {
    outcome: watch::Sender<Option<Outcome>>,
}

impl Uncertain {
    /// Returns the value for the caller, and the resolver that reports the outcome to it. If the resolver is dropped
    /// without an outcome, the outcome is [`Outcome::Unknown`].
    pub(crate) fn new(reason: impl Into<String>) -> (Self, Resolver) {
        let (sender, outcome) = watch::channel(None);
        (Self { reason: reason.into(), outcome }, Resolver { outcome: sender })
    }

    /// Returns why the outcome is unknown.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Waits until the outcome is known. This may take as long as the server is unreachable. May be called any number
    /// of times.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the outcome; call `resolve` again.
    pub async fn resolve(&self) -> Outcome {
        let mut outcome = self.outcome.clone();
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.unwrap_or(Outcome::Unknown),
            Err(_) => Outcome::Unknown,
        }
    }
}

impl Resolver {
    pub(crate) fn resolve(self, outcome: Outcome) {
        self.outcome.send_replace(Some(outcome));
    }

    /// Returns whether a caller may still query the outcome.
    pub(crate) fn is_awaited(&self) -> bool {
        self.outcome.receiver_count() > 0
    }
}

impl fmt::Display for Uncertain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}; the outcome of the request is unknown", self.reason)
    }
}

impl fmt::Debug for Uncertain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Uncertain").field(&self.reason).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn resolve_returns_the_outcome_before_and_after_it_is_known() {
        let (uncertain, resolver) = Uncertain::new("cut");
        let early = tokio::spawn({
            let uncertain = uncertain.clone();
            async move { uncertain.resolve().await }
        });
        tokio::task::yield_now().await;
        resolver.resolve(Outcome::NotDone);
        assert_eq!(early.await.unwrap(), Outcome::NotDone);
        assert_eq!(uncertain.resolve().await, Outcome::NotDone);
    }

    #[tokio::test]
    async fn a_dropped_resolver_leaves_the_outcome_unknown() {
        let (uncertain, resolver) = Uncertain::new("cut");
        drop(resolver);
        assert_eq!(uncertain.resolve().await, Outcome::Unknown);
    }

    #[test]
    fn an_outcome_is_not_awaited_once_all_errors_are_dropped() {
        let (uncertain, resolver) = Uncertain::new("cut");
        let clone = uncertain.clone();
        drop(uncertain);
        assert!(resolver.is_awaited());
        drop(clone);
        assert!(!resolver.is_awaited());
    }
}
