//! A fake server that grants every lock and fails on demand.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::eventually;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{
    Capabilities, ErrorAnswer, ErrorCode, ErrorDetail, Event, Extended, Farewell, Granted, Inspected,
    KeptAlive, LockId, LockState, NamespacesListed, Readiness, Released, Request, Response, RevokeReason,
    ServerReason, ServerStatusAnswer, SessionId, StatusAnswer, Welcome, next_frame,
};

pub(crate) struct FakeServer {
    url: String,
    state: Arc<State>,
    released: Mutex<mpsc::Receiver<u64>>,
}

struct State {
    silent: AtomicBool,
    greets_only: AtomicBool,
    /// Only accepted credentials; `None` if the server accepts every client.
    credentials: Mutex<Option<&'static str>>,
    /// Milliseconds until grants resume; 0 if the server grants.
    recovering_ms: AtomicU64,
    /// Longest lease in milliseconds.
    lease_max_ms: AtomicU32,
    /// Pause in milliseconds between a grant and its response.
    grant_delay_ms: AtomicU64,
    /// Whether the server leaves requests for a lock unanswered.
    holds_back: AtomicBool,
    extend_count: AtomicU64,
    inspect_count: AtomicU64,
    /// Time of the last answered request that began a lease.
    last_lease_begin: Mutex<Instant>,
    places: AtomicU64,
    stream: Mutex<Option<TcpStream>>,
    started: Instant,
    released: mpsc::Sender<u64>,
}

impl FakeServer {
    pub(crate) fn start() -> Self {
        Self::start_at("127.0.0.1:0")
    }

    pub(crate) fn start_at(address: impl ToSocketAddrs) -> Self {
        // A process that another test starts has a copy of an earlier listener until its program runs.
        let mut bound = None;
        eventually(|| {
            bound = TcpListener::bind(&address).ok();
            bound.is_some()
        });
        let listener = bound.expect("an address");
        let url = format!("waymaker://{}", listener.local_addr().unwrap());
        let (sender, released) = mpsc::channel();
        let state = Arc::new(State {
            silent: AtomicBool::new(false),
            greets_only: AtomicBool::new(false),
            credentials: Mutex::new(None),
            recovering_ms: AtomicU64::new(0),
            lease_max_ms: AtomicU32::new(u32::MAX),
            grant_delay_ms: AtomicU64::new(0),
            holds_back: AtomicBool::new(false),
            extend_count: AtomicU64::new(0),
            inspect_count: AtomicU64::new(0),
            last_lease_begin: Mutex::new(Instant::now()),
            places: AtomicU64::new(0),
            stream: Mutex::new(None),
            started: Instant::now(),
            released: sender,
        });
        let serving = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&serving);
                let stream = stream.unwrap();
                thread::spawn(move || state.serve(stream));
            }
        });
        Self { url, state, released: Mutex::new(released) }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Stops answering.
    pub(crate) fn fall_silent(&self) {
        self.state.silent.store(true, Ordering::SeqCst);
    }

    /// Refuses clients with other credentials from now on.
    pub(crate) fn accept_only(&self, credentials: &'static str) {
        *self.state.credentials.lock().unwrap() = Some(credentials);
    }

    /// Refuses grants from now on, with this time until they resume.
    pub(crate) fn recover_for(&self, milliseconds: u64) {
        self.state.recovering_ms.store(milliseconds, Ordering::SeqCst);
    }

    /// Shortens longer leases from now on.
    pub(crate) fn grant_at_most(&self, milliseconds: u32) {
        self.state.lease_max_ms.store(milliseconds, Ordering::SeqCst);
    }

    /// Sends each grant this long after the lease began, from now on.
    pub(crate) fn delay_grants(&self, delay: Duration) {
        self.state.grant_delay_ms.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    /// Leaves requests for a lock unanswered from now on, as if another client held it.
    pub(crate) fn hold_back_grants(&self) {
        self.state.holds_back.store(true, Ordering::SeqCst);
    }

    /// Number of requests so far that extend or renew a lease.
    pub(crate) fn extend_count(&self) -> u64 {
        self.state.extend_count.load(Ordering::SeqCst)
    }

    /// Number of requests so far for the holders of a key.
    pub(crate) fn inspect_count(&self) -> u64 {
        self.state.inspect_count.load(Ordering::SeqCst)
    }

    /// Answers no request except HELLO from now on.
    pub(crate) fn only_greet(&self) {
        self.state.greets_only.store(true, Ordering::SeqCst);
    }

    /// Time of the last answered request that began a lease. A lease is counted from here.
    pub(crate) fn last_lease_begin(&self) -> Instant {
        *self.state.last_lease_begin.lock().unwrap()
    }

    /// Revokes the lock that was granted last.
    pub(crate) fn revoke(&self) {
        let id = id(self.state.places.load(Ordering::SeqCst));
        let event = Event::Revoked { id, reason: RevokeReason::ReleasedElsewhere, message: b"" };
        let mut bytes = Vec::new();
        Response::Event(event).encode(0, &mut bytes);
        self.state.stream.lock().unwrap().as_ref().unwrap().write_all(&bytes).unwrap();
    }

    /// Returns the locks released since the last call.
    pub(crate) fn released(&self) -> Vec<u64> {
        self.released.lock().unwrap().try_iter().collect()
    }
}

fn id(place: u64) -> LockId {
    LockId { place, secret: 7 }
}

impl State {
    fn serve(&self, mut stream: TcpStream) {
        let mut buffer = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            let received = Instant::now();
            let mut begins_lease = false;
            buffer.extend_from_slice(&chunk[..count]);
            let mut answers = Vec::new();
            while let Some(frame) = next_frame(&buffer, FRAME_LEN_MAX).unwrap() {
                let len = frame.len();
                let number = frame.number();
                let request = Request::decode(frame).unwrap();
                begins_lease |= matches!(request, Request::Acquire(_) | Request::Extend(_));
                if let Some(response) = self.answer(request, &stream) {
                    response.encode(number, &mut answers);
                }
                buffer.drain(..len);
            }
            if self.silent.load(Ordering::SeqCst) {
                continue;
            }
            if begins_lease {
                *self.last_lease_begin.lock().unwrap() = received;
            }
            if stream.write_all(&answers).is_err() {
                return;
            }
        }
    }

    fn accepts(&self, credentials: &[u8]) -> bool {
        self.credentials.lock().unwrap().is_none_or(|accepted| accepted.as_bytes() == credentials)
    }

    fn answer(&self, request: Request<'_>, stream: &TcpStream) -> Option<Response<'static>> {
        let stamp_ms = self.started.elapsed().as_millis() as u64 + 1_000;
        let given = |lease_ms: u32| {
            let max = self.lease_max_ms.load(Ordering::SeqCst);
            let lease_ms = if lease_ms == 0 { 30_000 } else { lease_ms };
            (lease_ms.min(max), lease_ms > max)
        };
        Some(match request {
            Request::Hello(hello) if !self.accepts(hello.credentials) => {
                let message = b"the token is unknown";
                let detail = ErrorDetail::Text { value: 0, field: b"credentials", message };
                Response::Error(ErrorAnswer { code: ErrorCode::Unauthorized, detail })
            }
            Request::Hello(hello) => {
                *self.stream.lock().unwrap() = Some(stream.try_clone().unwrap());
                let recovers = self.recovering_ms.load(Ordering::SeqCst) > 0;
                let capabilities =
                    hello.capabilities.filter(|_| recovers).map(|_| Capabilities::SERVER_STATUS);
                Response::Welcome(Welcome {
                    version: if capabilities.is_some() { 2 } else { 1 },
                    capabilities,
                    session_id: SessionId { place: 1, secret: 2 },
                    session_lease_ms: 10_000,
                    stamp_ms,
                    lease_default_ms: 30_000,
                    lease_min_ms: 10,
                    lease_max_ms: 86_400_000,
                    in_flight_max: 1024,
                    ..Welcome::default()
                })
            }
            _ if self.greets_only.load(Ordering::SeqCst) => return None,
            Request::KeepAlive(_) => Response::KeptAlive(KeptAlive { remaining_ms: 10_000, stamp_ms }),
            Request::Acquire(_) if self.recovering_ms.load(Ordering::SeqCst) > 0 => {
                let value = self.recovering_ms.load(Ordering::SeqCst);
                let detail = ErrorDetail::Text { value, field: b"", message: b"holds may have been lost" };
                Response::Error(ErrorAnswer { code: ErrorCode::Recovering, detail })
            }
            Request::Acquire(_) if self.holds_back.load(Ordering::SeqCst) => return None,
            Request::Acquire(acquire) => {
                let place = self.places.fetch_add(1, Ordering::SeqCst) + 1;
                let (remaining_ms, clamped) = given(acquire.terms.lease_ms);
                thread::sleep(Duration::from_millis(self.grant_delay_ms.load(Ordering::SeqCst)));
                let id = id(place);
                Response::Granted(Granted {
                    id,
                    fence: 41,
                    remaining_ms,
                    stamp_ms,
                    clamped,
                    ..Granted::default()
                })
            }
            Request::Extend(extend) => {
                self.extend_count.fetch_add(1, Ordering::SeqCst);
                let (remaining_ms, clamped) = given(extend.lease_ms);
                Response::Extended(Extended { remaining_ms, stamp_ms, clamped })
            }
            // Every claim is a hold of the key `k`.
            Request::Status(_) => Response::Status(StatusAnswer {
                state: LockState::Held,
                shared: false,
                session_lease: false,
                fence: 41,
                remaining_ms: 30_000,
                age_ms: 0,
                stamp_ms,
                priority: 0,
                waited_ms: 0,
                key: b"k",
            }),
            Request::Inspect(_) => {
                self.inspect_count.fetch_add(1, Ordering::SeqCst);
                Response::Inspected(Inspected { stamp_ms, ..Inspected::default() })
            }
            Request::Release(release) => {
                self.released.send(release.id.place).unwrap();
                Response::Released(Released::default())
            }
            Request::Namespaces(_) => Response::NamespacesListed(NamespacesListed::default()),
            Request::ServerStatus(_) => Response::ServerStatus(ServerStatusAnswer {
                readiness: Readiness::NotReady,
                uptime_ms: 61_000,
                version: b"7.8.9",
                addresses: b"binary=here grpc=there",
                reasons: vec![ServerReason {
                    code: b"recovering",
                    message: b"holds may have been lost",
                    remaining_ms: self.recovering_ms.load(Ordering::SeqCst),
                }],
            }),
            Request::Goodbye(_) => Response::Farewell(Farewell),
            _ => return None,
        })
    }
}
