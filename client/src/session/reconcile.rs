//! Comparing what is guarded with what the server says the lane holds, after a connection was taken up again.
//!
//! What is listed lives. What hangs on the session's lease and is not listed is asked for by its id, which decides: a claim
//! that a request id has given to another lane is not listed here. What is listed and neither guarded nor awaited is given
//! back, or it would block others for as long as the session lives.

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
    /// Listed, but not guarded, with their keys.
    strangers: Vec<(LockId, Vec<u8>)>,
    /// Holds whose guards let them live.
    pub(super) forgotten: BTreeSet<LockId>,
    /// Those of them that were listed.
    forgotten_listed: BTreeSet<LockId>,
}

impl Session {
    /// Asks for every hold after a new welcome: all that is known of them is from before.
    pub(super) fn ask_for_all(&mut self, resumed: bool, now: BootTime) {
        self.reconciliation.strangers.clear();
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
        for id in std::mem::take(&mut self.reconciliation.unlisted) {
            if self.holds.contains(id) {
                self.window.push(Job::Check { id });
            }
        }
        let strangers = std::mem::take(&mut self.reconciliation.strangers);
        if !matches!(self.closing, Closing::Open) {
            // What is to be released is released, and the goodbye ends the rest.
            return;
        }
        for (id, key) in strangers {
            if !self.holds.contains(id) && !self.reconciliation.forgotten.contains(&id) && !self.awaits(&key)
            {
                self.release_unasked(id);
            }
        }
    }

    /// Whether an acquire is on its way whose grant may be a hold of this key.
    fn awaits(&mut self, key: &[u8]) -> bool {
        self.window.pending_mut().any(|(_, pending)| match &pending.job {
            Job::Acquire(job) => job.claim.may_hold(key),
            Job::Confirm(job) => job.acquire.claim.may_hold(key),
            _ => false,
        }) || self.window.unsent_mut().any(|job| match job {
            Job::Confirm(job) => job.acquire.claim.may_hold(key),
            _ => false,
        })
    }
}
