//! A scripted server, for behaviour that a real server does not show: silence, a hang-up at the wrong moment, a late
//! response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use waymaker_client::{Client, ClientBuilder, LockId};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{
    ErrorAnswer, ErrorCode, ErrorDetail, Extended, Granted, KeptAlive, Listed, NamespaceKind, Released,
    Request, Response, SessionId, SessionRequest, Welcome, next_frame,
};

use crate::manual_clock::ManualClock;
use crate::patience::{HOUR, soon};

/// Listens on a Unix socket of its own, so no other process can take its address while the server is stopped.
pub(crate) struct FakeServer {
    directory: tempfile::TempDir,
    listener: Option<UnixListener>,
}

/// A request in the form that tests compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Hello(SessionRequest),
    Acquire { key: Vec<u8>, wait_ms: u32, session_lease: bool },
    Permits { name: Vec<u8>, permits: u64 },
    Watch(Vec<u8>),
    Unwatch { watch_number: u32 },
    Release(LockId),
    Extend { id: LockId, lease_ms: u32 },
    Status(LockId),
    Cancel { acquire_number: u32 },
    Holds,
    KeepAlive,
    Goodbye,
    Other,
}

impl FakeServer {
    pub(crate) fn new() -> Self {
        let mut server = Self { directory: tempfile::tempdir().unwrap(), listener: None };
        server.start();
        server
    }

    /// Starts to listen, after a stop at the same address as before.
    pub(crate) fn start(&mut self) {
        self.listener = Some(UnixListener::bind(self.directory.path().join("socket")).unwrap());
    }

    /// Stops listening and closes connections that were not accepted yet.
    pub(crate) fn stop(&mut self) {
        self.listener = None;
        std::fs::remove_file(self.directory.path().join("socket")).unwrap();
    }

    pub(crate) fn url(&self) -> String {
        format!("waymaker+unix://{}", self.directory.path().join("socket").display())
    }

    pub(crate) async fn accept(&self) -> FakeConnection {
        let listener = self.listener.as_ref().expect("it was started");
        let (stream, _) = soon(listener.accept()).await.unwrap();
        FakeConnection {
            stream,
            buffer: Vec::new(),
            namespace: Default::default(),
            credentials: Vec::new(),
            stamp_ms: 1_000_000,
        }
    }

    /// Accepts a connection and welcomes it with a new session.
    pub(crate) async fn welcome(&self) -> FakeConnection {
        let mut connection = self.accept().await;
        assert!(matches!(connection.next().await, (_, Seen::Hello(SessionRequest::New { .. }))));
        connection.send_welcome(false).await;
        connection
    }

    /// Accepts a connection that resumes the session.
    pub(crate) async fn resume(&self) -> FakeConnection {
        self.expect(SessionRequest::Resume { id: session_id(), lane: 3 }).await
    }

    /// Accepts a connection that joins the session.
    pub(crate) async fn join(&self) -> FakeConnection {
        self.expect(SessionRequest::Join { id: session_id() }).await
    }

    async fn expect(&self, session: SessionRequest) -> FakeConnection {
        let mut connection = self.accept().await;
        assert_eq!(connection.next().await.1, Seen::Hello(session));
        connection.send_welcome(true).await;
        connection
    }
}

/// Settings of a client whose clock stands still, except during pauses between attempts to connect.
pub(crate) fn still() -> ClientBuilder {
    Client::builder().connect_timeout(HOUR).clock(ManualClock::new().shared())
}

/// Connects a client whose clock stands still. Returns its connection, and the server to which it may reconnect.
pub(crate) async fn connected() -> (Client, FakeConnection, FakeServer) {
    connected_with(still()).await
}

/// Connects a client with these settings. Returns its connection, and the server to which it may reconnect.
pub(crate) async fn connected_with(builder: ClientBuilder) -> (Client, FakeConnection, FakeServer) {
    let server = FakeServer::new();
    let url = server.url();
    let (client, connection) = tokio::join!(builder.connect(&url), server.welcome());
    (client.unwrap(), connection, server)
}

pub(crate) fn session_id() -> SessionId {
    SessionId { place: 5, secret: 6 }
}

pub(crate) fn id(place: u64) -> LockId {
    LockId { place, secret: 7 }
}

/// A flood of responses, which ends when this is dropped.
pub(crate) struct Flood(Arc<AtomicBool>);

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

pub(crate) struct FakeConnection {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// Kind and name of the namespace in the hello.
    pub(crate) namespace: (NamespaceKind, Vec<u8>),
    /// Credentials in the hello.
    pub(crate) credentials: Vec<u8>,
    /// Clock of this server in milliseconds. It stands still, which is equivalent to a fast network.
    pub(crate) stamp_ms: u64,
}

impl FakeConnection {
    /// Returns the next request. Answers keep-alives and lists of holds itself. Each list is empty, so the client
    /// checks each hold.
    pub(crate) async fn next(&mut self) -> (u32, Seen) {
        loop {
            match soon(self.next_or_end()).await.expect("the client stays") {
                (number, Seen::KeepAlive) => {
                    let kept = KeptAlive { remaining_ms: 10_000, stamp_ms: self.stamp_ms };
                    self.send(number, Response::KeptAlive(kept)).await;
                }
                (number, Seen::Holds) => self.send(number, Response::Listed(Listed::default())).await,
                other => return other,
            }
        }
    }

    /// Returns the next request, or `None` if the client hangs up.
    pub(crate) async fn next_or_end(&mut self) -> Option<(u32, Seen)> {
        loop {
            if let Some(frame) = next_frame(&self.buffer, FRAME_LEN_MAX).unwrap() {
                let seen = match Request::decode(frame).unwrap() {
                    Request::Hello(hello) => {
                        self.namespace = (hello.kind, hello.namespace.to_vec());
                        self.credentials = hello.credentials.to_vec();
                        Seen::Hello(hello.session)
                    }
                    Request::Acquire(acquire) => Seen::Acquire {
                        key: acquire.key.to_vec(),
                        wait_ms: acquire.terms.wait_ms,
                        session_lease: acquire.terms.session_lease,
                    },
                    Request::AcquirePermits(acquire) => {
                        Seen::Permits { name: acquire.name.to_vec(), permits: acquire.permits }
                    }
                    Request::Watch(watch) => Seen::Watch(watch.key.to_vec()),
                    Request::Unwatch(unwatch) => Seen::Unwatch { watch_number: unwatch.watch_number },
                    Request::Release(release) => Seen::Release(release.id),
                    Request::Extend(extend) => Seen::Extend { id: extend.id, lease_ms: extend.lease_ms },
                    Request::Status(status) => Seen::Status(status.id),
                    Request::Cancel(cancel) => Seen::Cancel { acquire_number: cancel.acquire_number },
                    Request::Holds(_) => Seen::Holds,
                    Request::KeepAlive(_) => Seen::KeepAlive,
                    Request::Goodbye(_) => Seen::Goodbye,
                    _ => Seen::Other,
                };
                let (number, len) = (frame.number(), frame.len());
                self.buffer.drain(..len);
                return Some((number, seen));
            }
            if self.stream.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn send(&mut self, number: u32, response: Response<'_>) {
        let mut bytes = Vec::new();
        response.encode(number, &mut bytes);
        self.send_bytes(&bytes).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends responses without requests from a thread, as fast as the client reads them.
    pub(crate) fn flood(self) -> Flood {
        let mut bytes = Vec::new();
        for number in 0..4096 {
            let kept = KeptAlive { remaining_ms: 0, stamp_ms: self.stamp_ms };
            Response::KeptAlive(kept).encode((1 << 31) + number, &mut bytes);
        }
        let mut stream = self.stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        let goes_on = Arc::new(AtomicBool::new(true));
        let flood = Flood(Arc::clone(&goes_on));
        std::thread::spawn(move || {
            while goes_on.load(Ordering::Relaxed) && std::io::Write::write_all(&mut stream, &bytes).is_ok() {}
        });
        flood
    }

    pub(crate) async fn send_welcome(&mut self, resumed: bool) {
        let welcome = Welcome {
            version: 1,
            session_id: session_id(),
            lane: 3,
            session_lease_ms: 10_000,
            stamp_ms: self.stamp_ms,
            lease_default_ms: 30_000,
            lease_min_ms: 10,
            lease_max_ms: 86_400_000,
            in_flight_max: 1024,
            resumed,
            ..Welcome::default()
        };
        self.send(0, Response::Welcome(welcome)).await;
    }

    pub(crate) async fn grant(&mut self, number: u32, place: u64, remaining_ms: u32) {
        // The stamp is after the welcome; otherwise a client that resumed its session would check the grant.
        self.stamp_ms += 1;
        let granted = Granted {
            id: id(place),
            fence: place,
            remaining_ms,
            stamp_ms: self.stamp_ms,
            ..Granted::default()
        };
        self.send(number, Response::Granted(granted)).await;
    }

    pub(crate) async fn extended(&mut self, number: u32, remaining_ms: u32) {
        let extended = Extended { remaining_ms, stamp_ms: self.stamp_ms, clamped: false };
        self.send(number, Response::Extended(extended)).await;
    }

    pub(crate) async fn released(&mut self, number: u32) {
        self.send(number, Response::Released(Released::default())).await;
    }

    pub(crate) async fn refuse(&mut self, number: u32, code: ErrorCode) {
        let detail = ErrorDetail::Text { value: 0, field: b"", message: b"because" };
        self.send(number, Response::Error(ErrorAnswer { code, detail })).await;
    }

    /// Expects an acquire as the next request, and grants it.
    pub(crate) async fn grant_next(&mut self, place: u64, remaining_ms: u32) {
        let (number, seen) = self.next().await;
        assert!(matches!(seen, Seen::Acquire { .. }), "{seen:?}");
        self.grant(number, place, remaining_ms).await;
    }
}
