//! The quorum thread, which sends requests to the cluster.

use super::cluster::{Cluster, ClusterError};
use super::codec::{STEP_COUNT_MAX, etcd_key, replies_of, txn_of};
use super::counters::{FinishedQuestion, Reply, Step};
use super::port::{QuorumOrder, QuorumPort};
use super::requester::{Act, Requester};
use crate::clock::Clock;
use crate::limits::QUORUM_ATTEMPT_MS;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::sleep;
use waymaker_engine::CounterName;
use waymaker_proto::etcd::etcdserverpb::RangeRequest;
use waymaker_protocol::Readable;

/// Timeout of one request to a member.
const ATTEMPT: Duration = Duration::from_millis(QUORUM_ATTEMPT_MS);
/// Longest sleep of the thread.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// The functions of the server that the quorum thread calls: its clock, its metrics, the names of its namespaces, and
/// the delivery of results.
pub trait QuorumHost: Send + Sync + 'static {
    /// Returns the clock of the server.
    fn clock(&self) -> &dyn Clock;

    /// Adds the duration of a request to the cluster, in nanoseconds, to the metrics of the server.
    fn note_request(&self, nanos: u64);

    /// Returns the name of the namespace with this number. It is empty if there is none.
    fn namespace_name(&self, number: u16) -> Box<[u8]>;

    /// Delivers the result of a question, a group of grants whose fences the cluster has counted or could not count.
    /// The result goes to the workers, or to the log if the grants must be recorded first.
    fn deliver(&self, finished: FinishedQuestion);
}

/// The running quorum thread. Only this thread uses the cluster, so workers never wait for its network.
#[derive(Debug)]
pub struct QuorumThread {
    thread: JoinHandle<()>,
    port: QuorumPort,
}

impl QuorumThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns an error if the runtime or the thread cannot be created.
    pub fn start(
        cluster: Cluster,
        prefix: String,
        host: impl QuorumHost,
        (port, orders): (QuorumPort, UnboundedReceiver<QuorumOrder>),
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let status = Arc::clone(port.status());
        let mut run = Run {
            requester: Requester::new(rand::random(), status, STEP_COUNT_MAX, host.clock().now()),
            cluster,
            prefix,
            host: Arc::new(host),
            names: BTreeMap::new(),
            in_flight: JoinSet::new(),
        };
        let thread = std::thread::Builder::new().name("quorum".to_owned());
        // Use a task instead of blocking on the future: waking the future that `block_on` polls costs a system call.
        let thread = thread.spawn(move || {
            let task = runtime.spawn(async move { run.run(orders).await });
            runtime.block_on(task).expect("the task that asks the etcd cluster panicked");
        })?;
        Ok(Self { thread, port })
    }

    /// Stops the quorum thread. Workers must not ask it to count fences any more. Grants that still wait for the
    /// cluster get no result.
    pub fn stop(self) {
        self.port.tell(QuorumOrder::Stop);
        // Ignore a panic of the thread: the panic hook of the server ends the process anyway.
        let _ = self.thread.join();
    }
}

/// The result of a request to the cluster.
enum Answer {
    /// The result of a transaction with these steps.
    Counted(Vec<Step>, Result<Vec<Reply>, ClusterError>),
    /// The result of a probe.
    Seen(Result<(), ClusterError>),
}

/// Measures the duration of a request to the cluster, also of a failed one.
async fn timed<T>(host: &impl QuorumHost, request: impl Future<Output = T>) -> T {
    let began = host.clock().nanos();
    let answer = request.await;
    host.note_request(host.clock().nanos().saturating_sub(began));
    answer
}

/// The state of the running quorum thread. The thread performs the acts that `requester` returns: it sends transactions
/// and probes, delivers results, writes log messages, and waits.
struct Run<H> {
    requester: Requester,
    cluster: Cluster,
    prefix: String,
    host: Arc<H>,
    /// Names of namespaces by number. Entries stay after their namespace is removed, because a retried step may still
    /// need the name.
    names: BTreeMap<u16, Box<[u8]>>,
    in_flight: JoinSet<Answer>,
}

impl<H: QuorumHost> Run<H> {
    async fn run(&mut self, mut orders: UnboundedReceiver<QuorumOrder>) {
        loop {
            let now = self.host.clock().now();
            match self.requester.next(now) {
                Act::Wait(until) => {
                    let wait = Duration::from_millis(until.ms_since(now)).min(WAIT_MAX);
                    tokio::select! {
                        order = orders.recv() => {
                            let mut order = order;
                            while let Some(QuorumOrder::Count(questions)) = order {
                                let now = self.host.clock().now();
                                questions.into_iter().for_each(|question| self.requester.ask(question, now));
                                order = orders.try_recv().ok();
                                if order.is_none() {
                                    break;
                                }
                            }
                            if matches!(order, Some(QuorumOrder::Stop)) {
                                return;
                            }
                        }
                        Some(answer) = self.in_flight.join_next() => {
                            self.take(answer.expect("a request to the cluster panicked"));
                        }
                        () = sleep(wait) => {}
                    }
                }
                Act::Ask(steps) => self.ask(steps),
                Act::Look => self.look(),
                Act::Deliver(finished) => self.host.deliver(finished),
                Act::NoteNonsense(name) => {
                    let key = self.key_of(&name);
                    tracing::error!(
                        key = %Readable(&key),
                        "the value of this etcd key is not a fence counter; grants of its lock are refused until an operator \
                         corrects it; if it were deleted, fences could repeat"
                    );
                }
            }
        }
    }

    fn take(&mut self, answer: Answer) {
        let now = self.host.clock().now();
        match answer {
            Answer::Counted(steps, replies) => self.requester.take_answer(&steps, replies, now),
            Answer::Seen(look) => self.requester.take_look(look, now),
        }
    }

    fn ask(&mut self, steps: Vec<Step>) {
        let keys: Vec<_> = steps.iter().map(|step| self.key_of(&step.name)).collect();
        let txn = txn_of(keys.into_iter().zip(&steps));
        let (cluster, host) = (self.cluster.clone(), Arc::clone(&self.host));
        self.in_flight.spawn(async move {
            let answer = timed(&*host, cluster.txn(txn, ATTEMPT)).await;
            let replies = answer.and_then(|answer| {
                let nonsense =
                    || ClusterError::Unknown { reason: "etcd sent a malformed response".to_owned() };
                replies_of(&answer, steps.len()).ok_or_else(nonsense)
            });
            Answer::Counted(steps, replies)
        });
    }

    /// Probes the cluster: reads one key.
    fn look(&mut self) {
        let (cluster, host) = (self.cluster.clone(), Arc::clone(&self.host));
        let key = self.prefix.clone().into_bytes();
        self.in_flight.spawn(async move {
            let range = RangeRequest { key, limit: 1, keys_only: true, ..Default::default() };
            Answer::Seen(timed(&*host, cluster.range(range, ATTEMPT)).await.map(|_| ()))
        });
    }

    fn key_of(&mut self, counter: &CounterName) -> Vec<u8> {
        let number = counter.namespace;
        let name = self.names.entry(number).or_insert_with(|| self.host.namespace_name(number));
        etcd_key(&self.prefix, name, counter)
    }
}
