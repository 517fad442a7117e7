//! Measures how much an abuse delays other clients: the work of the server between their request and its answer.
//!
//! The server has one worker, so all work between the request of a bystander and the answer delays that bystander. Work is
//! processor time of the server. Other processes that compete for the processors change it little. If they use the network, the
//! kernel charges some of their packets to the server, which only adds: so the best of some measurements counts.
//!
//! Each request is measured alone. The server is paused while the abuse and the bystander write. Then the server runs until its
//! answer to the bystander pauses it again.

use super::http2::{Answer, Http2};
use super::pause::pause_at_answers;
use super::web_socket::{LOCK, RELEASE, TEXT, WebSocket, frame};
use crate::harness::{Client, Received, Server, let_run, processor_time, wait_until_rested};
use prost::Message;
use std::net::TcpStream;
use std::time::Duration;
use waymaker_proto::waymaker::{
    Lease, MultiLockKey, MultiLockRequest, MultiLockResponse, UnLockRequest, UnLockResponse,
};
use waymaker_protocol::{Acquire, AcquireTerms, Release, Request};

/// Measured rounds; each has seven requests of a bystander.
const ROUNDS: usize = 30;
/// Calls in one batch, whose mean work is the unit of [`Delay`].
const CALLS: u32 = 100;
/// Batches of calls; their median counts.
const BATCHES: usize = 9;
/// Work of a flooded server after an answer, in which the turn of the bystander ends.
const WORK_AFTER_ANSWER: Duration = Duration::from_millis(1);
/// Measurements of which one must be within the bounds.
const MEASUREMENTS_MAX: usize = 4;

/// Upper bounds of the other work that the server does before it answers a bystander. The unit is the work of one gRPC call that
/// locks nothing, so a slow processor does not change the figures.
///
/// The goal is that no request delays a bystander by more than 2 ms, which is about 200 calls of a server that is compiled for
/// speed. Each bound is about four times the measured delay, because processor time varies with the state of the caches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    /// Bound of the median.
    median_calls: u32,
    /// Bound of the 75th percentile. Many samples above it include packets of other processes, or time that the host of a virtual
    /// machine took away.
    p75_calls: u32,
    /// The bounds are for all requests together, instead of for each kind of request.
    is_of_all_kinds: bool,
}

impl Delay {
    /// Bounds in calls, for each kind of request: a delay of few kinds would not show among all requests.
    pub(super) const fn of_calls(median_calls: u32, p75_calls: u32) -> Self {
        Self { median_calls, p75_calls, is_of_all_kinds: false }
    }

    /// Bounds in calls, for all requests together. The slowest kind varies by more than the work of some calls.
    pub(super) const fn of_all_kinds(median_calls: u32, p75_calls: u32) -> Self {
        Self { is_of_all_kinds: true, ..Self::of_calls(median_calls, p75_calls) }
    }
}

/// Asserts that bystanders are delayed by at most `most` during an abuse. `abuse` runs before each request of a bystander, while
/// the server is paused, and writes as much as the sockets take.
pub(super) fn assert_abuse_delays(server: &Server, most: Delay, mut abuse: impl FnMut()) {
    let idle = ask_idle(server);
    let mut bystander = Bystander::connect(server);
    judge(|| {
        let asked = bystander.ask(&mut || {
            // The pause at the last answer makes the turn of the bystander seem long. Its next request must not arrive in this turn.
            let_run(server, WORK_AFTER_ANSWER);
            abuse();
        });
        compare(&idle, &asked, most)
    });
}

/// Asserts that bystanders are delayed by at most `most` while nothing else happens. Each measurement is compared with one right
/// before it, as the processor itself may become slower.
pub(super) fn assert_idle_delays(server: &Server, most: Delay) {
    judge(|| {
        let idle = ask_idle(server);
        compare(&idle, &Bystander::connect(server).ask(&mut || {}), most)
    });
}

/// Measures the requests of a bystander while the server has no other work.
pub(super) fn ask_idle(server: &Server) -> Measurement {
    wait_until_rested(server);
    let call = work_of_call(server);
    Measurement { call, ..Bystander::connect(server).ask(&mut || {}) }
}

/// Asserts that bystanders are delayed by at most `most`, compared with the `idle` server.
pub(super) fn assert_delayed(server: &Server, idle: &Measurement, most: Delay) {
    let mut bystander = Bystander::connect(server);
    judge(|| compare(idle, &bystander.ask(&mut || {}), most));
}

/// Asserts that one of some measurements is within the bounds.
fn judge(mut measure: impl FnMut() -> (bool, String)) {
    let mut measured = Vec::new();
    while measured.len() < MEASUREMENTS_MAX {
        let (is_within, text) = measure();
        println!("{text}");
        if is_within {
            return;
        }
        measured.push(text);
    }
    panic!("{}", measured.join("\n"));
}

/// Returns whether the delay is within the bounds, and its description.
fn compare(idle: &Measurement, asked: &Measurement, most: Delay) -> (bool, String) {
    let own = idle.work.each_ref().map(|kind| percentile(kind.iter().copied(), 50));
    let kinds = asked.work.iter().zip(&own);
    let kinds = kinds.map(|(kind, own)| kind.iter().map(move |work| work.saturating_sub(*own)));
    let delay = |percent| {
        if most.is_of_all_kinds {
            percentile(kinds.clone().flatten(), percent)
        } else {
            kinds.clone().map(|kind| percentile(kind, percent)).max().expect("some kinds")
        }
    };
    let calls = |delay: Duration| delay.div_duration_f64(idle.call);
    let (median, p75) = (delay(50), delay(75));
    let text = format!(
        "other work before a request: median {median:?}, {:.1} of at most {} calls; 75th percentile {p75:?}, {:.1} of at most {} calls; 99th {:?}; a call is {:?}",
        calls(median),
        most.median_calls,
        calls(p75),
        most.p75_calls,
        delay(99),
        idle.call
    );
    (calls(median) <= most.median_calls.into() && calls(p75) <= most.p75_calls.into(), text)
}

/// Processor time of one gRPC call that locks nothing, as part of a batch.
fn work_of_call(server: &Server) -> Duration {
    let mut client = Http2::connect(server);
    client.assert_serves();
    let call = MultiLockRequest::default();
    let batches = (0..BATCHES).map(|_| {
        server.pause();
        let before = processor_time(server);
        let streams = (0..CALLS).map(|_| client.send("/waymaker.WaymakerService/MultiLock", &call));
        let last = streams.last().expect("some calls");
        server.resume();
        client.answer(last);
        server.pause();
        let work = processor_time(server) - before;
        server.resume();
        work / CALLS
    });
    percentile(batches, 50)
}

fn percentile(durations: impl Iterator<Item = Duration>, percent: usize) -> Duration {
    let mut sorted: Vec<Duration> = durations.collect();
    sorted.sort_unstable();
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// Kinds of requests of a bystander: two over gRPC, two over a WebSocket, two in the binary protocol.
const KIND_COUNT: usize = 6;

/// Measured requests of one bystander.
#[derive(Debug, Default)]
pub(super) struct Measurement {
    /// Work of the server from each request to its answer, by kind of request.
    work: [Vec<Duration>; KIND_COUNT],
    /// Work of one gRPC call that locks nothing; 0 unless the server was idle.
    call: Duration,
}

/// A client that does nothing wrong.
struct Bystander<'a> {
    server: &'a Server,
    grpc: Http2,
    locktopus: WebSocket,
    binary: Client<TcpStream>,
}

impl<'a> Bystander<'a> {
    fn connect(server: &'a Server) -> Self {
        let (grpc, locktopus) = (Http2::connect(server), WebSocket::connect(server, "bystander"));
        let binary = server.client("bystander");
        for socket in [&grpc.socket, &locktopus.socket, &binary.socket] {
            pause_at_answers(server, socket);
        }
        binary.socket.set_nonblocking(true).expect("a socket");
        let mut bystander = Self { server, grpc, locktopus, binary };
        // Work that the server does once for a connection is not work of a request.
        bystander.ask(&mut || {});
        bystander
    }

    fn ask(&mut self, abuse: &mut dyn FnMut()) -> Measurement {
        let mut asked = Measurement::default();
        self.server.pause();
        for _ in 0..ROUNDS {
            let (work, granted) = self.lock_multi_key(abuse);
            asked.work[0].push(work);
            for lease in granted.leases {
                asked.work[1].push(self.unlock(lease, abuse));
            }
            for (kind, message) in [(2, LOCK), (3, RELEASE)] {
                asked.work[kind].push(self.say(message, abuse));
            }
            let acquire = Acquire {
                key: b"bystander",
                terms: AcquireTerms { lease_ms: 600_000, ..AcquireTerms::default() },
                ..Acquire::default()
            };
            let (work, granted) = self.request(Request::Acquire(acquire), abuse);
            asked.work[4].push(work);
            let (work, _) = self.request(
                Request::Release(Release { id: granted.granted().id, key: None, own: false }),
                abuse,
            );
            asked.work[5].push(work);
        }
        self.server.resume();
        asked
    }

    fn lock_multi_key(&mut self, abuse: &mut dyn FnMut()) -> (Duration, MultiLockResponse) {
        let keys = ["good", "better"].map(|key| MultiLockKey { key: key.to_owned(), write_lock: true });
        let request = MultiLockRequest { keys: keys.into(), max_lease_period: 600_000, ..Default::default() };
        let (work, granted) =
            self.call::<MultiLockResponse>("/waymaker.WaymakerService/MultiLock", &request, abuse);
        assert!(granted.success, "{granted:?}");
        (work, granted)
    }

    fn unlock(&mut self, lease: Lease, abuse: &mut dyn FnMut()) -> Duration {
        let request = UnLockRequest { key: lease.key, id: lease.id };
        let (work, released) =
            self.call::<UnLockResponse>("/waymaker.WaymakerService/UnLock", &request, abuse);
        assert!(released.success, "{released:?}");
        work
    }

    fn call<M: Message + Default>(
        &mut self,
        path: &str,
        request: &impl Message,
        abuse: &mut dyn FnMut(),
    ) -> (Duration, M) {
        abuse();
        let stream = self.grpc.send(path, request);
        let mut answer = Answer::default();
        let work = self.work_until(|own| {
            own.grpc.take_in();
            std::iter::from_fn(|| own.grpc.parse()).any(|received| answer.take(&received, stream))
        });
        assert_eq!(answer.status, Some(0), "{path}: {answer:?}");
        (work, answer.decode())
    }

    fn say(&mut self, message: &[u8], abuse: &mut dyn FnMut()) -> Duration {
        abuse();
        self.locktopus.write(&frame(TEXT, message));
        self.work_until(|own| own.locktopus.take_in().is_some_and(|(first, _)| first == TEXT))
    }

    fn request(&mut self, request: Request<'_>, abuse: &mut dyn FnMut()) -> (Duration, Received) {
        abuse();
        let number = self.binary.send(request);
        let mut answer = None;
        let work = self.work_until(|own| {
            answer = own.binary.read_frame().ok();
            answer.is_some()
        });
        let answer = answer.flatten().expect("the server closed the connection");
        assert_eq!(answer.number(), number);
        (work, answer)
    }

    /// Lets the paused server run until it has written an answer. Returns the processor time that it used for that.
    fn work_until(&mut self, mut is_answered: impl FnMut(&mut Self) -> bool) -> Duration {
        let before = processor_time(self.server);
        loop {
            self.server.resume();
            self.server.wait_until_paused();
            let work = processor_time(self.server) - before;
            // The server may have written something else first, such as a ping.
            if is_answered(self) {
                return work;
            }
        }
    }
}

mod tests {
    use super::{Delay, KIND_COUNT, MEASUREMENTS_MAX, Measurement, ROUNDS, compare, judge};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    /// Requests of which `slow_count` of each kind take 300 us, the others 100 us. A call takes 10 us.
    fn asked(slow_count: usize) -> Measurement {
        let work = |number| Duration::from_micros(if number < slow_count { 300 } else { 100 });
        Measurement {
            work: [(); KIND_COUNT].map(|()| (0..ROUNDS).map(work).collect()),
            call: Duration::from_micros(10),
        }
    }

    fn is_within(slow_count: usize, most: Delay) -> bool {
        is_one_within([slow_count; MEASUREMENTS_MAX], most)
    }

    fn is_one_within(slow_counts: [usize; MEASUREMENTS_MAX], most: Delay) -> bool {
        let mut slow_counts = slow_counts.into_iter();
        let measure = || compare(&asked(0), &asked(slow_counts.next().expect("no more measurements")), most);
        catch_unwind(AssertUnwindSafe(|| judge(measure))).is_ok()
    }

    #[test]
    fn a_delay_above_either_limit_is_a_failure() {
        assert!(is_within(0, Delay::of_calls(0, 0)));
        assert!(is_within(ROUNDS, Delay::of_calls(20, 20)));
        assert!(!is_within(ROUNDS, Delay::of_calls(19, 20)));
        assert!(!is_within(ROUNDS, Delay::of_calls(20, 19)));
        let few = ROUNDS / 3;
        assert!(is_within(few, Delay::of_calls(0, 20)));
        assert!(!is_within(few, Delay::of_calls(20, 19)));
        assert!(is_within(ROUNDS / 5, Delay::of_calls(0, 0)), "the 75th percentile counts");
    }

    #[test]
    fn the_best_measurement_counts() {
        let (slow, most) = (ROUNDS, Delay::of_calls(19, 19));
        assert!(is_one_within([slow, slow, slow, 0], most));
        assert!(!is_one_within([slow, slow, slow, slow], most));
    }
}
