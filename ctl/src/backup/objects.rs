//! Backups and restored logs for programs.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::checking::Checked;
use super::restoring::Restored;

/// A backup.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Backup")]
pub(crate) struct BackupObject {
    /// Directory of the backup.
    directory: String,
    /// Time at which the backup began, in RFC 3339 form.
    taken_at: String,
    /// Data directory that was backed up.
    data_dir: String,
    /// Description of the server that ran meanwhile; null without one.
    server: Option<String>,
    /// Version of the waymaker-ctl that made the backup.
    waymaker_ctl: String,
    /// Id of the log, 16 hexadecimal digits.
    log_id: String,
    /// Number of the last start of the server.
    generation: u64,
    /// Number of the last frame.
    last_lsn: u64,
    /// Number of holds.
    hold_count: u64,
    /// Number of sessions that have holds.
    session_count: u64,
    /// Number of fence counters of keys.
    counter_count: u64,
    /// Number of namespaces.
    namespace_count: u64,
    /// Upper bound of all fences of scope local before the backup.
    fence_floor: u64,
    /// Longest lease before the backup, in milliseconds.
    longest_lease_ms: u64,
    /// Number of files, without the manifest.
    file_count: u64,
    /// Length of the files in bytes. Blank parts take no space.
    bytes: u64,
}

impl BackupObject {
    pub(super) fn new(directory: &Path, checked: &Checked) -> Self {
        let Checked { manifest, superblock, look } = checked;
        let image = &look.reader.image;
        Self {
            directory: directory.display().to_string(),
            taken_at: manifest.taken_at.clone(),
            data_dir: manifest.data_dir.clone(),
            server: manifest.server.clone(),
            waymaker_ctl: manifest.waymaker_ctl.clone(),
            log_id: manifest.log_id.clone(),
            generation: manifest.generation,
            last_lsn: manifest.last_lsn,
            hold_count: image.hold_count() as u64,
            session_count: checked.session_count() as u64,
            counter_count: image.counter_count() as u64,
            namespace_count: image.namespaces().count() as u64,
            fence_floor: superblock.fence_floor.get(),
            longest_lease_ms: superblock.longest_lease_ms,
            file_count: manifest.files.len() as u64,
            bytes: manifest.files.iter().map(|file| file.bytes).sum(),
        }
    }
}

/// A restored log.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Restored log")]
pub(crate) struct RestoredObject {
    /// Directory of the backup.
    backup: String,
    /// Time at which the backup began, in RFC 3339 form.
    taken_at: String,
    /// Data directory of the restored log.
    data_dir: String,
    /// True after `--dry-run`: nothing was written.
    dry_run: bool,
    /// Id of the restored log, 16 hexadecimal digits. A dry run shows an id that no log gets.
    log_id: String,
    /// Number of the start of a server that the restored log begins with.
    generation: u64,
    /// Number of restored holds.
    hold_count: u64,
    /// Number of holds in the backup that were not restored.
    dropped_hold_count: u64,
    /// Number of fence counters of keys.
    counter_count: u64,
    /// Fence above which all fences begin.
    fence_floor: u64,
    /// Time in milliseconds for which the next start of the server refuses grants.
    grants_refused_ms: u64,
}

impl RestoredObject {
    pub(super) fn new(restored: &Restored) -> Self {
        Self {
            backup: restored.backup.display().to_string(),
            taken_at: restored.checked.manifest.taken_at.clone(),
            data_dir: restored.data_dir.display().to_string(),
            dry_run: restored.is_dry_run,
            log_id: format!("{:016x}", restored.log_id),
            generation: restored.generation,
            hold_count: restored.hold_count as u64,
            dropped_hold_count: restored.dropped_hold_count as u64,
            counter_count: restored.checked.look.reader.image.counter_count() as u64,
            fence_floor: restored.plan.fence_floor,
            grants_refused_ms: restored.plan.wait_ms,
        }
    }
}
