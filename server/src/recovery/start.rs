//! The path from a data directory to a node that continues the state of an earlier server.

use super::restore::{check_kinds, restore};
use crate::clock::{BootClock, Clock};
use crate::deferred::DeferredEffect;
use crate::limits::LOG_LAST_WORDS_MS;
use crate::log::{LogOrder, LogPort, LogThread, LogThreadConfig};
use crate::node::Node;
use anyhow::Context;
use crossbeam_channel::Receiver;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waymaker_engine::{ClaimId, Time};
use waymaker_log::store::thread::LogHost;
use waymaker_log::store::writer::LogWriter;
use waymaker_log::store::{AppendError, Device, Disk, Log, OpenOptions, OpenResult, Storage};
use waymaker_log::{Image, Losses, Record, Started};

/// Exit code of a server whose log could not be written, because its disk failed or is full: `EX_TEMPFAIL` of
/// `sysexits.h`, which means that a later try may succeed.
const EXIT_DISK_FAILED: i32 = 75;

/// A log that was read, and that no thread writes yet.
#[derive(Debug)]
pub struct ReadLog {
    log: Log,
    image: Image,
    opened: OpenResult,
    storage: Arc<dyn Storage>,
    segment_len: u64,
    started: Started,
    /// Port to which workers will post their records.
    pub port: LogPort,
    orders: Receiver<LogOrder>,
    /// Ids of older holds that this start ended, because a newer hold of the same key conflicts with each of them.
    ended: Vec<ClaimId>,
    /// Bounds of the records that this start or an earlier one lost, until grants resume. Every new fence is above
    /// `fence_floor`, and no grant is made for `wait_ms` after the start.
    losses: Option<Losses>,
}

impl ReadLog {
    /// Reads the log in this directory for a node with this number of shards. The caller must have the lock of the
    /// directory.
    ///
    /// # Errors
    /// If the directory or the boot id of the machine cannot be read, or the directory cannot be written. If the log is
    /// newer than this server or not a log. If the log is damaged or has conflicting holds, unless `accept_damage` is
    /// set.
    pub fn open(
        path: &Path,
        segment_len: u64,
        accept_damage: bool,
        shard_count: usize,
    ) -> anyhow::Result<Self> {
        let (device, warning) =
            Device::suitable(path).context("--data-dir: cannot determine the file system")?;
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        let storage = Disk::open(path, device).with_context(|| format!("--data-dir: {}", path.display()))?;
        let options = OpenOptions { segment_len, log_id: rand::random(), accept_damage };
        let boot_id = BootClock::boot_id()
            .context("cannot read the boot id of the machine (/proc/sys/kernel/random/boot_id)")?;
        Self::read(Arc::new(storage), &options, boot_id, &BootClock, shard_count)
            .with_context(|| format!("--data-dir: {}", path.display()))
    }

    /// Reads the log in this storage. `boot_id` identifies the boot from which the clock counts.
    ///
    /// # Errors
    /// Like [`ReadLog::open`].
    pub fn read(
        storage: Arc<dyn Storage>,
        options: &OpenOptions,
        boot_id: [u8; 16],
        clock: &dyn Clock,
        shard_count: usize,
    ) -> anyhow::Result<Self> {
        let (mut log, mut image, opened) = Log::open::<Image>(Arc::clone(&storage), options)?;
        if !opened.foreign.is_empty() {
            let files = opened.foreign.join(", ");
            tracing::warn!(?files, "ignoring files in the data directory that are not part of the log");
        }
        let started = Started {
            boot_id,
            now_ms: clock.now().as_millis(),
            unix_ms: clock.unix_micros().div_euclid(1000),
        };
        image.rebase(&started);
        let ended = end_contradicted(&mut image, options.accept_damage)?;
        let (port, orders) = LogPort::new(shard_count);
        if !ended.is_empty() {
            log.note_losses().context("cannot write to the log")?;
        }
        let losses = log.superblock().losses;
        if let Some(losses) = &losses {
            image.begin_above(losses.fence_floor);
            announce_losses(losses, &opened);
        }
        let segment_len = options.segment_len;
        Ok(Self { log, image, opened, storage, segment_len, started, port, orders, ended, losses })
    }

    /// Returns the time for which grants are refused because lost records may have contained holds, in milliseconds;
    /// `None` if no record was lost, or if grants have resumed since.
    pub fn losses_ms(&self) -> Option<u64> {
        self.losses.map(|losses| losses.wait_ms)
    }

    /// Restores the state of the log into a node that has not served any client yet. After a loss of records, the node
    /// refuses grants for the time that `losses_ms` returns. `restored_at` is called after the first records are
    /// written, and returns the current time. The answers kept for repeated requests get the remaining leases at that
    /// time.
    ///
    /// # Errors
    /// If the log cannot be written, contradicts itself or has a namespace of an unknown kind. If the configuration
    /// contradicts the log.
    pub fn restore(
        self,
        node: &mut Node,
        restored_at: impl FnOnce(&dyn Clock) -> Time,
    ) -> anyhow::Result<RestoredLog> {
        // Check the kinds of the namespaces (flat, tree and so on) before `LogWriter::start` writes its first record. A
        // kind that is unknown or contradicts the configuration makes the start fail. The first record discards the
        // ephemeral state of a clean stop, so a start that fails for this reason must not write it.
        check_kinds(node, &self.image)?;
        let losses_ms = self.losses_ms();
        if let Some(wait_ms) = losses_ms {
            node.refuse_grants_for(Duration::from_millis(wait_ms));
        }
        let mut records = Vec::new();
        if let Some(losses) = &self.losses {
            records.push(Record::BeginAbove { fence: losses.fence_floor });
        }
        records.extend(self.ended.iter().map(|id| Record::Ended { id: *id }));
        let Self { storage, segment_len, port, orders, started, .. } = self;
        let writer = LogWriter::start(self.log, started, &records, || node.clock.now())
            .context("--data-dir: cannot write to the log")?;
        let counts = restore(node, &self.image, restored_at(&*Arc::clone(&node.clock)))?;
        let clean = self.opened.is_clean || self.opened.is_new;
        tracing::info!(holds = counts.holds, counters = counts.counters, clean, "recovered the log");
        Ok(RestoredLog { config: LogThreadConfig { writer, orders, storage, segment_len, losses_ms }, port })
    }
}

fn announce_losses(losses: &Losses, opened: &OpenResult) {
    match &opened.lost {
        Some(lost) => {
            tracing::error!(damage = %lost.damage, "a part of the log is damaged and was discarded");
        }
        None if opened.is_restored => {
            tracing::warn!("the log was restored from a backup; later grants of the old server are unknown");
        }
        None => tracing::error!(
            "an earlier start discarded a damaged part of the log, or began from a restored backup"
        ),
    }
    tracing::error!(fence_floor = losses.fence_floor.get(), "new fences begin above any fence ever issued");
    let wait = Duration::from_millis(losses.wait_ms);
    tracing::error!(
        ?wait,
        "holds may have been lost; grants resume when the longest possible lease has expired"
    );
}

/// Ends each hold or registration of a key that conflicts with a newer one of the same key, if the operator accepts
/// damage (`accept_damage`). Permits and sets of paths are not checked. Returns the ids of the ended holds.
///
/// # Errors
/// If damage is not accepted and there is such a hold.
fn end_contradicted(image: &mut Image, accept_damage: bool) -> anyhow::Result<Vec<ClaimId>> {
    let contradictions = image.contradictions();
    if let (Some(first), false) = (contradictions.first(), accept_damage) {
        let more = match contradictions.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more like it)"),
        };
        anyhow::bail!(
            "log: {first}{more}: an older server lost the record between them; copy the data directory, then start once \
             with --accept-damage, which ends the older hold"
        );
    }
    for contradiction in &contradictions {
        tracing::error!(%contradiction, "ended the older of two conflicting holds");
        image.end(contradiction.older.0);
    }
    Ok(contradictions.iter().map(|contradiction| contradiction.older.0).collect())
}

/// A log that is ready to be written for a node.
#[derive(Debug)]
pub struct RestoredLog {
    /// Configuration of the log thread.
    pub config: LogThreadConfig,
    /// Port to which workers post their records.
    pub port: LogPort,
}

impl RestoredLog {
    /// Starts the log thread of a server. If the disk fails, or the disk stays full while the server stops, the thread
    /// ends the process.
    ///
    /// # Errors
    /// If a thread cannot be created.
    pub fn start(self, host: impl LogHost<Effect = DeferredEffect>) -> std::io::Result<LogThread> {
        LogThread::start(self.config, host, self.port, end_process)
    }
}

/// Logs that the disk failed or is full, gives workers [`LOG_LAST_WORDS_MS`] to report it to clients, and ends the
/// process. A failed sync is final: only a restart shows which records are durable.
fn end_process(error: &AppendError) {
    match error {
        AppendError::NoSpace => {
            tracing::error!("the disk of the log is full: the server exits; free space, then restart it");
        }
        _ => {
            tracing::error!(%error, "the disk of the log failed: the outcome of open requests is unknown, and the server exits");
        }
    }
    std::thread::sleep(Duration::from_millis(LOG_LAST_WORDS_MS));
    std::process::exit(EXIT_DISK_FAILED);
}
