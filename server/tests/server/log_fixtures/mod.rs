//! Logs of released servers: the real binary writes them, and today's server serves copies.
//!
//! `WAYMAKER_REWRITE_LOG_FIXTURES=1` writes the fixtures of a format version that was not released yet.

mod promised;
mod serving;
mod story;

use self::story::Story;
use crate::durable::local;
use crate::fixture::{Fact, NAMES, files_of, folder, pack, recovered};
use crate::harness::{Server, command, wait_until};
use std::path::Path;
use std::process::{Command, Stdio};
use waymaker_log::frame::FORMAT_VERSION;
use waymaker_log::{BLOCK_LEN, FrameHeader, SegmentHeader};
use waymaker_protocol::{Acquire, NamespaceKind, Request, Response};

const REWRITE: &str = "WAYMAKER_REWRITE_LOG_FIXTURES";
/// The smallest segments, which few frames fill, where a snapshot is wanted; else segments with room for the whole story.
const SEGMENT_LENS: [&str; 2] = ["65536", "524288"];
/// The boot of the machine that fixtures come from: no real one, so that every start begins their leases anew.
const BOOT_ID: &str = "00000000-0000-4000-8000-000000000001";
/// The key of the grant that is torn.
const TORN_KEY: &[u8] = b"torn";
/// Lease of the holds before the damage.
const SHORT_LEASE_MS: u32 = 10;
/// How much of the torn frame is left: its header, which checks, and the beginning of a record.
const TORN_FRAME_LEN: usize = 100;

/// The command of a server that leaves the fixture with this name in this directory.
fn command_for(name: &str, directory: &Path) -> Command {
    let path = directory.to_str().expect("text");
    let segment_len = SEGMENT_LENS[usize::from(!name.ends_with("compacted"))];
    let mut command =
        command(&["--workers", "2", "--drain", "10ms", "--data-dir", path, "--log-segment-len", segment_len]);
    command.env("WAYMAKER_LOG", "error").stderr(Stdio::inherit());
    command
}

/// The same in a mount namespace of its own, in which the machine says that it was booted as `BOOT_ID`.
fn in_another_boot(command: &Command, boot_id: &Path) -> Command {
    let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let mut wrapped = Command::new("unshare");
    wrapped.args(["--mount", "sh", "-c", script]).arg(boot_id);
    wrapped.arg(command.get_program()).args(command.get_args());
    wrapped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    wrapped.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    wrapped
}

/// A data directory, and the facts that a later server must find in it.
struct Left {
    files: Vec<(String, Vec<u8>)>,
    facts: Vec<Fact>,
}

/// Has a real server, started by this command, leave the fixture with this name behind.
fn leave(name: &str, directory: &Path, command: &mut Command) -> Left {
    let (is_stopped, is_compacted, is_torn) =
        (name.starts_with("stopped"), name.ends_with("compacted"), name.ends_with("torn"));
    let accepts_damage = name == "damage-accepted";
    if accepts_damage {
        damage(directory, command);
        command.args(["--accept-damage"]);
    }
    let mut server = Server::start_with(command, None);
    if accepts_damage {
        wait_until("the lost leases expire", || grants(&server));
    }
    let mut story = Story::begin(&server);
    if is_compacted {
        story.fill(directory);
        story.go_on();
    }
    if is_torn {
        story.acquire_to_be_torn(TORN_KEY);
    }
    let (promised, connections) = story.end();
    server.signal(if is_stopped { "TERM" } else { "KILL" });
    assert_eq!(server.wait().success(), is_stopped);
    drop(connections);
    let mut files = files_of(directory);
    if is_torn {
        tear(&mut files);
    }
    let end = match (is_stopped, is_torn) {
        (true, _) => "stopped",
        (false, true) => "torn",
        (false, false) => "whole",
    };
    // Records before accepted damage are kept as a snapshot.
    let snapshot = if is_compacted || accepts_damage { "present" } else { "none" };
    let log = Fact::new("log").with("end", end).with("snapshot", snapshot);
    Left { files, facts: promised.facts(is_stopped, log) }
}

/// Whether the server grants anything. An ephemeral lock leaves nothing in the log.
fn grants(server: &Server) -> bool {
    let mut client = server.client_of(NamespaceKind::Flat, "somebody");
    let answer = client.ask(Request::Acquire(Acquire { key: b"probe", ..Acquire::default() }));
    matches!(answer.response(), Response::Granted(_))
}

/// Has a first server leave a log, and damages a durable frame of it. Leases are short, because a server that accepts the
/// damage waits for them.
fn damage(directory: &Path, command: &mut Command) {
    let mut server = Server::start_with(command, None);
    for key in [b"1", b"2", b"3"] {
        let acquire = local(key).with_terms(|terms| terms.lease_ms = SHORT_LEASE_MS);
        // On a slow machine the lease expires before the next answer, so each grant has a connection of its own.
        server.client("before the damage").ask(Request::Acquire(acquire)).granted();
    }
    server.signal("KILL");
    server.wait();
    let path = directory.join("segment-0000000000000001");
    let mut segment = std::fs::read(&path).expect("a segment");
    segment[2 * BLOCK_LEN + TORN_FRAME_LEN] ^= 1;
    std::fs::write(&path, segment).expect("a segment");
}

/// Leaves only the beginning of the frame that has the torn grant, and nothing behind it.
fn tear(files: &mut [(String, Vec<u8>)]) {
    let (_, segment) =
        (files.iter_mut().rev().find(|(name, _)| name.starts_with("segment-"))).expect("a segment");
    let origin = SegmentHeader::decode(segment).expect("a segment").origin();
    let has_grant = |block: u32| {
        let records = FrameHeader::decode(&origin, segment, block).ok()?.records(&origin, segment).ok()?;
        let mut records = records;
        records.any(|record| record.windows(TORN_KEY.len()).any(|window| window == TORN_KEY)).then_some(block)
    };
    let block = (1..(segment.len() / BLOCK_LEN) as u32).find_map(has_grant).expect("the frame of the grant");
    segment[block as usize * BLOCK_LEN + TORN_FRAME_LEN..].fill(0);
}

fn lines(facts: &[Fact]) -> String {
    facts.iter().map(|fact| fact.line() + "\n").collect()
}

/// The lines of facts, without the rest of the lease of plain holds of scope Ephemeral: it depends on the time before the stop.
fn lines_without_rests(facts: &[Fact]) -> String {
    let without_lease = |line: &str| -> String {
        let is_rest = line.contains(" mode=") && line.ends_with(" scope=ephemeral");
        line.split(' ').filter(|word| !is_rest || !word.starts_with("lease=")).collect::<Vec<_>>().join(" ")
            + "\n"
    };
    lines(facts).lines().map(without_lease).collect()
}

#[test]
fn the_log_of_this_server_contains_everything_it_promised() {
    for name in NAMES {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("data");
        let Left { files, facts } = leave(name, &directory, &mut command_for(name, &directory));
        assert_eq!(lines_without_rests(&recovered(&files)), lines_without_rests(&facts), "{name}");
    }
}

/// Writes the fixtures if `WAYMAKER_REWRITE_LOG_FIXTURES` is set. Needs root: a mount namespace shows another boot id.
#[test]
fn the_fixtures_of_an_unreleased_version_can_be_written() {
    if std::env::var_os(REWRITE).is_none() {
        return;
    }
    let folder = folder(FORMAT_VERSION);
    assert!(!folder.join("files.txt").exists(), "{} is released: its files are frozen", folder.display());
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in NAMES {
        let place = tempfile::tempdir().expect("a directory");
        let (directory, boot_id) = (place.path().join("data"), place.path().join("boot_id"));
        std::fs::write(&boot_id, BOOT_ID).expect("a file");
        let Left { files, facts } =
            leave(name, &directory, &mut in_another_boot(&command_for(name, &directory), &boot_id));
        let found = recovered(&files);
        assert_eq!(lines_without_rests(&found), lines_without_rests(&facts), "{name}");
        let about =
            format!("# Facts that a server must find in {name}.hex: its clients had been promised them.\n");
        std::fs::write(folder.join(name).with_extension("hex"), pack(&files)).expect("a file");
        // Only the log knows the rest of a plain lease of scope Ephemeral.
        std::fs::write(folder.join(name).with_extension("txt"), about + &lines(&found)).expect("a file");
    }
}
