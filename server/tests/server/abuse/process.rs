//! What a server takes of its machine.

use crate::harness::Server;
use std::time::{Duration, Instant};

/// Ticks of a processor in one second, as the kernel counts them for everybody.
const TICKS_PER_SECOND: f64 = 100.0;

/// Bytes of memory that a server has.
pub(super) fn memory_len(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Which part of one core a server takes for as long as this goes on.
pub(super) fn core_share(server: &Server, length: Duration) -> f64 {
    let (begun, before) = (Instant::now(), ticks(server));
    std::thread::sleep(length);
    (ticks(server) - before) / TICKS_PER_SECOND / begun.elapsed().as_secs_f64()
}

fn ticks(server: &Server) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("its name is in brackets");
    let field =
        |number: usize| fields.split_ascii_whitespace().nth(number).and_then(|text| text.parse::<f64>().ok());
    field(11).zip(field(12)).map(|(user, system)| user + system).expect("times")
}
