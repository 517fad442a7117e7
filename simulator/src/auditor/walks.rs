//! Walks over the pages of LIST, HOLDS and LIST_ENTRIES: what is held all the while stands in exactly one of them.

use super::Auditor;
use super::holds::Hold;
use super::numbers::Shown;
use crate::mix::{Mix, kind_of};
use crate::operation::{EntryListing, Key, Listing, MADE_UP_REQUEST_ID, type_of};
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::{EntriesListed, Listed, ListedLock, LockId, NamespaceKind};

/// One walk, from the question for its first page on.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    since_ms: u64,
    /// The pages, by their questions. One that is asked again after a lost connection has another answer.
    pages: BTreeMap<usize, Vec<LockId>>,
}

impl Walk {
    pub(super) fn new(since_ms: u64) -> Self {
        Self { since_ms, pages: BTreeMap::new() }
    }

    /// All that was shown, or what was shown twice.
    fn shown(&self) -> Result<BTreeSet<LockId>, LockId> {
        let mut shown = BTreeSet::new();
        let twice = self.pages.values().flatten().find(|id| !shown.insert(**id));
        twice.map_or(Ok(shown), |id| Err(*id))
    }
}

impl Auditor {
    /// One page of what is held in a namespace.
    pub(super) fn judge_list(&mut self, request: usize, listing: &Listing, listed: &Listed<'_>, now_ms: u64) {
        let client = self.lanes[self.requests[request].lane].client;
        let name = listing.prefix.map(|prefix| self.settings.name_of(prefix)).unwrap_or_default();
        if let Some(lock) = listed.locks.iter().find(|lock| !lock.key.starts_with(&name)) {
            return self.accuse("view", || format!("{lock:?} does not begin with {:?}", name.escape_ascii()));
        }
        let mut walk = self.walks.remove(&(client, listing.walk)).unwrap_or_default();
        let begins = |key: Key| self.settings.name_of(key).starts_with(&name);
        let keys: BTreeSet<Key> =
            self.holds.values().map(|hold| hold.key).filter(|key| begins(*key)).collect();
        let belongs = |hold: &Hold| kind_of(hold.key) == listing.kind && keys.contains(&hold.key);
        self.judge_page(request, &mut walk, listed, belongs, now_ms);
        self.walks.insert((client, listing.walk), walk);
    }

    /// One page of the holds of a lane: all are its own.
    pub(super) fn judge_holds(&mut self, request: usize, listed: &Listed<'_>, now_ms: u64) {
        let lane = self.requests[request].lane;
        for lock in &listed.locks {
            let is_foreign = self.holds.get(&lock.id).is_some_and(|hold| {
                let client = self.lanes[lane].client;
                hold.client != client
                    || hold.lane != lane && !hold.may_have_moved && hold.request_id.is_none()
            });
            if is_foreign {
                self.accuse("view", || format!("lane {lane} does not have {}: {listed:?}", lock.id));
            }
        }
        let mut walk = std::mem::take(&mut self.lanes[lane].holds_walk);
        let belongs = |hold: &Hold| {
            hold.lane == lane && hold.request_id.is_none() && !hold.was_repeated && !hold.may_have_moved
        };
        self.judge_page(request, &mut walk, listed, belongs, now_ms);
        self.lanes[lane].holds_walk = walk;
    }

    /// One page of a walk. Behind the last none was left out of those that belong to it and surely lived all the while.
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
            let shown = Shown { id: lock.id, age_ms: lock.held_ms, remaining_ms: lock.remaining_ms };
            self.judge_hold_shown(shown, (sent_ms, now_ms), sent_ms);
        }
        walk.pages.insert(request, ids);
        if self.restarts.happened_since(walk.since_ms) {
            // Places in another server are other ones.
            return;
        }
        let shown = match walk.shown() {
            Ok(shown) => shown,
            Err(id) => return self.accuse("page", || format!("{id} is shown twice: {walk:?}")),
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
            self.accuse("page", || format!("{id} is held and in none of the pages {walk:?}: {hold}"));
        }
    }

    /// One page of what is registered in a namespace, each as its owner registered it.
    pub(super) fn judge_entries(
        &mut self,
        request: usize,
        listing: &EntryListing,
        listed: &EntriesListed<'_>,
        now_ms: u64,
    ) {
        let client = self.lanes[self.requests[request].lane].client;
        let keys = self.settings.mix.named_keys();
        for entry in &listed.entries {
            let is_key = |key: &&Key| kind_of(**key) == listing.kind && Mix::name_of(**key) == entry.key;
            let is_wanted = listing.like.is_none_or(|value| type_of(value) == entry.type_name);
            match keys.iter().find(is_key) {
                Some(key) if is_wanted => self.judge_entry(request, *key, entry),
                _ => return self.accuse("view", || format!("{listing:?} does not ask for {entry:?}")),
            }
        }
        let Some(walk) = self.walks.get_mut(&(client, listing.walk)) else { return };
        walk.pages.insert(request, listed.entries.iter().map(|entry| entry.id).collect());
        let (shown, since_ms) = (walk.shown(), walk.since_ms);
        match shown {
            _ if self.restarts.happened_since(since_ms) => {}
            Err(id) => self.accuse("page", || format!("entry {id} is shown twice")),
            Ok(shown) if listed.next == 0 && listing.like.is_none() => {
                let living = self.living_entries(listing.kind, since_ms, now_ms);
                if let Some(id) = living.into_iter().find(|id| !shown.contains(id)) {
                    self.accuse("page", || format!("entry {id} lives and is in none of the pages {shown:?}"));
                }
            }
            Ok(_) => {}
        }
    }

    /// A hold is shown as it was granted.
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
            self.accuse("view", || format!("{lock:?} was granted otherwise: {hold}"));
        }
    }
}
