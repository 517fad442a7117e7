//! What an abuse costs others: the work that a server does before it answers them.
//!
//! The server has one worker, so all that it does between a request of a bystander and the answer delays that bystander. Work
//! is counted in processor time of the server, which is the same if other processes have the processors.
//!
//! Each request is measured alone. While the server is paused, the abuse writes what it can, and the bystander its request. Then
//! the server goes on, and its own answer pauses it again.

use super::http2::{Answer, Http2};
use super::pause::pause_at_answers;
use super::web_socket::{LOCK, RELEASE, TEXT, WebSocket, frame};
use crate::harness::{Server, processor_time, wait_until_rested};
use prost::Message;
use std::time::Duration;
use waymaker_proto::waymaker::{
    Lease, MultiLockKey, MultiLockRequest, MultiLockResponse, UnLockRequest, UnLockResponse,
};

/// Rounds of the requests of a bystander that are measured, each of five requests.
const ROUNDS: usize = 40;
/// Calls that are answered together to learn what one of them costs, and how often that is measured.
const CALLS: u32 = 100;
const BATCHES: usize = 9;

/// How much other work the server does before a request of a bystander, in calls that ask for nothing. As a ratio of two
/// processor times it is about the same on every machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    /// Before half of the requests.
    pub(super) median_calls: u32,
    /// Before nine of ten requests. Further up stand those during which the machine under a virtual one did something else,
    /// which counts as processor time.
    pub(super) p90_calls: u32,
}

/// Asserts that an abuse, which writes what it can each time that it is called, delays bystanders by no more than this.
pub(super) fn assert_abuse_delays(server: &Server, most: Delay, mut abuse: impl FnMut()) {
    let idle = ask_idle(server);
    let abused = Bystander::connect(server).ask(&mut abuse);
    judge(&idle, &abused, most);
}

/// The requests of a bystander of a server that has nothing else to do.
pub(super) fn ask_idle(server: &Server) -> Asked {
    wait_until_rested(server);
    let call = work_of_call(server);
    Asked { call, ..Bystander::connect(server).ask(&mut || {}) }
}

/// Asserts that what the server has to do by now delays bystanders by no more than this.
pub(super) fn assert_delayed(server: &Server, idle: &Asked, most: Delay) {
    judge(idle, &Bystander::connect(server).ask(&mut || {}), most);
}

fn judge(idle: &Asked, asked: &Asked, most: Delay) {
    let own = idle.work.each_ref().map(|kind| percentile(kind.iter().copied(), 50));
    let delay = |percent| {
        let kinds = asked.work.iter().zip(&own);
        percentile(kinds.flat_map(|(kind, own)| kind.iter().map(|work| work.saturating_sub(*own))), percent)
    };
    let calls = |delay: Duration| delay.div_duration_f64(idle.call);
    let (median, p90) = (delay(50), delay(90));
    let measured = format!(
        "other work before a request: median {median:?}, {:.0} calls; 90th percentile {p90:?}, {:.0} calls; 99th {:?}; a call is {:?}",
        calls(median),
        calls(p90),
        delay(99),
        idle.call
    );
    println!("{measured}");
    let is_within = calls(median) <= most.median_calls.into() && calls(p90) <= most.p90_calls.into();
    assert!(is_within, "{measured}; at most {most:?}");
}

/// Processor time of a call that asks for nothing, among others that are answered together with it.
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

/// Kinds of requests of a bystander: two over gRPC, two over a WebSocket.
const KIND_COUNT: usize = 4;

/// What was measured of a bystander.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// The work of the server from each request to its answer, for each kind of request.
    work: [Vec<Duration>; KIND_COUNT],
    /// The work of a call that asks for nothing, if the server is idle.
    call: Duration,
}

/// A client that does nothing wrong.
struct Bystander<'a> {
    server: &'a Server,
    grpc: Http2,
    locktopus: WebSocket,
}

impl<'a> Bystander<'a> {
    fn connect(server: &'a Server) -> Self {
        let (grpc, locktopus) = (Http2::connect(server), WebSocket::connect(server, "bystander"));
        pause_at_answers(server, &grpc.socket);
        pause_at_answers(server, &locktopus.socket);
        let mut bystander = Self { server, grpc, locktopus };
        // What the server does once for a connection is no work of a request.
        bystander.ask(&mut || {});
        bystander
    }

    fn ask(&mut self, abuse: &mut dyn FnMut()) -> Asked {
        let mut asked = Asked::default();
        self.server.pause();
        for _ in 0..ROUNDS {
            let (work, granted) = self.lock_several(abuse);
            asked.work[0].push(work);
            for lease in granted.leases {
                asked.work[1].push(self.unlock(lease, abuse));
            }
            for (kind, message) in [(2, LOCK), (3, RELEASE)] {
                asked.work[kind].push(self.say(message, abuse));
            }
        }
        self.server.resume();
        asked
    }

    fn lock_several(&mut self, abuse: &mut dyn FnMut()) -> (Duration, MultiLockResponse) {
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

    /// Lets the paused server go on until it has written an answer, and says how much it worked for that.
    fn work_until(&mut self, mut is_answered: impl FnMut(&mut Self) -> bool) -> Duration {
        let before = processor_time(self.server);
        loop {
            self.server.resume();
            self.server.wait_until_paused();
            let work = processor_time(self.server) - before;
            // It may have said something that nobody asked for, such as a ping.
            if is_answered(self) {
                return work;
            }
        }
    }
}
