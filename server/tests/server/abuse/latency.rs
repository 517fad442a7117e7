//! Measures how much longer the requests of a bystander take while others do harm, in a release build on a quiet machine.
//! `.ci/long bystanders` runs it, without and with rights.
//!
//! The machine also runs the abuser and the bystander. The abuser gets the processor only when the others do not need it, and the bystander
//! whenever it needs it, as if both ran elsewhere. This needs root.

use super::every_front_end::{FLOODS, encrypted_server, run};
use super::{every_opcode, server};
use crate::harness::{Client, Relays, Server, SetWhenDropped, WATCHDOG, run_first, yield_to_others};
use nix::unistd::gettid;
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};
use waymaker_protocol::SessionRequest;

/// How much longer than without the abuse the slowest percent of requests may take.
const SLOWER_MAX: Duration = Duration::from_millis(2);
/// Slices with the abuse, and slices without.
const ROUNDS: usize = 4;
const SLICE: Duration = Duration::from_millis(300);
/// Time after the begin of an abuse that is not measured.
const WARMUP: Duration = Duration::from_millis(20);
/// Time between two requests of the bystander.
const PAUSE: Duration = Duration::from_micros(200);
/// Measurements of which one must be within the bound.
const MEASUREMENTS_MAX: usize = 4;

#[test]
#[ignore = "needs a release build and a quiet machine: .ci/long bystanders"]
fn abuse_of_any_front_end_delays_bystanders_by_less_than_two_milliseconds() {
    let mut slow = Vec::new();
    for (how, server) in [("plain", server()), ("TLS", encrypted_server())] {
        for (name, begin) in FLOODS {
            slow.extend(judge(&format!("{name}, {how}"), &server, &|stop| run(&server, begin, stop)));
        }
        every_opcode::stock(&server);
        every_opcode::flood_each(&server, how, |what, abuse| slow.extend(judge(what, &server, abuse)));
    }
    assert!(slow.is_empty(), "more than {SLOWER_MAX:?} slower:\n{}", slow.join("\n"));
}

/// Returns the best measurement as text if the bystander was delayed too much.
fn judge(what: &str, server: &Server, abuse: &(dyn Fn(&AtomicBool) + Sync)) -> Option<String> {
    let mut best: Option<[Duration; 2]> = None;
    for _ in 0..MEASUREMENTS_MAX {
        let [idle, during] = measure(server, abuse);
        let text = format!("{what:<48} p99 idle {idle:>9.1?}, during the abuse {during:>9.1?}");
        println!("{text}");
        if during <= idle + SLOWER_MAX {
            return None;
        }
        best = best.into_iter().chain([[idle, during]]).min_by_key(|[idle, during]| *during - *idle);
    }
    best.map(|[idle, during]| format!("{what}: p99 {idle:.1?} idle, {during:.1?} during the abuse"))
}

/// Returns the 99th percentile without and with the abuse.
fn measure(server: &Server, abuse: &(dyn Fn(&AtomicBool) + Sync)) -> [Duration; 2] {
    server.yield_relays();
    let relays = server.another_relay("binary");
    relays.iter().for_each(Relays::run_first);
    run_first(gettid());
    let address = relays.as_ref().and_then(|relays| relays.address("binary"));
    let socket = TcpStream::connect(address.unwrap_or(server.address("binary"))).expect("it accepts");
    socket.set_nodelay(true).expect("a socket");
    socket.set_read_timeout(Some(WATCHDOG)).expect("a socket");
    let mut bystander = Client::new(socket);
    bystander.hello("bystander", SessionRequest::None);
    let [mut idle, mut during] = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        ask(&mut bystander, SLICE, &mut idle);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stops = SetWhenDropped(&stop);
            scope.spawn(|| {
                yield_to_others(gettid());
                abuse(&stop);
            });
            ask(&mut bystander, WARMUP, &mut Vec::new());
            ask(&mut bystander, SLICE, &mut during);
        });
    }
    [idle, during].map(|mut times| {
        times.sort_unstable();
        times[times.len() * 99 / 100]
    })
}

/// Acquires and releases a key for so long, and adds the time of each request.
fn ask(bystander: &mut Client<TcpStream>, length: Duration, times: &mut Vec<Duration>) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        let begin = Instant::now();
        let granted = bystander.acquire(b"asked for", 60_000);
        times.push(begin.elapsed());
        bystander.release(granted.id);
        thread::sleep(PAUSE);
    }
}
