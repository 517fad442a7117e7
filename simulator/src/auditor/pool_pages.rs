//! Rule `page` for LIST_POOLS: a pool whose capacity an operator set is in exactly one page of a walk. Any
//! other pool may end and be created again between two pages, so it may be in several.

use super::Auditor;
use crate::key::{Key, kind_of};
use crate::operation::Listing;
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::{NamespaceKind, PoolOrder, PoolsListed};

/// One walk, starting with the request for its first page.
#[derive(Debug, Default)]
pub(crate) struct PoolWalk {
    since_ms: u64,
    /// The pools of each page, by the request for the page. A page that is requested again replaces the first response.
    pages: BTreeMap<usize, Vec<Key>>,
}

impl PoolWalk {
    pub(super) fn new(since_ms: u64) -> Self {
        Self { since_ms, pages: BTreeMap::new() }
    }
}

impl Auditor {
    /// Rules `view` and `page` for one page of pools. Each pool exists, has the prefix, its configured order
    /// and a requested capacity. A pool whose capacity was set before the walk began is shown once.
    pub(super) fn judge_pools(
        &mut self,
        request: usize,
        listing: &Listing,
        listed: &PoolsListed<'_>,
        now_ms: u64,
    ) {
        let prefix = listing.prefix.map(|prefix| self.settings.name_of(prefix)).unwrap_or_default();
        let is_pool = |key: &Key| kind_of(*key) == NamespaceKind::Pool;
        let pools: BTreeMap<Vec<u8>, Key> = self
            .settings
            .mix
            .named_keys()
            .into_iter()
            .filter(is_pool)
            .map(|key| (self.settings.name_of(key), key))
            .collect();
        let sent_ms = self.requests[request].first_sent_ms;
        let mut shown = Vec::new();
        for pool in &listed.pools {
            let key = pools.get(pool.name).copied().filter(|_| pool.name.starts_with(&prefix));
            let is_as_asked = key.is_some_and(|key| {
                (pool.order == PoolOrder::Timestamp)
                    == (self.settings.pool_order(key) == PoolOrder::Timestamp)
                    && self.pools.possible(key, sent_ms, now_ms).contains(&pool.capacity)
            });
            if !is_as_asked {
                return self.accuse("view", || {
                    format!("{listing:?} shows a pool with a wrong name, order or capacity: {pool:?}")
                });
            }
            shown.extend(key);
        }
        let walk_key = (self.lanes[self.requests[request].lane].client, listing.walk);
        let mut walk = self.pool_walks.remove(&walk_key).unwrap_or_default();
        walk.pages.insert(request, shown);
        // A restarted server has the pools at other positions.
        if !self.restarts.happened_since(walk.since_ms) {
            let mut once = BTreeSet::new();
            let stays = |key: &Key| self.pools.is_set_before(*key, walk.since_ms);
            let twice = walk.pages.values().flatten().find(|key| !once.insert(**key) && stays(key));
            let is_missing = |(name, key): &(&Vec<u8>, &Key)| {
                name.starts_with(&prefix) && stays(key) && !once.contains(*key)
            };
            let missing = pools.iter().find(is_missing).filter(|_| listed.next == 0);
            if let Some(key) = twice {
                self.accuse("page", || {
                    format!("pool {key} must be in one page of the walk, but is in two: {walk:?}")
                });
            } else if let Some((_, key)) = missing {
                self.accuse("page", || {
                    format!(
                        "the capacity of pool {key} was set before the walk, but none of the pages has the pool: {walk:?}"
                    )
                });
            }
        }
        self.pool_walks.insert(walk_key, walk);
    }
}
