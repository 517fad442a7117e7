//! A link between client and server that a test can cut. It can also cut, stall, repeat or delay data by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::next_frame;

use crate::nowhere::Nowhere;
use crate::patience::soon;
use crate::random::Random;

/// Number of delayed directions so far; each direction has another seed.
static LATE_COUNT: AtomicU64 = AtomicU64::new(0);

pub(crate) struct Relay {
    url: String,
    accepting: JoinHandle<()>,
    wires: Arc<Mutex<Vec<JoinHandle<()>>>>,
    progress: Arc<Progress>,
}

/// State of the wires, shared with the test.
struct Progress {
    /// Bytes of the first connection that have passed, by direction.
    passed: [AtomicU64; 2],
    connection_count: watch::Sender<u32>,
    /// Whether new connections reach the server.
    passes_new: watch::Sender<bool>,
    stall: watch::Sender<Stall>,
}

/// Progress of the one stall of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    /// Not reached yet.
    Ahead,
    Stalled,
    Resumed,
    /// The delayed bytes have passed, to the end of the connection.
    Over,
}

/// Fault of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The first connection is cut as soon as this many bytes have passed in this direction.
    Cut { toward: Toward, after: u64 },
    /// The first connection stalls in this direction after this many bytes, until [`Relay::resume`]. Then it
    /// continues, even if the client has gone.
    Stall { toward: Toward, after: u64 },
    /// Each request passes twice, on every connection.
    Repeat,
    /// All requests of all earlier connections pass again on each new connection, right after its greeting. Only for
    /// clients that use keys alone, because other kinds have other lanes.
    RepeatLate,
    /// Each piece of data may be late by up to this time, on every connection and in both directions. Data of one
    /// connection keeps its order; data of different connections overtakes.
    Jitter { delay_max: Duration },
}

impl Fault {
    /// Returns whether later connections have the fault too.
    fn is_of_every_connection(&self) -> bool {
        matches!(self, Self::Repeat | Self::RepeatLate | Self::Jitter { .. })
    }
}

/// Direction in which bytes pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toward {
    Server,
    Client,
}

impl Relay {
    pub(crate) async fn to(server_url: &str) -> Self {
        Self::start(server_url, None).await
    }

    pub(crate) async fn with(server_url: &str, fault: Fault) -> Self {
        Self::start(server_url, Some(fault)).await
    }

    /// Starts a relay at an address that refused all connections until now.
    #[allow(dead_code, reason = "the tests of the dialects share this file and need it")]
    pub(crate) fn at(nowhere: Nowhere, server_url: &str) -> Self {
        let listener = nowhere.listen();
        listener.set_nonblocking(true).unwrap();
        Self::start_at(TcpListener::from_std(listener).unwrap(), server_url, None)
    }

    async fn start(server_url: &str, fault: Option<Fault>) -> Self {
        Self::start_at(TcpListener::bind("127.0.0.1:0").await.unwrap(), server_url, fault)
    }

    fn start_at(listener: TcpListener, server_url: &str, mut fault: Option<Fault>) -> Self {
        let server = server_url.trim_start_matches("waymaker://").to_owned();
        let url = format!("waymaker://{}", listener.local_addr().unwrap());
        let wires = Arc::new(Mutex::new(Vec::new()));
        let progress = Arc::new(Progress {
            passed: Default::default(),
            connection_count: watch::Sender::new(0),
            passes_new: watch::Sender::new(true),
            stall: watch::Sender::new(Stall::Ahead),
        });
        let requests = Arc::new(Mutex::new(Vec::new()));
        let accepting = tokio::spawn({
            let (wires, progress) = (Arc::clone(&wires), Arc::clone(&progress));
            async move {
                loop {
                    let (client, _) = listener.accept().await.unwrap();
                    progress.connection_count.send_modify(|count| *count += 1);
                    let (server, progress, requests) =
                        (server.clone(), Arc::clone(&progress), Arc::clone(&requests));
                    let of_wire = fault;
                    fault = fault.filter(Fault::is_of_every_connection);
                    let wire = tokio::spawn(async move {
                        let _ = progress.passes_new.subscribe().wait_for(|passes| *passes).await;
                        let Ok(server) = TcpStream::connect(server).await else { return };
                        connect(client, server, of_wire, &progress, &requests).await;
                    });
                    wires.lock().unwrap().push(wire);
                }
            }
        });
        Self { url, accepting, wires, progress }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the address of the relay for gRPC clients.
    #[allow(dead_code, reason = "the tests of the dialects share this file and need it")]
    pub(crate) fn grpc_url(&self) -> String {
        self.url.replacen("waymaker://", "http://", 1)
    }

    /// Returns the number of bytes of the first connection that have passed in this direction. It is counted only if
    /// the fault is a cut or a stall.
    pub(crate) fn passed(&self, toward: Toward) -> u64 {
        self.progress.passed[toward as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of connections so far.
    pub(crate) fn connection_count(&self) -> u32 {
        *self.progress.connection_count.borrow()
    }

    /// Waits until the first connection has stalled.
    pub(crate) async fn stalled(&self) {
        self.stall_is(Stall::Stalled).await;
    }

    /// Resumes a stalled connection.
    pub(crate) fn resume(&self) {
        self.progress.stall.send_replace(Stall::Resumed);
    }

    /// Waits until the delayed bytes have passed, to the end of the connection.
    pub(crate) async fn drained(&self) {
        self.stall_is(Stall::Over).await;
    }

    async fn stall_is(&self, wanted: Stall) {
        soon(self.progress.stall.subscribe().wait_for(|stall| *stall == wanted))
            .await
            .expect("the relay is there");
    }

    /// Cuts every open connection. New connections work.
    pub(crate) fn cut(&self) {
        for wire in self.wires.lock().unwrap().drain(..) {
            wire.abort();
        }
    }

    /// Cuts every open connection. New connections reach the server only after `noticed`.
    pub(crate) async fn cut_until_noticed(&self, noticed: impl Future<Output = ()>) {
        self.progress.passes_new.send_replace(false);
        self.cut();
        noticed.await;
        self.progress.passes_new.send_replace(true);
    }

    /// Cuts every connection again and again until `count` pieces of work are done. A few pieces are done between two
    /// cuts, however slow the machine is.
    pub(crate) async fn cut_until(&self, done: &watch::Sender<u64>, count: u64) {
        let mut done = done.subscribe();
        for cut_count in 0.. {
            let next = *done.borrow() + 1 + cut_count % 5;
            if soon(done.wait_for(|done| *done >= next.min(count))).await.is_ok_and(|done| *done >= count) {
                return;
            }
            self.cut();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

/// Passes on the bytes of both sides until the connection ends. Both sides see the end, regardless of its cause.
async fn connect(
    mut client: TcpStream,
    mut server: TcpStream,
    fault: Option<Fault>,
    progress: &Progress,
    requests: &Mutex<Vec<u8>>,
) {
    let (toward, after) = match fault {
        None => {
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            return;
        }
        Some(Fault::Cut { toward, after } | Fault::Stall { toward, after, .. }) => (toward, after),
        Some(Fault::Repeat | Fault::RepeatLate | Fault::Jitter { .. }) => (Toward::Server, u64::MAX),
    };
    // The relay passes small pieces on as they arrive.
    server.set_nodelay(true).unwrap();
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let [to_server_count, to_client_count] = &progress.passed;
    let left = |direction| if direction == toward { after } else { u64::MAX };
    let mut there = Pass { from: from_client, to: to_server, passed: to_server_count };
    let mut back = Pass { from: from_server, to: to_client, passed: to_client_count };
    match fault {
        Some(Fault::Stall { .. }) => {
            let stall = &progress.stall;
            let stalling = async |mut pass: Pass<'_>, direction| {
                if pass.bytes(left(direction)).await && direction == toward {
                    stall.send_replace(Stall::Stalled);
                    let _ = stall.subscribe().wait_for(|stall| *stall == Stall::Resumed).await;
                    pass.bytes(u64::MAX).await;
                    stall.send_replace(Stall::Over);
                }
            };
            tokio::join!(stalling(there, Toward::Server), stalling(back, Toward::Client));
        }
        Some(Fault::Jitter { delay_max }) => tokio::select! {
            () = there.late(delay_max) => {}
            () = back.late(delay_max) => {}
        },
        Some(Fault::Repeat | Fault::RepeatLate) => tokio::select! {
            () = there.frames(fault, requests) => {}
            _ = back.bytes(u64::MAX) => {}
        },
        _ => tokio::select! {
            _ = there.bytes(left(Toward::Server)) => {}
            _ = back.bytes(left(Toward::Client)) => {}
        },
    }
}

/// One direction of a connection.
struct Pass<'a> {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    passed: &'a AtomicU64,
}

impl Pass<'_> {
    /// Passes on exactly `left` bytes. Returns false if the connection ended first.
    async fn bytes(&mut self, mut left: u64) -> bool {
        let mut buffer = [0; 4096];
        while left > 0 {
            let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let Ok(len) = self.from.read(&mut buffer[..room]).await else { return false };
            // Count the bytes before a peer can read them.
            self.passed.fetch_add(len as u64, Ordering::Relaxed);
            if len == 0 || self.to.write_all(&buffer[..len]).await.is_err() {
                return false;
            }
            left -= len as u64;
        }
        true
    }

    /// Passes on data; one piece in four is delayed.
    async fn late(&mut self, delay_max: Duration) {
        let mut random = Random::new(LATE_COUNT.fetch_add(1, Ordering::Relaxed));
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = self.from.read(&mut buffer).await {
            if random.once_in(4) {
                let delay_us = random.below(delay_max.as_micros() as u64);
                tokio::time::sleep(Duration::from_micros(delay_us)).await;
            }
            if self.to.write_all(&buffer[..len]).await.is_err() {
                return;
            }
        }
    }

    /// Passes on requests. All except the greeting are repeated: at once, or on later connections.
    async fn frames(&mut self, fault: Option<Fault>, requests: &Mutex<Vec<u8>>) {
        let is_late = matches!(fault, Some(Fault::RepeatLate));
        let (mut buffer, mut out) = (Vec::new(), Vec::new());
        loop {
            while let Some(frame) = next_frame(&buffer, FRAME_LEN_MAX).unwrap() {
                let (is_greeting, len) = (frame.number() == 0, frame.len());
                let bytes: Vec<u8> = buffer.drain(..len).collect();
                out.extend_from_slice(&bytes);
                match (is_greeting, is_late) {
                    (true, true) => out.extend_from_slice(&requests.lock().unwrap()),
                    (true, false) => {}
                    (false, true) => requests.lock().unwrap().extend_from_slice(&bytes),
                    (false, false) => out.extend_from_slice(&bytes),
                }
            }
            if self.to.write_all(&out).await.is_err() {
                return;
            }
            out.clear();
            if !matches!(self.from.read_buf(&mut buffer).await, Ok(1..)) {
                return;
            }
        }
    }
}
