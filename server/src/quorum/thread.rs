//! The thread that asks the cluster.

use super::cluster::{Cluster, ClusterError};
use super::codec::{STEP_COUNT_MAX, etcd_key, replies_of, txn_of};
use super::counters::{Counters, Reply, Step};
use super::delivery::Delivery;
use super::port::{QuorumOrder, QuorumPort};
use crate::limits::{
    QUORUM_ANSWER_MS, QUORUM_ATTEMPT_MS, QUORUM_PROBE_MS, QUORUM_RETRY_MS, QUORUM_TRANSACTION_COUNT_MAX,
};
use crate::node::Node;
use crate::waiting::post;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use waymaker_proto::etcd::etcdserverpb::RangeRequest;
use waymaker_protocol::Readable;

/// How long to wait before a cluster that does not answer is looked at again.
const PROBE_PAUSE: Duration = Duration::from_millis(QUORUM_PROBE_MS);
/// The same where the cluster does not accept the user, at most.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// The running thread. It alone asks the cluster, so workers never wait for a network.
#[derive(Debug)]
pub struct QuorumThread {
    thread: JoinHandle<()>,
    port: QuorumPort,
}

impl QuorumThread {
    /// Starts it. `wake` wakes a worker that slept when something was left for it.
    ///
    /// # Errors
    /// If a thread cannot be made.
    pub fn start(
        cluster: Cluster,
        prefix: String,
        node: Arc<Node>,
        (port, orders): (QuorumPort, UnboundedReceiver<QuorumOrder>),
        wake: impl Fn(u16) + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut run = Run {
            counters: Counters::new(rand::random()),
            cluster,
            prefix,
            node,
            port: port.clone(),
            wake,
            names: BTreeMap::new(),
            in_flight: JoinSet::new(),
            retry_at: None,
            answered_at: Instant::now(),
            step_count_max: STEP_COUNT_MAX,
            probe_pause: PROBE_PAUSE,
            noted_at: None,
        };
        let thread = std::thread::Builder::new().name("quorum".to_owned());
        // A task: whatever wakes what the runtime blocks on costs a system call.
        let thread = thread.spawn(move || {
            let task = runtime.spawn(async move { run.run(orders).await });
            runtime.block_on(task).expect("the thread that asks the cluster does not panic");
        })?;
        Ok(Self { thread, port })
    }

    /// Ends it. Nobody may ask anything any more; what was asked is given up.
    pub fn stop(self) {
        self.port.tell(QuorumOrder::Stop);
        // A panic ends the process.
        let _ = self.thread.join();
    }
}

/// Whether etcd says that a transaction has too many operations or bytes.
fn is_too_large(reason: &str) -> bool {
    ["too many operations", "request is too large", "received message larger"]
        .iter()
        .any(|text| reason.contains(text))
}

/// What came of one transaction.
type Answer = (Vec<Step>, Result<Vec<Reply>, ClusterError>);

/// What the thread has in hand.
struct Run<W> {
    counters: Counters,
    cluster: Cluster,
    prefix: String,
    node: Arc<Node>,
    port: QuorumPort,
    wake: W,
    /// Names of namespaces by their number. They stay after their namespaces: an answer may come late.
    names: BTreeMap<u16, Box<[u8]>>,
    in_flight: JoinSet<Answer>,
    /// After a failure nothing is asked before.
    retry_at: Option<Instant>,
    /// When the cluster last answered.
    answered_at: Instant,
    /// Steps of one transaction: fewer once etcd has said that it takes fewer.
    step_count_max: usize,
    /// How long to wait before the cluster is looked at again.
    probe_pause: Duration,
    /// When a failure was last written down: strangers cause some, and must not fill the log.
    noted_at: Option<Instant>,
}

impl<W: Fn(u16)> Run<W> {
    async fn run(&mut self, mut orders: UnboundedReceiver<QuorumOrder>) {
        // The first look opens the connection, so that nobody waits for that.
        let mut probe = Box::pin(self.probe(Duration::ZERO));
        let mut is_first = true;
        loop {
            self.ask();
            self.deliver();
            let due = self.next_due();
            tokio::select! {
                order = orders.recv() => {
                    let mut order = order;
                    while let Some(QuorumOrder::Count(questions)) = order {
                        for question in questions {
                            let deadline = self.node.clock.now().after_ms(QUORUM_ANSWER_MS);
                            self.counters.ask(question, deadline);
                        }
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
                    self.take_answer(answer.expect("a question to the cluster panicked"));
                }
                answer = &mut probe, if is_first || self.is_unavailable() => {
                    self.take_look(answer, is_first);
                    probe = Box::pin(self.probe(self.probe_pause));
                    is_first = false;
                }
                () = sleep_until(due) => self.expire(),
            }
        }
    }

    /// Asks what can be asked now.
    fn ask(&mut self) {
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.retry_at = None;
        while self.in_flight.len() < QUORUM_TRANSACTION_COUNT_MAX {
            let steps = self.counters.next_steps(self.step_count_max);
            if steps.is_empty() {
                return;
            }
            let keys: Vec<_> = steps.iter().map(|step| self.key_of(step)).collect();
            let txn = txn_of(keys.into_iter().zip(&steps));
            let cluster = self.cluster.clone();
            self.in_flight.spawn(async move {
                let answer = cluster.txn(txn, Duration::from_millis(QUORUM_ATTEMPT_MS)).await;
                let replies = answer.and_then(|answer| {
                    let nonsense =
                        || ClusterError::Unknown { reason: "its answer makes no sense".to_owned() };
                    replies_of(&answer, steps.len()).ok_or_else(nonsense)
                });
                (steps, replies)
            });
        }
    }

    fn key_of(&mut self, step: &Step) -> Vec<u8> {
        let number = step.name.namespace;
        let name = self.names.entry(number).or_insert_with(|| {
            let namespaces = self.node.namespaces.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            namespaces.name_of(number).unwrap_or_default().into()
        });
        etcd_key(&self.prefix, name, &step.name)
    }

    fn take_answer(&mut self, (steps, replies): Answer) {
        match replies {
            Ok(replies) => {
                self.answered_at = Instant::now();
                self.set_unavailable(false);
                for (step, reply) in steps.iter().zip(replies) {
                    if reply == Reply::Nonsense {
                        let key = self.key_of(step);
                        if self.is_noted() {
                            tracing::error!(key = %Readable(&key), "the key in etcd has a value that is no counter");
                        }
                    }
                    self.counters.answered(step, reply);
                }
            }
            Err(ClusterError::Refused { reason }) => {
                self.answered_at = Instant::now();
                if self.is_noted() {
                    tracing::error!(%reason, "etcd refuses to count");
                }
                if steps.len() > 1 && is_too_large(&reason) {
                    // The limit is an option of the members, so it does not grow again.
                    self.step_count_max = self.step_count_max.min(steps.len() / 2);
                    steps.iter().for_each(|step| self.counters.lost(step));
                } else if steps.len() > 1 {
                    // A single counter may be the cause, and must not slow the others.
                    steps.iter().for_each(|step| self.counters.suspected(step));
                } else {
                    steps.iter().for_each(|step| self.counters.refused(step));
                }
            }
            Err(error @ ClusterError::Unauthenticated { .. }) => {
                if self.is_noted() {
                    tracing::error!(%error, "nothing is counted: correct quorum.user or quorum.password");
                }
                self.set_unavailable(true);
                self.counters.give_up_all();
            }
            Err(error @ (ClusterError::NotSent { .. } | ClusterError::Unknown { .. })) => {
                if self.is_noted() {
                    tracing::warn!(%error, "a fence is asked for once more");
                }
                steps.iter().for_each(|step| self.counters.lost(step));
                self.retry_at = Some(Instant::now() + Duration::from_millis(QUORUM_RETRY_MS));
            }
        }
    }

    /// Whether a failure is written down: one of each second.
    fn is_noted(&mut self) -> bool {
        let is_noted = self.noted_at.is_none_or(|at| at.elapsed() >= Duration::from_secs(1));
        if is_noted {
            self.noted_at = Some(Instant::now());
        }
        is_noted
    }

    /// Gives up what waited for too long. If nothing else was answered meanwhile either, nobody waits any more until the
    /// cluster does.
    fn expire(&mut self) {
        if self.counters.expire(self.node.clock.now())
            && self.answered_at.elapsed() >= Duration::from_millis(QUORUM_ATTEMPT_MS)
        {
            self.set_unavailable(true);
            self.counters.give_up_all();
        }
    }

    /// Takes the answer to a probe. Any answer shows that the cluster is up, also the refusal to read the key. If etcd does not
    /// accept the user, probes become rare: checking a password costs a member much.
    fn take_look(&mut self, answer: Result<(), ClusterError>, is_first: bool) {
        match answer {
            Ok(()) | Err(ClusterError::Refused { .. }) => {
                self.probe_pause = PROBE_PAUSE;
                self.set_unavailable(false);
            }
            Err(error @ ClusterError::Unauthenticated { .. }) => {
                if self.is_noted() {
                    tracing::error!(%error, "correct quorum.user or quorum.password");
                }
                self.probe_pause = PROBE_PAUSE_MAX.min(2 * self.probe_pause);
                self.set_unavailable(true);
            }
            Err(ClusterError::NotSent { .. } | ClusterError::Unknown { .. }) => {
                self.probe_pause = PROBE_PAUSE;
                if is_first {
                    tracing::warn!("etcd does not answer yet");
                }
            }
        }
    }

    /// Reads one key of the cluster after a pause.
    fn probe(&self, after: Duration) -> impl Future<Output = Result<(), ClusterError>> + use<W> {
        let cluster = self.cluster.clone();
        let key = self.prefix.clone().into_bytes();
        async move {
            sleep(after).await;
            let range = RangeRequest { key, limit: 1, keys_only: true, ..Default::default() };
            cluster.range(range, Duration::from_millis(QUORUM_ATTEMPT_MS)).await.map(|_| ())
        }
    }

    fn is_unavailable(&self) -> bool {
        self.port.status().state() == waymaker_engine::QuorumState::Unavailable
    }

    fn set_unavailable(&self, is_unavailable: bool) {
        if self.is_unavailable() == is_unavailable {
            return;
        }
        self.port.status().set_unavailable(is_unavailable);
        if is_unavailable {
            tracing::error!("etcd does not answer: no grants of scope quorum until it does");
        } else {
            tracing::info!("etcd answers again");
        }
    }

    /// When to look again though nobody says anything.
    fn next_due(&self) -> Instant {
        let now = Instant::now();
        let expires_at = self
            .counters
            .next_deadline()
            .map(|deadline| now + Duration::from_millis(deadline.ms_since(self.node.clock.now()).max(1)));
        let idle = now + Duration::from_secs(3600);
        expires_at.into_iter().chain(self.retry_at).min().unwrap_or(idle)
    }

    /// Tells workers, or the log where a grant has to be in it first.
    fn deliver(&mut self) {
        for settled in self.counters.take_settled() {
            let log = self.node.log.as_ref();
            match Delivery::new(settled, log.is_some(), self.node.clock.now()) {
                Delivery::Workers(mails) => post(&self.node, mails, &self.wake),
                Delivery::Log(batch) => {
                    if let Some(log) = log {
                        log.post(batch);
                    }
                }
            }
        }
    }
}
