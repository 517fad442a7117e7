//! Measures when the leases of bystanders end during an abuse, and how long their requests take.
//!
//! The server has one worker, so everything that the abuse makes it do comes before the bystander's requests or the end of its leases.
//! The times are those of the server: a grant says when it was decided. Other processes on the machine delay the server too. So lateness
//! counts only for the share of the time in which the workers had a processor, and the best of some measurements counts.

use crate::harness::{Client, Server, SetWhenDropped, WorkerTime};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{Acquire, AcquireTerms, Granted, Release, Request};

/// How late a lease may end if the workers always have a processor.
const LATE_MAX_MS: f64 = 100.0;
/// The lease of a bystander.
const LEASE_MS: u32 = 400;
/// Leases that end during one measurement, one after the other.
const LEASE_COUNT: u64 = 4;
/// Time between two of them.
const STAGGER: Duration = Duration::from_millis(40);
/// Measurements of which one must be within the bound.
const MEASUREMENTS_MAX: usize = 4;

/// Measurements of one bystander.
#[derive(Clone, Copy, Debug)]
struct Noticed {
    /// How late the latest lease ended.
    late_ms: u64,
    /// The part of the time in which the workers ran, of the time in which they had something to do.
    share: f64,
    /// Times from a request to its answer.
    median: Duration,
    longest: Duration,
}

/// Asserts that leases of bystanders end in time while `abuse` runs in a thread of its own. `abuse` runs until its argument is true.
pub(super) fn assert_leases_end_in_time(what: &str, server: &Server, abuse: impl Fn(&AtomicBool) + Sync) {
    let mut measured = Vec::new();
    for _ in 0..MEASUREMENTS_MAX {
        let noticed = measure(server, &abuse);
        let Noticed { late_ms, share, median, longest } = noticed;
        let text = format!(
            "{what:<44} leases end {late_ms:>5} ms late with {:>3.0} % of the processor; \
             requests: median {median:>9.1?}, longest {longest:.1?}",
            share * 100.0
        );
        println!("{text}");
        if late_ms as f64 * share <= LATE_MAX_MS {
            return;
        }
        measured.push(text);
    }
    panic!("{}\nat most {LATE_MAX_MS} ms", measured.join("\n"));
}

fn measure(server: &Server, abuse: &(impl Fn(&AtomicBool) + Sync)) -> Noticed {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stops = SetWhenDropped(&stop);
        scope.spawn(|| abuse(&stop));
        // The abuse has begun to work.
        thread::sleep(STAGGER);
        let asking = scope.spawn(|| ask_until(server, &stop));
        let begin = WorkerTime::of(server);
        let late_ms = lateness(server);
        let share = WorkerTime::of(server).share_since(&begin);
        stop.store(true, Ordering::Relaxed);
        let (median, longest) = asking.join().expect("the bystander is served");
        Noticed { late_ms, share, median, longest }
    })
}

/// Returns how late the latest of some leases ends, in milliseconds.
fn lateness(server: &Server) -> u64 {
    let [mut holder, mut waiter] = ["holder", "waiter"].map(|owner| server.client(owner));
    let key = |number: u64| number.to_le_bytes();
    let ends: Vec<u64> = (0..LEASE_COUNT)
        .map(|number| {
            let lease_ms = LEASE_MS;
            let asked = holder.send(Request::Acquire(Acquire {
                key: &key(number),
                terms: AcquireTerms { lease_ms, ..AcquireTerms::default() },
                ..Acquire::default()
            }));
            // If this process was kept waiting, the end of an earlier lease comes first.
            let mut received = std::iter::repeat_with(|| holder.receive());
            let held = received.find(|received| received.number() == asked).expect("an answer");
            let wait_ms = WAIT_FOREVER_MS;
            waiter.send(Request::Acquire(Acquire {
                key: &key(number),
                terms: AcquireTerms { wait_ms, ..AcquireTerms::default() },
                ..Acquire::default()
            }));
            thread::sleep(STAGGER);
            held.granted().stamp_ms + u64::from(LEASE_MS)
        })
        .collect();
    let granted: Vec<Granted> = ends.iter().map(|_| waiter.receive().granted()).collect();
    for granted in &granted {
        waiter.ask(Request::Release(Release { id: granted.id, key: None, own: false }));
    }
    let late = granted
        .iter()
        .zip(ends)
        .map(|(granted, end)| granted.stamp_ms.checked_sub(end).expect("no lease ends early"));
    late.max().expect("some leases")
}

/// Asks one request after the other. Returns the median and the longest time to an answer.
fn ask_until(server: &Server, stop: &AtomicBool) -> (Duration, Duration) {
    let mut client: Client<TcpStream> = server.client("asking");
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) || times.is_empty() {
        let begin = Instant::now();
        let granted = client.acquire(b"asked for", 60_000);
        times.push(begin.elapsed());
        client.release(granted.id);
        thread::sleep(Duration::from_millis(2));
    }
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() - 1])
}
