//! The thread of a simulated server that asks the cluster.

use crate::cluster::NamedStep;
use crate::event::Event;
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use tokio::sync::mpsc::UnboundedReceiver;
use waymaker_engine::{QuorumState, Time};
use waymaker_server::delivery::{Delivery, post};
use waymaker_server::limits::{QUORUM_ATTEMPT_MS, QUORUM_RETRY_MS, QUORUM_TRANSACTION_COUNT_MAX};
use waymaker_server::node::Node;
use waymaker_server::quorum::cluster::ClusterError;
use waymaker_server::quorum::counters::{FinishedQuestion, Step};
use waymaker_server::quorum::port::{QuorumOrder, QuorumPort};
use waymaker_server::quorum::requester::{Act, Requester};

/// Longest delay until the thread wakes.
const WAKE_MAX_US: u64 = 60;

/// Simulation of `quorum::thread`, which carries out the acts of the requester in virtual time.
#[derive(Debug)]
pub(crate) struct SimulatedQuorum {
    start: u32,
    port: QuorumPort,
    orders: UnboundedReceiver<QuorumOrder>,
    requester: Requester,
    /// Names of namespaces, by their numbers.
    names: BTreeMap<u16, Box<[u8]>>,
    /// The steps of each transaction without an answer; `None` for a probe.
    in_flight: BTreeMap<u64, Option<Vec<Step>>>,
    acts_at_us: Option<u64>,
    /// Number of questions without an answer.
    open_count: usize,
    /// The last answers of the cluster.
    heard: LastResult,
}

/// The last answers of the cluster. They do not come from the requester, which may be wrong.
#[derive(Debug)]
struct LastResult {
    /// Time at which the cluster last counted, or refused to.
    answered_at: Time,
    /// True if the cluster rejects the user.
    is_stranger: bool,
    /// True if the thread considered the cluster unavailable.
    was_unavailable: bool,
    /// Until this time the cluster gets no new transaction, because a transaction failed.
    spared_until: Time,
}

impl SimulatedQuorum {
    /// Creates the thread for one start of the server.
    pub(crate) fn new(world: &World, start: u32) -> Self {
        let (port, orders) = QuorumPort::new();
        let step_count_max = world.settings.cluster().map_or(1, |settings| settings.step_count_max);
        let status = Arc::clone(port.status());
        Self {
            start,
            port,
            orders,
            requester: Requester::new(u64::from(start) + 1, status, step_count_max, world.server_time()),
            names: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            acts_at_us: None,
            open_count: 0,
            heard: LastResult {
                answered_at: world.server_time(),
                is_stranger: false,
                was_unavailable: false,
                spared_until: Time::ZERO,
            },
        }
    }

    /// Returns the port through which workers ask the thread.
    pub(crate) fn port(&self) -> QuorumPort {
        self.port.clone()
    }

    /// Starts the thread.
    pub(crate) fn begin(&mut self, world: &mut World) {
        self.schedule(world, world.now_us + 1);
    }

    /// Wakes the thread if something was left for it.
    pub(crate) fn poke(&mut self, world: &mut World) {
        if !self.orders.is_empty() && self.acts_at_us.is_none_or(|at_us| at_us > world.now_us + WAKE_MAX_US) {
            let at_us = world.now_us + world.random.between(1, WAKE_MAX_US);
            self.schedule(world, at_us);
        }
    }

    fn schedule(&mut self, world: &mut World, at_us: u64) {
        if self.acts_at_us.is_none_or(|acts_at_us| acts_at_us > at_us) {
            self.acts_at_us = Some(at_us);
            world.at(at_us, Event::Quorum(self.start));
        }
    }

    /// Does everything that is due. Returns the workers that slept and have mail now.
    pub(crate) fn act(&mut self, world: &mut World, node: &Node) -> Vec<usize> {
        if self.acts_at_us != Some(world.now_us) {
            return Vec::new();
        }
        self.acts_at_us = None;
        while let Ok(order) = self.orders.try_recv() {
            if let QuorumOrder::Count(questions) = order {
                let now = world.server_time();
                self.open_count += questions.len();
                questions.into_iter().for_each(|question| self.requester.ask(question, now));
            }
        }
        self.go_on(world, node)
    }

    /// Handles the result of a transaction or a probe.
    pub(crate) fn hear(&mut self, world: &mut World, node: &Node, transaction: u64) -> Vec<usize> {
        let heard = world.cluster.hear(transaction);
        let (Some(steps), Some(heard)) = (self.in_flight.remove(&transaction), heard) else {
            return Vec::new();
        };
        world.trace.note(world.now_us, 43, transaction, || {
            format!("quorum    gets the result of {transaction}: {heard:?}")
        });
        let now = world.server_time();
        self.heard.is_stranger = matches!(heard, Err(ClusterError::Unauthenticated { .. }));
        match steps {
            Some(steps) => {
                if let Ok(_) | Err(ClusterError::Refused { .. }) = heard {
                    self.heard.answered_at = now;
                }
                if let Err(ClusterError::NotSent { .. } | ClusterError::Unknown { .. }) = heard {
                    self.heard.spared_until = now.after_ms(QUORUM_RETRY_MS);
                }
                self.requester.take_answer(&steps, heard, now);
            }
            None => {
                let is_ok = heard.is_ok();
                self.requester.take_look(heard.map(|_| ()), now);
                if is_ok && self.is_unavailable() {
                    world.auditor.accuse("answers", || {
                        "the server considers the cluster unavailable after a probe succeeded".to_owned()
                    });
                }
            }
        }
        self.go_on(world, node)
    }

    fn go_on(&mut self, world: &mut World, node: &Node) -> Vec<usize> {
        let mut wakes = Vec::new();
        loop {
            let act = self.requester.next(world.server_time());
            self.judge(world, &act);
            self.judge_state(world, &act);
            self.judge_load(world, &act);
            match act {
                Act::Wait(Time::NEVER) => return wakes,
                Act::Wait(until) => {
                    // The clock shows whole milliseconds. It shows this one from the beginning of that
                    // millisecond on.
                    let wait_ms = until.ms_since(world.server_time()).max(1);
                    self.schedule(world, (world.now_us / 1000 + wait_ms) * 1000);
                    return wakes;
                }
                Act::Ask(steps) => {
                    let named = steps.iter().map(|step| (self.name_of(node, step), step.clone()));
                    let named: Vec<NamedStep> = named.collect();
                    let transaction = world.ask_cluster(self.start, named);
                    self.in_flight.insert(transaction, Some(steps));
                }
                Act::Look => {
                    let transaction = world.ask_cluster(self.start, Vec::new());
                    self.in_flight.insert(transaction, None);
                }
                Act::Deliver(settled) => {
                    self.open_count -= 1;
                    wakes.append(&mut deliver(world, node, settled));
                }
                Act::NoteNonsense(name) => {
                    world.auditor.accuse("fence-counted", || format!("the counter {name:?} has no value"));
                }
            }
        }
    }

    /// Reports a violation if questions wait although the cluster is not asked.
    fn judge(&self, world: &mut World, act: &Act) {
        let is_asked = self.in_flight.values().any(Option::is_some);
        if let Act::Wait(until) = act
            && self.open_count > 0
            && !is_asked
            && until.ms_since(world.server_time()) > QUORUM_RETRY_MS
        {
            let count = self.open_count;
            world.auditor.accuse("answers", || {
                format!("{count} questions wait, but the server sends no transaction to the cluster")
            });
        }
    }

    /// Checks that a cluster that answers counts as available, and that a cluster counts as unavailable if it
    /// answered nothing until a question expired.
    fn judge_state(&mut self, world: &mut World, act: &Act) {
        let is_unavailable = self.is_unavailable();
        let was_unavailable = std::mem::replace(&mut self.heard.was_unavailable, is_unavailable);
        let silent_ms = world.server_time().ms_since(self.heard.answered_at);
        let is_silent = silent_ms >= QUORUM_ATTEMPT_MS;
        let is_given_up = matches!(act, Act::Deliver(FinishedQuestion { fences: None, .. }));
        if is_unavailable && !was_unavailable && !is_silent && !self.heard.is_stranger {
            world.auditor.accuse("answers", || {
                format!("the server considers the cluster unavailable, but it responded {silent_ms} ms ago")
            });
        }
        if is_given_up && is_silent && !is_unavailable {
            world.auditor.accuse("answers", || {
                format!(
                    "the server considers the cluster available, but it has not responded for {silent_ms} ms"
                )
            });
        }
    }

    /// Checks that the cluster has only a few transactions at a time, and none for a while after a failure.
    fn judge_load(&self, world: &mut World, act: &Act) {
        let count = self.in_flight.values().filter(|steps| steps.is_some()).count();
        let is_spared = world.server_time() < self.heard.spared_until;
        if matches!(act, Act::Ask(_)) && (is_spared || count >= QUORUM_TRANSACTION_COUNT_MAX) {
            world.auditor.accuse("steps", || {
                format!(
                    "the server sends a transaction while {count} others are in flight; in the pause after a failure: {is_spared}"
                )
            });
        }
    }

    /// Returns whether the cluster counts as unavailable.
    pub(super) fn is_unavailable(&self) -> bool {
        self.port.status().state() == QuorumState::Unavailable
    }

    /// Returns the name of a counter's namespace, which may have another number at another server.
    fn name_of(&mut self, node: &Node, step: &Step) -> Box<[u8]> {
        let number = step.name.namespace;
        let name = self.names.entry(number).or_insert_with(|| {
            let namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            namespaces.name_of(number).unwrap_or_default().into()
        });
        name.clone()
    }
}

fn deliver(world: &mut World, node: &Node, settled: FinishedQuestion) -> Vec<usize> {
    let mut wakes = Vec::new();
    let log = node.log.as_ref();
    match Delivery::new(settled, log.is_some(), world.server_time()) {
        Delivery::Workers(mails) => {
            // A lease may begin now.
            let now_ms = world.server_ms();
            world.auditor.note_synced(now_ms);
            post(node, mails, |worker| wakes.push(usize::from(worker)));
        }
        Delivery::Log(batch) => {
            if let Some(log) = log {
                log.post(batch);
            }
        }
    }
    wakes
}
