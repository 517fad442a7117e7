//! Lists of the pools of a namespace, page by page.

use crate::access::{Access, Rights};
use crate::effect::{Answer, Effects, ListedPool, PoolPage};
use crate::handle::PoolIx;
use crate::limits::LIST_SCAN_COUNT_MAX;
use crate::shard::{Caller, PageBounds, Shard};

impl Shard {
    /// Lists this shard's pools of the namespace whose names begin with `prefix` and that the caller may list, from the
    /// pool number `from` on. A page visits at most `LIST_SCAN_COUNT_MAX` numbers. A pool keeps its number, so a pool
    /// that exists from the first page to the last is in exactly one page.
    pub fn list_pools(
        &self,
        caller: &Caller,
        prefix: &[u8],
        from: u32,
        bounds: &PageBounds,
        effects: &mut impl Effects,
    ) {
        let access = self.access_of(caller.lane);
        let mut page = PoolPage::default();
        let mut bytes = 0;
        let end = self.pools.end().min(from.saturating_add(LIST_SCAN_COUNT_MAX));
        let mut space = from;
        while space < end && page.pools.len() < bounds.count_max && bytes < bounds.bytes_max {
            if let Some(pool) = self.listed_pool(PoolIx::new(space), caller.namespace, access, prefix) {
                bytes += 64 + pool.name.len();
                page.pools.push(pool);
            }
            space += 1;
        }
        page.next = (space < self.pools.end()).then_some(space);
        effects.answer(caller.ticket, Answer::PoolsListed(Box::new(page)));
    }

    /// Returns the pool with this number if it exists in the namespace, its name begins with `prefix`, and this access
    /// may list it.
    fn listed_pool(
        &self,
        space: PoolIx,
        namespace: u16,
        access: Option<&Access>,
        prefix: &[u8],
    ) -> Option<ListedPool> {
        let entry = self.pools[space].entry;
        if entry.is_none() || self.keys.entries[entry].namespace != namespace {
            return None;
        }
        let name = self.keys.key(entry);
        let is_listed =
            name.starts_with(prefix) && access.is_none_or(|access| access.covers(Rights::LIST, name));
        is_listed.then(|| ListedPool { name: name.to_vec(), status: self.pool_numbers(entry) })
    }
}
