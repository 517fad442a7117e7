//! A worker thread that serves a single connection, for fuzzing.

use super::{
    AcceptorHandles, Admission, ConnectionHandler, Intake, Local, StdSocket, WorkerHandle, WorkerHandles,
    tasks,
};
use crate::access::Evidence;
use crate::clock::{BootClock, Clock};
use crate::limits::SESSION_VACANT_MS;
use crate::mail::Mail;
use crate::node::{Node, NodeConfig};
use crate::port::Port;
use crate::worker::Worker;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

/// Duration of one sleep of the client after it has sent a piece of its input. The paused clock of the runtime advances
/// only when no task can run. So the server first does all that it can do at once.
const STEP: Duration = Duration::from_millis(1);
/// Number of steps that the client waits after it has sent one piece of its input, so that the server serves the piece
/// alone.
const STEPS_PER_PIECE: u32 = 2;
/// Maximum time between the end of the client's output and the end of the connection, and then until the worker ends.
/// It exceeds every time limit of the front ends.
const END: Duration = Duration::from_secs(600);

/// Serves a connection whose client sends these pieces one after the other, and then closes its side. Returns the
/// output of the server.
pub(crate) fn serve(handler: &Arc<impl ConnectionHandler>, port: Port, pieces: &[&[u8]]) -> Vec<u8> {
    // A worker is bound to its thread, so a new thread gives each connection a fresh worker.
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_io().enable_time().start_paused(true);
            let runtime = runtime.build_local(tokio::runtime::LocalOptions::default()).expect("a runtime");
            runtime.block_on(serve_on_thread(Arc::clone(handler), port, pieces)).expect("two sockets")
        });
        worker.join().expect("the worker does not panic")
    })
}

async fn serve_on_thread(
    handler: Arc<impl ConnectionHandler>,
    port: Port,
    pieces: &[&[u8]],
) -> io::Result<Vec<u8>> {
    let local = new_local();
    Local::enter(&local);
    handler.enter();
    let tasks = spawn_local(tasks::run(Rc::clone(&local), handler, Duration::ZERO));
    let (socket, client) = StdUnixStream::pair()?;
    socket.set_nonblocking(true)?;
    client.set_nonblocking(true)?;
    let socket = StdSocket::Unix(socket);
    local.handles[0].send(Intake {
        port,
        socket,
        peer: "fuzz".to_owned(),
        evidence: Evidence::default(),
        admission: Admission::default(),
        moved: None,
        reserved: None,
    });
    let (mut reading, mut writing) = UnixStream::from_std(client)?.into_split();
    let output = spawn_local(async move {
        let mut output = Vec::new();
        // Ignore errors: the server may reset the connection.
        let _ = reading.read_to_end(&mut output).await;
        output
    });
    for piece in pieces {
        if writing.write_all(piece).await.is_err() {
            break;
        }
        for _ in 0..STEPS_PER_PIECE {
            sleep(STEP).await;
        }
    }
    drop(writing);
    let output = timeout(END, output).await.expect("the connection ends").expect("the reader does not panic");
    local.node.mailboxes[0].post(Mail::Finish);
    local.handles[0].wake();
    timeout(END, tasks).await.expect("the worker ends").expect("the worker does not panic");
    for hosted in &local.node.shards {
        let turn = hosted.enter().expect("the worker has ended");
        turn.shard.verify();
        assert!(turn.leave().is_none(), "no batch is left behind");
    }
    Ok(output)
}

/// Creates the state that the tasks of a worker share, on a node with only this worker.
fn new_local() -> Rc<Local> {
    let now = BootClock.moment();
    let node = Arc::new(Node::new(&NodeConfig {
        worker_count: 1,
        acceptor_count: 0,
        limits: waymaker_engine::Limits::default(),
        session_vacant_ms: SESSION_VACANT_MS,
        start: now.now,
        seed: [7; 32],
        clock: Arc::new(BootClock),
        memory: Arc::default(),
        log: None,
        quorum: None,
    }));
    let (intake, receiver) = mpsc::unbounded_channel();
    let handle = WorkerHandle { intake, mail: Notify::new(), connection_count: AtomicUsize::new(0) };
    let handles: WorkerHandles = [handle].into();
    let acceptors: AcceptorHandles = [].into();
    let worker = Worker::new(Arc::clone(&node), 0, now);
    Rc::new(Local::new(node, worker, 0, handles, acceptors, receiver))
}
