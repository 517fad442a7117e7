//! Backups and restored logs for people.

use std::path::Path;
use std::time::Duration;

use super::checking::Checked;
use super::restoring::Restored;
use crate::text;

/// Returns a table of the contents of a backup.
pub(super) fn backup(directory: &Path, checked: &Checked) -> String {
    let Checked { manifest, superblock, look } = checked;
    let image = &look.reader.image;
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let rows = [
        ("taken", manifest.taken_at.clone()),
        ("data directory", text::printable(manifest.data_dir.as_bytes())),
        (
            "server",
            manifest
                .server
                .as_ref()
                .map_or("not running".to_owned(), |server| text::printable(server.as_bytes())),
        ),
        (
            "log",
            format!(
                "{}, generation {}, up to frame {}",
                manifest.log_id, manifest.generation, manifest.last_lsn
            ),
        ),
        ("holds", image.hold_count().to_string()),
        ("sessions", checked.session_count().to_string()),
        ("counters", image.counter_count().to_string()),
        ("namespaces", image.namespaces().count().to_string()),
        ("fences", format!("at most {}", superblock.fence_floor)),
        ("longest lease", lease(superblock.longest_lease_ms)),
        ("files", format!("{}, {bytes} bytes", manifest.files.len())),
    ];
    text::table(["BACKUP", &name(directory)], rows.map(|(name, value)| [name.to_owned(), value]))
}

/// Returns a table of a restored log, and what happens next.
pub(super) fn restored(restored: &Restored) -> String {
    let image = &restored.checked.look.reader.image;
    let holds = match restored.dropped_hold_count {
        0 => restored.hold_count.to_string(),
        dropped => format!("{}, {dropped} dropped", restored.hold_count),
    };
    let wait = lease(restored.plan.wait_ms);
    let mut rows = vec![
        ("backup", format!("{}, taken {}", name(&restored.backup), restored.checked.manifest.taken_at)),
        ("log", format!("{:016x}, generation {}", restored.log_id, restored.generation)),
        ("holds", holds),
        ("counters", image.counter_count().to_string()),
        ("fences", format!("above {}", restored.plan.fence_floor)),
        ("grants", format!("refused for {wait} from the start of the server")),
    ];
    if restored.is_dry_run {
        rows.remove(1);
        rows.push(("written", "nothing (--dry-run)".to_owned()));
    }
    let rows = rows.into_iter().map(|(name, value)| [name.to_owned(), value]);
    text::table(["RESTORED", &name(&restored.data_dir)], rows)
}

fn name(path: &Path) -> String {
    text::printable(text::bytes(path.as_os_str()))
}

fn lease(milliseconds: u64) -> String {
    text::time(Some(Duration::from_millis(milliseconds)))
}
