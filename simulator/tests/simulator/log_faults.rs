//! Tests of the log on a disk that fails, and on a full disk.

use crate::log_rig::{Rig, Step, eio, workloads};
use waymaker_log::store::keeper::{self, Space};
use waymaker_log::{Fence, SEGMENT_LEN_MIN};
use waymaker_simulator::disk::{DiskState, Survival};

#[test]
fn after_any_failed_operation_the_next_start_has_all_acknowledged_records() {
    // Shorter sequences cover failures of operations before the last step.
    for steps in (0..=3).flat_map(workloads) {
        let (last, before) = match steps.split_last() {
            Some((last, before)) => (Some(*last), before),
            None => (None, steps.as_slice()),
        };
        let run = |fail_at: Option<u64>| {
            let mut rig = Rig::new(DiskState::default());
            if last.is_some() {
                rig.start().unwrap();
            }
            before.iter().for_each(|step| rig.step(*step).unwrap());
            let first = rig.disk.operations();
            if let Some(operation) = fail_at {
                rig.disk.fail_at(first + operation, eio());
            }
            let _ = if let Some(step) = last { rig.step(step) } else { rig.start() };
            (rig.disk.operations() - first, rig)
        };
        for operation in 0..run(None).0 {
            let (_, rig) = run(Some(operation));
            for pieces in [0, u64::MAX] {
                let survival = Survival { pieces, torn_sectors: 0, name_changes: usize::MAX };
                let mut state = rig.disk.state().crash(survival);
                state.mark = (rig.acknowledged, rig.appended);
                Rig::new(state).start().unwrap();
            }
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_although_the_next_one_would_succeed() {
    let mut rig = Rig::new(DiskState::default());
    rig.start().unwrap();
    rig.step(Step::Put).unwrap();
    rig.append(0).unwrap();
    rig.disk.fail_at(rig.disk.operations(), eio());
    assert!(rig.sync().is_err());
    assert!(rig.sync().is_err());
    assert!(rig.append(0).is_err());
    assert!(rig.log.as_mut().unwrap().raise_floor(Fence::new(1)).is_err());
    assert!(rig.log.take().unwrap().close_clean(|| 1).is_err());
    let mut next = Rig::new(rig.disk.state());
    next.start().unwrap();
    assert_eq!(next.appended, 1);
}

/// A start continues in the last segment, even after torn or unsynced frames.
#[test]
fn a_start_on_a_full_disk_needs_no_room() {
    for steps in (0..=3).flat_map(workloads) {
        let mut rig = Rig::new(DiskState::default());
        rig.start().unwrap();
        for step in &steps {
            rig.step(*step).unwrap();
        }
        for survival in [(0, 0), (2, 1), (u64::MAX, 0)] {
            let (pieces, torn_sectors) = survival;
            let survival = Survival { pieces, torn_sectors, name_changes: usize::MAX };
            let mut restarted = Rig::new(rig.disk.state().crash(survival));
            restarted.disk.set_full(true);
            for _ in 0..3 {
                restarted.log = None;
                // Only the first frame can fail here, because it waits for room.
                let _ = restarted.start();
                assert!(restarted.log.is_some(), "{steps:?}");
            }
        }
    }
}

#[test]
fn a_full_disk_does_not_end_the_log() {
    let mut rig = Rig::new(DiskState::default());
    rig.start().unwrap();
    let disk = rig.disk.clone();
    assert_eq!(keeper::prepare(&disk, SEGMENT_LEN_MIN).unwrap(), Space::Ample);
    disk.set_full(true);
    // The spare segment and the reserve segment still exist.
    rig.step(Step::Rotate).unwrap();
    assert_eq!(keeper::prepare(&disk, SEGMENT_LEN_MIN).unwrap(), Space::Low);
    rig.step(Step::Rotate).unwrap();
    assert_eq!(keeper::prepare(&disk, SEGMENT_LEN_MIN).unwrap(), Space::Low);
    assert!(rig.step(Step::Rotate).is_err());
    assert!(rig.append(60_000).is_err());
    rig.sync().unwrap();
    disk.set_full(false);
    assert_eq!(keeper::prepare(&disk, SEGMENT_LEN_MIN).unwrap(), Space::Ample);
    rig.step(Step::Rotate).unwrap();
    rig.step(Step::Kill).unwrap();
}
