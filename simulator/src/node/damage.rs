//! Damage to a log. A start refuses a damaged log unless its options accept the damage.

use super::log::OPTIONS;
use crate::disk::{BLOCK_LEN, DiskState, SimulatedDisk};
use crate::random::Random;
use std::sync::Arc;
use waymaker_log::store::Log;
use waymaker_log::{FileName, Image, Superblock};

/// The log is damaged only if its longest lease is at most this, in milliseconds. After accepted damage the
/// server grants nothing for the length of that lease.
const LEASE_MAX_MS: u64 = 10_000;

/// Damages a file of the log on this disk. Returns the damaged disk, or `None` if no damage would be noticed.
pub(super) fn damage(state: &DiskState, random: &mut Random) -> Option<DiskState> {
    let name = FileName::Superblock.to_string();
    let (superblock, _) = Superblock::decode_file(state.bytes(&name)?).ok()?;
    if superblock.longest_lease_ms > LEASE_MAX_MS {
        return None;
    }
    let segment = random.between(superblock.first_segment, superblock.last_segment);
    let file = match superblock.snapshot {
        snapshot if snapshot > 0 && random.once_in(3) => FileName::Snapshot(snapshot),
        _ => FileName::Segment(segment),
    };
    let name = file.to_string();
    let block_count = state.bytes(&name)?.len() / BLOCK_LEN;
    // Damage the header of a file in half of the cases, because most frames are near the beginning.
    let block = random.below(2) * random.below(block_count as u64);
    let offset = block as usize * BLOCK_LEN + random.below(64) as usize;
    let mut damaged = state.clone();
    damaged.rot(&name, |bytes| bytes[offset] ^= 1);
    is_refused(&damaged).then_some(damaged)
}

/// Returns whether a start that accepts no damage refuses this disk. Damage at the end of the log may look
/// like a crash.
fn is_refused(state: &DiskState) -> bool {
    let disk = SimulatedDisk::new(state.clone());
    Log::open::<Image>(Arc::new(disk), &OPTIONS).is_err()
}
