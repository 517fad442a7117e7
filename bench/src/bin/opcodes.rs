//! Prints the most expensive poll of a worker that one connection can cause with each request, and the most
//! expensive single request. Fails if a poll takes more than a millisecond of CPU time, or a request more than
//! half a millisecond.
//!
//! `opcodes [PART OF A NAME]` measures all requests, or some, several times each. Each request counts with its
//! cheapest run, so that interruptions by other programs do not count. Run it with `MIMALLOC_ALLOW_THP=0`, because
//! clearing a huge page can take 5 ms.

use std::process::ExitCode;
use waymaker_bench::opcodes::{Costs, Server, Stock, loads};

/// The allocator of waymaker-server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RUNS: u32 = 5;
const POLLS_PER_RUN: u32 = 30;
const POLL_MAX_NS: u32 = 1_000_000;
const REQUEST_MAX_NS: u32 = 500_000;
/// Requests that may take longer. Each has 131 KiB, which are checked, sorted and copied in one step. Such a
/// request is served alone, so the limit of a poll still holds.
const LONGER: [&str; 3] = [
    "ACQUIRE_KEYS of 1,024 keys of 125 bytes",
    "ACQUIRE_SET of 65,536 segments",
    "ACQUIRE_SET of 65,536 segments, repeated",
];
const LONGER_MAX_NS: u32 = 750_000;

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut server = Server::with_stock(&Stock::LARGE);
    let mut is_within = true;
    println!(
        "{:<50} {:>10} {:>10} {:>10} {:>10}",
        "request", "poll us", "responses", "wall us", "request us"
    );
    for load in loads(&mut server) {
        if !load.name.contains(&wanted) {
            continue;
        }
        let mut kept = server.measure(&load, POLLS_PER_RUN);
        for _ in 1..RUNS {
            let run = server.measure(&load, POLLS_PER_RUN);
            keep_cheaper(&mut kept, &run);
        }
        let Costs { poll, poll_response_count, request } = kept;
        let request_max_ns = if LONGER.contains(&load.name) { LONGER_MAX_NS } else { REQUEST_MAX_NS };
        let is_dear = poll.processor_ns > POLL_MAX_NS || request.processor_ns > request_max_ns;
        println!(
            "{:<50} {:>10} {poll_response_count:>10} {:>10} {:>10}{}",
            load.name,
            poll.processor_ns / 1000,
            poll.wall_ns / 1000,
            request.processor_ns / 1000,
            if is_dear { "  over the limit" } else { "" },
        );
        is_within &= !is_dear;
    }
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn keep_cheaper(kept: &mut Costs, run: &Costs) {
    if run.poll.processor_ns < kept.poll.processor_ns {
        (kept.poll, kept.poll_response_count) = (run.poll, run.poll_response_count);
    }
    if run.request.processor_ns < kept.request.processor_ns {
        kept.request = run.request;
    }
}
