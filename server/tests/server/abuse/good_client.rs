//! What others notice of abuse: how long their requests take.

use super::http2::Http2;
use super::web_socket::WebSocket;
use crate::harness::Server;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use waymaker_proto::waymaker::{
    MultiLockKey, MultiLockRequest, MultiLockResponse, UnLockRequest, UnLockResponse,
};

/// How often a measurement may be spoilt by whatever else the machine has to do.
const TRIES: usize = 5;
/// How long each measurement takes.
const LENGTH: Duration = Duration::from_millis(400);
/// What a shared machine adds by itself.
const SLACK: Duration = Duration::from_millis(5);

/// Whether an abuse goes on.
pub(super) struct Abuse(AtomicBool);

/// Ends an abuse, also where what is done meanwhile fails: nobody would hear of that if the abuse went on.
struct End<'a>(&'a Abuse);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

impl Abuse {
    /// Does something while an abuse goes on.
    pub(super) fn meanwhile<T>(abuse: impl Fn(&Self) + Sync, act: impl FnOnce() -> T) -> T {
        let goes_on = Self(AtomicBool::new(true));
        std::thread::scope(|scope| {
            scope.spawn(|| abuse(&goes_on));
            let _end = End(&goes_on);
            act()
        })
    }

    pub(super) fn goes_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Asserts that good clients of a server hardly notice this, which is to go on for as long as it is told.
pub(super) fn assert_unnoticed(server: &Server, abuse: impl Fn(&Abuse) + Sync) {
    let mut client = GoodClient::connect(server);
    client.p99();
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let idle = client.p99();
        let abused = Abuse::meanwhile(&abuse, || client.p99());
        if abused <= 2 * idle + SLACK {
            return;
        }
        seen.push((idle, abused));
    }
    panic!("99 of 100 requests of others take, idle and under abuse: {seen:?}");
}

struct GoodClient {
    grpc: Http2,
    locktopus: WebSocket,
}

impl GoodClient {
    fn connect(server: &Server) -> Self {
        Self { grpc: Http2::connect(server), locktopus: WebSocket::connect(server, "good") }
    }

    /// Within how long 99 of 100 pairs of requests are answered.
    fn p99(&mut self) -> Duration {
        let begun = Instant::now();
        let mut times = Vec::new();
        while begun.elapsed() < LENGTH {
            for pair in [Self::lock_several, Self::lock_path] {
                let asked = Instant::now();
                pair(self);
                times.push(asked.elapsed());
            }
        }
        times.sort_unstable();
        times[(times.len() * 99 / 100).min(times.len() - 1)]
    }

    fn lock_several(&mut self) {
        let keys = ["good", "better"].map(|key| MultiLockKey { key: key.to_owned(), write_lock: true });
        let request = MultiLockRequest { keys: keys.into(), max_lease_period: 10_000, ..Default::default() };
        let granted: MultiLockResponse = self.grpc.ask("/waymaker.WaymakerService/MultiLock", &request);
        assert!(granted.success, "{granted:?}");
        for lease in granted.leases {
            let request = UnLockRequest { key: lease.key, id: lease.id };
            let released: UnLockResponse = self.grpc.ask("/waymaker.WaymakerService/UnLock", &request);
            assert!(released.success, "{released:?}");
        }
    }

    fn lock_path(&mut self) {
        self.locktopus.pair();
    }
}
