//! State that results from the records of a log.

use super::frame::Durable;
use super::hold::{Hold, Item};
use super::record::{BadRecord, Record, Started};
use crate::ids::{ClaimId, Fence, Scope};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Largest accepted change, in milliseconds, of the difference between wall clock and boot time from one server start
/// to the next without a reboot. After a larger change, a clock was set between the starts, so the recorded instants of
/// the earlier start are not used.
const CLOCK_SKEW_MAX_MS: i64 = 1_000;

/// State that results from records of the log, and with which a new server starts.
///
/// The state results from records that are applied one after the other, read from the log of a server or from a
/// snapshot. A snapshot is a short list of records that gives the same state ([`Image::write`]). All maps are ordered,
/// so the same records give the same image and the same snapshot.
#[derive(Debug, Default)]
pub struct Image {
    started: Option<Started>,
    stopped: bool,
    floor: Fence,
    namespaces: BTreeMap<u16, Namespace>,
    holds: BTreeMap<ClaimId, StoredHold>,
    /// Holds whose lease has not begun, each with the number of a frame: its lease begins when that frame is durable.
    /// Sorted by the frame number.
    unbegun: VecDeque<(u64, ClaimId)>,
    counter_count: usize,
}

/// State of a namespace.
#[derive(Debug, Default)]
struct Namespace {
    named: Option<(u8, Box<[u8]>)>,
    counters: BTreeMap<Box<[u8]>, Counter>,
    pools: BTreeMap<Box<[u8]>, (u64, bool)>,
    frozen: BTreeSet<Box<[u8]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    fence: Fence,
    scope: Scope,
}

/// Hold: its record as it was read, and the present values of the fields that later records may change.
#[derive(Debug)]
struct StoredHold {
    record: Box<[u8]>,
    scope: Scope,
    fence: Fence,
    since_ms: u64,
    deadline_ms: Option<u64>,
    lease_ms: u32,
    /// End of the lease of a registration, in milliseconds of boot time; `None` for other holds.
    end_ms: Option<i64>,
    /// Length of the lease of a registration in milliseconds, if it is too long for the record's `lease_ms`; otherwise
    /// 0.
    longer_ms: u64,
    /// Whether the hold takes effect only after an etcd cluster has counted it.
    awaits_count: bool,
}

/// Fence counter of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyCounter<'a> {
    /// Namespace of the key.
    pub namespace: u16,
    /// Key of the counter.
    pub key: &'a [u8],
    /// Fence of the newest grant.
    pub fence: Fence,
    /// Durability of the counter.
    pub scope: Scope,
}

impl Image {
    /// Applies the next record, which is in the frame with the number `lsn`.
    ///
    /// # Errors
    /// Returns an error if the record is malformed, or is a group header or a part.
    pub fn apply(&mut self, lsn: u64, record: &[u8]) -> Result<(), BadRecord> {
        let decoded = Record::decode(record)?;
        self.stopped = matches!(decoded, Record::Stopped);
        match decoded {
            Record::Started(started) => {
                self.rebase(&started);
                self.forget_ephemeral();
                self.started = Some(started);
            }
            Record::Namespace { number, kind, name } => {
                self.namespace(number).named = Some((kind, name.into()));
            }
            Record::NamespaceRemoved { number } => {
                if let Some(namespace) = self.namespaces.remove(&number) {
                    self.counter_count -= namespace.counters.len();
                    let fences = namespace.counters.values().map(|counter| counter.fence);
                    self.floor = self.floor.max(fences.max().unwrap_or(Fence::NONE));
                }
            }
            Record::Held(hold) => self.hold(lsn, record, &hold),
            Record::LeaseMoved { id, deadline_ms, lease_ms } => {
                if let Some(hold) = self.holds.get_mut(&id) {
                    (hold.deadline_ms, hold.lease_ms) = (Some(deadline_ms), lease_ms);
                }
            }
            Record::Ended { id } => self.end(id),
            Record::Counted { id, fence } => self.note_counted(lsn, id, fence),
            Record::Counter { namespace, scope, fence, key } => self.count(namespace, key, fence, scope),
            Record::Folded { namespace, key } => {
                // This record says that the server dropped the fence counter of a key, and raised the fence floor of
                // all keys to the value of that counter instead. If the namespace was removed before, its counters were
                // dropped in the same way, and nothing is left to do.
                let namespace = self.namespaces.get_mut(&namespace);
                if let Some(counter) = namespace.and_then(|namespace| namespace.counters.remove(key)) {
                    self.floor = self.floor.max(counter.fence);
                    self.counter_count -= 1;
                }
            }
            Record::Floor { fence } => self.floor = self.floor.max(fence),
            Record::BeginAbove { fence } => self.begin_above(fence),
            Record::Group { .. } | Record::Part { .. } => {
                return Err(BadRecord("an unexpected record of the storage format (a part or a group)"));
            }
            Record::PoolSet { namespace, capacity: 0, name, .. } => {
                self.namespace(namespace).pools.remove(name);
            }
            Record::PoolSet { namespace, capacity, by_timestamp, name } => {
                self.namespace(namespace).pools.insert(name.into(), (capacity, by_timestamp));
            }
            Record::Frozen { namespace, frozen: true, prefix } => {
                self.namespace(namespace).frozen.insert(prefix.into());
            }
            Record::Frozen { namespace, frozen: false, prefix } => {
                self.namespace(namespace).frozen.remove(prefix);
            }
            Record::Stopped => {}
        }
        Ok(())
    }

    /// Begins the leases of holds in frames up to `durable.lsn`, at the instant at which these frames became durable. A
    /// lease that has begun does not change.
    pub fn durable(&mut self, durable: Durable) {
        while let Some((_, id)) = self.unbegun.pop_front_if(|(written, _)| *written <= durable.lsn) {
            if let Some(hold) = self.holds.get_mut(&id)
                && hold.deadline_ms.is_none()
            {
                hold.deadline_ms = Some(durable.at_ms.saturating_add(hold.lease_ms.into()));
            }
        }
    }

    /// Converts all leases to the clocks of a server that starts. If the machine was not rebooted, a lease that has
    /// begun keeps its end. After a reboot or a clock change, or if the beginning of a lease is unknown, the full lease
    /// begins again: it ends late, never early. The lease of a registration always begins again, but a lazy
    /// registration keeps the end of its lease in wall time. Also removes the holds that still wait until an etcd
    /// cluster counts them, or another hold of the same multi-key claim. No client was told of these holds.
    pub fn rebase(&mut self, started: &Started) {
        let Some(before) = self.started else { return };
        // Damaged or forged records may contain any values, so the arithmetic saturates instead of overflowing.
        let distance = |started: &Started| started.unix_ms.saturating_sub_unsigned(started.now_ms);
        let moved_ms = distance(started).saturating_sub(distance(&before));
        let is_same_boot =
            before.boot_id == started.boot_id && moved_ms.saturating_abs() <= CLOCK_SKEW_MAX_MS;
        self.unbegun.clear();
        // The server told no client of a hold that the cluster had not counted. The cluster may have given its fence to
        // a grant of another server, so the hold is removed.
        self.holds.retain(|_, hold| !hold.awaits_count);
        for hold in self.holds.values_mut() {
            let full_ms = started.now_ms.saturating_add(u64::from(hold.lease_ms).max(hold.longer_ms));
            if !is_same_boot {
                hold.since_ms = hold.since_ms.min(started.now_ms);
            }
            match (&mut hold.end_ms, hold.deadline_ms) {
                (Some(end_ms), Some(_)) => *end_ms = i64::try_from(full_ms).unwrap_or(i64::MAX),
                (Some(end_ms), None) if !is_same_boot => *end_ms = end_ms.saturating_sub(moved_ms),
                (Some(_), None) => {}
                (None, Some(_)) if is_same_boot => {}
                (None, _) => hold.deadline_ms = Some(full_ms),
            }
        }
    }

    /// Drops all holds and counters with scope ephemeral, when a `Started` record is applied. The previous server wrote
    /// them when it stopped cleanly. The server that started took them into memory and did not log their changes, so
    /// the written ones are outdated. If that server stops cleanly, it writes them again.
    fn forget_ephemeral(&mut self) {
        self.holds.retain(|_, hold| hold.scope.is_durable());
        for namespace in self.namespaces.values_mut() {
            namespace.counters.retain(|_, counter| counter.scope.is_durable());
        }
        self.counter_count = self.namespaces.values().map(|namespace| namespace.counters.len()).sum();
    }

    /// Raises the fence floor, which all new counters start above, and all existing counters to at least this fence.
    pub fn begin_above(&mut self, fence: Fence) {
        self.floor = self.floor.max(fence);
        for namespace in self.namespaces.values_mut() {
            namespace.counters.values_mut().for_each(|counter| counter.fence = counter.fence.max(fence));
        }
    }

    /// Removes an ended hold.
    pub fn end(&mut self, id: ClaimId) {
        self.holds.remove(&id);
    }

    fn namespace(&mut self, number: u16) -> &mut Namespace {
        self.namespaces.entry(number).or_default()
    }

    fn count(&mut self, namespace: u16, key: &[u8], fence: Fence, scope: Scope) {
        let counters = &mut self.namespace(namespace).counters;
        if let Some(counter) = counters.get_mut(key) {
            counter.fence = counter.fence.max(fence);
            counter.scope = counter.scope.max(scope);
            return;
        }
        counters.insert(key.into(), Counter { fence, scope });
        self.counter_count += 1;
    }

    fn hold(&mut self, lsn: u64, record: &[u8], hold: &Hold<'_>) {
        let (end_ms, lazy) = match &hold.item {
            Item::Registration { end_ms, lazy, .. } => (Some(*end_ms), *lazy),
            _ => (None, false),
        };
        self.count(hold.namespace, hold.item.counter_name(), hold.fence, hold.scope);
        // The record of a registration contains the end of its lease. A lazy registration has no deadline, because it
        // stays when its lease ends.
        let deadline_ms = match end_ms {
            Some(_) if lazy => None,
            Some(end_ms) => Some(u64::try_from(end_ms).unwrap_or(0)),
            None => hold.deadline_ms,
        };
        let begins_when_durable = deadline_ms.is_none() && end_ms.is_none() && !hold.begins_counted;
        // A claim gets a second record if another acquire with the same request id takes the claim over before the
        // first record is durable. The lease still begins when the first record is durable, and the cluster counts the
        // claim once.
        let before = self.holds.get(&hold.id).filter(|_| begins_when_durable);
        let deadline_ms = before.map_or(deadline_ms, |before| before.deadline_ms);
        let awaits_count = hold.awaits_count && before.is_none_or(|before| before.awaits_count);
        let fence = before.map_or(hold.fence, |before| before.fence.max(hold.fence));
        if begins_when_durable && before.is_none() && !awaits_count {
            self.unbegun.push_back((lsn, hold.id));
        }
        let stored = StoredHold {
            record: record.into(),
            scope: hold.scope,
            fence,
            since_ms: hold.since_ms,
            deadline_ms,
            lease_ms: hold.lease_ms,
            end_ms,
            longer_ms: longer_ms(hold, end_ms),
            awaits_count,
        };
        self.holds.insert(hold.id, stored);
    }

    /// Notes that the etcd cluster has counted a hold. The hold takes effect, and its lease begins when the record of
    /// the count is durable. If the hold has ended, the count is ignored, because the cluster itself keeps the counter.
    fn note_counted(&mut self, lsn: u64, id: ClaimId, fence: Fence) {
        let Some(stored) = self.holds.get_mut(&id) else { return };
        stored.fence = stored.fence.max(fence);
        if std::mem::take(&mut stored.awaits_count) {
            self.unbegun.push_back((lsn, id));
        }
        let record = stored.record.clone();
        if let Ok(Record::Held(hold)) = Record::decode(&record) {
            self.count(hold.namespace, hold.item.counter_name(), fence, hold.scope);
        }
    }

    /// Returns the last start of a server in the log, with the clocks at that start; `None` if there is no record of a
    /// start.
    pub fn started(&self) -> Option<&Started> {
        self.started.as_ref()
    }

    /// Returns whether the last record is that of a clean stop.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns the fence floor. The first fence of a key that has no counter is above it.
    pub fn floor(&self) -> Fence {
        self.floor
    }

    /// Returns the number of counters.
    pub fn counter_count(&self) -> usize {
        self.counter_count
    }

    /// Returns the number of holds.
    pub fn hold_count(&self) -> usize {
        self.holds.len()
    }

    /// Returns the number, the kind (as stored) and the name of each namespace that a `Namespace` record names.
    pub fn namespaces(&self) -> impl Iterator<Item = (u16, u8, &[u8])> {
        self.namespaces.iter().filter_map(|(number, namespace)| {
            namespace.named.as_ref().map(|(kind, name)| (*number, *kind, &**name))
        })
    }

    /// Returns the fence counters, in the order of their namespaces and keys.
    pub fn counters(&self) -> impl Iterator<Item = KeyCounter<'_>> {
        self.namespaces.iter().flat_map(|(number, namespace)| {
            namespace.counters.iter().map(|(key, counter)| {
                let Counter { fence, scope } = *counter;
                KeyCounter { namespace: *number, key, fence, scope }
            })
        })
    }

    /// Returns the pools with a capacity that an operator set: namespace, name, capacity, and whether they serve
    /// waiters in the order of timestamps.
    pub fn pools(&self) -> impl Iterator<Item = (u16, &[u8], u64, bool)> {
        self.namespaces.iter().flat_map(|(number, namespace)| {
            let pools = namespace.pools.iter();
            pools.map(|(name, (capacity, by_timestamp))| (*number, &**name, *capacity, *by_timestamp))
        })
    }

    /// Returns the frozen prefixes, each with its namespace.
    pub fn frozen(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.namespaces
            .iter()
            .flat_map(|(number, namespace)| namespace.frozen.iter().map(|prefix| (*number, &**prefix)))
    }

    /// Returns the holds, in the order of their ids.
    ///
    /// # Panics
    /// Never panics: each record was decoded when it was applied.
    pub fn holds(&self) -> impl Iterator<Item = Hold<'_>> {
        self.holds.values().map(|stored| {
            let Ok(Record::Held(mut hold)) = Record::decode(&stored.record) else {
                unreachable!("the record of a hold was decoded before")
            };
            hold.fence = stored.fence;
            hold.since_ms = stored.since_ms;
            hold.deadline_ms = stored.deadline_ms;
            hold.lease_ms = stored.lease_ms;
            hold.awaits_count = stored.awaits_count;
            if let (Item::Registration { end_ms, .. }, Some(end)) = (&mut hold.item, stored.end_ms) {
                *end_ms = end;
            }
            hold
        })
    }

    /// Passes records to `out` that, applied to an empty image, give this image. `out` gets each record without its
    /// length field.
    pub fn write(&self, out: &mut dyn FnMut(&[u8])) {
        let mut bytes = Vec::new();
        let mut put = |record: &Record<'_>| {
            bytes.clear();
            record.encode(&mut bytes);
            out(&bytes[4..]);
        };
        if let Some(started) = self.started {
            put(&Record::Started(started));
        }
        for (number, kind, name) in self.namespaces() {
            put(&Record::Namespace { number, kind, name });
        }
        put(&Record::Floor { fence: self.floor });
        for KeyCounter { namespace, key, fence, scope } in self.counters() {
            put(&Record::Counter { namespace, scope, fence, key });
        }
        for (namespace, name, capacity, by_timestamp) in self.pools() {
            put(&Record::PoolSet { namespace, capacity, by_timestamp, name });
        }
        for (namespace, prefix) in self.frozen() {
            put(&Record::Frozen { namespace, frozen: true, prefix });
        }
        for hold in self.holds() {
            put(&Record::Held(hold));
        }
        if self.stopped {
            put(&Record::Stopped);
        }
    }
}

/// Returns the length of a registration's lease in milliseconds if it does not fit into the record's `lease_ms`
/// (`u32`), otherwise 0. In the first case, `lease_ms` is `u32::MAX`, and the length is the time from the grant
/// (`since_ms`) to `end_ms`.
fn longer_ms(hold: &Hold<'_>, end_ms: Option<i64>) -> u64 {
    let end_ms = end_ms.filter(|_| hold.lease_ms == u32::MAX).and_then(|end_ms| u64::try_from(end_ms).ok());
    end_ms.map_or(0, |end_ms| end_ms.saturating_sub(hold.since_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: Started = Started { boot_id: [1; 16], now_ms: 1_000, unix_ms: 1_001_000 };
    const ID: ClaimId = ClaimId { place: 1, secret: 2 };

    fn hold(item: Item<'_>) -> Record<'_> {
        Record::Held(Hold {
            id: ID,
            namespace: 0,
            scope: Scope::Local,
            shared: false,
            session_lease: false,
            endless: false,
            clamped: false,
            waited: false,
            repeated: false,
            fence: Fence::new(5),
            begins_counted: false,
            awaits_count: false,
            since_ms: 1_000,
            deadline_ms: None,
            lease_ms: 100,
            release_after_ms: None,
            priority: 0,
            number: 0,
            session: None,
            owner: b"",
            identity: None,
            request_id: None,
            metadata: None,
            set_hash: None,
            item,
        })
    }

    fn apply(image: &mut Image, lsn: u64, record: &Record<'_>) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        image.apply(lsn, &bytes[4..]).unwrap();
    }

    fn held() -> Image {
        let mut image = Image::default();
        apply(&mut image, 1, &Record::Started(BOOT));
        apply(&mut image, 2, &hold(Item::Key(b"key")));
        image
    }

    fn deadline_ms(image: &Image) -> Option<u64> {
        image.holds().next().unwrap().deadline_ms
    }

    #[test]
    fn a_lease_begins_when_the_grant_is_durable() {
        let mut image = held();
        image.durable(Durable { lsn: 1, at_ms: 1_010 });
        assert_eq!(deadline_ms(&image), None);
        image.durable(Durable { lsn: 2, at_ms: 1_020 });
        assert_eq!(deadline_ms(&image), Some(1_120));
        image.durable(Durable { lsn: 9, at_ms: 1_090 });
        assert_eq!(deadline_ms(&image), Some(1_120));
    }

    #[test]
    fn a_moved_reserved_claim_keeps_the_lease_start_of_its_first_record() {
        for durable_before in [true, false] {
            let mut image = held();
            if durable_before {
                image.durable(Durable { lsn: 2, at_ms: 1_020 });
            }
            apply(&mut image, 3, &hold(Item::Key(b"key")));
            image.durable(Durable { lsn: 2, at_ms: 1_020 });
            image.durable(Durable { lsn: 3, at_ms: 1_030 });
            assert_eq!(deadline_ms(&image), Some(1_120), "durable before it moved: {durable_before}");
        }
    }

    #[test]
    fn a_restart_on_the_same_boot_keeps_the_remaining_lease() {
        let mut image = held();
        image.durable(Durable { lsn: 2, at_ms: 1_020 });
        apply(&mut image, 3, &Record::LeaseMoved { id: ID, deadline_ms: 1_500, lease_ms: 400 });
        image.rebase(&Started { now_ms: 1_400, unix_ms: 1_001_400, ..BOOT });
        assert_eq!(deadline_ms(&image), Some(1_500));
    }

    #[test]
    fn a_lease_with_an_unknown_start_restarts_in_full() {
        let mut image = held();
        image.rebase(&Started { now_ms: 1_400, unix_ms: 1_001_400, ..BOOT });
        assert_eq!(deadline_ms(&image), Some(1_500));
    }

    #[test]
    fn a_hold_awaiting_the_cluster_is_held_once_counted() {
        let waiting = || {
            let mut image = Image::default();
            apply(&mut image, 1, &Record::Started(BOOT));
            let Record::Held(hold) = hold(Item::Key(b"key")) else { panic!("it is a hold") };
            apply(&mut image, 2, &Record::Held(Hold { awaits_count: true, ..hold.clone() }));
            image.durable(Durable { lsn: 2, at_ms: 1_020 });
            (image, Record::Held(Hold { awaits_count: true, ..hold }))
        };
        let restarted = Started { now_ms: 1_060, unix_ms: 1_001_060, ..BOOT };
        let (mut image, _) = waiting();
        image.rebase(&restarted);
        assert_eq!(image.hold_count(), 0);
        for moves_again in [false, true] {
            let (mut image, record) = waiting();
            apply(&mut image, 3, &Record::Counted { id: ID, fence: Fence::new(9) });
            if moves_again {
                apply(&mut image, 3, &record);
            }
            image.durable(Durable { lsn: 3, at_ms: 1_040 });
            image.rebase(&restarted);
            let hold = image.holds().next().expect("a hold");
            assert_eq!((hold.fence.get(), hold.deadline_ms, hold.awaits_count), (9, Some(1_140), false));
        }
    }

    #[test]
    fn a_lease_that_waited_for_the_cluster_restarts_in_full() {
        let mut image = Image::default();
        apply(&mut image, 1, &Record::Started(BOOT));
        let Record::Held(hold) = hold(Item::Key(b"key")) else { panic!("it is a hold") };
        apply(&mut image, 2, &Record::Held(Hold { begins_counted: true, ..hold }));
        image.durable(Durable { lsn: 2, at_ms: 1_020 });
        assert_eq!(deadline_ms(&image), None, "the cluster may have counted it later");
        image.rebase(&Started { now_ms: 1_400, unix_ms: 1_001_400, ..BOOT });
        assert_eq!(deadline_ms(&image), Some(1_500));
    }

    #[test]
    fn every_lease_restarts_in_full_after_a_reboot_or_clock_change() {
        for started in [
            Started { boot_id: [2; 16], now_ms: 50, unix_ms: 1_002_000 },
            Started { boot_id: [1; 16], now_ms: 301_400, unix_ms: 1_001_400 },
        ] {
            let mut image = held();
            image.durable(Durable { lsn: 2, at_ms: 1_020 });
            image.rebase(&started);
            assert_eq!(deadline_ms(&image), Some(started.now_ms + 100));
        }
    }

    #[test]
    fn a_registration_restarts_its_lease_and_a_lazy_registration_keeps_its_end() {
        let end_ms = |lazy, started: &Started| {
            let mut image = Image::default();
            apply(&mut image, 1, &Record::Started(BOOT));
            let item = Item::Registration { key: b"key", type_name: b"", end_ms: 1_200, lazy };
            apply(&mut image, 2, &hold(item));
            image.rebase(started);
            let hold = image.holds().next().unwrap();
            let Item::Registration { end_ms, .. } = hold.item else { panic!("{hold:?}") };
            end_ms
        };
        let boot = Started { boot_id: [2; 16], now_ms: 50, unix_ms: 1_001_050 };
        assert_eq!(end_ms(false, &boot), 150);
        assert_eq!(end_ms(true, &boot), 200);
    }

    #[test]
    fn the_next_start_drops_ephemeral_state_written_by_a_clean_stop() {
        let mut image = held();
        apply(
            &mut image,
            3,
            &Record::Counter { namespace: 0, scope: Scope::Ephemeral, fence: Fence::new(7), key: b"idle" },
        );
        let Record::Held(durable) = hold(Item::Key(b"other")) else { return };
        let id = ClaimId { place: 9, secret: 9 };
        apply(&mut image, 3, &Record::Held(Hold { scope: Scope::Ephemeral, id, ..durable }));
        apply(&mut image, 3, &Record::Stopped);
        assert!(image.is_stopped());
        assert_eq!((image.hold_count(), image.counter_count()), (2, 3));
        apply(&mut image, 4, &Record::Started(BOOT));
        assert!(!image.is_stopped());
        assert_eq!((image.hold_count(), image.counter_count()), (1, 1));
    }

    #[test]
    fn a_fence_counted_by_the_cluster_applies_to_hold_and_key() {
        let mut image = held();
        apply(&mut image, 3, &Record::Counted { id: ID, fence: Fence::new(9) });
        assert_eq!(image.holds().next().map(|hold| hold.fence.get()), Some(9));
        assert_eq!(image.counters().next().map(|counter| counter.fence.get()), Some(9));
        apply(&mut image, 4, &Record::Ended { id: ID });
        apply(&mut image, 5, &Record::Counted { id: ID, fence: Fence::new(10) });
        assert_eq!(image.counters().next().map(|counter| counter.fence.get()), Some(9));
    }

    #[test]
    fn a_folded_counter_raises_the_floor() {
        let mut image = held();
        apply(&mut image, 3, &Record::Ended { id: ID });
        assert_eq!(image.counters().next().map(|counter| counter.fence.get()), Some(5));
        apply(&mut image, 4, &Record::Folded { namespace: 0, key: b"key" });
        assert_eq!((image.counter_count(), image.floor().get()), (0, 5));
    }

    #[test]
    fn no_key_continues_below_the_floor_after_a_loss() {
        let mut image = held();
        apply(&mut image, 3, &Record::BeginAbove { fence: Fence::new(100) });
        assert_eq!(image.floor(), Fence::new(100));
        assert_eq!(image.counters().next().map(|counter| counter.fence.get()), Some(100));
    }

    #[test]
    fn impossible_timestamps_do_not_crash_the_reader() {
        let registered = Item::Registration { key: b"key", type_name: b"", end_ms: i64::MIN, lazy: true };
        for (now_ms, unix_ms) in [(u64::MAX, i64::MIN), (u64::MAX, i64::MAX), (0, i64::MIN), (0, i64::MAX)] {
            let mut image = Image::default();
            let started = Started { boot_id: [9; 16], now_ms, unix_ms };
            for (place, item) in [(1, Item::Key(b"key")), (2, registered.clone())] {
                apply(&mut image, 1, &Record::Started(started));
                let Record::Held(hold) = hold(item) else { return };
                let id = ClaimId { place, ..ID };
                apply(&mut image, 1, &Record::Held(Hold { id, lease_ms: u32::MAX, ..hold }));
                image.durable(Durable { lsn: 1, at_ms: u64::MAX });
                apply(&mut image, 2, &Record::Started(BOOT));
            }
            image.rebase(&started);
            assert_eq!(image.hold_count(), 2);
        }
    }

    #[test]
    fn a_configured_pool_stays_until_its_capacity_is_set_to_zero() {
        let mut image = held();
        let set = |capacity| Record::PoolSet { namespace: 2, capacity, by_timestamp: true, name: b"p" };
        for (capacity, pools) in [(9, vec![(2, &b"p"[..], 9, true)]), (0, vec![]), (0, vec![])] {
            apply(&mut image, 3, &set(capacity));
            assert_eq!(image.pools().collect::<Vec<_>>(), pools);
        }
    }

    #[test]
    fn a_snapshot_restores_the_same_image() {
        let mut image = held();
        apply(&mut image, 3, &Record::Namespace { number: 0, kind: 1, name: b"jobs" });
        apply(&mut image, 3, &Record::PoolSet { namespace: 2, capacity: 9, by_timestamp: true, name: b"p" });
        apply(&mut image, 3, &Record::Frozen { namespace: 0, frozen: true, prefix: b"k" });
        apply(&mut image, 3, &Record::Frozen { namespace: 0, frozen: true, prefix: b"l" });
        apply(&mut image, 3, &Record::Frozen { namespace: 0, frozen: false, prefix: b"l" });
        let mut again = Image::default();
        image.write(&mut |record| again.apply(3, record).unwrap());
        again.durable(Durable { lsn: 3, at_ms: 1_020 });
        image.durable(Durable { lsn: 3, at_ms: 1_020 });
        let written = |image: &Image| {
            let mut records = Vec::new();
            image.write(&mut |record| records.push(record.to_vec()));
            records
        };
        assert_eq!(written(&image), written(&again));
        assert_eq!(image.frozen().collect::<Vec<_>>(), [(0, &b"k"[..])]);
    }

    #[test]
    fn a_removed_namespace_raises_the_floor_and_frees_its_number() {
        let mut image = Image::default();
        apply(&mut image, 1, &Record::Namespace { number: 3, kind: 0, name: b"old" });
        apply(
            &mut image,
            1,
            &Record::Counter { namespace: 3, scope: Scope::Local, fence: Fence::new(7), key: b"key" },
        );
        apply(
            &mut image,
            1,
            &Record::Counter { namespace: 3, scope: Scope::Local, fence: Fence::new(5), key: b"low" },
        );
        apply(
            &mut image,
            1,
            &Record::Counter { namespace: 3, scope: Scope::Local, fence: Fence::new(6), key: b"a" },
        );
        apply(&mut image, 2, &Record::NamespaceRemoved { number: 3 });
        apply(&mut image, 2, &Record::Folded { namespace: 3, key: b"key" });
        assert_eq!((image.floor().get(), image.counter_count(), image.namespaces().count()), (7, 0, 0));
        apply(&mut image, 3, &Record::Namespace { number: 3, kind: 1, name: b"new" });
        assert_eq!(image.namespaces().collect::<Vec<_>>(), [(3, 1, &b"new"[..])]);
        assert_eq!(image.counters().count(), 0);
    }
}
