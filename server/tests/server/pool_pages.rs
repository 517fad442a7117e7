//! Pools that are listed page by page.

use crate::harness::{Client, Server, each_size};
use std::collections::BTreeMap;
use std::net::TcpStream;
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    AcquirePermits, ListPools, NamespaceKind, PoolOrder, Request, Response, SetCapacity,
};

/// Capacity, held permits, fence, holders, waiters and whether the capacity was set.
type Shown = (u64, u64, u64, u32, u32, bool);

fn pool_client(server: &Server, owner: &str) -> Client<TcpStream> {
    server.client_of(NamespaceKind::Pool, owner)
}

fn set_capacity(client: &mut Client<TcpStream>, name: &[u8], capacity: u64, order: PoolOrder) {
    let answer =
        client.ask(Request::SetCapacity(SetCapacity { capacity, order, name, ..SetCapacity::default() }));
    assert!(matches!(answer.response(), Response::CapacitySet(_)), "{:?}", answer.response());
}

/// Every pool whose name begins with `prefix`, read in pages of `count_max`. No pool is in two pages.
fn listed(client: &mut Client<TcpStream>, prefix: &[u8], count_max: u16) -> BTreeMap<Vec<u8>, Shown> {
    let (mut pools, mut cursor) = (BTreeMap::new(), 0);
    loop {
        let answer = client.ask(Request::ListPools(ListPools { cursor, count_max, prefix }));
        let Response::PoolsListed(page) = answer.response() else { panic!("{:?}", answer.response()) };
        assert!(count_max == 0 || page.pools.len() <= usize::from(count_max), "{} pools", page.pools.len());
        for pool in page.pools {
            let shown =
                (pool.capacity, pool.held, pool.fence, pool.holder_count, pool.waiter_count, pool.is_set);
            assert_eq!(pool.order == PoolOrder::Timestamp, pool.name.ends_with(b"by time"));
            assert_eq!(pools.insert(pool.name.to_vec(), shown), None, "{}", pool.name.escape_ascii());
        }
        if page.next == 0 {
            return pools;
        }
        cursor = page.next;
    }
}

#[test]
fn pools_of_all_shards_are_listed_by_prefix_page_by_page() {
    for server in each_size() {
        let [mut a, mut b] = ["a", "b"].map(|name| pool_client(&server, name));
        assert_eq!(listed(&mut a, b"", 0), BTreeMap::new());
        for number in 0..300 {
            set_capacity(&mut a, format!("set/{number}").as_bytes(), number + 1, PoolOrder::Arrival);
        }
        set_capacity(&mut a, b"set/by time", 9, PoolOrder::Timestamp);
        let two_of_three =
            AcquirePermits { name: b"used", capacity: 3, permits: 2, ..AcquirePermits::default() };
        a.ask(Request::AcquirePermits(two_of_three)).granted();
        let waits = two_of_three.with_terms(|terms| {
            terms.wait_ms = WAIT_FOREVER_MS;
            terms.notify_queued = true;
        });
        b.send(Request::AcquirePermits(waits));
        b.receive();

        for count_max in [0, 1, 7] {
            let all = listed(&mut a, b"", count_max);
            assert_eq!(all.len(), 302, "pages of {count_max}");
            for number in 0..300 {
                let shown = all.get(format!("set/{number}").as_bytes());
                assert_eq!(shown, Some(&(number + 1, 0, 0, 0, 0, true)));
            }
        }
        let used = BTreeMap::from([(b"used".to_vec(), (3, 2, 1, 1, 1, false))]);
        assert_eq!(listed(&mut a, b"us", 0), used);
        assert_eq!(listed(&mut a, b"set/29", 0).len(), 11);
        assert_eq!(listed(&mut a, b"nothing", 0), BTreeMap::new());

        set_capacity(&mut a, b"set/by time", 0, PoolOrder::Arrival);
        drop((a, b));
        let mut c = pool_client(&server, "c");
        assert_eq!(listed(&mut c, b"set/b", 0), BTreeMap::new(), "the pool was removed");
    }
}

#[test]
fn a_page_of_pools_with_long_names_fits_into_a_frame() {
    let server = Server::start(&[]);
    let mut client = pool_client(&server, "operator");
    let name = |number: u64| format!("{number:01024}").into_bytes();
    for number in 0..1100 {
        set_capacity(&mut client, &name(number), 1, PoolOrder::Arrival);
    }
    let answer = client.ask(Request::ListPools(ListPools::default()));
    let Response::PoolsListed(page) = answer.response() else { panic!("{:?}", answer.response()) };
    assert!(page.next != 0 && page.pools.len() < 70, "{} pools", page.pools.len());
    let names: Vec<_> = listed(&mut client, b"", 0).into_keys().collect();
    assert_eq!(names, (0..1100).map(name).collect::<Vec<_>>());
}
