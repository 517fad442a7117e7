//! Listings of very many pools: the cost of a page, and pools that come and go between two pages.

use crate::fan_outs::FanOut;
use crate::recorder::Effect;
use std::collections::BTreeMap;
use waymaker_engine::limits::LIST_SCAN_COUNT_MAX;
use waymaker_engine::{Answer, PageBounds, PoolOrder, PoolPage, Refusal};

impl FanOut {
    fn set_pool(&mut self, name: &str, capacity: u64) {
        let caller = self.caller(1, 1);
        let shard = &mut self.node.shards[0];
        shard.set_capacity(&caller, name.as_bytes(), capacity, PoolOrder::Arrival, &mut self.effects);
        let said = self.effects.said.pop();
        assert!(matches!(said, Some(Effect::Answer(_, Answer::CapacitySet { .. }))), "{said:?}");
    }

    fn pool_page(&mut self, prefix: &[u8], from: u32, count_max: usize) -> PoolPage {
        let caller = self.caller(1, 1);
        let bounds = PageBounds { count_max, bytes_max: usize::MAX };
        self.node.shards[0].list_pools(&caller, prefix, from, &bounds, &mut self.effects);
        match self.effects.said.pop() {
            Some(Effect::Answer(_, Answer::PoolsListed(page))) => *page,
            other => panic!("a page is the response, not {other:?}"),
        }
    }
}

const POOL_COUNT: u32 = 3 * LIST_SCAN_COUNT_MAX;
/// A page looks at the pool, at its key and at a few records more for each place.
const TOUCHED_PER_PLACE_MAX: u64 = 6;

#[test]
fn a_page_examines_a_limited_number_of_pools_for_any_prefix() {
    let mut fan_out = FanOut::new(1);
    for number in 0..POOL_COUNT {
        fan_out.set_pool(&format!("pool {number}"), 1);
    }
    for (prefix, listed_count) in [(&b"nothing"[..], 0), (b"pool 12287", 1), (b"", POOL_COUNT as usize)] {
        let (mut from, mut page_count, mut found_count) = (Some(0), 0, 0);
        while let Some(place) = from {
            let before = fan_out.touched();
            let page = fan_out.pool_page(prefix, place, usize::MAX);
            let touched = fan_out.touched() - before;
            let touched_max = u64::from(LIST_SCAN_COUNT_MAX) * TOUCHED_PER_PLACE_MAX;
            assert!(touched <= touched_max, "a page looked at {touched} records");
            (from, page_count) = (page.next, page_count + 1);
            found_count += page.pools.len();
        }
        assert_eq!((page_count, found_count), (3, listed_count), "{}", prefix.escape_ascii());
    }
}

#[test]
fn full_memory_refuses_a_lasting_pool_only_if_it_is_new() {
    let mut fan_out = FanOut::new(1);
    fan_out.set_pool("known", 1);
    fan_out.node.shards[0].set_full_memory(Some(4096));
    fan_out.set_pool("known", 2);
    let caller = fan_out.caller(1, 1);
    let shard = &mut fan_out.node.shards[0];
    shard.set_capacity(&caller, b"new", 1, PoolOrder::Arrival, &mut fan_out.effects);
    let Some(Effect::Answer(_, Answer::Refused(Refusal::Overloaded { limit, value }))) =
        fan_out.effects.said.pop()
    else {
        panic!("a new pool is not refused");
    };
    assert_eq!((limit, value), ("bytes of memory", 4096));
    fan_out.node.shards[0].set_full_memory(None);
    fan_out.set_pool("new", 1);
}

#[test]
fn a_lasting_pool_is_on_exactly_one_page_while_other_pools_change() {
    let mut fan_out = FanOut::new(1);
    for number in 0..200 {
        fan_out.set_pool(&format!("stays {number}"), 1);
        fan_out.set_pool(&format!("goes {number}"), 1);
    }
    let mut page_counts: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let (mut from, mut turn) = (Some(0), 0);
    while let Some(place) = from {
        let page = fan_out.pool_page(b"", place, 7);
        for pool in page.pools {
            *page_counts.entry(pool.name).or_default() += 1;
        }
        // Pools before and behind the cursor go, and new pools take their places.
        for number in [turn, 199 - turn] {
            fan_out.set_pool(&format!("goes {number}"), 0);
            fan_out.set_pool(&format!("new {number}"), 1);
        }
        fan_out.node.verify();
        (from, turn) = (page.next, turn + 1);
    }
    assert!(turn > 50, "{turn} pages");
    for number in 0..200 {
        let name = format!("stays {number}");
        assert_eq!(page_counts.get(name.as_bytes()), Some(&1), "pages that have {name}");
    }
}

#[test]
fn a_page_beyond_the_last_pool_is_empty() {
    let mut fan_out = FanOut::new(1);
    fan_out.set_pool("p", 1);
    assert_eq!(fan_out.pool_page(b"", 0, 1).pools.len(), 1);
    for from in [1, 2, u32::MAX] {
        assert_eq!(fan_out.pool_page(b"", from, 1), PoolPage::default(), "from {from}");
    }
}
