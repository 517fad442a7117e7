//! Detection of hanging workers, from the time up to which all sockets were read.

use waymaker_engine::Time;

/// Decides at which times all workers must read their sockets, and checks whether they have done so. Leases expire only
/// after such a read, so a hanging worker also blocks the expiry of leases of other workers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pulse {
    /// Time up to which the workers were last requested to read.
    asked: Option<Time>,
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beat {
    /// Whether all workers have read their sockets as last requested. False at the first check.
    pub(super) is_alive: bool,
    /// Time up to which all workers must now read their sockets; `None` if the workers have not fulfilled the previous
    /// such request yet.
    pub(super) ask: Option<Time>,
}

impl Pulse {
    /// Checks whether all workers have read their sockets up to the time that the last request named. `drained` is the
    /// time up to which they have read, and `now` the current time. If they have, and at the first check, the result
    /// contains the next request.
    pub(super) fn look(&mut self, drained: Time, now: Time) -> Beat {
        match self.asked {
            // The workers have not yet fulfilled the previous request to read their sockets, which stays in their
            // mailboxes. A second request would only fill the mailboxes.
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
