//! Comparing what is guarded with what the server says the lane holds, after a connection was taken up again.
//!
//! What is listed lives. What hangs on the session's lease and is not listed is asked for by its id, which decides: a claim
//! that a request id has given to another lane is not listed here.
//!
//! What is listed and not guarded is given back, or it would block others for as long as the session lives, this client's own
//! next attempt among them. Unless an acquire is on its way that it may be the grant of: then it is decided when the server
//! has answered that acquire, or has said that it waits. A grant that names what was given back counts as lost.

use std::collections::BTreeSet;

use waymaker_protocol::{Listed, LockId};

use super::{Closing, Session};
use crate::clock::BootTime;
use crate::job::Job;

/// How far the comparison has come.
#[derive(Default)]
pub(super) struct Reconciliation {
    /// Holds on the session's lease that were guarded when the connection was taken up and have not been listed yet.
    unlisted: BTreeSet<LockId>,
    /// More pages are to come.
    is_listing: bool,
    /// Listed, but not guarded, with their keys.
    strangers: Vec<(LockId, Vec<u8>)>,
    /// Given back on this connection.
    given_back: BTreeSet<LockId>,
    /// Holds whose guards let them live.
    pub(super) forgotten: BTreeSet<LockId>,
    /// Those of them that were listed.
    forgotten_listed: BTreeSet<LockId>,
}

impl Session {
    /// Asks for every hold after a new welcome: all that is known of them is from before.
    pub(super) fn ask_for_all(&mut self, resumed: bool, now: BootTime) {
        self.reconciliation.is_listing = resumed;
        self.reconciliation.strangers.clear();
        self.reconciliation.given_back.clear();
        self.reconciliation.forgotten_listed.clear();
        self.reconciliation.unlisted = if resumed {
            self.window.push(Job::Holds { cursor: 0 });
            self.holds.ids_on_session().into_iter().collect()
        } else {
            // The holds of another lane, which is no more.
            self.reconciliation.forgotten.clear();
            BTreeSet::new()
        };
        for id in self.holds.ids() {
            if !self.reconciliation.unlisted.contains(&id) {
                self.ask_for(id, now);
            }
        }
    }

    /// One page of what the lane holds.
    pub(super) fn holds_listed(&mut self, listed: &Listed<'_>) {
        for lock in &listed.locks {
            let reconciliation = &mut self.reconciliation;
            if reconciliation.unlisted.remove(&lock.id) {
                self.uncap(lock.id);
            } else if reconciliation.forgotten.contains(&lock.id) {
                reconciliation.forgotten_listed.insert(lock.id);
            } else if !self.holds.contains(lock.id) {
                reconciliation.strangers.push((lock.id, lock.key.to_vec()));
            }
        }
        match listed.next {
            0 => {
                self.reconciliation.forgotten = std::mem::take(&mut self.reconciliation.forgotten_listed);
                self.reconcile();
            }
            cursor => self.window.push(Job::Holds { cursor }),
        }
    }

    /// Nothing more is listed.
    pub(super) fn reconcile(&mut self) {
        self.reconciliation.is_listing = false;
        for id in std::mem::take(&mut self.reconciliation.unlisted) {
            if self.holds.contains(id) {
                self.window.push(Job::Check { id });
            }
        }
        self.settle_strangers();
    }

    /// Gives back what is known to be nobody's by now.
    pub(super) fn settle_strangers(&mut self) {
        if self.reconciliation.is_listing || self.reconciliation.strangers.is_empty() {
            return;
        }
        let strangers = std::mem::take(&mut self.reconciliation.strangers);
        if !matches!(self.closing, Closing::Open) {
            // What is to be released is released, and the goodbye ends the rest.
            return;
        }
        let confirming = self.window.confirming();
        for (id, key) in strangers {
            let reconciliation = &mut self.reconciliation;
            if self.holds.contains(id) || reconciliation.forgotten.contains(&id) || confirming.contains(&id) {
                continue;
            }
            if self.window.awaits_decision(&key) {
                reconciliation.strangers.push((id, key));
            } else {
                reconciliation.given_back.insert(id);
                self.release_unasked(id);
            }
        }
    }

    /// Whether this hold was given back before its grant was read.
    pub(super) fn was_given_back(&self, id: LockId) -> bool {
        self.reconciliation.given_back.contains(&id)
    }
}
