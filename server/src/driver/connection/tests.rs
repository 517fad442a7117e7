//! Tests of a connection on its socket.

use super::*;
use crate::driver::StdSocket;
use crate::driver::test_local::{Wakes, hello_and_keep_alives, in_runtime, test_local};
use crate::driver::tls_stream::TlsState;
use crate::limits::{BATCH_COST_MAX, HOUSEKEEPING_MS, READ_LEN_MAX, WRITE_MS};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection};
use std::io::Write;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use waymaker_engine::LaneSlot;
use waymaker_protocol::limits::FRAME_LEN_MAX;

impl Connection {
    /// Creates a connection on this socket. No task of the worker serves it: the test itself runs its turns.
    fn of_test(local: &Rc<Local>, socket: Socket) -> Self {
        let inner = {
            let (mut worker, mut barrier) = (local.worker.borrow_mut(), local.barrier());
            connection::Connection::begin(
                &mut worker,
                &mut barrier,
                Newcomer::new(b"peer", None),
                local.now(),
            )
        };
        let (local, socket) = (Rc::clone(local), Rc::new(RefCell::new(socket)));
        let queued = Queued::default();
        let (reserved, admission) = (None, Admission::default());
        Self { local, socket, inner, queued, registered: true, reserved, admission }
    }

    fn has_input(&self) -> bool {
        self.local.worker.borrow_mut().has_input(self.inner.key())
    }

    /// Waits until there is something to do, and runs a turn whose time has already run out. The read barrier, which
    /// decides when leases may expire, is told that the turn took no time. Returns whether the turn gave way, because
    /// the connection may have more to read or serve, and the number of bytes that it read.
    async fn run_out_of_time(&mut self) -> (bool, u64) {
        let local = Rc::clone(&self.local);
        let had_input = self.has_input();
        poll_fn(|context| {
            let mut worker = local.worker.borrow_mut();
            let mut spent = Turn::spent();
            let end = self.run(&local, &mut worker, &mut spent, context);
            let gave_way = matches!(end, TurnEnd::GaveWay);
            assert!(gave_way || matches!(end, TurnEnd::CaughtUp), "the connection lives on");
            let read_len = spent.report(true).read_len;
            if !gave_way && !had_input && read_len == 0 {
                // The socket wakes the test when data arrives.
                return Poll::Pending;
            }
            let mut turn = Turn::timeless(read_len);
            assert!(self.end_turn(&local, &mut worker, &mut turn, end, context).is_pending());
            Poll::Ready((gave_way, read_len))
        })
        .await
    }
}

#[test]
fn a_sweep_waits_for_requests_read_before_it() {
    in_runtime(async {
        let local = test_local();
        let (socket, mut client) = std::os::unix::net::UnixStream::pair().expect("two sockets");
        socket.set_nonblocking(true).expect("a socket");
        client.write_all(&hello_and_keep_alives(4 * BATCH_COST_MAX)).expect("there is room");
        let socket = Socket::from_std(StdSocket::Unix(socket)).expect("a socket");
        let mut connection = Connection::of_test(&local, socket);
        assert!(connection.run_out_of_time().await.0);
        local.barrier().begin_debts();
        connection.inner.begin_turn(&mut local.barrier(), || connection.socket.borrow().unread_len());
        while connection.has_input() {
            assert!(local.barrier().is_owed(), "requests that were read are left");
            connection.run_out_of_time().await;
        }
        assert!(!local.barrier().is_owed());
        let more = hello_and_keep_alives(1).split_off(hello_and_keep_alives(0).len());
        client.write_all(&more).expect("there is room");
        let (gave_way, _) = connection.run_out_of_time().await;
        assert!(!gave_way, "it has read everything");
        local.barrier().begin_debts();
        assert!(!local.barrier().is_owed(), "no sweep waits for it");
    });
}

#[test]
fn a_sweep_does_not_wait_for_an_ended_connection() {
    in_runtime(async {
        let local = test_local();
        let (socket, mut client) = std::os::unix::net::UnixStream::pair().expect("two sockets");
        socket.set_nonblocking(true).expect("a socket");
        client.write_all(&hello_and_keep_alives(4 * BATCH_COST_MAX)).expect("there is room");
        let socket = Socket::from_std(StdSocket::Unix(socket)).expect("a socket");
        let mut connection = Connection::of_test(&local, socket);
        assert!(connection.run_out_of_time().await.0);
        local.barrier().begin_debts();
        assert!(local.barrier().is_owed());
        connection.finish(End::Lost, String::new()).await;
        assert!(!local.barrier().is_owed());
    });
}

/// Maximum length of the client's TLS records: short, as if the client encrypted each request separately.
const SHORT_RECORD_LEN: usize = 256;

/// Returns both ends of an encrypted connection. Their socket buffers are large enough for the bytes of several turns.
async fn encrypted() -> (Socket, TlsStream<tokio::net::TcpStream>) {
    encrypted_in_records(SHORT_RECORD_LEN).await
}

async fn encrypted_in_records(len_max: usize) -> (Socket, TlsStream<tokio::net::TcpStream>) {
    let names = vec!["localhost".to_owned()];
    let certified = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider speaks them")
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .expect("a configuration");
    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone()).expect("a certificate");
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider speaks them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.max_fragment_size = Some(len_max);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    socket2::SockRef::from(&listener).set_recv_buffer_size(1 << 20).expect("a size");
    let address = listener.local_addr().expect("an address");
    let stream = tokio::net::TcpStream::connect(address).await.expect("somebody listens");
    socket2::SockRef::from(&stream).set_send_buffer_size(1 << 20).expect("a size");
    stream.set_nodelay(true).expect("a socket");
    let (socket, _) = listener.accept().expect("a connection");
    socket.set_nonblocking(true).expect("a socket");
    let begun = ServerConnection::new(Arc::new(server)).expect("randomness");
    let mut socket =
        Socket::from_std(StdSocket::Tls(socket, Box::new(TlsState::new(begun)))).expect("a socket");
    let connector = TlsConnector::from(Arc::new(client));
    let name = ServerName::try_from("localhost").expect("a name");
    let (shaken, client) =
        tokio::join!(socket.handshake(Duration::from_secs(5)), connector.connect(name, stream));
    shaken.expect("a client");
    (socket, client.expect("a server"))
}

/// Key updates take long, and a turn checks its time only between reads. So one read must not process many key updates.
#[test]
fn a_tls_read_ends_after_a_few_key_updates() {
    in_runtime(async {
        let (mut socket, mut client) = encrypted().await;
        for byte in 0..u8::MAX {
            for _ in 0..30 {
                client.get_mut().1.refresh_traffic_keys().expect("keys can be changed");
            }
            client.write_all(&[byte]).await.expect("there is room");
        }
        client.flush().await.expect("there is room");
        let mut bytes = [0; u8::MAX as usize];
        let len = socket.read(&mut bytes).await.expect("bytes");
        assert!(len < 40, "{len} bytes, each behind 30 changes of keys");
    });
}

/// Before leases expire, a worker must also read the bytes that TLS has decrypted and that no read has returned yet.
#[test]
fn decrypted_bytes_count_as_unread() {
    in_runtime(async {
        let (mut socket, mut client) = encrypted().await;
        client.write_all(&[7; SHORT_RECORD_LEN / 2]).await.expect("there is room");
        client.flush().await.expect("there is room");
        let mut first = [0; 1];
        socket.read_exact(&mut first).await.expect("bytes");
        assert_eq!(socket.unread_len(), SHORT_RECORD_LEN as u64 / 2 - 1);
    });
}

/// If the TLS state holds the beginning of a record, the worker must read the whole record before leases expire.
#[test]
fn a_partial_tls_record_counts_as_unread() {
    in_runtime(async {
        // Use records that are longer than a single read of the socket.
        let (mut socket, mut client) = encrypted_in_records(10_000).await;
        let mut rest_len = 30_000;
        client.write_all(&vec![7; rest_len]).await.expect("there is room");
        client.flush().await.expect("there is room");
        while rest_len > 0 {
            let unread_len = socket.unread_len();
            assert!(unread_len >= rest_len as u64, "{unread_len} of {rest_len} bytes count as unread");
            let mut part = [0; 100];
            rest_len -= socket.read(&mut part).await.expect("bytes");
        }
    });
}

/// A read of an encrypted socket may leave room in the buffer although the socket has more data. So a partly filled
/// buffer does not show that the socket is empty, and the connection must check its turn time after such a read too.
/// After its HELLO the client sends only the beginning of one long frame. So no whole request is left unserved; such a
/// request would also end the turn once its time is over.
#[test]
fn an_encrypted_connection_stops_reading_when_its_turn_time_is_over() {
    in_runtime(async {
        let local = test_local();
        let (socket, mut client) = encrypted().await;
        let mut bytes = hello_and_keep_alives(0);
        bytes.extend((FRAME_LEN_MAX as u32 - 4).to_le_bytes());
        bytes.resize(FRAME_LEN_MAX / 2, 0);
        let mut written_len = 0;
        poll_fn(|context| {
            while let Poll::Ready(written) = Pin::new(&mut client).poll_write(context, &bytes[written_len..])
                && written_len < bytes.len()
            {
                written_len += written.expect("the server reads");
            }
            Poll::Ready(())
        })
        .await;
        // Up to `READ_LEN_MAX` of the written bytes may still be in the client's TLS library.
        let arriving_len = written_len as u64 - READ_LEN_MAX as u64;
        let turn_len_max = 2 * READ_LEN_MAX as u64;
        assert!(arriving_len > turn_len_max, "the buffers take only {written_len} bytes");
        let mut connection = Connection::of_test(&local, socket);
        let mut read_len = 0;
        while read_len < arriving_len {
            let (_, turn_len) = connection.run_out_of_time().await;
            assert!(turn_len <= turn_len_max, "{turn_len} bytes in one turn");
            read_len += turn_len;
        }
    });
}

/// Lets the worker drop a connection whose client does not read its responses. Then calls `before_flush` with the slot
/// of the connection's lane, and runs the flusher. Returns how often the task of the connection was woken.
fn wakes_of_stalled(before_flush: impl FnOnce(&Local, LaneSlot)) -> u32 {
    in_runtime(async {
        let local = test_local();
        let (socket, _client) = std::os::unix::net::UnixStream::pair().expect("two sockets");
        socket.set_nonblocking(true).expect("a socket");
        let socket = Socket::from_std(StdSocket::Unix(socket)).expect("a socket");
        let connection = Connection::of_test(&local, socket);
        let wakes = Arc::<Wakes>::default();
        let waker = std::task::Waker::from(Arc::clone(&wakes));
        local.register(connection.inner.key(), &connection.socket, &waker);
        {
            let mut worker = local.worker.borrow_mut();
            let now = local.now();
            worker.handle_bytes(connection.inner.key(), &hello_and_keep_alives(0), now);
            for passed_ms in (0..=WRITE_MS + HOUSEKEEPING_MS).step_by(HOUSEKEEPING_MS as usize) {
                worker.housekeep(now.now.after_ms(passed_ms));
            }
            assert!(
                worker.output(connection.inner.key()).is_none(),
                "the server has given the connection up"
            );
        }
        before_flush(&local, connection.inner.key().slot);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(local.poll_flush(&mut context).is_pending());
        wakes.count()
    })
}

#[test]
fn a_stalled_connection_is_woken_when_the_server_drops_it() {
    assert_ne!(wakes_of_stalled(|_, _| {}), 0);
}

#[test]
fn a_dropped_connection_is_woken_even_if_an_inlet_reuses_its_lane() {
    let open_inlet = |local: &Local, slot| {
        let namespace = b"default";
        let hello = waymaker_protocol::Hello {
            version_min: waymaker_protocol::VERSION,
            version_max: waymaker_protocol::VERSION,
            worker: waymaker_protocol::limits::ANY_WORKER,
            namespace,
            ..waymaker_protocol::Hello::default()
        };
        let key = local.open_inlet(&hello, Client::default()).expect("the server has room");
        assert_eq!(key.slot, slot, "the inlet has the lane that was given up");
    };
    assert_ne!(wakes_of_stalled(open_inlet), 0, "its task was not woken");
}

#[test]
fn decrypted_bytes_count_as_unread_after_a_move() {
    in_runtime(async {
        let (mut socket, mut client) = encrypted().await;
        client.write_all(&[7; SHORT_RECORD_LEN / 2]).await.expect("there is room");
        client.flush().await.expect("there is room");
        let mut first = [0; 1];
        socket.read_exact(&mut first).await.expect("bytes");
        let moved = Socket::from_std(socket.into_std().expect("a socket")).expect("a socket");
        assert_eq!(moved.unread_len(), SHORT_RECORD_LEN as u64 / 2 - 1);
    });
}
