//! Decides from the time up to which all sockets were read whether the workers respond.

use waymaker_engine::Time;

/// Repeatedly asks all workers to read their sockets, and observes whether they have done so. Holds end only after such a reading, so a
/// worker that hangs keeps all holds of other workers from ending too.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pulse {
    /// Time up to which the workers were last asked to read.
    asked: Option<Time>,
}

/// Result of one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beat {
    /// Whether all workers have read their sockets as the previous look requested.
    pub(super) is_alive: bool,
    /// Time up to which all workers must read their sockets from now on; `None` if the previous request is still open.
    pub(super) ask: Option<Time>,
}

impl Pulse {
    /// Looks at `now`, when all workers have read their sockets up to `drained`.
    pub(super) fn look(&mut self, drained: Time, now: Time) -> Beat {
        match self.asked {
            // An unanswered question stays in the mailbox. More of them would only fill it.
            Some(asked) if drained < asked => Beat { is_alive: false, ask: None },
            asked => {
                self.asked = Some(now);
                Beat { is_alive: asked.is_some(), ask: Some(now) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_alive_only_after_they_have_read_as_they_were_asked() {
        let at = Time::from_millis;
        let mut pulse = Pulse::default();
        let first = Beat { is_alive: false, ask: Some(at(100)) };
        assert_eq!(pulse.look(at(90), at(100)), first, "nothing is known before the first question");
        let silent = Beat { is_alive: false, ask: None };
        assert_eq!(pulse.look(at(99), at(200)), silent);
        assert_eq!(pulse.look(at(99), at(300)), silent, "a hanging worker is asked once");
        assert_eq!(pulse.look(at(100), at(400)), Beat { is_alive: true, ask: Some(at(400)) });
        assert_eq!(pulse.look(at(399), at(500)), silent);
        assert_eq!(pulse.look(at(450), at(600)), Beat { is_alive: true, ask: Some(at(600)) });
    }
}
