//! Data directories of a real server: stopped, killed, damaged, and in use.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use waymaker_log::frame::FORMAT_VERSION;

use crate::program::{Running, ctl, output, soon, stderr, stdout};
use crate::real::{RealServer, server};

const BLOCK_LEN: u64 = 4096;
const SEGMENT: &str = "segment-0000000000000001";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn log(&self, words: &[&str]) -> Output {
        let path = self.path();
        let words = [&["log"], words, &[path.to_str().unwrap()]].concat();
        output(ctl("waymaker://127.0.0.1:1", &words))
    }

    fn objects(&self, words: &[&str]) -> Vec<Value> {
        let text = stdout(&self.log(&[&["inspect", "--json"], words].concat()));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Damages one byte.
    fn flip(&self, file: &str, offset: u64) {
        let file = OpenOptions::new().read(true).write(true).open(self.path().join(file)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    }

    fn damage(&self) -> String {
        let verified = self.log(&["verify"]);
        assert_eq!(verified.status.code(), Some(1), "{}", stdout(&verified));
        assert_eq!(stdout(&verified), "");
        stderr(&verified)
    }

    /// Stops the server cleanly and waits until it has released the directory.
    fn stop(&self) {
        let lock = File::open(self.path().join("LOCK")).unwrap();
        let text = fs::read_to_string(self.path().join("LOCK")).unwrap();
        let pid = text.split([' ', ',']).nth(1).unwrap().parse().unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        soon(move || lock.lock().unwrap());
    }
}

fn about<'a>(objects: &'a [Value], what: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["about"] == what).collect()
}

/// Starts a command that holds `key` until it is dropped.
fn holder(server: &RealServer, key: &str, options: &[&str]) -> Running {
    let words =
        [&["lock", key, "--owner", "the holder"], options, &["--", "sh", "-c", "echo held; sleep 1000"]];
    let mut running = Running::start(ctl(server.url(), &words.concat()));
    assert_eq!(running.line().unwrap(), "held");
    running
}

/// Kills a server that granted `he\nld`, `freed` `freed_count` times, and `last`.
fn killed(place: &Place, freed_count: usize) {
    let mut server = RealServer::start(Some(&place.path()), &[]);
    let running = holder(&server, "he\nld", &["--scope", "local", "--lease", "1h"]);
    for _ in 0..freed_count {
        let freed = output(ctl(server.url(), &["lock", "freed", "--scope", "local", "--", "true"]));
        assert_eq!(freed.status.code(), Some(0), "{}", stderr(&freed));
    }
    // No client waits until a release is durable, but a later record is never durable before it. The frame of this grant also proves
    // that the frames before it were durable.
    let last = holder(&server, "last", &["--scope", "local"]);
    server.kill();
    drop((running, last));
}

#[test]
fn inspect_shows_holds_and_counters_of_scope_local_after_a_kill_and_changes_nothing() {
    let place = Place::new();
    killed(&place, 3);
    let files = |directory: &Path| {
        let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.into_iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>()
    };
    let before = files(&place.path());
    let verified = place.log(&["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", stderr(&verified));
    let line = stdout(&verified);
    assert!(line.contains("complete up to frame ") && line.ends_with("; 2 holds, 3 counters\n"), "{line}");
    let inspected = place.log(&["inspect"]);
    assert_eq!(inspected.status.code(), Some(0));
    let page = stdout(&inspected);
    assert!(page.contains("stopped cleanly  no\n"), "{page}");
    assert!(page.contains("\ndefault    flat  2      3\n"), "{page}");
    let hold = page.lines().find(|line| line.starts_with(r"he\nld")).unwrap();
    let hold: Vec<_> = hold.split_whitespace().collect();
    assert_eq!(hold[1..7], ["default", "write", "the", "holder", "1", "59m"], "{page}");
    assert_eq!(hold[8], "local", "{page}");
    assert!(page.lines().any(|line| line.starts_with(SEGMENT)), "{page}");
    assert_eq!(files(&place.path()), before);
}

#[test]
fn json_has_one_object_per_line_and_every_record_with_its_position() {
    let place = Place::new();
    killed(&place, 2);
    let objects = place.objects(&["--records"]);
    let [log] = about(&objects, "log")[..] else { panic!("{objects:?}") };
    assert_eq!((&log["end"], &log["hold_count"]), (&"clean".into(), &2.into()));
    let holds = about(&objects, "hold");
    let hold = holds.iter().find(|hold| hold["key"] == "he\nld").unwrap();
    assert_eq!(
        (&hold["key"], &hold["fence"], &hold["scope"]),
        (&"he\nld".into(), &1.into(), &"local".into())
    );
    assert_eq!((&hold["namespace"], &hold["owner"]), (&"default".into(), &"the holder".into()));
    let left = hold["remaining_ms"].as_u64().unwrap();
    assert!((3_000_000..=3_600_000).contains(&left), "{left}");
    let records = about(&objects, "record");
    let fences: Vec<_> =
        records.iter().filter(|record| record["key"] == "freed").map(|record| &record["fence"]).collect();
    assert_eq!(fences, [&Value::from(1), &Value::from(2)]);
    assert_eq!((&records[0]["record"], &records[0]["lsn"]), (&"started".into(), &1.into()));
    assert_eq!((&records[0]["file"], &records[0]["offset"]), (&SEGMENT.into(), &BLOCK_LEN.into()));
    let [superblock] = about(&objects, "superblock")[..] else { panic!("{objects:?}") };
    assert_eq!((&superblock["generation"], &superblock["clean_lsn"]), (&1.into(), &0.into()));
    // The table format has the same records, one per line.
    let page = stdout(&place.log(&["inspect", "--records"]));
    assert!(page.starts_with(&format!("1 {SEGMENT}+4096 started boot_id=")), "{page}");
    assert!(page.contains(r" held namespace=default key=he\nld mode=write fence=1 "), "{page}");
}

#[test]
fn a_clean_stop_also_saves_ephemeral_holds() {
    let place = Place::new();
    let server = server!(Some(&place.path()));
    let _holder = holder(&server, "k", &[]);
    place.stop();
    let page = stdout(&place.log(&["inspect"]));
    assert!(page.contains("; the server stopped cleanly\n") && page.contains("  ephemeral  "), "{page}");
    assert!(stdout(&place.log(&["verify"])).contains("stopped cleanly"));
    let objects = place.objects(&[]);
    assert_eq!(about(&objects, "log")[0]["end"], "stopped");
    // The damage of the last frame of a clean stop is detected although no frame follows.
    let frames = about(&objects, "file").iter().find_map(|file| file["frames"].as_u64()).unwrap();
    place.flip(SEGMENT, frames * BLOCK_LEN);
    let damage = place.damage();
    let expected = format!("{SEGMENT}, byte {}: frame {frames} was durable", frames * BLOCK_LEN);
    assert!(damage.contains(&expected), "{damage}");
}

#[test]
fn a_running_server_is_named_and_not_disturbed_and_its_log_is_not_damaged() {
    let place = Place::new();
    let server = server!(Some(&place.path()));
    let _holder = holder(&server, "k", &["--scope", "local"]);
    let script = "while :; do \"$0\" lock busy --scope local -- true || exit; done";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_waymaker-ctl")]).env("WAYMAKER_SERVER", server.url());
    let mut load = command.spawn().unwrap();
    for _ in 0..10 {
        let verified = place.log(&["verify"]);
        assert_eq!(verified.status.code(), Some(0), "{}", stderr(&verified));
    }
    let page = stdout(&place.log(&["inspect"]));
    load.kill().unwrap();
    load.wait().unwrap();
    assert!(page.contains("is in use (pid ") && page.contains("serving binary=127.0.0.1:"), "{page}");
}

#[test]
fn a_damaged_frame_is_named_by_file_and_byte_and_earlier_frames_are_shown() {
    let place = Place::new();
    killed(&place, 3);
    let frame = 3;
    place.flip(SEGMENT, frame * BLOCK_LEN + 90);
    let expected = format!(
        "{SEGMENT}, byte {}: frame {frame} was durable, but the checksum of the frame",
        frame * BLOCK_LEN
    );
    let damage = place.damage();
    assert!(damage.contains(&expected), "{damage}");
    let inspected = place.log(&["inspect"]);
    assert_eq!(inspected.status.code(), Some(1));
    let page = stdout(&inspected);
    assert!(page.contains("DAMAGED: ") && page.contains("the state below is up to frame 2\n"), "{page}");
    let objects = place.objects(&[]);
    let log = about(&objects, "log")[0];
    assert_eq!((&log["problem_file"], &log["problem_offset"]), (&SEGMENT.into(), &12_288.into()));
}

#[test]
fn a_foreign_file_is_listed_and_is_not_damage() {
    let place = Place::new();
    killed(&place, 1);
    fs::write(place.path().join("no\ntes"), "").unwrap();
    assert_eq!(place.log(&["verify"]).status.code(), Some(0));
    let page = stdout(&place.log(&["inspect"]));
    let line = page.lines().find(|line| line.starts_with(r"no\ntes ")).unwrap_or_else(|| panic!("{page}"));
    assert!(line.ends_with("not part of the log, ignored"), "{line}");
    let objects = place.objects(&[]);
    let file = about(&objects, "file").into_iter().find(|file| file["file"] == "no\ntes");
    assert_eq!(file.map(|file| file["foreign"] == true), Some(true));
}

#[test]
fn every_other_reason_not_to_start_is_named() {
    let break_and_verify = |break_it: &dyn Fn(&Place)| {
        let place = Place::new();
        killed(&place, 1);
        break_it(&place);
        place.damage()
    };
    let missing = break_and_verify(&|place| fs::remove_file(place.path().join(SEGMENT)).unwrap());
    assert!(missing.contains("segment-0000000000000001 is missing"), "{missing}");
    let no_superblock = break_and_verify(&|place| fs::remove_file(place.path().join("superblock")).unwrap());
    assert!(no_superblock.contains("superblock is missing"), "{no_superblock}");
    let not_a_file = break_and_verify(&|place| {
        let spare = place.path().join("spare");
        // The server may have created the file.
        let _ = fs::remove_file(&spare);
        fs::create_dir(spare).unwrap();
    });
    assert!(not_a_file.contains("spare is not a file"), "{not_a_file}");
    let superblock = break_and_verify(&|place| {
        place.flip("superblock", 100);
        assert_eq!(place.log(&["verify"]).status.code(), Some(0), "one copy is enough");
        place.flip("superblock", BLOCK_LEN + 100);
    });
    assert!(superblock.contains("superblock, byte 0: neither copy is whole"), "{superblock}");
    let short = break_and_verify(&|place| {
        OpenOptions::new().write(true).open(place.path().join(SEGMENT)).unwrap().set_len(8192).unwrap();
    });
    assert!(short.contains(&format!("{SEGMENT}, byte 8192: the file ends here")), "{short}");
}

#[test]
fn a_newer_format_is_named_and_is_not_damage() {
    let place = Place::new();
    killed(&place, 1);
    let path = place.path().join("superblock");
    let mut bytes = fs::read(&path).unwrap();
    for copy in bytes.chunks_mut(BLOCK_LEN as usize) {
        copy[4] = FORMAT_VERSION as u8 + 1;
        let checksum = crc32c::crc32c(&copy[..4092]);
        copy[4092..].copy_from_slice(&checksum.to_le_bytes());
    }
    fs::write(&path, bytes).unwrap();
    let damage = place.damage();
    let newer = format!("superblock, byte 0: it has format version {}, ", FORMAT_VERSION + 1);
    assert!(damage.contains(&newer), "{damage}");
    assert!(damage.contains("; use the newer server"), "{damage}");
    let page = stdout(&place.log(&["inspect"]));
    assert!(page.contains("NEWER: ") && !page.contains("DAMAGED"), "{page}");
}

#[test]
fn an_incomplete_end_after_a_crash_is_not_damage() {
    let place = Place::new();
    killed(&place, 1);
    let frames = about(&place.objects(&[]), "log")[0]["last_lsn"].as_u64().unwrap();
    let end = (frames + 1) * BLOCK_LEN;
    place.flip(SEGMENT, end);
    let verified = place.log(&["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", stderr(&verified));
    assert!(
        stdout(&verified).contains(&format!("unacknowledged end from byte {end} on")),
        "{}",
        stdout(&verified)
    );
}

#[test]
fn an_empty_directory_is_valid_and_a_missing_directory_is_an_error() {
    let place = Place::new();
    let missing = place.log(&["verify"]);
    assert_eq!(missing.status.code(), Some(125));
    assert!(stderr(&missing).contains("cannot be read"), "{}", stderr(&missing));
    fs::create_dir(place.path()).unwrap();
    let fresh = place.log(&["verify"]);
    assert_eq!(fresh.status.code(), Some(0));
    assert!(stdout(&fresh).contains("there is no log yet"), "{}", stdout(&fresh));
}
