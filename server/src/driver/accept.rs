//! Accepts connections and hands them to workers.

use super::addresses::{Admission, Excess};
use super::refusal::Refusal;
use super::reserve::Reserve;
use super::socket::StdSocket;
use super::tls_stream::TlsState;
use super::{Intake, Workers};
use crate::access::Evidence;
use crate::clock::{BootClock, Clock};
use crate::file_identity::FileIdentity;
use crate::limit_options::LimitOptions;
use crate::limits::{REFUSALS_PER_REST, REFUSALS_REST_MS, SEND_BUFFER_LEN, SPARE_DESCRIPTORS};
use crate::mail::Mail;
use crate::node::Node;
use crate::port::Port;
use crate::tls::TlsAcceptor;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UnixListener};

/// Pause of an acceptor after it could not begin to encrypt a connection, or after a failed accept. An accept that
/// failed because the client had aborted the connection causes no pause.
const EXHAUSTED_WAIT: Duration = Duration::from_millis(100);
/// Minimum time between two log lines of an acceptor about connections that it could not accept or encrypt, or that it
/// refused.
const EXHAUSTED_LOG_EVERY: Duration = Duration::from_secs(60);
const BACKLOG: i32 = 4096;

/// Listening socket of a server.
#[derive(Debug)]
#[expect(missing_docs, reason = "each variant is named after its content")]
pub enum Listener {
    /// Encrypted if it has a TLS acceptor.
    Tcp(TcpListener, Port, Option<TlsAcceptor>),
    // The file comes first, so that it is dropped while the listener still keeps its inode from being used again.
    Unix(SocketFile, UnixListener),
}

/// File of a Unix socket. Removed when its listener is dropped, unless the path names another file by then.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: FileIdentity,
}

fn identity_of(path: &Path) -> io::Result<FileIdentity> {
    std::fs::symlink_metadata(path).map(|metadata| FileIdentity::from(&metadata))
}

impl SocketFile {
    /// Returns the file at `path`, to which a socket has just been bound.
    fn bound(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity_of(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity_of(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns whether a server listens on the Unix socket at a path.
fn is_served(path: &Path) -> io::Result<bool> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    // A blocking connect would wait while the accept queue of the other server is full.
    socket.set_nonblocking(true)?;
    match socket.connect(&socket2::SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => Ok(true),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(false),
            _ => Err(error),
        },
    }
}

/// Returns a TCP socket that is bound to the first IP address to which `address` resolves.
fn bound(address: &str) -> io::Result<socket2::Socket> {
    let address: SocketAddr = address
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the host name has no IP address"))?;
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    // Allow a restarted server to bind while connections of its predecessor are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Accepted connection.
struct AcceptedConnection {
    socket: StdSocket,
    /// Name of the client for people: its address, or at a Unix socket the user and process, as far as they are known.
    peer: String,
    evidence: Evidence,
}

impl Listener {
    /// Listens on a TCP address for the protocol of this port. Port number 0 picks a free one. With `tls`, all
    /// connections must be encrypted.
    ///
    /// # Errors
    /// Fails for example if the address does not resolve, is in use, or does not belong to this machine.
    pub fn tcp(address: &str, port: Port, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let socket = bound(address)?;
        socket.listen(BACKLOG)?;
        Ok(Self::Tcp(TcpListener::from_std(socket.into())?, port, tls))
    }

    /// Checks that a server could listen on a TCP address, without listening.
    ///
    /// # Errors
    /// Fails in the cases in which [`Listener::tcp`] cannot bind the address.
    pub fn check_tcp(address: &str) -> io::Result<()> {
        bound(address).map(drop)
    }

    /// Listens on a Unix socket. Replaces the file of a server that no longer runs.
    ///
    /// # Errors
    /// Fails if the path cannot be used or another server listens there.
    pub fn unix(path: &Path) -> io::Result<Self> {
        if is_served(path)? {
            let message = format!("another server listens on {}", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        let is_socket =
            std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
        if is_socket {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        Ok(Self::Unix(SocketFile::bound(path)?, listener))
    }

    /// Returns the name of the protocol (`unix` for a Unix socket) and the actual address, as the server prints them in
    /// its line `ready`, such as `binary=127.0.0.1:7420`.
    ///
    /// # Errors
    /// Fails if the system does not report the address.
    pub fn address(&self) -> io::Result<String> {
        Ok(match self {
            Self::Tcp(listener, port, _) => format!("{}={}", port.name(), listener.local_addr()?),
            Self::Unix(file, _) => format!("unix={}", file.path.display()),
        })
    }

    fn port(&self) -> Port {
        match self {
            Self::Tcp(_, port, _) => *port,
            Self::Unix(..) => Port::Binary,
        }
    }

    fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tcp(_, _, Some(_)))
    }

    /// Prepares the encryption of an accepted connection, if this listener encrypts.
    fn encrypt(&self, socket: StdSocket) -> Result<StdSocket, rustls::Error> {
        match (self, socket) {
            (Self::Tcp(_, _, Some(tls)), StdSocket::Tcp(stream)) => {
                Ok(StdSocket::Tls(stream, Box::new(TlsState::new(tls.begin()?))))
            }
            (_, socket) => Ok(socket),
        }
    }

    async fn accept(&self) -> io::Result<AcceptedConnection> {
        match self {
            Self::Tcp(listener, ..) => {
                let (stream, peer) = listener.accept().await?;
                let socket = StdSocket::Tcp(stream.into_std()?);
                let evidence = Evidence { address: Some(peer.ip()), ..Evidence::default() };
                Ok(AcceptedConnection { socket, peer: peer.to_string(), evidence })
            }
            Self::Unix(_, listener) => {
                let (stream, _) = listener.accept().await?;
                let credentials = stream.peer_cred().ok();
                let peer = match &credentials {
                    Some(credentials) => match credentials.pid() {
                        Some(pid) => format!("uid {} pid {pid}", credentials.uid()),
                        None => format!("uid {}", credentials.uid()),
                    },
                    None => "unix".to_owned(),
                };
                let uid = credentials.map(|credentials| credentials.uid());
                let evidence = Evidence { uid, ..Evidence::default() };
                Ok(AcceptedConnection { socket: StdSocket::Unix(stream.into_std()?), peer, evidence })
            }
        }
    }
}

/// Sets options of a TCP socket: small responses leave at once, dead peers are detected, and a peer that does not read
/// uses little kernel memory. Unix sockets keep their defaults.
fn tune(socket: &StdSocket) -> io::Result<()> {
    let stream = match socket {
        StdSocket::Tcp(stream) | StdSocket::Tls(stream, _) => stream,
        StdSocket::Unix(_) => return Ok(()),
    };
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(30)))?;
    // Do not let BBR pace the output: it would set a timer for each response. Responses are small and each follows its
    // request, so pacing brings nothing.
    let _ = socket.set_tcp_congestion(b"cubic");
    socket.set_send_buffer_size(SEND_BUFFER_LEN)
}

/// The system apparently has no descriptor or no memory for another connection.
struct OutOfResources;

/// Accepts connections of one listener and hands each to the worker with the fewest connections, unless a limit forbids
/// the connection.
#[derive(Debug)]
pub struct Acceptor {
    /// Index of this acceptor in its node.
    index: usize,
    listener: Listener,
    /// Whether its clients must identify themselves.
    needs_identity: bool,
    connection_count_max: usize,
    last_log: Option<Instant>,
    /// Number of connections that this acceptor has refused because the server was full. At `REFUSALS_PER_REST`, the
    /// acceptor counts from 0 again and accepts nothing for `REFUSALS_REST_MS`.
    refused_count: u32,
}

impl Acceptor {
    /// Creates the acceptor with this index. Its maximum of connections leaves at least `SPARE_DESCRIPTORS` file
    /// descriptors of the process free, unless the process may open very few.
    pub fn new(index: usize, listener: Listener, needs_identity: bool, limits: &LimitOptions) -> Self {
        Self {
            index,
            listener,
            needs_identity,
            connection_count_max: connection_count_max(limits.connections),
            last_log: None,
            refused_count: 0,
        }
    }

    /// Accepts connections until the future, which never ends by itself, is dropped. Pauses if the system has no
    /// resources for another connection, or after `REFUSALS_PER_REST` refusals because the server was full.
    pub async fn run(mut self, node: &Node, workers: &Workers) {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = workers.acceptors[self.index].asked.notified() => {
                    self.catch_up(node, workers).await;
                    continue;
                }
            };
            if self.hand_over(accepted, node, workers).is_err() {
                tokio::time::sleep(EXHAUSTED_WAIT).await;
            }
            if self.refused_count >= REFUSALS_PER_REST {
                self.refused_count = 0;
                tokio::time::sleep(Duration::from_millis(REFUSALS_REST_MS)).await;
            }
        }
    }

    /// Accepts the connections that are waiting now, at most `BACKLOG`. Stops early if the system has no resources for
    /// another connection. Then publishes the time of the call as the time up to which it has accepted. Sends
    /// [`Mail::Drained`] to each worker that asked for this before it expires sessions.
    async fn catch_up(&mut self, node: &Node, workers: &Workers) {
        let askers = workers.acceptors[self.index].take_askers();
        let at = BootClock.moment().passed;
        // Yield so that the runtime polls the operating system for new connections.
        tokio::task::yield_now().await;
        // Limit the loop: the kernel lets about `BACKLOG` connections wait, and later ones need not be accepted now.
        for _ in 0..BACKLOG {
            let Some(accepted) = self.try_accept().await else { break };
            if self.hand_over(accepted, node, workers).is_err() {
                break;
            }
        }
        node.publish_accepted(self.index, at);
        for asker in askers {
            workers.tell_one(node, asker, Mail::Drained);
        }
    }

    /// Returns the next connection if it is available at once.
    async fn try_accept(&self) -> Option<io::Result<AcceptedConnection>> {
        let mut accept = pin!(tokio::task::unconstrained(self.listener.accept()));
        poll_fn(|context| {
            Poll::Ready(match accept.as_mut().poll(context) {
                Poll::Ready(accepted) => Some(accepted),
                Poll::Pending => None,
            })
        })
        .await
    }

    /// Refuses an accepted connection because of a limit, or hands it to the worker with the fewest connections. Drops
    /// it if its socket options cannot be set. Fails if the system has no resources for it.
    fn hand_over(
        &mut self,
        accepted: io::Result<AcceptedConnection>,
        node: &Node,
        workers: &Workers,
    ) -> Result<(), OutOfResources> {
        match accepted {
            Ok(AcceptedConnection { socket, peer, mut evidence }) => {
                evidence.needs_identity = self.needs_identity;
                let address = evidence.address;
                let is_exceeded = node.memory.is_exceeded();
                let is_full = is_exceeded || workers.connection_count() >= self.connection_count_max;
                let reserve = match (&socket, self.listener.port()) {
                    (StdSocket::Unix(_), _) => Some(&workers.reserves.unix),
                    (_, Port::Http) => Some(&workers.reserves.http),
                    _ => None,
                };
                let reserved = reserve.filter(|_| is_full).and_then(Reserve::take);
                if is_full && reserved.is_none() {
                    self.refused_count += 1;
                    let refusal = if is_exceeded {
                        Refusal::Memory(node.memory.limit().unwrap_or(0))
                    } else {
                        Refusal::Connections(self.connection_count_max)
                    };
                    self.refuse(&socket, &peer, refusal, node);
                    return Ok(());
                }
                let mut admission = match self.admit(address, workers) {
                    Ok(admission) => admission,
                    Err(excess) => {
                        // The address of the client exceeds its own limit. Do not count this refusal in
                        // `refused_count`: enough of them would make the acceptor pause, which would delay connections
                        // from other addresses.
                        self.refuse(&socket, &peer, Refusal::Address(excess), node);
                        return Ok(());
                    }
                };
                admission.count(node.metrics.count_connection(self.listener.port()));
                // Set the options only after the admission, so that a refusal stays cheap.
                if let Err(error) = tune(&socket) {
                    tracing::debug!(%error, peer, "the peer closed a connection before it was served");
                    return Ok(());
                }
                let socket = match self.listener.encrypt(socket) {
                    Ok(socket) => socket,
                    Err(error) => {
                        self.log(|| tracing::warn!(%error, "could not begin to encrypt a connection"));
                        return Err(OutOfResources);
                    }
                };
                let least = workers
                    .handles
                    .iter()
                    .min_by_key(|handle| handle.connection_count.load(Ordering::Relaxed));
                if let Some(worker) = least {
                    let (port, moved) = (self.listener.port(), None);
                    worker.send(Intake { port, socket, peer, evidence, moved, reserved, admission });
                }
                Ok(())
            }
            Err(error) => {
                self.log(|| tracing::warn!(%error, "could not accept a connection"));
                // A connection that was aborted affects only itself. Treat all other errors as those of an exhausted
                // system.
                if error.kind() == io::ErrorKind::ConnectionAborted { Ok(()) } else { Err(OutOfResources) }
            }
        }
    }

    /// Admits a connection from this address. Returns the exceeded limit if it is refused.
    fn admit(&self, address: Option<IpAddr>, workers: &Workers) -> Result<Admission, Excess> {
        let Some(address) = address else { return Ok(Admission::default()) };
        let mut addresses = workers.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if !addresses.has_limits(address) {
            return Ok(Admission::default());
        }
        addresses.admit(address, self.listener.is_encrypted(), BootClock.moment().passed)
    }

    /// Counts a refusal, and logs it unless the last log line is recent. Tells the client only on an unencrypted
    /// connection of the binary protocol.
    fn refuse(&mut self, socket: &StdSocket, peer: &str, refusal: Refusal, node: &Node) {
        node.metrics.note_refused(refusal.label_index());
        self.log(|| {
            tracing::warn!(reason = ?refusal, peer, "refused a connection because a limit is reached");
        });
        // A client that expects encryption cannot read a message before the TLS handshake, so it gets none.
        if self.listener.port() == Port::Binary && !self.listener.is_encrypted() {
            refusal.tell(socket);
        }
    }

    fn log(&mut self, line: impl FnOnce()) {
        if self.last_log.is_none_or(|last| last.elapsed() >= EXHAUSTED_LOG_EVERY) {
            self.last_log = Some(Instant::now());
            line();
        }
    }
}

/// Raises the soft limit of descriptors to the hard limit. Returns the number of connections that the operator and this
/// limit, without [`SPARE_DESCRIPTORS`], allow.
fn connection_count_max(set: Option<u32>) -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let set = set.map_or(usize::MAX, |count| count as usize);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return set.min(1024) };
    let limit = if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    usize::try_from(limit.saturating_sub(SPARE_DESCRIPTORS).max(8)).unwrap_or(usize::MAX).min(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_file_of_a_server_that_no_longer_runs_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = Listener::unix(&path).unwrap();
        assert_eq!(Listener::unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_server_whose_accept_queue_is_full_keeps_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = socket2::SockAddr::unix(&path).unwrap();
        let socket = || {
            let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let listening = socket();
        listening.bind(&address).unwrap();
        listening.listen(0).unwrap();
        let mut queued = Vec::new();
        for client in std::iter::repeat_with(socket) {
            let Ok(()) = client.connect(&address) else { break };
            queued.push(client);
        }
        assert_eq!(Listener::unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_listener_does_not_remove_the_socket_of_its_successor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = Listener::unix(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _second = Listener::unix(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
