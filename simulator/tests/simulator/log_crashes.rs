//! Tests that no crash loses acknowledged records, and that no lost record comes back.

use crate::log_rig::{Rig, Step, workloads};
use waymaker_simulator::disk::{DiskState, Survival};

/// Returns crashes in this state: every subset of the unsynced pieces if there are few, some subsets if there
/// are many, with and without torn pieces, and every prefix of the changes of names.
fn crashes(state: &DiskState) -> Vec<DiskState> {
    let pieces = state.unsynced_pieces();
    let subsets: Vec<u64> = if pieces <= 4 {
        (0..1 << pieces).collect()
    } else {
        vec![0, u64::MAX, 0x5555, 0xaaaa, 1, 2, !1, !2]
    };
    let mut crashes = Vec::new();
    for name_changes in 0..=state.unsynced_names() {
        for &pieces in &subsets {
            let tears: &[usize] =
                if pieces == u64::MAX || state.unsynced_pieces() == 0 { &[0] } else { &[0, 1, 7] };
            for &torn_sectors in tears {
                crashes.push(state.crash(Survival { pieces, torn_sectors, name_changes }));
            }
        }
    }
    crashes
}

/// Returns crashes in this state that lose nothing, everything, or every second piece.
fn few_crashes(state: &DiskState) -> Vec<DiskState> {
    let crash = |(pieces, name_changes)| state.crash(Survival { pieces, torn_sectors: 1, name_changes });
    [(0, 0), (u64::MAX, usize::MAX), (0xaaaa, usize::MAX), (0x5555, 0)].map(crash).into()
}

/// Runs the steps with a crash at every operation of the last step. After each crash, the next record gets
/// its own frame, and a second crash loses nothing.
fn crash_in_last_step(steps: &[Step], crashes: fn(&DiskState) -> Vec<DiskState>) -> u64 {
    let mut rig = Rig::new(DiskState::default());
    rig.start().unwrap();
    let (last, before) = steps.split_last().unwrap();
    for step in before {
        rig.step(*step).unwrap();
    }
    rig.disk.record();
    rig.step(*last).unwrap();
    let mut count = 0;
    for state in rig.disk.recorded() {
        for crashed in crashes(&state) {
            count += 1;
            let mut rig = Rig::new(crashed);
            rig.start().unwrap_or_else(|_| panic!("{steps:?}"));
            rig.step(Step::Put).unwrap();
            rig.step(Step::Kill).unwrap();
        }
    }
    count
}

#[test]
fn no_crash_in_up_to_three_steps_loses_acknowledged_records() {
    let count: u64 = (1..=3).flat_map(workloads).map(|steps| crash_in_last_step(&steps, crashes)).sum();
    assert!(count > 10_000, "{count}");
}

#[test]
fn no_crash_in_the_last_of_four_different_steps_loses_acknowledged_records() {
    let is_varied = |steps: &Vec<Step>| (1..4).all(|at| !steps[..at].contains(&steps[at]));
    let rows = workloads(4).into_iter().filter(is_varied);
    let count: u64 = rows.map(|steps| crash_in_last_step(&steps, few_crashes)).sum();
    assert!(count > 10_000, "{count}");
}

#[test]
fn no_crash_in_the_first_start_leaves_a_log_that_cannot_start() {
    let mut rig = Rig::new(DiskState::default());
    rig.disk.record();
    rig.start().unwrap();
    for state in rig.disk.recorded() {
        for crashed in crashes(&state) {
            let mut rig = Rig::new(crashed);
            rig.start().unwrap();
            rig.step(Step::Put).unwrap();
            rig.step(Step::Kill).unwrap();
        }
    }
}

#[test]
fn no_crash_in_the_start_after_a_crash_loses_acknowledged_records() {
    (1..=2).flat_map(workloads).for_each(|steps| crash_in_starts_after_crashes(&steps));
}

/// Kills the process, so that the frames are in the cache of the disk. The next start finds them, and the
/// power fails at every operation of that start.
fn crash_in_start_after_kill(steps: &[Step]) {
    let mut rig = Rig::new(DiskState::default());
    rig.start().unwrap();
    for step in steps {
        rig.step(*step).unwrap();
    }
    rig.log = None;
    rig.disk.record();
    rig.start().unwrap();
    for state in rig.disk.recorded() {
        for crashed in crashes(&state) {
            Rig::new(crashed).start().unwrap();
        }
    }
}

#[test]
fn no_crash_in_the_start_after_a_kill_loses_found_records() {
    (1..=2).flat_map(workloads).for_each(|steps| crash_in_start_after_kill(&steps));
}

/// Runs the steps, crashes, and starts again with a crash at every operation of that start.
fn crash_in_starts_after_crashes(steps: &[Step]) {
    let mut rig = Rig::new(DiskState::default());
    rig.start().unwrap();
    for step in steps {
        rig.step(*step).unwrap();
    }
    for survival in [0, 2, u64::MAX] {
        let survival = Survival { pieces: survival, torn_sectors: 1, name_changes: usize::MAX };
        let mut restarted = Rig::new(rig.disk.state().crash(survival));
        restarted.disk.record();
        restarted.start().unwrap();
        for state in restarted.disk.recorded() {
            for crashed in crashes(&state) {
                Rig::new(crashed).start().unwrap();
            }
        }
    }
}
