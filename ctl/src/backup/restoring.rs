//! Makes a data directory of a backup.
//!
//! The new log has an id of its own and consists of one snapshot, so no file of an old log can ever be mixed with it. Its superblock records
//! losses, as after damage that an operator accepted: the next start begins all fences above the floor and refuses grants until the
//! longest lease has expired. A hold that was granted after the backup is unknown, and its key stays blocked until its lease has expired.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::SystemTime;

use waymaker_log::ClaimId;
use waymaker_log::{
    Fence, Image, Item, Losses, Position, Record, SnapshotHeader, Started, Superblock, Temporary,
    write_records,
};

use super::apart;
use super::arguments::RestoreArguments;
use super::checking::Checked;
use super::interrupt::Interrupt;
use super::plan::{Plan, Wishes};
use super::problem::{BackupError, failed};
use super::target::{self, Target};

/// Number of the snapshot and of the first segment.
const FIRST: u64 = 1;
/// Boot id of no machine. A start on any boot gives each hold its full lease again: the old server may have renewed it after the backup.
const NO_BOOT: [u8; 16] = [0; 16];
/// Bytes of a record that tell its length.
const LENGTH_LEN: usize = 4;

/// A restored log. After a dry run it exists in memory only.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) backup: PathBuf,
    pub(super) data_dir: PathBuf,
    pub(super) is_dry_run: bool,
    pub(super) checked: Checked,
    pub(super) log_id: u64,
    pub(super) generation: u64,
    pub(super) plan: Plan,
    pub(super) hold_count: usize,
    pub(super) dropped_hold_count: usize,
}

pub(super) fn restore(arguments: &RestoreArguments) -> Result<Restored, BackupError> {
    let RestoreArguments { backup, data_dir, dry_run, longest_lease, fences_above, drop_holds } = arguments;
    target::check(data_dir)?;
    apart::check(data_dir, backup)?;
    let mut checked = Checked::read(backup)?;
    let wishes = Wishes { longest_lease: *longest_lease, fences_above: *fences_above };
    let image = &checked.look.reader.image;
    let plan = Plan::new(&checked.manifest, &checked.superblock, image, SystemTime::now(), wishes)?;
    let dropped = if *drop_holds { leased(image) } else { Vec::new() };
    let image = &mut checked.look.reader.image;
    dropped.iter().for_each(|id| image.end(*id));
    image.begin_above(Fence::new(plan.fence_floor));
    let hold_count = image.hold_count();
    let (log_id, generation) = (new_log_id(data_dir)?, checked.superblock.generation + 1);
    let restored = Restored {
        backup: backup.clone(),
        data_dir: data_dir.clone(),
        is_dry_run: *dry_run,
        checked,
        log_id,
        generation,
        plan,
        hold_count,
        dropped_hold_count: dropped.len(),
    };
    if !dry_run {
        restored.write()?;
    }
    Ok(restored)
}

/// Returns the holds that end by themselves. A registration has a value, so it is kept with its lease.
fn leased(image: &Image) -> Vec<ClaimId> {
    let is_leased =
        |hold: &waymaker_log::Hold<'_>| !hold.endless && !matches!(hold.item, Item::Registration { .. });
    image.holds().filter(is_leased).map(|hold| hold.id).collect()
}

fn new_log_id(data_dir: &std::path::Path) -> Result<u64, BackupError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|error| failed("choose a log id for", data_dir)(io::Error::other(error.to_string())))?;
    Ok(u64::from_ne_bytes(random))
}

impl Restored {
    fn write(&self) -> Result<(), BackupError> {
        let interrupt = Interrupt::catch().map_err(failed("catch signals for", &self.data_dir))?;
        let mut target = Target::begin(&self.data_dir)?;
        let snapshot = target.write(Temporary::Snapshot, |out| self.write_snapshot(out))?;
        let superblock = target.write(Temporary::Superblock, |out| {
            out.write_all(&target::superblock_file(&self.superblock()))
        })?;
        interrupt.check()?;
        target.keep(&snapshot, &superblock)
    }

    /// The last frame of the backup, after which the log continues.
    fn position(&self) -> Position {
        Position { lsn: self.checked.look.last_lsn, checksum: 0 }
    }

    fn superblock(&self) -> Superblock {
        let Plan { fence_floor, wait_ms } = self.plan;
        Superblock {
            sequence: 1,
            log_id: self.log_id,
            generation: self.generation,
            segment_len: self.checked.superblock.segment_len,
            first_segment: FIRST,
            last_segment: 0,
            snapshot: FIRST,
            fence_floor: Fence::new(fence_floor),
            longest_lease_ms: wait_ms,
            clean_lsn: 0,
            losses: Some(Losses { fence_floor: Fence::new(fence_floor), wait_ms }),
            start: self.position(),
        }
    }

    fn write_snapshot(&self, out: &mut dyn Write) -> io::Result<()> {
        let header = SnapshotHeader {
            log_id: self.log_id,
            number: FIRST,
            generation: self.generation,
            covers: self.position(),
            next_segment: FIRST,
        };
        let image = &self.checked.look.reader.image;
        let mut bytes = Vec::new();
        let mut records = |put: &mut dyn FnMut(&[u8])| {
            image.write(&mut |record| match Record::decode(record) {
                Ok(Record::Started(started)) => {
                    bytes.clear();
                    Record::Started(Started { boot_id: NO_BOOT, ..started }).encode(&mut bytes);
                    put(&bytes[LENGTH_LEN..]);
                }
                _ => put(record),
            });
        };
        let mut written = Ok(());
        write_records(&header, &mut records, &mut |bytes| {
            if written.is_ok() {
                written = out.write_all(bytes);
            }
        });
        written
    }
}
