//! Compares the contents of a node with its log while everything that the node recorded is durable. A start
//! from the log must restore the same holds, counters and settings as the node has. Only durable contents
//! must be equal until a clean stop records the ephemeral ones too.

use crate::disk::SimulatedDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use waymaker_engine::{ClaimId, Fence, Scope};
use waymaker_log::store::{Log, OpenOptions};
use waymaker_log::{FileName, Hold, Image, Item, Record, Records, Started, Superblock};
use waymaker_server::log::LogBatch;
use waymaker_server::node::Node;

/// Stage of a node that is compared with its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The node has not served any client yet. It has everything that the log has.
    Started,
    /// The log has only durable records.
    Serves,
    /// The log also has ephemeral holds and counters.
    Stops,
}

/// Returns a description of the first difference. `disk` has the whole log of the node and is not changed.
pub(super) fn difference(
    disk: &SimulatedDisk,
    options: &OpenOptions,
    node: &Node,
    started: Started,
    stage: Stage,
) -> Result<(), String> {
    let logged = image_on(disk, options)?;
    if stage == Stage::Serves && logged.started() != Some(&started) {
        // A server that started on a full disk has not written anything yet.
        return Ok(());
    }
    compare(&logged, &image_of(node, started)?, node.quorum.is_some(), stage)
}

/// Compares a node that has not served any client yet with its log. `logged` is the log that the node was
/// restored from, and `left` has the records that its start will append to the log.
pub(super) fn difference_at_start<'a>(
    mut logged: Image,
    node: &Node,
    started: Started,
    left: impl Iterator<Item = &'a LogBatch>,
) -> Result<(), String> {
    logged.rebase(&started);
    for batch in left {
        let mut records =
            Records::check(&batch.records, batch.record_count).ok_or("a batch has invalid records")?;
        records.try_for_each(|record| apply(&mut logged, record))?;
    }
    compare(&logged, &image_of(node, started)?, node.quorum.is_some(), Stage::Started)
}

/// Returns the contents of a log for a server that has read the log and has not written to it yet.
pub(super) fn image_to_restore(disk: &SimulatedDisk, options: &OpenOptions) -> Result<Image, String> {
    let mut image = image_on(disk, options)?;
    if let Some(losses) = superblock_on(disk).and_then(|superblock| superblock.losses) {
        image.begin_above(losses.fence_floor);
    }
    Ok(image)
}

/// Checks that after losses the floor of the log is at least the fence above which the server began, unless
/// the server has written nothing yet. Later starts do not find the losses in the superblock any more.
pub(super) fn begins_above(
    disk: &SimulatedDisk,
    options: &OpenOptions,
    started: Started,
    fence: Fence,
) -> Result<(), String> {
    let logged = image_on(disk, options)?;
    if logged.started() != Some(&started) || logged.floor() >= fence {
        return Ok(());
    }
    same("the floor after losses", &logged.floor(), &fence)
}

fn image_on(disk: &SimulatedDisk, options: &OpenOptions) -> Result<Image, String> {
    let copy = SimulatedDisk::new(disk.state());
    let (_, image, _) = Log::open::<Image>(Arc::new(copy), options).map_err(|error| error.to_string())?;
    Ok(image)
}

fn image_of(node: &Node, started: Started) -> Result<Image, String> {
    let mut image = Image::default();
    let mut bytes = Vec::new();
    let mut result = Ok(());
    let mut put = |record: &Record<'_>| {
        bytes.clear();
        record.encode(&mut bytes);
        if result.is_ok() {
            result = apply(&mut image, &bytes[4..]);
        }
    };
    put(&Record::Started(started));
    node.write_contents(&mut put);
    result.map(|()| image)
}

fn apply(image: &mut Image, record: &[u8]) -> Result<(), String> {
    image.apply(1, record).map_err(|error| error.to_string())
}

fn compare(logged: &Image, known: &Image, has_cluster: bool, stage: Stage) -> Result<(), String> {
    same("namespaces", &logged.namespaces().collect::<Vec<_>>(), &known.namespaces().collect())?;
    same("pools", &logged.pools().collect::<Vec<_>>(), &known.pools().collect())?;
    same("frozen prefixes", &logged.frozen().collect::<Vec<_>>(), &known.frozen().collect())?;
    // The log learns only later that a key was folded into the floor. A start with many keys folds some of
    // them and does not record it.
    let folds = match stage {
        Stage::Started => logged.counters().any(|counter| counter.fence >= known.floor()),
        Stage::Serves => true,
        Stage::Stops => false,
    };
    let floor = if folds { logged.floor().max(known.floor()) } else { logged.floor() };
    let has_ephemeral = stage != Stage::Serves;
    if has_ephemeral {
        floors(floor, known, has_cluster)?;
    }
    counters(logged, known, floor, has_ephemeral)?;
    holds(logged, known, stage)
}

/// Returns upper bounds from the superblock: for all fences in the log, and for all leases, in milliseconds.
pub(super) fn bounds_on(disk: &SimulatedDisk) -> Option<(u64, u64)> {
    let superblock = superblock_on(disk)?;
    Some((superblock.fence_floor.get(), superblock.longest_lease_ms))
}

fn superblock_on(disk: &SimulatedDisk) -> Option<Superblock> {
    let state = disk.state();
    Superblock::decode_file(state.bytes(&FileName::Superblock.to_string())?).ok().map(|(found, _)| found)
}

/// Returns the holds in the log on a disk, which is not changed. The value tells whether a cluster has still
/// to count the hold. `None` if a server would refuse to start from the log.
pub(super) fn holds_on(disk: &SimulatedDisk, options: &OpenOptions) -> Option<BTreeMap<ClaimId, bool>> {
    let copy = SimulatedDisk::new(disk.state());
    let (_, image, _) = Log::open::<Image>(Arc::new(copy), options).ok()?;
    Some(image.holds().map(|hold| (hold.id, hold.awaits_count)).collect())
}

/// Returns the holds of a node.
pub(super) fn holds_of(node: &Node) -> BTreeSet<ClaimId> {
    let mut held = BTreeSet::new();
    node.write_contents(&mut |record| {
        if let Record::Held(hold) = record {
            held.insert(hold.id);
        }
    });
    held
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, logged: &T, known: &T) -> Result<(), String> {
    if logged == known { Ok(()) } else { Err(format!("{what}: {logged:?} in the log, {known:?} in memory")) }
}

/// Compares the floors. The floor of the log may be higher: the log learns only later that a key was folded,
/// and the key may have got higher fences meanwhile. Also, only the log has a fence that a cluster counted
/// for a grant that was given up. No client learned that fence.
fn floors(logged: Fence, known: &Image, has_cluster: bool) -> Result<(), String> {
    let highest = known.counters().map(|counter| counter.fence).max().unwrap_or(Fence::NONE);
    if known.floor() <= logged && (has_cluster || logged <= highest) {
        return Ok(());
    }
    same("floors", &logged, &known.floor())
}

fn counters(logged: &Image, known: &Image, floor: Fence, has_ephemeral: bool) -> Result<(), String> {
    let counts = |scope: Scope| has_ephemeral || scope.is_durable();
    let of = |image: &Image| -> BTreeMap<_, _> {
        let counters = image.counters();
        counters
            .map(|counter| ((counter.namespace, counter.key.to_vec()), (counter.fence, counter.scope)))
            .collect()
    };
    let (counters, mut in_memory) = (of(logged), of(known));
    for (key, counter) in counters.into_iter().filter(|(_, (_, scope))| counts(*scope)) {
        match in_memory.remove(&key) {
            // The key was folded into the floor. The log learns this later.
            None if counter.0 <= floor => {}
            Some(known) if known == counter => {}
            // A start sets no counter below the floor. A start with many keys folds some of them into the
            // floor and does not record it. The next request for such a key chooses its scope.
            Some((fence, scope)) if fence >= counter.0 && (scope < counter.1 || fence <= known.floor()) => {}
            // The cluster counted a grant that was given up meanwhile, possibly the first grant of its key.
            // No client learned of it.
            Some((fence, _)) if counter.1 == Scope::Quorum && fence <= counter.0 => {}
            other => same(&format!("counter {key:?}"), &Some(counter), &other)?,
        }
    }
    // If a key was folded and used again, the log may have nothing but the floor for it.
    in_memory.retain(|_, (fence, scope)| *fence > floor && counts(*scope));
    same("counters that are not in the log", &BTreeMap::new(), &in_memory)
}

fn holds(logged: &Image, known: &Image, stage: Stage) -> Result<(), String> {
    let has_ephemeral = stage != Stage::Serves;
    let known = known.holds().filter(|hold| has_ephemeral || hold.scope.is_durable());
    let mut in_memory: BTreeMap<_, Hold<'_>> = known.map(|hold| (hold.id, hold)).collect();
    let raised = raised_counters(logged);
    for mut hold in logged.holds() {
        let Some(mut other) = in_memory.remove(&hold.id) else {
            // A start counts as the loss of the connection. The end of an ephemeral hold is not recorded.
            let ends_with_connection = hold.release_after_ms == Some(0);
            if stage == Stage::Started && ends_with_connection && !hold.scope.is_durable() {
                continue;
            }
            return Err(format!("{hold:?} is in the log, but not in memory"));
        };
        // A lease begins when its record is durable, which only later frames of the log report. A
        // registration has an absolute end instead.
        let has_end = matches!(hold.item, Item::Registration { .. });
        if has_end || hold.deadline_ms.is_none() || other.deadline_ms.is_none() {
            (hold.deadline_ms, other.deadline_ms) = (None, None);
        }
        // A lazy registration ends at an instant of wall time, so its remaining lease differs.
        if let Item::Registration { lazy: true, .. } = hold.item {
            (hold.lease_ms, other.lease_ms) = (0, 0);
        }
        // The log does not record when a cluster has counted a grant, nor when a hold began.
        (hold.begins_counted, other.begins_counted) = (false, false);
        // When the workers ended, a shard may not have received the count or a later fence. The cluster
        // may have counted further meanwhile.
        if other.awaits_count && !hold.awaits_count && other.fence < hold.fence {
            other.fence = hold.fence;
        }
        (hold.awaits_count, other.awaits_count) = (false, false);
        (hold.since_ms, other.since_ms) = (0, 0);
        // The log has the capacity at the time of the grant. Later changes follow it in records of their own.
        if let (Item::Permits { capacity, .. }, Item::Permits { capacity: now, .. }) =
            (&mut hold.item, &other.item)
        {
            *capacity = *now;
        }
        // The scope of the key may have risen since the grant.
        if hold.scope.is_durable() && other.scope > hold.scope {
            hold.scope = other.scope;
        }
        // A later grant raised the scope of the key and was given up. The record of a move has the scope of
        // that time.
        let key = (hold.namespace, hold.item.counter_name());
        if other.scope == Scope::Local && raised.get(&key).is_some_and(|fence| *fence > hold.fence) {
            hold.scope = other.scope;
        }
        // Memory may have forgotten the request of a hold and the length of its lease. Then the remaining
        // lease counts as its length.
        if other.number == 0 {
            (hold.number, hold.priority, hold.set_hash) = (0, other.priority, other.set_hash);
            (hold.waited, hold.repeated) = (other.waited, other.repeated);
            hold.lease_ms = other.lease_ms;
        }
        same("a hold", &hold, &other)?;
    }
    same("holds that are not in the log", &BTreeMap::new(), &in_memory)
}

/// Returns the fences of the keys whose scope in the log is Quorum.
fn raised_counters(logged: &Image) -> BTreeMap<(u16, &[u8]), Fence> {
    let raised = logged.counters().filter(|counter| counter.scope == Scope::Quorum);
    raised.map(|counter| ((counter.namespace, counter.key), counter.fence)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_engine::ClaimId;

    const ID: ClaimId = ClaimId { place: 1, secret: 2 };

    /// A hold that a cluster counts.
    const HOLD: Hold<'_> = Hold {
        id: ID,
        namespace: 0,
        scope: Scope::Quorum,
        shared: false,
        session_lease: false,
        endless: false,
        clamped: false,
        waited: false,
        repeated: false,
        fence: Fence::new(4),
        begins_counted: false,
        awaits_count: false,
        since_ms: 1_000,
        deadline_ms: None,
        lease_ms: 100,
        release_after_ms: None,
        priority: 0,
        number: 1,
        session: None,
        owner: b"",
        identity: None,
        request_id: None,
        metadata: None,
        set_hash: None,
        item: Item::Key(b"key"),
    };

    fn image(records: &[&Record<'_>]) -> Result<Image, String> {
        let mut image = Image::default();
        for record in records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            image.apply(1, &bytes[4..]).map_err(|error| error.to_string())?;
        }
        Ok(image)
    }

    #[test]
    fn a_start_must_restore_every_field_of_a_hold() {
        let logged = image(&[&Record::Held(HOLD)]).expect("a hold");
        let restored = |hold: Hold<'_>| {
            let memory = image(&[&Record::Held(hold)]).expect("a hold");
            compare(&logged, &memory, false, Stage::Started).is_ok()
        };
        assert!(restored(HOLD));
        assert!(!restored(Hold { metadata: Some(b"other"), ..HOLD }));
        assert!(!restored(Hold { release_after_ms: Some(1), ..HOLD }));
        assert!(!restored(Hold { fence: Fence::new(5), ..HOLD }));
        assert!(!restored(Hold { id: ClaimId { place: 2, secret: 2 }, ..HOLD }));
    }

    #[test]
    fn the_log_has_the_counters_of_durable_keys_before_a_stop() {
        let counter = |scope, fence| Record::Counter { namespace: 0, scope, fence, key: b"key" };
        let compared = |scope, fence| {
            let images =
                [1, fence].map(|fence| image(&[&counter(scope, Fence::new(fence))]).expect("a counter"));
            compare(&images[0], &images[1], false, Stage::Serves).is_ok()
        };
        assert!(compared(Scope::Local, 1));
        assert!(!compared(Scope::Local, 2));
        assert!(compared(Scope::Ephemeral, 2), "a stop records it");
    }

    /// Compares a log that has a hold and its count with a memory that has only the hold.
    fn counted_in_the_log_alone(awaits_count: bool) -> Result<(), String> {
        let hold = Record::Held(Hold { awaits_count, ..HOLD });
        let counted = Record::Counted { id: ID, fence: Fence::new(14) };
        holds(&image(&[&hold, &counted])?, &image(&[&hold])?, Stage::Stops)
    }

    /// Compares a log in which the key of a hold was raised to scope Quorum with a memory in which it was
    /// not. `fence` is the newest fence of the key in the log.
    fn raised_in_the_log_alone(fence: Fence) -> Result<(), String> {
        let counter = Record::Counter { namespace: 0, scope: Scope::Quorum, fence, key: b"key" };
        let logged = image(&[&Record::Held(HOLD), &counter])?;
        holds(&logged, &image(&[&Record::Held(Hold { scope: Scope::Local, ..HOLD })])?, Stage::Stops)
    }

    #[test]
    fn the_log_may_have_the_scope_of_a_later_grant_that_was_given_up() {
        assert_eq!(raised_in_the_log_alone(Fence::new(5)), Ok(()));
        assert!(raised_in_the_log_alone(Fence::new(4)).is_err(), "no later grant has raised the scope");
    }

    #[test]
    fn memory_may_lack_the_fence_of_a_hold_whose_count_it_awaits() {
        assert_eq!(counted_in_the_log_alone(true), Ok(()));
        assert!(counted_in_the_log_alone(false).is_err());
    }

    #[test]
    fn only_a_start_may_end_an_ephemeral_hold_that_lasts_as_long_as_its_connection() {
        let is_missed = |release_after_ms, scope, stage| {
            let hold = Record::Held(Hold { release_after_ms, scope, ..HOLD });
            holds(&image(&[&hold]).expect("one hold"), &image(&[]).expect("nothing"), stage).is_err()
        };
        assert!(!is_missed(Some(0), Scope::Ephemeral, Stage::Started));
        assert!(is_missed(Some(0), Scope::Ephemeral, Stage::Stops));
        assert!(is_missed(Some(0), Scope::Local, Stage::Started));
        assert!(is_missed(Some(1), Scope::Ephemeral, Stage::Started));
        assert!(is_missed(None, Scope::Ephemeral, Stage::Started));
    }
}
