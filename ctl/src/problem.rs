//! Failures, as people and programs read them.

use std::time::Duration;

use serde_json::{Map, Value};
use waymaker_client::{Contention, Error, ErrorCode, Unavailable};

use crate::text;

/// A failure of this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The name of the server's error, or a name of our own if the failure has none.
    pub(crate) code: &'static str,
    /// The sentence for people.
    pub(crate) message: String,
    /// The owner of the hold that is in the way, if its client gave a name.
    pub(crate) holder: Option<Vec<u8>>,
    /// The time after which another attempt can succeed, if that is known.
    pub(crate) retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), holder: None, retry_after: None }
    }

    /// Returns the same problem with a name or a sentence in front of the message.
    pub(crate) fn about(mut self, subject: &[u8]) -> Self {
        self.message = format!("{}: {}", text::printable(subject), self.message);
        self
    }

    /// Puts the members of this problem into an object.
    pub(crate) fn insert_into(&self, object: &mut Map<String, Value>) {
        object.insert("code".to_owned(), self.code.into());
        object.insert("message".to_owned(), self.message.as_str().into());
        if let Some(holder) = &self.holder {
            text::insert_bytes(object, "holder", holder);
        }
        if let Some(retry_after) = self.retry_after {
            // Rounded up: an attempt that is a fraction of a millisecond too early fails again.
            let milliseconds = u64::try_from(retry_after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            object.insert("retry_after_ms".to_owned(), milliseconds.into());
        }
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let code = match error {
            Error::Unavailable(Unavailable::Unreachable { .. } | Unavailable::Disconnected { .. }) => {
                "unreachable"
            }
            Error::Lost(_) => "lost",
            Error::Protocol(_) => "wrong_protocol",
            Error::Url(_) | Error::Tls(_) => "usage",
            error => error.code().map_or("internal", ErrorCode::name),
        };
        let mut problem = Self::new(code, error.to_string());
        if let Some(contention) = error.contention() {
            problem.message = format!("{code}: {}", sentence(contention));
            if contention.held && !contention.owner.is_empty() {
                problem.holder = Some(contention.owner.clone());
            }
        }
        problem.retry_after = error.retry_after();
        if let (Error::Throttled { .. }, Some(retry_after)) = (error, problem.retry_after) {
            problem.message = format!("throttled: come again in {}", text::pause(retry_after));
        }
        problem
    }
}

/// Says who is in front. Names are shown as [`text::printable`] shows all names.
fn sentence(contention: &Contention) -> String {
    let Contention { held, shared, age, remaining, waiter_count, owner } = contention;
    let verb = match (held, shared) {
        (true, false) => "held",
        (true, true) => "held for reading",
        (false, _) => "wanted first",
    };
    let owner = match owner.as_slice() {
        b"" => "someone who gave no name".to_owned(),
        owner => format!("\"{}\"", text::printable(owner)),
    };
    let mut sentence = format!("{verb} by {owner} for {}", text::time(Some(*age)));
    if let (true, Some(remaining)) = (held, remaining) {
        sentence.push_str(&format!(", lease ends in {} unless renewed", text::time(Some(*remaining))));
    }
    if *waiter_count > 0 {
        sentence.push_str(&format!(", {waiter_count} waiting"));
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(owner: &[u8]) -> Problem {
        let contention = Contention {
            held: true,
            age: Duration::from_millis(1_250),
            remaining: Some(Duration::from_secs(3)),
            waiter_count: 2,
            owner: owner.to_vec(),
            ..Contention::default()
        };
        Problem::from(&Error::Busy(contention)).about("schlüssel".as_bytes())
    }

    #[test]
    fn a_holder_is_named_as_it_named_itself() {
        let problem = busy("größe \\".as_bytes());
        assert_eq!(
            problem.message,
            "schlüssel: busy: held by \"größe \\\" for 1.2s, lease ends in 3.0s unless renewed, 2 waiting"
        );
        assert_eq!(problem.holder.as_deref(), Some("größe \\".as_bytes()));
        assert!(busy(b"a\x1b[2J").message.contains(r#""a\x1b[2J""#));
        assert_eq!(busy(b"").holder, None);
    }

    #[test]
    fn a_waiter_in_front_is_no_holder() {
        let contention = Contention { owner: b"a".to_vec(), ..Contention::default() };
        assert_eq!(Problem::from(&Error::Timeout(contention)).holder, None);
    }

    #[test]
    fn the_time_of_another_attempt_is_rounded_up() {
        let retry_after = Some(Duration::from_nanos(1_000_001));
        let problem = Problem::from(&Error::Throttled { retry_after, bucket: None });
        let mut object = Map::new();
        problem.insert_into(&mut object);
        assert_eq!(object["retry_after_ms"], 2);
        assert_eq!(object["message"], "throttled: come again in 2ms");
        let never = Problem::from(&Error::Throttled { retry_after: None, bucket: None });
        assert_eq!(never.retry_after, None);
    }
}
