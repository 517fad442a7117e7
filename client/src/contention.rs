//! The claim in front of a claim that was not granted.

use std::fmt;
use std::time::Duration;

use waymaker_protocol as wire;

/// The claim in front of a claim that was not granted, and the number of waiters, as the refusal reports them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Contention {
    /// Whether the claim in front holds the key. If not, it is a waiter, is granted but not durable yet, or has ended
    /// meanwhile. If it has ended, all fields except `waiter_count` are zero or empty.
    pub held: bool,
    /// Whether the claim in front is shared.
    pub shared: bool,
    /// Time for which the claim in front (the conflicting holder, or the waiter in front) has been held, or has waited.
    pub age: Duration,
    /// Remaining lease or remaining wait of the claim in front. `None` if it has no end.
    pub remaining: Option<Duration>,
    /// Number of waiters for the key.
    pub waiter_count: u32,
    /// Owner of the claim in front, as its client named it. Empty if its client named none, or if this client has no
    /// right to see it.
    pub owner: Vec<u8>,
}

impl From<wire::Contention<'_>> for Contention {
    fn from(contention: wire::Contention<'_>) -> Self {
        Self {
            held: contention.held,
            shared: contention.shared,
            age: Duration::from_millis(contention.age_ms),
            remaining: finite(contention.remaining_ms),
            waiter_count: contention.waiter_count,
            owner: contention.owner.to_vec(),
        }
    }
}

/// Converts milliseconds of the wire; `None` for the largest number, which means "without end".
pub(crate) fn finite(ms: u32) -> Option<Duration> {
    (ms != u32::MAX).then(|| Duration::from_millis(u64::from(ms)))
}

impl fmt::Display for Contention {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match (self.held, self.shared) {
            (true, false) => "held",
            (true, true) => "held for reading",
            (false, _) => "requested earlier",
        };
        write!(formatter, "{verb} by ")?;
        if self.owner.is_empty() {
            write!(formatter, "a client without a name")?;
        } else {
            write!(formatter, "\"{}\"", wire::Readable(&self.owner))?;
        }
        write!(formatter, " for {}", seconds(self.age))?;
        if let (true, Some(remaining)) = (self.held, self.remaining) {
            write!(formatter, ", lease expires in {} unless renewed", seconds(remaining))?;
        }
        match self.waiter_count {
            0 => Ok(()),
            count => write!(formatter, ", {count} waiting"),
        }
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_the_holder_and_escapes_control_characters() {
        let contention = Contention {
            held: true,
            age: Duration::from_millis(1_250),
            remaining: Some(Duration::from_secs(3)),
            waiter_count: 2,
            owner: b"job\x1b[2J".to_vec(),
            ..Contention::default()
        };
        assert_eq!(
            contention.to_string(),
            r#"held by "job\x1b[2J" for 1.2 s, lease expires in 3.0 s unless renewed, 2 waiting"#
        );
    }

    #[test]
    fn a_non_ascii_owner_name_is_shown_unescaped() {
        let contention = Contention { owner: "größe".as_bytes().to_vec(), ..Contention::default() };
        assert_eq!(contention.to_string(), "requested earlier by \"größe\" for 0.0 s");
    }

    #[test]
    fn a_first_waiter_without_a_name_is_described() {
        assert_eq!(
            Contention::default().to_string(),
            "requested earlier by a client without a name for 0.0 s"
        );
    }
}
