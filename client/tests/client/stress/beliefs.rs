//! The times at which guards counted their locks as held, and a check of these times that needs no server.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use waymaker_client::{BootClock, Clock, Lock, LockId};

/// A guard that reported `is_held` from `begin` to `end`, on the clock that all processes of the machine share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Belief {
    pub(crate) key: String,
    pub(crate) id: LockId,
    pub(crate) fence: u64,
    pub(crate) is_shared: bool,
    /// Number of the client, different in every process.
    pub(crate) client: u64,
    /// Nanoseconds since the boot.
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// A guard and its answers so far.
pub(crate) struct Believer {
    pub(crate) lock: Lock,
    client: u64,
    begin: Option<u64>,
    end: u64,
}

impl Believer {
    pub(crate) fn new(lock: Lock, client: u64) -> Self {
        let mut believer = Self { lock, client, begin: None, end: 0 };
        believer.ask();
        believer
    }

    /// Asks the guard whether the lock is held, and returns the result.
    pub(crate) fn ask(&mut self) -> bool {
        let before = now();
        let is_held = self.lock.is_held();
        if is_held {
            // The result is from an instant between the two readings, so only the time between two such results
            // counts.
            self.begin.get_or_insert_with(now);
            self.end = before;
        }
        is_held
    }

    /// Asks the guard again, and returns it with its belief.
    pub(crate) fn finish(mut self) -> (Lock, Option<Belief>) {
        self.ask();
        let belief = self.begin.filter(|begin| *begin < self.end).map(|begin| Belief {
            key: self.lock.key().escape_ascii().to_string(),
            id: self.lock.id(),
            fence: self.lock.fence(),
            is_shared: self.lock.is_shared(),
            client: self.client,
            begin,
            end: self.end,
        });
        (self.lock, belief)
    }
}

fn now() -> u64 {
    BootClock.now().as_nanos()
}

/// Returns the pairs of guards that contradict each other. Both counted as held at the same time: either for holds of
/// one key of which one is exclusive, or, in one client, for the same hold.
pub(crate) fn contradictions(mut beliefs: Vec<Belief>) -> Vec<(Belief, Belief)> {
    beliefs.sort_by_key(|belief| belief.begin);
    let mut contradictions = Vec::new();
    let mut believing: BTreeMap<String, Vec<Belief>> = BTreeMap::new();
    for belief in beliefs {
        let others = believing.entry(belief.key.clone()).or_default();
        others.retain(|other| other.end > belief.begin);
        for other in others.iter() {
            let is_contradiction = match other.id == belief.id {
                // The guard of another client is superseded later, by an event.
                true => other.client == belief.client,
                false => !(other.is_shared && belief.is_shared),
            };
            if is_contradiction {
                contradictions.push((other.clone(), belief.clone()));
            }
        }
        others.push(belief);
    }
    contradictions
}

/// Fails with the first contradictions, if there are any.
pub(crate) fn assert_consistent(beliefs: Vec<Belief>) {
    let count = beliefs.len();
    let found = contradictions(beliefs);
    let mut text = String::new();
    for (one, other) in found.iter().take(5) {
        writeln!(text, "{one:?}\n  believes beside\n{other:?}").unwrap();
    }
    let in_one_hold = found.iter().filter(|(one, other)| one.id == other.id).count();
    assert!(
        found.is_empty(),
        "among {count} guards {in_one_hold} pairs believed in one hold, {} in two holds of one key:\n{text}",
        found.len() - in_one_hold
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn belief(id: u64, client: u64, is_shared: bool, begin: u64, end: u64) -> Belief {
        let id = LockId { place: id, secret: 1 };
        Belief { key: "k".to_owned(), id, fence: 1, is_shared, client, begin, end }
    }

    #[test]
    fn only_overlapping_exclusive_guards_contradict_each_other() {
        let one = belief(1, 1, false, 10, 20);
        let found = |other: Belief| contradictions(vec![one.clone(), other]).len();
        assert_eq!(found(belief(2, 2, false, 20, 30)), 0, "one after the other");
        assert_eq!(found(belief(2, 2, false, 19, 30)), 1, "two holds at a time");
        assert_eq!(found(belief(2, 2, true, 5, 11)), 1, "a reader beside a writer");
        assert_eq!(found(belief(1, 1, false, 5, 11)), 1, "two guards of one hold in one client");
        assert_eq!(found(belief(1, 2, false, 5, 11)), 0, "the event is on its way");
        let readers = vec![belief(1, 1, true, 10, 20), belief(2, 2, true, 10, 20)];
        assert_eq!(contradictions(readers).len(), 0);
    }
}
