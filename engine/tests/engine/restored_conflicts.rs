//! Logs with holds that exclude each other: a shard refuses to restore them.

use waymaker_engine::{ClaimId, Fence, Limits, Refusal, Scope, Shard, ShardConfig, Time};
use waymaker_log::{Hold, Item};

use crate::recorder::Recorder;

fn hold(number: u64, item: Item<'_>) -> Hold<'_> {
    Hold {
        id: ClaimId { place: number, secret: number },
        namespace: 1,
        scope: Scope::Local,
        shared: false,
        session_lease: false,
        endless: true,
        clamped: false,
        waited: false,
        repeated: false,
        fence: Fence::new(number),
        begins_counted: false,
        awaits_count: false,
        since_ms: 0,
        deadline_ms: None,
        lease_ms: 0,
        release_after_ms: None,
        priority: 0,
        number: number as u32,
        session: None,
        owner: b"owner",
        request_id: None,
        metadata: None,
        identity: None,
        set_hash: None,
        item,
    }
}

/// Restores both holds, the second of which is refused.
#[track_caller]
fn assert_conflict(older: Item<'_>, newer: Item<'_>) {
    let limits = Limits::default();
    let (hash_seeds, secret_seed, start) = ([1, 2, 3, 4], [7; 32], Time::from_millis(1_000));
    let mut shard = Shard::new(&ShardConfig { number: 0, limits, hash_seeds, secret_seed, start });
    let mut effects = Recorder::default();
    shard.restore_hold(&hold(1, older), None, &mut effects).expect("the first hold is restored");
    let refused = shard.restore_hold(&hold(2, newer), None, &mut effects);
    assert!(matches!(refused, Err(Refusal::BadInput { .. })), "{refused:?}");
    shard.verify();
}

/// The path of one segment.
fn path(segment: &[u8; 1]) -> [u8; 3] {
    [1, 0, segment[0]]
}

#[test]
fn conflicting_sets_of_paths_are_not_restored() {
    let path = path(b"a");
    assert_conflict(Item::Paths(vec![(&path, true)]), Item::Paths(vec![(&path, false)]));
    // The whole tree.
    assert_conflict(Item::Paths(vec![(&path, false)]), Item::Paths(vec![(b"", true)]));
}

#[test]
fn holds_of_different_kinds_are_not_restored_for_one_key() {
    let permits = || Item::Permits { permits: 1, capacity: 1, by_timestamp: false, name: b"key" };
    let registration = || Item::Registration { key: b"", type_name: b"", end_ms: 0, lazy: false };
    let path = path(b"a");
    let paths = || Item::Paths(vec![(&path[..], false)]);
    assert_conflict(Item::Key(b"key"), permits());
    assert_conflict(permits(), Item::Key(b"key"));
    assert_conflict(registration(), paths());
    assert_conflict(paths(), registration());
}

#[test]
fn more_permits_than_can_be_counted_are_not_restored() {
    let permits = |permits| Item::Permits { permits, capacity: 1, by_timestamp: false, name: b"pool" };
    assert_conflict(permits(2), permits(u64::MAX - 1));
}
