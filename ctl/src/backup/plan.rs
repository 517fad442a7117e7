//! Decides where the fences of a restored log continue, and how long its server refuses grants.
//!
//! After the backup the old server may have issued more fences, and no file tells how many. Nor can a fixed step above the backup be
//! right: two restores of one backup would begin at the same fence. So fences begin at a bound that rises with the time of the restore,
//! [`FENCES_PER_MS`] for each millisecond since 1970. Fences issued before the restore are below it:
//!
//! - A server that was never restored counts from 0, and each of its grants raises a fence by one.
//! - A restored server counts from the bound at the time of its restore. It would have to grant one key, durably, more than a million
//!   times in each second to reach the bound of a later restore.
//!
//! So it does not matter which backup is restored, how often, or in which order. In JSON, numbers above 2^53 are not exact; the bound
//! gets there in the year 2242.

use std::time::{Duration, SystemTime};

use waymaker_log::{Fence, Image, Superblock};

use super::manifest::{Manifest, TakenAt};
use super::problem::BackupError;

/// By how much the bound rises in a millisecond.
const FENCES_PER_MS: u64 = 1 << 10;
/// The superblock of a server is at most this far above the fences that it issued.
const FLOOR_STEP: u64 = 1 << 20;
/// Largest number that every JSON program reads exactly.
const FENCE_MAX: u64 = 1 << 53;
/// Shortest wait, for a backup from before the first leases.
const WAIT_MIN: Duration = Duration::from_secs(60);
/// Longest lease that a server records, in milliseconds.
const WAIT_MS_MAX: u64 = 1 << 32;

/// The bounds of a restored log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Every fence will be above this.
    pub(super) fence_floor: u64,
    /// Time for which grants are refused.
    pub(super) wait_ms: u64,
}

/// Options of the operator.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wishes {
    pub(super) longest_lease: Option<Duration>,
    pub(super) fences_above: Option<u64>,
}

impl Plan {
    pub(super) fn new(
        manifest: &Manifest,
        superblock: &Superblock,
        image: &Image,
        now: SystemTime,
        wishes: Wishes,
    ) -> Result<Self, BackupError> {
        let fences_so_far = image.counters().map(|counter| counter.fence).max().unwrap_or(Fence::NONE);
        let fences_so_far = fences_so_far.max(image.floor()).max(superblock.fence_floor);
        let bound = match wishes.fences_above {
            Some(fence) => fence,
            None => bound_at(TakenAt(now), manifest, fences_so_far.get())?,
        };
        let fence_floor = bound.max(fences_so_far.get());
        if fence_floor >= FENCE_MAX {
            return Err(BackupError::FencesTooLarge(fence_floor));
        }
        Ok(Self { fence_floor, wait_ms: wait_ms(superblock, wishes.longest_lease) })
    }
}

fn bound_at(now: TakenAt, manifest: &Manifest, fences_so_far: u64) -> Result<u64, BackupError> {
    let wrong = |reason| Err(BackupError::Clock { now: now.text(), reason });
    if now.unix_ms() < manifest.taken_unix_ms {
        return wrong(format!("the backup was made at {}", manifest.taken_at));
    }
    let bound = now.unix_ms().saturating_mul(FENCES_PER_MS);
    if bound.saturating_add(FLOOR_STEP) < fences_so_far {
        return wrong(format!("fence {fences_so_far} in the backup is above the bound {bound} of this time"));
    }
    Ok(bound)
}

/// The old server may have granted longer leases after the backup, which only the operator can know.
fn wait_ms(superblock: &Superblock, longest_lease: Option<Duration>) -> u64 {
    let before = superblock.longest_lease_ms.max(superblock.losses.map_or(0, |losses| losses.wait_ms));
    let wished = longest_lease.unwrap_or(WAIT_MIN);
    let wished_ms = u64::try_from(wished.as_millis()).unwrap_or(u64::MAX);
    before.max(wished_ms).min(WAIT_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_log::Losses;

    const TAKEN_MS: u64 = 1_795_000_000_000;

    fn manifest() -> Manifest {
        Manifest {
            version: 1,
            taken_at: String::new(),
            taken_unix_ms: TAKEN_MS,
            waymaker_ctl: String::new(),
            server: None,
            data_dir: String::new(),
            log_id: String::new(),
            generation: 1,
            last_lsn: 1,
            files: Vec::new(),
        }
    }

    fn after(time: Duration) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(TAKEN_MS) + time
    }

    fn plan(superblock: &Superblock, now: SystemTime, wishes: Wishes) -> Result<Plan, BackupError> {
        Plan::new(&manifest(), superblock, &Image::default(), now, wishes)
    }

    fn floor_after(superblock: &Superblock, time: Duration) -> u64 {
        plan(superblock, after(time), Wishes::default()).unwrap().fence_floor
    }

    #[test]
    fn a_later_restore_of_any_backup_begins_above_all_fences_of_earlier_restores() {
        let first = Superblock::default();
        let floor = floor_after(&first, Duration::ZERO);
        let hour_later = floor_after(&first, Duration::from_secs(3_600));
        let fences_of_an_hour = 3_600 * 1_000_000;
        assert!(hour_later > floor + fences_of_an_hour);
        // The backup of the restored server does not raise the bound, so a restore of the older backup is above it too.
        let restored = Superblock { fence_floor: Fence::new(floor + FLOOR_STEP), ..first };
        assert_eq!(floor_after(&restored, Duration::from_secs(3_600)), hour_later);
        assert_eq!(floor_after(&restored, Duration::ZERO), floor + FLOOR_STEP);
    }

    #[test]
    fn a_restore_with_a_clock_that_is_behind_is_refused_without_a_fence() {
        let superblock = Superblock::default();
        let early = after(Duration::ZERO) - Duration::from_millis(1);
        let refused = plan(&superblock, early, Wishes::default()).unwrap_err();
        assert!(matches!(refused, BackupError::Clock { .. }), "{refused}");
        let far = Superblock {
            fence_floor: Fence::new(floor_after(&superblock, Duration::from_secs(60))),
            ..superblock
        };
        let refused = plan(&far, after(Duration::ZERO), Wishes::default()).unwrap_err();
        assert!(matches!(refused, BackupError::Clock { .. }), "{refused}");
        let wishes = Wishes { fences_above: Some(7), ..Wishes::default() };
        assert_eq!(plan(&superblock, early, wishes).unwrap().fence_floor, 7);
        assert_eq!(plan(&far, early, wishes).unwrap().fence_floor, far.fence_floor.get());
    }

    #[test]
    fn fences_that_json_programs_would_round_are_refused() {
        let wishes = Wishes { fences_above: Some(FENCE_MAX), ..Wishes::default() };
        let refused = plan(&Superblock::default(), after(Duration::ZERO), wishes).unwrap_err();
        assert!(matches!(refused, BackupError::FencesTooLarge(FENCE_MAX)), "{refused}");
    }

    #[test]
    fn the_wait_is_no_shorter_than_the_longest_lease_before_the_backup_or_the_wish_of_the_operator() {
        let wait = |superblock: &Superblock, longest_lease| wait_ms(superblock, longest_lease);
        let young = Superblock::default();
        assert_eq!(wait(&young, None), 60_000);
        assert_eq!(wait(&young, Some(Duration::from_secs(1))), 1_000);
        let old = Superblock { longest_lease_ms: 1 << 20, ..young };
        assert_eq!(wait(&old, None), 1 << 20);
        assert_eq!(wait(&old, Some(Duration::from_secs(1))), 1 << 20);
        assert_eq!(wait(&old, Some(Duration::from_secs(3_600))), 3_600_000);
        assert_eq!(wait(&old, Some(Duration::MAX)), WAIT_MS_MAX);
        let losses = Some(Losses { fence_floor: Fence::new(1), wait_ms: 1 << 21 });
        assert_eq!(wait(&Superblock { losses, ..old }, None), 1 << 21);
    }
}
