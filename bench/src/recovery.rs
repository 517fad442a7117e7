//! Start time of a server on a data directory with many keys.

use std::io;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use waymaker_engine::{ClaimId, Fence, Scope};
use waymaker_log::store::{AppendError, Device, Disk, Log, OpenOptions, Storage, keeper};
use waymaker_log::{Hold, Image, Item, Record, Started};

/// Number of records appended together; about as many as in one group of a busy server.
const FRAME_RECORDS: u64 = 1_000;

/// Contents of the directory.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    /// Number of keys with a counter of scope local.
    pub keys: u64,
    /// Number of these keys that are held.
    pub held: u64,
    /// Number of grants and releases after the last snapshot.
    pub tail_records: u64,
    /// Length of a segment, in bytes.
    pub segment_len: u64,
}

/// Writes the files of a server that granted every key once, released most of them, compacted its log, continued,
/// and was killed.
///
/// # Errors
/// If the disk fails.
pub fn write(directory: &Path, contents: &Contents) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let (device, _) = Device::suitable(directory)?;
    let storage: Arc<dyn Storage> = Arc::new(Disk::open(directory, device)?);
    let options = OpenOptions { segment_len: contents.segment_len, log_id: 1, accept_damage: false };
    let (mut log, _, _) = Log::open::<Image>(Arc::clone(&storage), &options).map_err(io::Error::other)?;
    let mut frame = Frame::default();
    frame.push(&Record::Started(Started { boot_id: [1; 16], now_ms: 1_000, unix_ms: 1_000 }));
    frame.push(&Record::Namespace { number: 0, kind: 0, name: b"default" });
    for number in 0..contents.keys {
        frame.grant(number, 1);
        if number >= contents.held {
            frame.push(&Record::Ended { id: id(number, 1) });
        }
        frame.append_if_full(&mut log)?;
    }
    frame.append(&mut log)?;
    if let Some(plan) = log.compaction_plan() {
        keeper::compact::<Image>(&*storage, &plan).map_err(io::Error::other)?;
        let dead = log.compacted(&plan)?;
        keeper::remove(&*storage, &dead)?;
    }
    for number in 0..contents.tail_records / 2 {
        let key = contents.held + number % (contents.keys - contents.held);
        let fence = 2 + number / (contents.keys - contents.held);
        frame.grant(key, fence);
        frame.push(&Record::Ended { id: id(key, fence) });
        frame.append_if_full(&mut log)?;
    }
    frame.append(&mut log)
}

/// Starts a server on the directory and returns the time until it was ready; then kills it.
///
/// # Errors
/// If it does not start.
pub fn start(server: &Path, directory: &Path) -> io::Result<Duration> {
    let begin = Instant::now();
    let mut child = Command::new(server)
        .args(["--listen", "127.0.0.1:0", "--grpc-listen", "none", "--http-listen", "none", "--data-dir"])
        .arg(directory)
        .env("WAYMAKER_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let took = begin.elapsed();
    child.kill()?;
    child.wait()?;
    if line.starts_with("ready") { Ok(took) } else { Err(io::Error::other("the server did not start")) }
}

fn id(number: u64, fence: u64) -> ClaimId {
    ClaimId { place: number & 0xffff_ffff, secret: number << 20 | fence }
}

#[derive(Default)]
struct Frame {
    records: Vec<u8>,
    record_count: u32,
}

impl Frame {
    fn push(&mut self, record: &Record<'_>) {
        record.encode(&mut self.records);
        self.record_count += 1;
    }

    fn grant(&mut self, number: u64, fence: u64) {
        let key = format!("key-{number:012}");
        self.push(&Record::Held(Hold {
            id: id(number, fence),
            namespace: 0,
            scope: Scope::Local,
            shared: false,
            session_lease: false,
            endless: false,
            clamped: false,
            waited: false,
            repeated: false,
            fence: Fence::new(fence),
            begins_counted: false,
            awaits_count: false,
            since_ms: 1_000,
            deadline_ms: None,
            lease_ms: 3_600_000,
            release_after_ms: None,
            priority: 0,
            number: 1,
            session: None,
            owner: b"a worker",
            identity: None,
            request_id: None,
            metadata: None,
            set_hash: None,
            item: Item::Key(key.as_bytes()),
        }));
    }

    fn append_if_full(&mut self, log: &mut Log) -> io::Result<()> {
        if u64::from(self.record_count) < FRAME_RECORDS { Ok(()) } else { self.append(log) }
    }

    fn append(&mut self, log: &mut Log) -> io::Result<()> {
        log.append(&self.records, self.record_count).map_err(|error| match error {
            AppendError::Failed(error) => error,
            other => io::Error::other(other),
        })?;
        self.records.clear();
        self.record_count = 0;
        log.flush(|| 1_000).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_requested_contents() {
        let directory = tempfile::tempdir().unwrap();
        let contents = Contents { keys: 5_000, held: 500, tail_records: 2_000, segment_len: 256 * 1024 };
        write(directory.path(), &contents).unwrap();
        let storage: Arc<dyn Storage> = Arc::new(Disk::open(directory.path(), Device::Write).unwrap());
        let options = OpenOptions { segment_len: 256 * 1024, log_id: 1, accept_damage: false };
        let (_, image, _) = Log::open::<Image>(storage, &options).unwrap();
        assert_eq!((image.counter_count(), image.hold_count()), (5_000, 500));
    }
}
