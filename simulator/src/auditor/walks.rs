//! Rule `page`: a hold that exists during a whole walk is in exactly one page of LIST, HOLDS or LIST_ENTRIES.

use super::Auditor;
use super::holds::Hold;
use super::numbers::ShownTimes;
use crate::key::{self, Key, kind_of};
use crate::operation::{Listing, MADE_UP_REQUEST_ID, RegistrationListing, type_of};
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::{EntriesListed, Listed, ListedLock, LockId, NamespaceKind};

/// One walk, starting with the request for its first page.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    since_ms: u64,
    /// Pages by request. A page that is requested again after a lost connection has another response.
    pages: BTreeMap<usize, Vec<LockId>>,
}

impl Walk {
    pub(super) fn new(since_ms: u64) -> Self {
        Self { since_ms, pages: BTreeMap::new() }
    }

    /// Returns all shown ids, or an id that is shown twice.
    fn shown(&self) -> Result<BTreeSet<LockId>, LockId> {
        let mut shown = BTreeSet::new();
        let twice = self.pages.values().flatten().find(|id| !shown.insert(**id));
        twice.map_or(Ok(shown), |id| Err(*id))
    }
}

impl Auditor {
    /// Rules `view` and `page` for one page of the holds of a namespace.
    pub(super) fn judge_list(&mut self, request: usize, listing: &Listing, listed: &Listed<'_>, now_ms: u64) {
        let client = self.lanes[self.requests[request].lane].client;
        let name = listing.prefix.map(|prefix| self.settings.name_of(prefix)).unwrap_or_default();
        if let Some(lock) = listed.locks.iter().find(|lock| !lock.key.starts_with(&name)) {
            return self.accuse("view", || {
                format!(
                    "{lock:?} is listed, but its key does not start with the requested prefix {:?}",
                    name.escape_ascii()
                )
            });
        }
        let mut walk = self.walks.remove(&(client, listing.walk)).unwrap_or_default();
        let begins = |key: Key| self.settings.name_of(key).starts_with(&name);
        let keys: BTreeSet<Key> =
            self.holds.values().map(|hold| hold.key).filter(|key| begins(*key)).collect();
        let belongs = |hold: &Hold| kind_of(hold.key) == listing.kind && keys.contains(&hold.key);
        self.judge_page(request, &mut walk, listed, belongs, now_ms);
        self.walks.insert((client, listing.walk), walk);
    }

    /// Rules `view` and `page` for one page of the holds of a lane: all of them belong to the lane.
    pub(super) fn judge_holds(&mut self, request: usize, listed: &Listed<'_>, now_ms: u64) {
        let lane = self.requests[request].lane;
        for lock in &listed.locks {
            let is_foreign = self.holds.get(&lock.id).is_some_and(|hold| {
                let client = self.lanes[lane].client;
                hold.client != client
                    || hold.lane != lane && !hold.may_have_moved && hold.request_id.is_none()
            });
            if is_foreign {
                self.accuse("view", || {
                    format!(
                        "HOLDS of lane {lane} lists {}, which belongs to another lane: {listed:?}",
                        lock.id
                    )
                });
            }
        }
        let mut walk = std::mem::take(&mut self.lanes[lane].holds_walk);
        let belongs = |hold: &Hold| {
            hold.lane == lane && hold.request_id.is_none() && !hold.was_repeated && !hold.may_have_moved
        };
        self.judge_page(request, &mut walk, listed, belongs, now_ms);
        self.lanes[lane].holds_walk = walk;
    }

    /// Rule `page` for one page. After the last page, no hold is missing that belongs to the walk and surely
    /// existed during all of it.
    fn judge_page(
        &mut self,
        request: usize,
        walk: &mut Walk,
        listed: &Listed<'_>,
        belongs: impl Fn(&Hold) -> bool,
        now_ms: u64,
    ) {
        let sent_ms = self.requests[request].first_sent_ms;
        let ids: Vec<LockId> = listed.locks.iter().map(|lock| lock.id).collect();
        self.judge_shown(&ids, sent_ms);
        self.judge_overdue(&ids, sent_ms);
        listed.locks.iter().for_each(|lock| self.judge_listed(lock));
        for lock in &listed.locks {
            let shown = ShownTimes { id: lock.id, age_ms: lock.held_ms, remaining_ms: lock.remaining_ms };
            self.judge_hold_shown(shown, (sent_ms, now_ms), sent_ms);
        }
        walk.pages.insert(request, ids);
        if self.restarts.happened_since(walk.since_ms) {
            // Another server has the holds at other positions.
            return;
        }
        let shown = match walk.shown() {
            Ok(shown) => shown,
            Err(id) => {
                return self.accuse("page", || {
                    format!("{id} must be in one page of the walk, but is in two: {walk:?}")
                });
            }
        };
        if listed.next != 0 {
            return;
        }
        let missing = self.holds.iter().find(|(id, hold)| {
            belongs(hold)
                && self.stamp_of(hold.key, hold.fence).is_some_and(|stamp_ms| stamp_ms < walk.since_ms)
                && !shown.contains(id)
                && self.surely_lives(**id, now_ms)
        });
        if let Some((id, hold)) = missing {
            let (id, hold) = (*id, format!("{hold:?}"));
            self.accuse("page", || {
                format!("{id} is held during the whole walk, but none of its pages has it: {walk:?}: {hold}")
            });
        }
    }

    /// Rules `view` and `page` for one page of the registrations of a namespace.
    pub(super) fn judge_entries(
        &mut self,
        request: usize,
        listing: &RegistrationListing,
        listed: &EntriesListed<'_>,
        now_ms: u64,
    ) {
        let client = self.lanes[self.requests[request].lane].client;
        let keys = self.settings.mix.named_keys();
        for entry in &listed.entries {
            let is_key = |key: &&Key| kind_of(**key) == listing.kind && key::name_of(**key) == entry.key;
            let is_wanted = listing.like.is_none_or(|value| type_of(value) == entry.type_name);
            match keys.iter().find(is_key) {
                Some(key) if is_wanted => self.judge_registration(request, *key, entry),
                _ => {
                    return self.accuse("view", || {
                        format!("{listing:?} lists an entry that it does not ask for: {entry:?}")
                    });
                }
            }
        }
        let Some(walk) = self.walks.get_mut(&(client, listing.walk)) else { return };
        walk.pages.insert(request, listed.entries.iter().map(|entry| entry.id).collect());
        let (shown, since_ms) = (walk.shown(), walk.since_ms);
        match shown {
            _ if self.restarts.happened_since(since_ms) => {}
            Err(id) => {
                self.accuse("page", || format!("entry {id} must be in one page of the walk, but is in two"));
            }
            Ok(shown) if listed.next == 0 && listing.like.is_none() => {
                let living = self.living_registrations(listing.kind, since_ms, now_ms);
                if let Some(id) = living.into_iter().find(|id| !shown.contains(id)) {
                    self.accuse("page", || {
                        format!(
                            "entry {id} exists during the whole walk, but none of its pages has it: {shown:?}"
                        )
                    });
                }
            }
            Ok(_) => {}
        }
    }

    /// Rule `view`: a hold is listed with the values with which it was granted.
    fn judge_listed(&mut self, lock: &ListedLock<'_>) {
        let Some(hold) = self.holds.get(&lock.id) else { return };
        let (owner, request_id, metadata) = hold.shown();
        let is_tree = kind_of(hold.key) == NamespaceKind::Tree;
        let is_same = lock.fence == hold.fence
            && lock.shared == hold.shared
            && lock.owner == owner
            && (lock.request_id == request_id || hold.request_id.is_some_and(|id| id >= MADE_UP_REQUEST_ID))
            && lock.metadata == metadata
            && (is_tree || lock.key == self.settings.name_of(hold.key));
        if !is_same {
            let hold = format!("{hold:?}");
            self.accuse("view", || format!("LIST shows other values than were granted: {lock:?}: {hold}"));
        }
    }
}
