//! Starts that must not succeed, and stops that must lose nothing.

use super::client::RigClient;
use super::disk::{MemoryDisk, can_mount};
use super::load::Load;
use super::site::{any_shape, has, judge, on, start, wrap};
use crate::durable::local;
use crate::harness::{Client, Server, refused, wait_for, wait_until, with_short_lease};
use crate::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::OpenOptions;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use waymaker_log::frame::FORMAT_VERSION;
use waymaker_log::{BLOCK_LEN, SUPERBLOCK_FILE_LEN};
use waymaker_protocol::{Extend, Request, Response};

/// What a server says that does not start on this directory.
fn refusal(directory: &Path) -> String {
    let directory = directory.to_str().expect("text");
    let (status, said) = refused(&["--data-dir", directory, "--log-segment-len", "1048576"]);
    assert!(!status.success(), "{said}");
    said
}

/// A directory whose log has some frames, and no server any more.
fn written() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let mut server = start(place.path(), &["--workers", "1"]);
    let mut client = server.client("somebody");
    for key in (0..10_u8).map(|key| [key]) {
        let acquire = local(&key).with_terms(|terms| terms.lease_ms = 600_000);
        client.ask(Request::Acquire(acquire)).granted();
    }
    server.signal("KILL");
    server.wait();
    place
}

/// Changes some bytes of a file.
fn patch(path: &Path, offset: u64, change: impl FnOnce(&mut [u8])) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let mut block = [0; BLOCK_LEN];
    file.read_exact_at(&mut block, offset).expect("a block");
    change(&mut block);
    file.write_all_at(&block, offset).expect("it can be written");
}

#[test]
fn a_second_server_exits_at_once_and_names_the_first() {
    let place = tempfile::tempdir().expect("a directory");
    let server = start(place.path(), &[]);
    let said = refusal(place.path());
    for word in [&format!("pid {}", server.id()), server.address("binary")] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    server.assert_serves();
}

#[test]
fn a_second_server_exits_at_once_while_the_first_reads_its_log() {
    if !has("strace") {
        return skip("a second server during recovery", "there is no strace");
    }
    let place = written();
    let lock = place.path().join("LOCK");
    let before = std::fs::read_to_string(&lock).expect("text");
    // A signal stops the first server at its first sync, before it reads its log.
    let stops = ["strace", "-D", "-f", "-o", "/dev/null", "-e", "trace=fsync"];
    let stops = [&stops[..], &["-e", "inject=fsync:signal=SIGSTOP:when=1"]].concat();
    let command = &mut wrap(&stops, &on(place.path(), &[]));
    std::thread::scope(|scope| {
        let first = scope.spawn(move || Server::start_with(command, None));
        let owner = wait_for("the first server takes the lock", || {
            let text = std::fs::read_to_string(&lock).expect("text");
            (text != before && text.starts_with("pid ")).then_some(text)
        });
        let said = refusal(place.path());
        assert!(said.contains(&owner), "no {owner} in {said}");
        assert!(!first.is_finished(), "the first one still reads");
        let pid = owner.split_whitespace().nth(1).and_then(|pid| pid.parse().ok()).expect("a process");
        wait_until("the first server starts", || {
            kill(Pid::from_raw(pid), Signal::SIGCONT).expect("it is our child");
            first.is_finished()
        });
        first.join().expect("it starts").assert_serves();
    });
}

#[test]
fn an_unwritable_directory_is_named_in_the_error() {
    if !can_mount("a read-only directory", "mount") {
        return;
    }
    let disk = MemoryDisk::new(16);
    let directory = disk.path().join("data");
    std::fs::create_dir(&directory).expect("a directory");
    disk.forbid_writes();
    let said = refusal(&directory);
    assert!(
        said.contains("data-dir: cannot write to") && said.contains(disk.path().to_str().unwrap()),
        "{said}"
    );
}

#[test]
fn a_log_of_a_newer_format_is_refused_and_left_unchanged() {
    let place = written();
    let path = place.path().join("superblock");
    for offset in (0..SUPERBLOCK_FILE_LEN).step_by(BLOCK_LEN) {
        patch(&path, offset as u64, |block| {
            // The version stands behind the magic, the checksum at the end, in every version.
            block[4] = FORMAT_VERSION as u8 + 1;
            let checksum = crc32c::crc32c(&block[..BLOCK_LEN - 4]);
            block[BLOCK_LEN - 4..].copy_from_slice(&checksum.to_le_bytes());
        });
    }
    let before = std::fs::read(&path).expect("a file");
    let said = refusal(place.path());
    let newer = format!("superblock has format version {}", FORMAT_VERSION + 1);
    assert!(said.contains(&newer), "{said}");
    assert_eq!(std::fs::read(&path).expect("a file"), before);
}

#[test]
fn damage_in_durable_data_is_reported_by_file_and_offset() {
    let place = written();
    let name = "segment-0000000000000001";
    // The third frame; later ones say that it was durable.
    let offset = 3 * BLOCK_LEN as u64;
    patch(&place.path().join(name), offset, |block| block[100] ^= 1);
    let said = refusal(place.path());
    assert!(said.contains(name) && said.contains(&offset.to_string()), "{said}");
}

#[test]
fn a_stop_under_load_loses_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    let load = Load::new(RigClient::run);
    for _ in 0..3 {
        let mut server = start(place.path(), &any_shape());
        load.turn_to(&server);
        assert!(load.wait_for_grants(100, &mut server), "the server ended by itself");
        server.signal("TERM");
        assert!(server.wait().success());
    }
    let log = tempfile::NamedTempFile::new().expect("a file for the log");
    let stderr = log.reopen().expect("a file for the log");
    let mut command = on(place.path(), &any_shape());
    let command = command.env("WAYMAKER_LOG", "info").env("NO_COLOR", "1").stderr(stderr);
    let mut server = Server::start_with(command, Some(log));
    server.log_places(&[&["recovered the log", "clean=true"]]);
    load.turn_to(&server);
    assert!(load.wait_for_grants(50, &mut server), "the server ended by itself");
    judge("stops", &load.stop());
}

#[test]
fn a_stalled_server_loses_no_durable_hold_whose_client_renews() {
    with_short_lease(500, |lease| {
        let place = tempfile::tempdir().expect("a directory");
        let server = start(place.path(), &["--workers", "2"]);
        let mut client = server.client("holder");
        let holds: Vec<_> = (0..50_u8)
            .map(|key| {
                let key = [b'k', key];
                let acquire = local(&key).with_terms(|terms| terms.lease_ms = 600_000);
                client.ask(Request::Acquire(acquire)).granted()
            })
            .collect();
        let renew = |client: &mut Client<TcpStream>, lease_ms| {
            for hold in &holds {
                client.send(Request::Extend(Extend { id: hold.id, lease_ms, key: None, own: false }));
            }
        };
        let read = |client: &mut Client<TcpStream>| {
            for hold in &holds {
                let answer = client.receive();
                let response = answer.response();
                assert!(matches!(response, Response::Extended(_)), "{response:?} of {hold:?}");
            }
        };
        lease.begins();
        renew(&mut client, lease.ms());
        read(&mut client);
        server.pause();
        lease.is_over();
        renew(&mut client, lease.ms());
        // By the clock the lease is over, three times.
        std::thread::sleep(3 * lease.length());
        // So that this test may be slow from here on.
        renew(&mut client, 600_000);
        server.resume();
        read(&mut client);
        read(&mut client);
    });
}
