//! Comparison of the guards with the server's list of the lane's holds, after a new connection has resumed the lane.
//!
//! A hold that the server lists still exists. The lane renews or checks holds with a lease of their own at once,
//! without waiting for the list. After the list, it checks by id each unlisted hold that is on the session's lease, or
//! whose caller set a request id, by which another acquire may take it up. If an unlisted hold of the second kind still
//! exists, another lane has it, and its guard is superseded.
//!
//! A listed hold without a guard is called a stranger, unless its guard was forgotten, and the lane releases it (gives
//! it back). Otherwise it would block other clients as long as the session lives, and also this client's own next
//! acquire. If an acquire is in flight that may be granted the hold, the lane decides later: when the server has
//! answered that acquire, or has reported that it waits. If the response to an acquire names a hold that was given
//! back, the lane sends the acquire again.
//!
//! The response to a repeated acquire may arrive after the list. If the acquire has a request id, another client may
//! have taken up the granted holds during the outage. Only a new response shows who owns them, so the lane does not
//! deliver the grant, but sends the acquire again. Until the second response, the holds of the grant are strangers
//! (holds without a guard). If the caller leaves before that response, the lane releases them.

use std::collections::BTreeSet;

use waymaker_protocol::{Capabilities, Listed, LockId};

use super::{Closing, Lane};
use crate::clock::BootTime;
use crate::request::grant::Grant;
use crate::request::job::Job;
use crate::request::reply::Reply;

/// Progress of the comparison of guards with the server's list.
#[derive(Default)]
pub(super) struct Reconciliation {
    /// Holds that had a guard when a new connection resumed the lane and that no page has listed yet. Contains only
    /// holds on the session's lease, and holds that another acquire may take up.
    unlisted: BTreeSet<LockId>,
    /// Guarded holds with a request id that no page listed. The lane asks for their state; if such a hold lives,
    /// another acquire has taken it up.
    missing: BTreeSet<LockId>,
    /// Whether more pages of the list will arrive on this connection.
    is_listing: bool,
    /// Holds without a guard that a page listed or a grant named and that the lane has not released yet, with their
    /// keys.
    strangers: Vec<(LockId, Vec<u8>)>,
    /// Holds without a guard that the lane has released on this connection because a page listed or a grant named them.
    /// A hold whose release the server refused is removed.
    given_back: BTreeSet<LockId>,
    /// Holds whose guards were forgotten, so that the lane does not release them.
    pub(super) forgotten: BTreeSet<LockId>,
    /// Holds without a guard that the caller has forgotten, as far as the server's list of the lane's holds has not
    /// shown them yet. Filled from `forgotten` after each reconnect, when the lane requests the list. After the last
    /// page, the lane removes the remaining ones from `forgotten`, because they are no longer holds of this lane.
    forgotten_unlisted: BTreeSet<LockId>,
}

impl Reconciliation {
    /// Returns whether the lane still waits for a page of the server's list of holds to show this hold. Until then, no
    /// other response proves that the hold still belongs to this lane.
    pub(super) fn is_unlisted(&self, id: LockId) -> bool {
        self.unlisted.contains(&id)
    }
}

impl Lane {
    /// Checks every hold after a new welcome, because the known state is from before the outage. In a resumed session,
    /// also requests the first page of the server's list of holds. For holds on the session's lease, this list is the
    /// check.
    pub(super) fn ask_for_all(&mut self, resumed: bool, now: BootTime) {
        self.reconciliation.is_listing = resumed;
        self.reconciliation.strangers.clear();
        self.reconciliation.given_back.clear();
        self.reconciliation.forgotten_unlisted = self.reconciliation.forgotten.clone();
        self.reconciliation.missing.clear();
        self.reconciliation.unlisted = if resumed {
            self.window.push(Job::Holds { cursor: 0 });
            let on_session = self.holds.ids_on_session().into_iter();
            on_session.chain(self.holds.ids_that_may_be_taken_up()).collect()
        } else {
            // Remove all forgotten holds (holds that their callers kept without a guard): they belong to a lane of the
            // old session, so no list of the new lane shows them.
            self.reconciliation.forgotten.clear();
            BTreeSet::new()
        };
        let on_session: BTreeSet<_> = self.holds.ids_on_session().into_iter().collect();
        for id in self.holds.ids() {
            if !(resumed && on_session.contains(&id)) {
                self.ask_for(id, now);
            }
        }
    }

    /// Compares one page of the server's list of the lane's holds with the guards. Removes the cap of a listed hold
    /// that waited for the list (`unlisted`). Collects a listed hold without a guard as a stranger, unless its guard
    /// was forgotten. Then requests the next page. After the last one, removes the forgotten holds that no page listed,
    /// and calls `reconcile`.
    pub(super) fn holds_listed(&mut self, listed: &Listed<'_>) {
        for lock in &listed.locks {
            let reconciliation = &mut self.reconciliation;
            if reconciliation.unlisted.remove(&lock.id) {
                self.uncap(lock.id);
            } else if reconciliation.forgotten.contains(&lock.id) {
                reconciliation.forgotten_unlisted.remove(&lock.id);
            } else if !self.holds.contains(lock.id) {
                reconciliation.strangers.push((lock.id, lock.key.to_vec()));
            }
        }
        match listed.next {
            0 => {
                let over = std::mem::take(&mut self.reconciliation.forgotten_unlisted);
                self.reconciliation.forgotten.retain(|id| !over.contains(id));
                self.reconcile(true);
            }
            cursor => self.window.push(Job::Holds { cursor }),
        }
    }

    /// Called after the last page of the server's list, or if the server refused to list (`is_complete` is false).
    /// Checks the unlisted holds by id, and releases listed holds that have no guard.
    pub(super) fn reconcile(&mut self, is_complete: bool) {
        self.reconciliation.is_listing = false;
        for id in std::mem::take(&mut self.reconciliation.unlisted) {
            if let Some(entry) = self.holds.get_mut(id) {
                if is_complete && entry.may_be_taken_up() {
                    self.reconciliation.missing.insert(id);
                }
                self.window.push(Job::Check { id });
            }
        }
        self.settle_strangers();
    }

    /// Returns whether another lane may have this hold, so that an answer about the hold does not prove who owns it.
    pub(super) fn may_be_elsewhere(&self, id: LockId) -> bool {
        self.reconciliation.unlisted.contains(&id) || self.reconciliation.missing.contains(&id)
    }

    /// Called when the server reports that this hold still exists. Returns whether another lane has the hold: it has a
    /// request id, and no page of the server's list showed it for this lane. Removes it from `missing`, so the next
    /// call returns false.
    pub(super) fn is_elsewhere(&mut self, id: LockId) -> bool {
        self.reconciliation.missing.remove(&id)
    }

    /// Treats the holds of a grant like strangers (listed holds without a guard): the lane releases them if no acquire
    /// is granted them. A server without the capability `OWN_CLAIM` would also release a hold that another lane has
    /// taken up. For such a server, the holds of a grant from before the connection are released only if the list shows
    /// them.
    pub(super) fn note_strangers(&mut self, grant: &Grant) {
        if !self.window.offered.contains(Capabilities::OWN_CLAIM) && grant.stamp_ms < self.welcome.stamp_ms {
            return;
        }
        for hold in grant.holds.iter() {
            let strangers = &mut self.reconciliation.strangers;
            if strangers.iter().all(|(id, _)| *id != hold.id) {
                strangers.push((hold.id, hold.key.to_vec()));
            }
        }
    }

    /// Releases the strangers (holds without a guard that a page listed or a grant named). Keeps a stranger for now if
    /// an acquire may still be granted it. Drops it unreleased if it has a guard by now, was forgotten or is being
    /// confirmed, or if the lane is closing. Does nothing while pages of the list are missing.
    pub(super) fn settle_strangers(&mut self) {
        if self.reconciliation.is_listing || self.reconciliation.strangers.is_empty() {
            return;
        }
        let strangers = std::mem::take(&mut self.reconciliation.strangers);
        if !matches!(self.closing, Closing::Open) {
            // The lane is closing and has already queued the releases of all guarded holds. The strangers end with the
            // session or with their leases.
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
                self.release_stranger(id);
            }
        }
    }

    /// Releases a hold that the server listed for or granted to this lane. A server with the capability `OWN_CLAIM`
    /// refuses if another lane has taken it up since.
    fn release_stranger(&mut self, id: LockId) {
        let (take_up_number, is_own, reply) = (None, true, Reply::Nobody);
        self.window.push(Job::Release { id, key: None, by_guard: true, take_up_number, is_own, reply });
    }

    /// Notes that the server refused to release this hold. The hold may still live, so the lane accepts a later grant
    /// of it.
    pub(super) fn not_given_back(&mut self, id: LockId) {
        self.reconciliation.given_back.remove(&id);
    }

    /// Returns whether the lane has released this hold on this connection as a stranger, a hold of the lane without a
    /// guard. If so, any grant of this hold was decided before the release, so the grant is outdated.
    pub(super) fn was_given_back(&self, id: LockId) -> bool {
        self.reconciliation.given_back.contains(&id)
    }
}
