//! Runs workers on tokio: one thread with one single-threaded runtime each.

mod accept;
mod addresses;
mod connection;
pub(crate) mod failed_handshake;
pub(crate) mod front_turn;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod handler;
mod inlet;
mod late;
mod local;
mod partial_record;
mod refusal;
mod reserve;
mod socket;
mod tasks;
#[cfg(test)]
pub(crate) mod test_local;
mod tls_stream;

pub use accept::{Acceptor, Listener};
pub use addresses::AddressLimits;
pub(crate) use addresses::Admission;
pub(crate) use handler::ConnectionHandler;
#[doc(hidden)]
pub use inlet::BenchInlet;
pub(crate) use inlet::{ClosedLane, Inlet, Reply, ReplyFuture, ReplyStream};
pub(crate) use local::Local;
pub(crate) use reserve::Reserved;
pub use socket::Socket;
pub(crate) use socket::StdSocket;

use crate::access::Evidence;
use crate::clock::{BootClock, Clock};

use crate::limits::EVENTS_PER_POLL;
use crate::mail::Mail;
use crate::node::Node;
use crate::port::Port;
use crate::worker::{MovedConnection, Worker};
use addresses::Addresses;
use reserve::Reserves;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// Connection for a worker, either new or moved from another worker.
#[derive(Debug)]
pub struct Intake {
    /// Port through which the connection came, which determines its protocol.
    pub port: Port,
    /// The socket.
    pub socket: socket::StdSocket,
    /// Name of the client: its address, or the user and process at a Unix socket. It is the owner of the client's holds
    /// until the client names another owner.
    pub peer: String,
    /// Facts that identify the client. They are empty for a moved connection, because its identity is in `moved`.
    pub evidence: Evidence,
    /// State of a connection that another worker sent, including requests that the other worker read and did not serve.
    /// `None` for a new connection.
    pub moved: Option<MovedConnection>,
    /// Place among the few connections that some listeners accept although the server is full. `None` if the server was
    /// not full. The place is free again when this value is dropped.
    pub(crate) reserved: Option<Reserved>,
    /// Counts the connection for its source address.
    pub(crate) admission: Admission,
}

/// Handle of a worker for other threads.
#[derive(Debug)]
pub struct WorkerHandle {
    intake: mpsc::UnboundedSender<Intake>,
    /// Wakes the worker to check its mailbox.
    mail: Notify,
    /// Number of the worker's connections, including those that were sent to it and that it does not serve yet.
    connection_count: AtomicUsize,
}

impl WorkerHandle {
    /// Wakes a sleeping worker to check its mailbox.
    pub(crate) fn wake(&self) {
        self.mail.notify_one();
    }

    fn send(&self, intake: Intake) {
        self.connection_count.fetch_add(1, Ordering::Relaxed);
        if self.intake.send(intake).is_err() {
            // The thread of the worker has ended. The channel rejects the connection and drops it, which closes the
            // socket.
            self.connection_count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Handles of all workers of a server.
pub type WorkerHandles = Arc<[WorkerHandle]>;

/// Handle through which workers ask an acceptor to accept all waiting connections before sessions expire. The acceptor
/// then sends [`Mail::Drained`] to each worker that asked.
#[derive(Debug, Default)]
pub struct AcceptorHandle {
    askers: Mutex<Vec<u16>>,
    asked: Notify,
}

impl AcceptorHandle {
    fn ask(&self, worker: u16) {
        self.askers.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
        self.asked.notify_one();
    }

    fn take_askers(&self) -> Vec<u16> {
        std::mem::take(&mut *self.askers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Handles of all acceptors of a server.
pub type AcceptorHandles = Arc<[AcceptorHandle]>;

/// Configuration of the workers' threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriverConfig {
    /// Whether to pin worker n to the n-th core that this process may use. Further workers begin with the first core
    /// again.
    pub pin: bool,
    /// Time for which a worker without work polls for more work before it sleeps. 0 disables this polling.
    pub busy_poll: Duration,
    /// Limits of each source address.
    pub address_limits: AddressLimits,
}

/// The running workers.
#[derive(Debug)]
pub struct Workers {
    /// Handles of the workers.
    pub handles: WorkerHandles,
    /// Handles of the acceptors.
    pub acceptors: AcceptorHandles,
    /// Numbers of open connections that the Unix socket and the HTTP port accepted although the server was full.
    reserves: Reserves,
    /// Numbers of connections of each source address, with their limits.
    addresses: Mutex<Addresses>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts a thread for each worker of the node. `handler` serves the connections of front ends.
    ///
    /// # Errors
    /// Fails if a thread or its runtime cannot be created.
    pub(crate) fn start(
        node: &Arc<Node>,
        config: DriverConfig,
        handler: &Arc<impl ConnectionHandler>,
    ) -> std::io::Result<Self> {
        let count = node.worker_count();
        let (handles, intakes): (Vec<_>, Vec<_>) = (0..count)
            .map(|_| {
                let (intake, receiver) = mpsc::unbounded_channel();
                (
                    WorkerHandle { intake, mail: Notify::new(), connection_count: AtomicUsize::new(0) },
                    receiver,
                )
            })
            .unzip();
        let handles: WorkerHandles = handles.into();
        let acceptors: AcceptorHandles =
            (0..node.acceptor_count()).map(|_| AcceptorHandle::default()).collect();
        let cores = if config.pin { core_affinity::get_core_ids().unwrap_or_default() } else { Vec::new() };
        let mut threads = Vec::with_capacity(count);
        let all_finished = Arc::new(Barrier::new(count));
        for (index, intake) in intakes.into_iter().enumerate() {
            let (node, handles, acceptors) = (Arc::clone(node), Arc::clone(&handles), Arc::clone(&acceptors));
            let (handler, all_finished) = (Arc::clone(handler), Arc::clone(&all_finished));
            let core = (!cores.is_empty()).then(|| cores[index % cores.len()]);
            let thread = std::thread::Builder::new().name(format!("worker-{index}"));
            threads.push(thread.spawn(move || {
                if let Some(core) = core
                    && !core_affinity::set_for_current(core)
                {
                    tracing::warn!(worker = index, core = core.id, "could not pin a worker to its core");
                }
                let thread_id = rustix::thread::gettid().as_raw_nonzero().get();
                node.metrics.workers[index].thread_id.set(thread_id.unsigned_abs().into());
                let local = run_worker(node, index as u16, handles, acceptors, intake, config, handler);
                // A worker whose tasks still run may pass the turn of a shard to this worker by mail. So wait until the
                // tasks of all workers have ended, and then handle mail once more.
                all_finished.wait();
                local.take_last_mail();
            })?);
        }
        let (reserves, addresses) = (Reserves::default(), Mutex::new(Addresses::new(config.address_limits)));
        Ok(Self { handles, acceptors, reserves, addresses, threads })
    }

    /// Sends mail to every worker and wakes it.
    pub fn tell(&self, node: &Node, mail: impl Fn() -> Mail) {
        for worker in 0..self.handles.len() {
            self.tell_one(node, worker as u16, mail());
        }
    }

    /// Sends mail to one worker and wakes it.
    fn tell_one(&self, node: &Node, worker: u16, mail: Mail) {
        node.mailboxes[usize::from(worker)].post(mail);
        self.handles[usize::from(worker)].mail.notify_one();
    }

    /// Returns the number of connections that count towards the connection limit. Connections that a listener accepted
    /// although the server was full do not count.
    pub fn connection_count(&self) -> usize {
        let count: usize =
            self.handles.iter().map(|handle| handle.connection_count.load(Ordering::Relaxed)).sum();
        count.saturating_sub(self.reserves.count())
    }

    /// Waits for the threads of all workers. They end only after each worker has got `Mail::Finish`.
    pub fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
    }
}

fn run_worker(
    node: Arc<Node>,
    index: u16,
    handles: WorkerHandles,
    acceptors: AcceptorHandles,
    intake: mpsc::UnboundedReceiver<Intake>,
    config: DriverConfig,
    handler: Arc<impl ConnectionHandler>,
) -> Rc<Local> {
    let (parking_node, parking_handles) = (Arc::clone(&node), Arc::clone(&handles));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_io_events_per_tick(EVENTS_PER_POLL)
        .on_thread_park(move || {
            // If mail came since the mailbox was last emptied, run the mail task instead of sleeping.
            if !parking_node.mailboxes[usize::from(index)].sleep() {
                parking_handles[usize::from(index)].mail.notify_one();
            }
        })
        .build_local(tokio::runtime::LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, worker = index, "could not create the runtime of a worker");
            std::process::abort();
        }
    };
    let worker = Worker::new(Arc::clone(&node), index, BootClock.moment());
    let local = Rc::new(Local::new(node, worker, index, handles, acceptors, intake));
    Local::enter(&local);
    handler.enter();
    runtime.block_on(tasks::run(Rc::clone(&local), handler, config.busy_poll));
    local
}

#[cfg(test)]
mod tests {
    use super::test_local::NoFronts;
    use super::*;
    use crate::clock::BootClock;
    use crate::limits::SERVED_COST_MAX;
    use crate::mail::Batch;
    use crate::worker::test_node::test_node_with_log;

    /// A clean stop records the state of all shards, so no worker that has ended may still have the turn of a shard.
    #[test]
    fn a_worker_that_ends_first_leaves_no_shard_turn_taken() {
        let (node, orders) = test_node_with_log(2, BootClock.moment().now);
        let config = DriverConfig::default();
        let workers = Workers::start(&node, config, &Arc::new(NoFronts)).expect("two threads");
        let mut turn = loop {
            if let Some(turn) = node.shards[0].enter() {
                break turn;
            }
            std::thread::yield_now();
        };
        // Leave more batches than one turn serves, so that worker 1 passes the turn of the shard on to worker 0.
        turn.left.extend((0..=SERVED_COST_MAX).map(|_| Batch::Count));
        workers.tell_one(&node, 0, Mail::Finish);
        // Worker 0 has got `Mail::Finish`, but worker 1 has not. Worker 0 would end during the sleep below if it did
        // not wait for worker 1.
        std::thread::sleep(Duration::from_millis(100));
        workers.tell_one(&node, 1, Mail::Turn { shard: 0, pass: turn.pass_on() });
        workers.tell_one(&node, 1, Mail::Finish);
        workers.join();
        node.record_ephemeral();
        drop(orders);
    }
}
