//! The log in a real directory.

#[path = "../../../server/tests/server/skip.rs"]
pub(super) mod skip;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::frame::FORMAT_VERSION;
use crate::{BLOCK_LEN, Durable, Fence, FileName, Fold, Image, Record, SEGMENT_LEN_MIN, Started, Tail, Time};

use super::keeper::{self, Space};
use super::map::dirtied_len;
use super::writer::LogWriter;
use super::*;
use skip::skip;

const BLOCK: u64 = BLOCK_LEN as u64;

/// Fold for tests that keeps the bytes of every record, and rejects the record `nonsense`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Everything(Vec<Vec<u8>>);

impl Fold for Everything {
    type Error = &'static str;

    fn apply(&mut self, _lsn: u64, record: &[u8]) -> Result<(), &'static str> {
        if record == b"nonsense" {
            return Err("nonsense");
        }
        self.0.push(record.to_vec());
        Ok(())
    }

    fn durable(&mut self, _durable: Durable) {}

    fn write(&self, out: &mut dyn FnMut(&[u8])) {
        self.0.iter().for_each(|record| out(record));
    }
}

fn disk(path: &Path) -> Arc<dyn Storage> {
    Arc::new(Disk::open(path, Device::Map).unwrap())
}

fn options() -> OpenOptions {
    OpenOptions { segment_len: SEGMENT_LEN_MIN, log_id: 0x5eed, accept_damage: false }
}

fn open(path: &Path) -> (Log, Everything, OpenResult) {
    Log::open(disk(path), &options()).unwrap()
}

fn refusal(path: &Path) -> String {
    Log::open::<Everything>(disk(path), &options()).unwrap_err().to_string()
}

/// Returns a temporary directory, if the log uses a memory map on its file system and the kernel counts the bytes that
/// a thread writes. Otherwise notes that the test is skipped, and returns `None`.
pub(super) fn mappable(test: &str) -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    if Device::suitable(directory.path()).unwrap().0 == Device::Map && dirtied_len().is_some() {
        return Some(directory);
    }
    skip(test, "the file system is not used with a map, or the kernel does not count what is written");
    None
}

fn payload(records: &[&[u8]]) -> Vec<u8> {
    records.iter().flat_map(|record| [&(record.len() as u32).to_le_bytes(), *record].concat()).collect()
}

/// Appends one record in a frame of its own and makes it durable.
fn put(log: &mut Log, record: &[u8]) -> AppendedFrame {
    let written = log.append(&payload(&[record]), 1).unwrap();
    assert_eq!(log.flush(|| 7).unwrap(), Durable { lsn: written.lsn, at_ms: 7 });
    written
}

fn texts(everything: &Everything) -> Vec<&str> {
    everything.0.iter().map(|record| std::str::from_utf8(record).unwrap()).collect()
}

fn change(path: &Path, file: &str, offset: u64, change: impl FnOnce(&mut Vec<u8>, usize)) {
    let mut bytes = fs::read(path.join(file)).unwrap();
    change(&mut bytes, offset as usize);
    fs::write(path.join(file), bytes).unwrap();
}

fn segment(number: u64) -> String {
    FileName::Segment(number).to_string()
}

/// Appends frames with the record `filler` until one of them begins the next segment.
fn rotate(log: &mut Log) {
    while !put(log, b"filler").is_new_segment {}
}

#[test]
fn synced_records_are_present_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, nothing, opened) = open(directory.path());
    assert!(opened.is_new && nothing.0.is_empty());
    log.append(&payload(&[b"one", b"", b"two"]), 3).unwrap();
    log.append(&[], 0).unwrap();
    assert_eq!((log.flushed().lsn, log.last_lsn()), (0, 2));
    log.flush(|| 7).unwrap();
    assert_eq!(log.flushed().lsn, 2);
    drop(log);
    let (_, found, opened) = open(directory.path());
    assert_eq!(texts(&found), ["one", "", "two"]);
    assert_eq!((opened.is_new, opened.is_clean, opened.last_lsn, opened.generation), (false, false, 2, 2));
    assert_eq!(opened.tail, Tail::Clean);
}

#[test]
fn only_the_next_start_sees_a_clean_stop() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"one");
    log.close_clean(|| 8).unwrap();
    let (log, found, opened) = open(directory.path());
    assert!(opened.is_clean);
    assert_eq!(texts(&found), ["one"]);
    drop(log);
    assert!(!open(directory.path()).2.is_clean);
}

#[test]
fn repeated_starts_continue_in_the_same_segment() {
    let directory = tempfile::tempdir().unwrap();
    for start in 1..10 {
        let (mut log, found, opened) = open(directory.path());
        assert_eq!((found.0.len() as u64, opened.generation), (start / 2, start));
        if start % 2 == 1 {
            put(&mut log, b"one");
        }
        if start % 4 < 2 {
            log.close_clean(|| 8).unwrap();
        }
    }
    let segments = Directory::list(&*disk(directory.path())).unwrap().segments().count();
    assert_eq!(segments, 1);
}

#[test]
fn a_full_segment_is_followed_by_another() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    let count = 3 * SEGMENT_LEN_MIN / BLOCK;
    for number in 0..count {
        put(&mut log, number.to_string().as_bytes());
    }
    assert_eq!(log.sealed_segments(), 3);
    let limit = log.records_limit();
    assert_eq!(limit, frame_payload_limit());
    let largest = vec![b'x'; limit - 4];
    put(&mut log, &largest);
    assert!(matches!(log.append(&payload(&[&largest, b""]), 2), Err(AppendError::NoFrame)));
    assert!(matches!(log.append(&payload(&[b"one"]), 2), Err(AppendError::NoFrame)));
    drop(log);
    let (_, found, _) = open(directory.path());
    let expected: Vec<_> =
        (0..count).map(|number| number.to_string().into_bytes()).chain([largest]).collect();
    assert_eq!(found.0, expected);
}

fn frame_payload_limit() -> usize {
    crate::frame::payload_limit(SEGMENT_LEN_MIN as usize - BLOCK_LEN)
}

#[test]
fn an_unacknowledged_torn_frame_is_dropped_permanently() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"one");
    put(&mut log, b"two");
    drop(log);
    change(directory.path(), &segment(1), 2 * BLOCK + 512, |bytes, at| bytes[at] ^= 1);
    let (mut log, found, opened) = open(directory.path());
    assert_eq!(texts(&found), ["one"]);
    assert_eq!((opened.tail, opened.last_lsn), (Tail::Torn { offset: 2 * BLOCK }, 1));
    put(&mut log, b"three");
    drop(log);
    assert_eq!(texts(&open(directory.path()).1), ["one", "three"]);
}

/// A start drops two intact frames, but they stay in the file behind the frame that the start appends. Their numbers
/// are those of the frames that it would append next.
#[test]
fn dropped_frames_never_return_even_if_they_are_intact() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"one");
    for text in [&b"two"[..], b"dropped three", b"dropped four"] {
        log.append(&payload(&[text]), 1).unwrap();
    }
    drop(log);
    change(directory.path(), &segment(1), 2 * BLOCK + 512, |bytes, at| bytes[at] ^= 1);
    let dropped = |path: &Path| {
        let bytes = fs::read(path.join(segment(1))).unwrap();
        ["dropped three", "dropped four"]
            .map(|text| bytes.windows(text.len()).any(|at| at == text.as_bytes()))
    };
    let (mut log, found, _) = open(directory.path());
    assert_eq!(texts(&found), ["one"]);
    put(&mut log, b"new two");
    drop(log);
    for _ in 0..2 {
        assert_eq!(dropped(directory.path()), [true; 2]);
        assert_eq!(texts(&open(directory.path()).1), ["one", "new two"]);
    }
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"new three");
    log.close_clean(|| 8).unwrap();
    let (_, found, opened) = open(directory.path());
    assert_eq!((texts(&found), opened.is_clean), (vec!["one", "new two", "new three"], true));
}

#[test]
fn unsynced_frames_written_out_of_order_are_dropped_together() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"one");
    log.append(&payload(&[b"two"]), 1).unwrap();
    log.append(&payload(&[b"three"]), 1).unwrap();
    drop(log);
    change(directory.path(), &segment(1), 2 * BLOCK, |bytes, at| bytes[at..at + BLOCK_LEN].fill(0));
    let (_, found, opened) = open(directory.path());
    assert_eq!(texts(&found), ["one"]);
    assert_eq!(opened.tail, Tail::OutOfOrder { offset: 2 * BLOCK, frames: 1 });
}

#[test]
fn a_hole_in_durable_frames_is_refused_by_file_and_byte() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"one");
    put(&mut log, b"two");
    put(&mut log, b"");
    drop(log);
    change(directory.path(), &segment(1), 2 * BLOCK + 80, |bytes, at| bytes[at] ^= 1);
    let refused = refusal(directory.path());
    assert!(refused.contains("segment-0000000000000001, byte 8192: frame 2 was durable"), "{refused}");

    let accepting = OpenOptions { accept_damage: true, ..options() };
    let (mut log, found, opened): (_, Everything, _) = Log::open(disk(directory.path()), &accepting).unwrap();
    assert_eq!(texts(&found), ["one"]);
    let lost = opened.lost.unwrap();
    assert_eq!((lost.last_good_lsn, lost.damage.offset()), (1, 2 * BLOCK));
    assert!(put(&mut log, b"four").lsn > 3);
    drop(log);
    let (_, found, opened) = open(directory.path());
    assert_eq!((texts(&found), opened.lost), (vec!["one", "four"], None));
}

/// The test leaves an incomplete snapshot, as if the server had been killed during a compaction, and damages a frame.
#[test]
fn damage_is_accepted_beside_an_unfinished_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"one");
    put(&mut log, b"two");
    put(&mut log, b"");
    drop(log);
    fs::write(directory.path().join("snapshot.tmp"), "half").unwrap();
    change(directory.path(), &segment(1), 2 * BLOCK + 80, |bytes, at| bytes[at] ^= 1);
    let accepting = OpenOptions { accept_damage: true, ..options() };
    let (_, found, _) = Log::open::<Everything>(disk(directory.path()), &accepting).unwrap();
    assert_eq!(texts(&found), ["one"]);
    assert!(!directory.path().join("snapshot.tmp").exists());
}

#[test]
fn a_lost_last_frame_of_a_clean_stop_is_refused_as_damage() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"one");
    log.close_clean(|| 8).unwrap();
    change(directory.path(), &segment(1), 2 * BLOCK, |bytes, at| bytes[at..at + BLOCK_LEN].fill(0));
    let refused = refusal(directory.path());
    assert!(refused.contains("byte 8192: frame 2 was durable"), "{refused}");
    assert!(refused.contains("stopped cleanly after frame 2"), "{refused}");
}

const FLOOR: Record<'static> = Record::BeginAbove { fence: Fence::new(7) };

fn now() -> Time {
    Time::from_millis(2)
}

/// Opens the log in this directory, and starts its writer. The writer first appends a `Started` record and then
/// `FLOOR`, a record with a lower bound for fences.
fn started(path: &Path) -> LogWriter {
    let (log, ..) = Log::open::<Image>(disk(path), &options()).unwrap();
    let started = Started { boot_id: [1; 16], now_ms: 2, unix_ms: 3 };
    LogWriter::start(log, started, &[FLOOR], now).unwrap()
}

/// The test overwrites the only frame of the running log with zeros. The stop appends another frame, and writes its
/// number to the superblock. So the check after that must notice that the frame before it was lost.
#[test]
fn a_clean_stop_replaces_a_log_whose_last_frame_was_lost() {
    let directory = tempfile::tempdir().unwrap();
    let writer = started(directory.path());
    let file = fs::OpenOptions::new().write(true).open(directory.path().join(segment(1))).unwrap();
    file.write_all_at(&[0; BLOCK_LEN], BLOCK).unwrap();
    writer.close(now, |put| put(&FLOOR)).unwrap();
    let (_, image, opened) = Log::open::<Image>(disk(directory.path()), &options()).unwrap();
    assert_eq!((image.floor().get(), opened.is_clean), (7, true));
}

/// The running server has its files open. If they are moved or replaced, it writes the end of the log to files that the
/// next start will not find. The next start also refuses a directory or a pipe with the name of a log file.
#[test]
fn a_clean_stop_fails_if_the_next_start_would_not_find_its_log() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 5] = [
        ("the directory was replaced", |path| {
            fs::rename(path, path.with_extension("old")).unwrap();
            fs::create_dir(path).unwrap();
        }),
        ("the superblock is gone", |path| fs::remove_file(path.join("superblock")).unwrap()),
        ("the superblock was replaced by a copy", |path| {
            fs::copy(path.join("superblock"), path.join("copy")).unwrap();
            fs::rename(path.join("copy"), path.join("superblock")).unwrap();
        }),
        ("a directory has the name of a segment", |path| fs::create_dir(path.join(segment(2))).unwrap()),
        ("a pipe has the name of the segment", |path| {
            fs::remove_file(path.join(segment(1))).unwrap();
            nix::unistd::mkfifo(&path.join(segment(1)), nix::sys::stat::Mode::S_IRUSR).unwrap();
        }),
    ];
    for (what, harm) in harms {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        fs::create_dir(&path).unwrap();
        let writer = started(&path);
        harm(&path);
        let names = || {
            let entries = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
            entries.collect::<std::collections::BTreeSet<_>>()
        };
        let before = names();
        assert!(writer.close(now, |put| put(&FLOOR)).is_err(), "{what}");
        assert_eq!(names(), before, "{what}");
    }
}

#[test]
fn an_invalid_record_is_refused_by_file_and_byte() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"one");
    put(&mut log, b"nonsense");
    drop(log);
    let refused = refusal(directory.path());
    assert!(refused.contains("byte 8192: a record of frame 2 is malformed: nonsense"), "{refused}");
}

#[test]
fn compaction_keeps_every_record_and_frees_the_segments() {
    let directory = tempfile::tempdir().unwrap();
    let storage = disk(directory.path());
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"first");
    let mut expected = 1;
    for round in 1..4 {
        rotate(&mut log);
        rotate(&mut log);
        expected = log.last_lsn();
        let plan = log.compaction_plan().unwrap();
        keeper::compact::<Everything>(&*storage, &plan).unwrap();
        put(&mut log, b"meanwhile");
        expected += 1;
        let dead = log.compacted(&plan).unwrap();
        keeper::remove(&*storage, &dead).unwrap();
        assert_eq!((log.sealed_segments(), log.compaction_plan()), (0, None));
        let files = Directory::list(&*storage).unwrap();
        assert_eq!(files.segments().count(), 1);
        // The previous snapshot stays until the next compaction.
        assert_eq!(
            files.snapshots().collect::<Vec<_>>(),
            [round - 1, round].split_at(usize::from(round == 1)).1
        );
    }
    drop(log);
    let (_, found, _) = open(directory.path());
    assert_eq!(found.0.len() as u64, expected);
    assert_eq!(found.0[0], b"first");
    assert_eq!(found.0.iter().filter(|record| *record == b"meanwhile").count(), 3);
}

#[test]
fn a_damaged_snapshot_is_refused_by_file_and_byte() {
    let directory = tempfile::tempdir().unwrap();
    let storage = disk(directory.path());
    let (mut log, ..) = open(directory.path());
    rotate(&mut log);
    let plan = log.compaction_plan().unwrap();
    keeper::compact::<Everything>(&*storage, &plan).unwrap();
    log.compacted(&plan).unwrap();
    drop(log);
    let name = FileName::Snapshot(1).to_string();
    change(directory.path(), &name, BLOCK + 100, |bytes, at| bytes[at] ^= 1);
    let refused = refusal(directory.path());
    assert!(refused.contains("snapshot-0000000000000001, byte 4096: frame 1 was durable"), "{refused}");
    change(directory.path(), &name, BLOCK + 100, |bytes, at| bytes[at] ^= 1);
    change(directory.path(), &name, 0, |bytes, _| bytes.truncate(bytes.len() - BLOCK_LEN));
    assert!(refusal(directory.path()).contains("snapshot-0000000000000001, byte 8192"));
    fs::remove_file(directory.path().join(name)).unwrap();
    assert!(refusal(directory.path()).contains("snapshot-0000000000000001 is missing"));
}

#[test]
fn either_copy_of_the_superblock_is_sufficient() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"one");
    drop(log);
    for copy in [0, 1, 0] {
        let (mut log, ..) = open(directory.path());
        log.raise_floor(Fence::new(log.superblock().fence_floor.get() + 100)).unwrap();
        log.note_longest_lease(log.superblock().longest_lease_ms + 10).unwrap();
        let expected = *log.superblock();
        drop(log);
        change(directory.path(), "superblock", copy * BLOCK + 20, |bytes, at| bytes[at] ^= 1);
        let (log, found, opened) = open(directory.path());
        assert_eq!(texts(&found), ["one"]);
        assert!(opened.was_superblock_mended);
        assert_eq!(log.superblock().fence_floor, expected.fence_floor);
        assert_eq!(log.superblock().longest_lease_ms, expected.longest_lease_ms);
        drop(log);
        assert!(!open(directory.path()).2.was_superblock_mended);
    }
    change(directory.path(), "superblock", 20, |bytes, at| bytes[at] ^= 1);
    change(directory.path(), "superblock", BLOCK + 20, |bytes, at| bytes[at] ^= 1);
    assert!(refusal(directory.path()).contains("superblock, byte 0: neither copy is whole"));
    fs::remove_file(directory.path().join("superblock")).unwrap();
    assert!(refusal(directory.path()).contains("superblock is missing"));
}

#[test]
fn foreign_files_are_reported_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["notes.txt", "segment-1", "segment-0000000000000002~"] {
        fs::write(directory.path().join(name), "").unwrap();
    }
    fs::create_dir(directory.path().join("lost+found")).unwrap();
    let (mut log, _, opened) = open(directory.path());
    assert!(opened.is_new);
    assert_eq!(opened.foreign, ["notes.txt", "segment-0000000000000002~", "segment-1"]);
    put(&mut log, b"one");
    drop(log);
    let (_, found, opened) = open(directory.path());
    assert_eq!((texts(&found), opened.foreign.len()), (vec!["one"], 3));
}

/// If the server accepted a directory with the name `spare`, it would fail later, when it creates the spare segment.
#[test]
fn a_directory_named_like_a_log_file_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("backup")).unwrap();
    put(&mut open(directory.path()).0, b"one");
    let accepting = OpenOptions { accept_damage: true, ..options() };
    for file in ["spare", "reserve", "spare.tmp", "snapshot.tmp", &segment(2), "snapshot-0000000000000001"] {
        let path = directory.path().join(file);
        for options in [options(), accepting] {
            fs::create_dir(&path).unwrap();
            let refused = Log::open::<Everything>(disk(directory.path()), &options).unwrap_err();
            assert!(matches!(refused, OpenError::NotAFile(name) if name.to_string() == file), "{refused}");
            fs::remove_dir(&path).unwrap();
        }
    }
    nix::unistd::mkfifo(&directory.path().join("spare"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(refusal(directory.path()).starts_with("log: spare is not a file"));
    fs::remove_file(directory.path().join("spare")).unwrap();
    assert_eq!(texts(&open(directory.path()).1), ["one"]);
}

#[test]
fn a_newer_format_version_is_refused_even_if_damage_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let newer = |bytes: &mut Vec<u8>, at: usize| {
        bytes[at + 4] = FORMAT_VERSION as u8 + 1;
        let checksum = crc32c_of(&bytes[at..at + BLOCK_LEN - 4]);
        bytes[at + BLOCK_LEN - 4..at + BLOCK_LEN].copy_from_slice(&checksum.to_le_bytes());
    };
    let accepting = OpenOptions { accept_damage: true, ..options() };
    for file in [segment(1), "superblock".to_owned()] {
        change(directory.path(), &file, 0, newer);
        for options in [options(), accepting] {
            let refused = Log::open::<Everything>(disk(directory.path()), &options).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("{file} has format version {}", FORMAT_VERSION + 1)),
                "{refused}"
            );
        }
    }
}

fn crc32c_of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    }) ^ !0
}

#[test]
fn a_missing_segment_is_refused_by_name_including_the_last() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    rotate(&mut log);
    rotate(&mut log);
    drop(log);
    for number in 1..=3 {
        let path = directory.path().join(segment(number));
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let refused = refusal(directory.path());
        assert!(refused.contains(&format!("{} is missing", segment(number))), "{refused}");
        fs::write(&path, bytes).unwrap();
    }
    fs::copy(directory.path().join(segment(3)), directory.path().join(segment(5))).unwrap();
    assert!(refusal(directory.path()).contains("segment-0000000000000005, byte 0: the file does not belong"));
}

#[test]
fn prepared_segments_are_used_and_leftovers_removed() {
    let directory = tempfile::tempdir().unwrap();
    let storage = disk(directory.path());
    let (mut log, ..) = open(directory.path());
    fs::write(directory.path().join("spare"), "of another length").unwrap();
    assert_eq!(keeper::prepare(&*storage, SEGMENT_LEN_MIN).unwrap(), Space::Ample);
    let has = |name: &str| directory.path().join(name).exists();
    assert!(has("spare") && has("reserve"));
    rotate(&mut log);
    assert!(!has("spare") && has("reserve"));
    rotate(&mut log);
    assert!(!has("spare") && !has("reserve"));
    rotate(&mut log);
    fs::write(directory.path().join("snapshot.tmp"), "half").unwrap();
    let count = log.last_lsn();
    drop(log);
    let (_, found, _) = open(directory.path());
    assert_eq!(found.0.len() as u64, count);
    assert!(!has("snapshot.tmp"));
}

/// A frame that fits into a long segment might not fit into the next segment if that is shorter.
#[test]
fn the_segment_length_may_change_between_starts() {
    let directory = tempfile::tempdir().unwrap();
    let lens = [4, 1, 16, 1, 4].map(|factor| factor * SEGMENT_LEN_MIN);
    let mut written = 0;
    for segment_len in lens {
        let options = OpenOptions { segment_len, ..options() };
        let (mut log, found, _) = Log::open::<Everything>(disk(directory.path()), &options).unwrap();
        assert_eq!(found.0.len(), written);
        let largest = vec![b'x'; log.records_limit() - 4];
        for _ in 0..3 {
            put(&mut log, &largest);
            written += 1;
        }
    }
}

/// A copy of a log file may have holes in place of its zeros. The log must still be able to append to it.
#[test]
fn a_segment_with_holes_is_continued() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"one");
    drop(log);
    let path = directory.path().join(segment(1));
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(2 * BLOCK).unwrap();
    file.set_len(SEGMENT_LEN_MIN).unwrap();
    let (mut log, ..) = open(directory.path());
    put(&mut log, b"two");
    drop(log);
    assert_eq!(texts(&open(directory.path()).1), ["one", "two"]);
}

#[test]
fn mapped_and_written_logs_produce_the_same_files() {
    let files = [Device::Map, Device::Write].map(|device| {
        let directory = tempfile::tempdir().unwrap();
        let storage: Arc<dyn Storage> = Arc::new(Disk::open(directory.path(), device).unwrap());
        let (mut log, ..) = Log::open::<Everything>(Arc::clone(&storage), &options()).unwrap();
        put(&mut log, b"one");
        rotate(&mut log);
        log.close_clean(|| 9).unwrap();
        let mut files: Vec<_> = storage.list().unwrap();
        files.sort();
        files.into_iter().map(|(name, _)| (storage.read(&name).unwrap(), name)).collect::<Vec<_>>()
    });
    assert!(files[0] == files[1]);
}

#[test]
fn a_read_only_directory_is_refused_with_the_failed_file() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let refusal = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Root may write anywhere, so this thread takes the user id of "nobody". For other users the call has no
            // effect.
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
            refusal(directory.path())
        });
        thread.join().unwrap()
    });
    assert!(refusal.contains("cannot make superblock"), "{refusal}");
}

#[test]
fn log_files_are_accessible_only_by_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    open(directory.path());
    for entry in fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
    }
}

#[test]
fn a_one_block_frame_dirties_little_more_than_that_block() {
    let Some(directory) = mappable("a_one_block_frame_dirties_little_more_than_that_block") else {
        return;
    };
    let storage = disk(directory.path());
    let options = OpenOptions { segment_len: 4 << 20, ..options() };
    let (mut log, ..) = Log::open::<Everything>(storage, &options).unwrap();
    let before = dirtied_len().unwrap();
    let frames = 200;
    for _ in 0..frames {
        put(&mut log, b"one");
    }
    let sectors = (dirtied_len().unwrap() - before) / 512 / frames;
    assert!((8..=16).contains(&sectors), "{sectors} sectors a frame");
}
