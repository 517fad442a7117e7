//! Backups of running, stopped and damaged servers, and data directories that are made of backups.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use waymaker_client::{Client, FenceScope};
use waymaker_log::{Fence, Superblock};

use crate::output::objects;
use crate::program::{Running, ctl, eventually, output, rest, stderr, stdout};
use crate::real::{RealServer, server};
use crate::schema::check;

const SEGMENT: &str = "segment-0000000000000001";
const BLOCK_LEN: u64 = 4096;
/// Lease of holds that must not end during a test.
const LONG: Duration = Duration::from_secs(3_600);

/// A directory for data directories and backups.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command in this directory.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        let mut command = ctl("waymaker://127.0.0.1:1", words);
        command.current_dir(self.0.path()).env_remove("WAYMAKER_DATA_DIR");
        output(command)
    }

    /// Runs a command that succeeds, and returns the object that it printed.
    pub(crate) fn object(&self, words: &[&str]) -> Value {
        let done = self.run(&[words, &["--json"]].concat());
        assert_eq!(done.status.code(), Some(0), "{words:?}: {}", stderr(&done));
        let printed = objects(&stdout(&done));
        assert_eq!(printed.len(), 1, "{words:?}");
        printed.into_iter().next().unwrap()
    }

    /// Backs up `data` to the directory with this name.
    pub(crate) fn back_up(&self, name: &str) -> Value {
        self.object(&["backup", name, "--data-dir", "data"])
    }

    /// Runs a command that fails, and returns its exit code and its message.
    fn refusal(&self, words: &[&str]) -> (i32, String) {
        let done = self.run(words);
        assert_eq!(stdout(&done), "", "{words:?}");
        (done.status.code().unwrap(), stderr(&done))
    }

    /// Returns the names of everything in this directory, hidden names too.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn flip(&self, file: &str, offset: u64) {
        let file = OpenOptions::new().read(true).write(true).open(self.path(file)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    }

    /// Returns the fence of each hold in a data directory, by id.
    pub(crate) fn holds(&self, name: &str) -> BTreeMap<String, u64> {
        let inspected = self.run(&["log", "inspect", name, "--json"]);
        assert_eq!(inspected.status.code(), Some(0), "{}", stderr(&inspected));
        let holds = objects(&stdout(&inspected)).into_iter().filter(|object| object["about"] == "hold");
        holds.map(|hold| (hold["id"].as_str().unwrap().to_owned(), hold["fence"].as_u64().unwrap())).collect()
    }
}

fn superblock(data_dir: &Path) -> Superblock {
    Superblock::decode_file(&fs::read(data_dir.join("superblock")).unwrap()).unwrap().0
}

/// A hold that the server has confirmed to a client.
#[derive(Clone, Debug)]
struct Held {
    id: String,
    fence: u64,
}

/// Clients that acquire local locks of an hour all the time. Each releases every other lock again.
struct Load {
    is_over: Arc<AtomicBool>,
    /// Holds that stay.
    kept: Arc<Mutex<Vec<Held>>>,
    highest_fence: Arc<Mutex<u64>>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn begin(server: &RealServer) -> Self {
        let mut load = Self {
            is_over: Arc::default(),
            kept: Arc::default(),
            highest_fence: Arc::default(),
            clients: Vec::new(),
        };
        for client in 0..3 {
            let (url, is_over) = (server.url().to_owned(), Arc::clone(&load.is_over));
            let (kept, highest_fence) = (Arc::clone(&load.kept), Arc::clone(&load.highest_fence));
            load.clients.push(std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(acquire_until(&url, client, &is_over, &kept, &highest_fence));
            }));
        }
        load
    }

    fn kept(&self) -> Vec<Held> {
        self.kept.lock().unwrap().clone()
    }

    fn wait_for_more(&self) {
        let count = self.kept().len();
        eventually(|| self.kept().len() > count + 20);
    }

    /// Ends the load. Returns the highest fence of all grants.
    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        *self.highest_fence.lock().unwrap()
    }
}

async fn acquire_until(
    url: &str,
    client_number: u32,
    is_over: &AtomicBool,
    kept: &Mutex<Vec<Held>>,
    highest_fence: &Mutex<u64>,
) {
    let client = Client::connect(url).await.unwrap();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let own = client.write(format!("{client_number}/{number}"));
        let own = own.scope(FenceScope::Local).lease(LONG).renew(false).await.unwrap();
        kept.lock().unwrap().push(Held { id: own.id().to_string(), fence: own.fence() });
        own.forget();
        let shared = client.write("shared").scope(FenceScope::Local).await.unwrap();
        {
            let mut highest = highest_fence.lock().unwrap();
            *highest = shared.fence().max(*highest);
        }
        shared.release().await.unwrap();
    }
}

#[test]
fn a_backup_under_load_has_every_hold_that_was_acknowledged_before_it_began() {
    let place = Place::new();
    let mut server = server!(Some(&place.path("data")));
    let load = Load::begin(&server);
    let mut backups = Vec::new();
    // Segments have 64 KiB, so the server compacts all the time.
    eventually(|| superblock(&place.path("data")).snapshot > 0);
    for number in 0..4 {
        load.wait_for_more();
        let (acknowledged, name) = (load.kept(), format!("backup-{number}"));
        let object = place.back_up(&name);
        check("backup", &object);
        assert!(object["server"].as_str().unwrap().starts_with("pid "), "{object}");
        backups.push((name, acknowledged, superblock(&place.path("data")).snapshot));
    }
    load.wait_for_more();
    let highest_fence = load.end();
    server.kill();
    assert!(backups[3].2 > backups[0].2, "no compaction ran between the backups");
    for (name, acknowledged, _) in backups {
        let verified = place.object(&["backup", "verify", &name]);
        check("backup verify", &verified);
        let data_dir = format!("restored-{name}");
        let restored = place.object(&["restore", &name, &data_dir]);
        check("restore", &restored);
        let floor = restored["fence_floor"].as_u64().unwrap();
        assert!(floor > highest_fence && floor < 1 << 53, "{floor}");
        let found = place.holds(&data_dir);
        assert_eq!(found.len() as u64, verified["hold_count"].as_u64().unwrap());
        for held in acknowledged {
            assert_eq!(found.get(&held.id), Some(&held.fence), "{name}: {held:?}");
        }
        let superblock = superblock(&place.path(&data_dir));
        assert_eq!(superblock.fence_floor, Fence::new(floor));
        // Nothing is granted before the leases of an hour are over.
        assert!(superblock.losses.unwrap().wait_ms >= 3_600_000, "{superblock:?}");
    }
}

/// Returns the answer of `/readyz`.
fn readiness(server: &RealServer) -> String {
    let mut socket = TcpStream::connect(server.listener("http")).unwrap();
    socket.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    rest(socket)
}

/// Acquires and releases a key `times` times. No lease is longer than half a second. Returns the last fence.
fn count(server: &RealServer, times: u32) -> u64 {
    let short = Duration::from_millis(500);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::builder().session_lease(short).connect(server.url()).await.unwrap();
        let mut fence = 0;
        for _ in 0..times {
            let lock = client.write("key").scope(FenceScope::Local).lease(short).renew(false).await.unwrap();
            fence = lock.fence();
            // On a slow machine the lease may have expired.
            let _ = lock.release().await;
        }
        fence
    })
}

#[test]
fn a_restored_server_refuses_grants_for_a_lease_and_then_issues_higher_fences_than_all_servers_before() {
    let place = Place::new();
    let mut server = server!(Some(&place.path("data")));
    count(&server, 2);
    place.back_up("backup");
    let mut highest = count(&server, 3);
    assert_eq!(highest, 5);
    server.kill();
    // Both are made of the same backup, so each has to begin above the other.
    for data_dir in ["first", "second"] {
        let restored = place.object(&["restore", "backup", data_dir, "--longest-lease", "700ms"]);
        assert_eq!(restored["grants_refused_ms"], 700, "{restored}");
        let begin = Instant::now();
        let server = server!(Some(&place.path(data_dir)));
        eventually(|| superblock(&place.path(data_dir)).losses.is_none());
        assert!(begin.elapsed() >= Duration::from_millis(700), "{:?}", begin.elapsed());
        let fence = count(&server, 1);
        assert!(fence > highest, "{fence} is not above {highest}");
        highest = count(&server, 2);
    }
}

#[test]
fn a_restored_hold_gets_its_full_lease_again_unless_holds_are_dropped() {
    let place = Place::new();
    let mut server = server!(Some(&place.path("data")));
    let lock = |key: &str, options: &[&str]| {
        let words = [&["locks", "acquire", key, "--scope", "local"], options].concat();
        let done = output(ctl(server.url(), &words));
        assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
        stdout(&done).trim().to_owned()
    };
    let id = lock("key", &["--release-after", "1h"]);
    let registered = output(ctl(server.url(), &["registry", "set", "web", "--ttl", "1h", "--value", "here"]));
    assert_eq!(registered.status.code(), Some(0), "{}", stderr(&registered));
    let object = place.back_up("backup");
    assert_eq!((&object["hold_count"], &object["session_count"]), (&2.into(), &2.into()), "{object}");
    let released = output(ctl(server.url(), &["locks", "release", "key", &id]));
    assert_eq!(released.status.code(), Some(0), "{}", stderr(&released));
    server.kill();

    place.object(&["restore", "backup", "kept"]);
    // The old server may have renewed the lease after the backup, so the rest of the lease at the backup does not count.
    let inspected = objects(&stdout(&place.run(&["log", "inspect", "kept", "--json"])));
    let hold = inspected.iter().find(|object| object["id"] == id.as_str()).unwrap();
    assert_eq!(hold["lease"], "anew", "{hold}");
    let server = server!(Some(&place.path("kept")), &["--http-listen", "127.0.0.1:0"]);
    let refused = output(ctl(server.url(), &["lock", "other", "--wait", "0s", "--", "true"]));
    assert_eq!(refused.status.code(), Some(123));
    assert!(stderr(&refused).contains("recovering"), "{}", stderr(&refused));
    let ready = readiness(&server);
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("grants resume in "), "{ready}");
    let inspected = output(ctl(server.url(), &["locks", "inspect", "key", "--json"]));
    let holder = &objects(&stdout(&inspected))[0]["holders"][0];
    assert_eq!(holder["id"], id.as_str(), "{holder}");
    assert!(holder["remaining_ms"].as_u64().unwrap() > 3_540_000, "{holder}");
    let extended = output(ctl(server.url(), &["locks", "extend", "key", &id]));
    assert_eq!(extended.status.code(), Some(0), "{}", stderr(&extended));

    let restored = place.object(&["restore", "backup", "dropped", "--drop-holds"]);
    assert_eq!((&restored["hold_count"], &restored["dropped_hold_count"]), (&1.into(), &1.into()));
    let server = server!(Some(&place.path("dropped")));
    let extended = output(ctl(server.url(), &["locks", "extend", "key", &id]));
    assert_eq!(extended.status.code(), Some(123), "{}", stderr(&extended));
    let entry = output(ctl(server.url(), &["registry", "get", "web"]));
    assert!(stdout(&entry).contains("here"), "{}", stderr(&entry));
}

/// Leaves a stopped server's log in `data`, and a backup of it.
fn backed_up(place: &Place) {
    let mut server = server!(Some(&place.path("data")));
    for key in ["a", "b", "c"] {
        let words = ["locks", "acquire", key, "--scope", "local", "--release-after", "1h"];
        assert_eq!(output(ctl(server.url(), &words)).status.code(), Some(0));
    }
    server.kill();
    place.back_up("backup");
}

#[test]
fn a_backup_is_for_its_owner_only_and_says_what_is_in_it() {
    let place = Place::new();
    fs::create_dir(place.path("backup")).unwrap();
    backed_up(&place);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.path("backup")), 0o700);
    let mut names = Vec::new();
    for entry in fs::read_dir(place.path("backup")).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["manifest.json", SEGMENT, "superblock.backup"]);
    let table = stdout(&place.run(&["backup", "verify", "backup"]));
    for row in
        ["\nholds           3\n", "\ncounters        3\n", "\nserver          not running\n", "\ntaken  "]
    {
        assert!(table.contains(row), "{table}");
    }
    assert_eq!(place.names(), ["backup", "data"]);
}

#[test]
fn a_server_does_not_start_on_a_backup() {
    let place = Place::new();
    backed_up(&place);
    let mut command = Command::new(crate::real::server_program::server_program());
    command.args(["--listen", "127.0.0.1:0", "--data-dir", "backup"]).current_dir(place.0.path());
    let refused = output(command);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        stderr(&refused),
        "waymaker-server: --data-dir: backup is a backup, and a server on it would repeat fences; use waymaker-ctl restore\n"
    );
    assert!(!place.path("backup/LOCK").exists(), "the backup is as it was");
}

#[test]
fn a_damaged_backup_is_refused_with_its_file_and_byte() {
    let place = Place::new();
    backed_up(&place);
    let manifest: Value =
        serde_json::from_slice(&fs::read(place.path("backup/manifest.json")).unwrap()).unwrap();
    let last_frame = manifest["last_lsn"].as_u64().unwrap() * BLOCK_LEN;
    let segment = |offset: u64| format!("{SEGMENT}, byte {offset}: ");
    for (file, offset, expected) in [
        (SEGMENT, 10, segment(0)),
        (SEGMENT, 2 * BLOCK_LEN + 100, segment(2 * BLOCK_LEN)),
        // Nothing in the log shows that the last frame was durable.
        (SEGMENT, last_frame + 100, segment(last_frame)),
        // Bytes behind the last frame.
        (SEGMENT, last_frame + BLOCK_LEN, segment(last_frame + BLOCK_LEN)),
        ("superblock.backup", 20, "superblock.backup, byte 0: the SHA-256".to_owned()),
    ] {
        let file = format!("backup/{file}");
        place.flip(&file, offset);
        for words in [&["backup", "verify", "backup"][..], &["restore", "backup", "new"]] {
            let (code, said) = place.refusal(words);
            assert_eq!(code, 1, "{said}");
            assert!(said.contains(&format!("the backup is damaged: {expected}")), "{file}, {offset}: {said}");
        }
        place.flip(&file, offset);
    }
    assert_eq!(place.run(&["backup", "verify", "backup"]).status.code(), Some(0));
    let mut wrong = manifest.clone();
    wrong["generation"] = 7.into();
    fs::write(place.path("backup/manifest.json"), wrong.to_string()).unwrap();
    assert!(
        place.refusal(&["backup", "verify", "backup"]).1.contains("manifest.json does not describe this log")
    );
    fs::write(place.path("backup/manifest.json"), manifest.to_string()).unwrap();
    File::options().write(true).open(place.path("backup").join(SEGMENT)).unwrap().set_len(5_000).unwrap();
    let (code, said) = place.refusal(&["backup", "verify", "backup"]);
    assert_eq!(code, 1);
    assert!(said.contains(&format!("{SEGMENT}, byte 5000: the file ends here")), "{said}");
    fs::remove_file(place.path("backup").join(SEGMENT)).unwrap();
    assert!(place.refusal(&["backup", "verify", "backup"]).1.contains(&format!("{SEGMENT} is missing")));
    fs::write(place.path("backup/manifest.json"), r#"{"version":2,"kind":"other"}"#).unwrap();
    let (code, said) = place.refusal(&["backup", "verify", "backup"]);
    assert_eq!(code, 1);
    assert!(said.contains("the backup has version 2, but this waymaker-ctl reads only 1"), "{said}");
    assert_eq!(place.names(), ["backup", "data"]);
}

#[test]
fn a_damaged_log_is_not_backed_up() {
    let place = Place::new();
    backed_up(&place);
    place.flip(&format!("data/{SEGMENT}"), 2 * BLOCK_LEN + 100);
    let (code, said) = place.refusal(&["backup", "other", "--data-dir", "data"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("{SEGMENT}, byte {}: ", 2 * BLOCK_LEN)), "{said}");
    fs::remove_file(place.path("data").join(SEGMENT)).unwrap();
    let (code, said) = place.refusal(&["backup", "other", "--data-dir", "data"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("{SEGMENT} is missing")), "{said}");
    assert_eq!(place.names(), ["backup", "data"]);
}

#[test]
fn a_backup_or_a_restore_never_replaces_anything() {
    let place = Place::new();
    backed_up(&place);
    let (code, said) = place.refusal(&["backup", "backup", "--data-dir", "data"]);
    assert_eq!(code, 125);
    assert!(said.contains("backup is not empty; choose a directory"), "{said}");
    let (code, said) = place.refusal(&["backup", "other", "--data-dir", "."]);
    assert_eq!(code, 125);
    assert!(said.contains("has no log; pass the data directory"), "{said}");
    assert!(place.refusal(&["restore", "data", "new"]).1.contains("data is not a backup"));
    let (code, said) = place.refusal(&["restore", "backup", "data"]);
    assert_eq!(code, 125);
    assert!(
        said.contains(&format!("data already has files of a log ({SEGMENT})"))
            || said.contains("(superblock)"),
        "{said}"
    );

    fs::create_dir_all(place.path("parent/data")).unwrap();
    let (code, said) = place.refusal(&["restore", "backup", "parent"]);
    assert_eq!(code, 125);
    assert!(said.contains("parent has other files (data); restore to the data_dir of the server"), "{said}");
    fs::remove_dir_all(place.path("parent")).unwrap();

    let dry = place.object(&["restore", "backup", "new", "--dry-run"]);
    assert_eq!(dry["dry_run"], true);
    assert_eq!(place.names(), ["backup", "data"]);
    // A directory that has no log yet, as the root of a file system.
    fs::create_dir_all(place.path("new/lost+found")).unwrap();
    place.object(&["restore", "backup", "new"]);
    let before = fs::read(place.path("new/superblock")).unwrap();
    let (code, said) = place.refusal(&["restore", "backup", "new"]);
    assert_eq!(code, 125);
    assert!(said.contains("new already has files of a log (superblock)"), "{said}");
    assert_eq!(fs::read(place.path("new/superblock")).unwrap(), before);

    let _server = server!(Some(&place.path("used")));
    let (code, said) = place.refusal(&["restore", "backup", "used"]);
    assert_eq!(code, 125);
    assert!(said.contains("used is in use (pid "), "{said}");
}

#[test]
fn a_backup_and_a_data_directory_are_not_inside_each_other() {
    let place = Place::new();
    backed_up(&place);
    for (words, inside) in [
        (&["backup", "data/backups/first", "--data-dir", "data"][..], "data/backups/first is inside data;"),
        (&["restore", "backup", "backup/data"], "backup/data is inside backup;"),
    ] {
        let (code, said) = place.refusal(words);
        assert!(code == 125 && said.contains(inside), "{code} {said}");
    }
    assert!(!place.path("data/backups").exists() && !place.path("backup/data").exists());
}

/// Names in a directory become durable by a file of the directory, which needs the right to read it.
#[test]
fn a_restore_needs_no_right_to_read_the_parent_and_a_backup_without_it_leaves_nothing() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can run a program as another user");
        return;
    }
    const USER: u32 = 65_534;
    let place = Place::new();
    backed_up(&place);
    let parent = place.path("parent");
    std::fs::create_dir_all(parent.join("data")).unwrap();
    chown(parent.join("data"), Some(USER), Some(USER)).unwrap();
    let set_mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(&place.path("."), 0o755);
    // All users may make files there, but not list them.
    set_mode(&parent, 0o733);
    for entry in std::fs::read_dir(place.path("backup")).unwrap() {
        set_mode(&entry.unwrap().path(), 0o644);
    }
    set_mode(&place.path("backup"), 0o755);
    let run = |words: &[&str]| {
        let mut command = ctl("waymaker://127.0.0.1:1", words);
        command.current_dir(place.path(".")).uid(USER).gid(USER).env_remove("WAYMAKER_DATA_DIR");
        output(command)
    };
    let restored = run(&["restore", "backup", "parent/data"]);
    assert!(restored.status.success(), "{}", stderr(&restored));
    let copied = run(&["backup", "parent/copy", "--data-dir", "parent/data"]);
    assert!(!copied.status.success() && !parent.join("copy").exists(), "{}", stderr(&copied));
    assert_eq!(std::fs::read_dir(&parent).unwrap().count(), 1, "nothing is left");
}

#[test]
fn old_segments_cannot_be_mixed_with_a_restored_log() {
    let place = Place::new();
    backed_up(&place);
    place.object(&["restore", "backup", "new"]);
    assert_ne!(superblock(&place.path("new")).log_id, superblock(&place.path("data")).log_id);
    fs::copy(place.path("data").join(SEGMENT), place.path("new").join(SEGMENT)).unwrap();
    let (code, said) = place.refusal(&["log", "verify", "new"]);
    assert_eq!(code, 1);
    assert!(said.contains("its log id differs"), "{said}");
}

#[test]
fn an_interrupted_backup_leaves_nothing() {
    let place = Place::new();
    backed_up(&place);
    // A file that takes minutes to read.
    let segment = File::options().write(true).open(place.path("data").join(SEGMENT)).unwrap();
    segment.set_len(1 << 40).unwrap();
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let mut command = ctl("waymaker://127.0.0.1:1", &["backup", "other", "--data-dir", "data"]);
        command.current_dir(place.0.path());
        let mut running = Running::start(command);
        eventually(|| place.names().iter().any(|name| name.starts_with(".waymaker-backup-")));
        running.signal(signal);
        assert_eq!(running.wait().code(), Some(code));
        assert_eq!(place.names(), ["backup", "data"]);
    }
}

#[test]
fn a_backup_or_a_restore_without_room_leaves_nothing() {
    let place = Place::new();
    backed_up(&place);
    for (limit_kib, words) in
        [(32, &["backup", "other", "--data-dir", "data"][..]), (4, &["restore", "backup", "new"])]
    {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("ulimit -f {limit_kib}; exec \"$@\""), "bash"]);
        command.arg(env!("CARGO_BIN_EXE_waymaker-ctl")).args(words).current_dir(place.0.path());
        let done = output(command);
        assert_eq!(done.status.code(), Some(125), "{:?}: {}", done.status, stderr(&done));
        assert!(stderr(&done).contains("ulimit -f"), "{}", stderr(&done));
        assert_eq!(place.names(), ["backup", "data"]);
    }
}
