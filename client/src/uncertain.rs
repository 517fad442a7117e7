//! Requests of which nobody knows whether they took effect, and how to find out.

use std::fmt;

use tokio::sync::watch;

/// A request was sent, and its answer did not come: in [`Error::Uncertain`](crate::Error::Uncertain).
///
/// The client goes on asking for the answer as long as this value lives. As soon as the connection is back, the request is
/// repeated under its number, and a server that has served it says again what it said then, without doing it twice.
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

/// What became of a request whose answer was late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect.
    Done,
    /// It did not, and will not. An acquire that was granted is given back.
    NotDone,
    /// That can no longer be found out: the session ended meanwhile, the client was closed, or the server failed while it
    /// served it. What a lock leaves behind ends with its lease; [`Client::inspect`](crate::Client::inspect) shows it.
    Unknown,
}

/// The other end: whoever hears the answer.
#[derive(Debug)]
pub(crate) struct Resolver {
    outcome: watch::Sender<Option<Outcome>>,
}

impl Uncertain {
    /// With the end that resolves it. If that is dropped before, the outcome stays unknown.
    pub(crate) fn new(reason: impl Into<String>) -> (Self, Resolver) {
        let (sender, outcome) = watch::channel(None);
        (Self { reason: reason.into(), outcome }, Resolver { outcome: sender })
    }

    /// Why the answer did not come.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Waits until the server has been asked again, which may be as long as it cannot be reached. May be called any number
    /// of times, and dropped.
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

    /// Returns whether a caller may still ask for the outcome.
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
