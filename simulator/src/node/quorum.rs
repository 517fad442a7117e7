//! The thread of a simulated server that asks the cluster.

use crate::cluster::{Heard, NamedStep};
use crate::world::{Event, World};
use std::collections::BTreeMap;
use std::sync::PoisonError;
use tokio::sync::mpsc::UnboundedReceiver;
use waymaker_engine::QuorumState;
use waymaker_server::limits::{
    QUORUM_ANSWER_MS, QUORUM_ATTEMPT_MS, QUORUM_PROBE_MS, QUORUM_RETRY_MS, QUORUM_TRANSACTION_COUNT_MAX,
};
use waymaker_server::node::Node;
use waymaker_server::quorum::counters::{Counters, Step};
use waymaker_server::quorum::delivery::Delivery;
use waymaker_server::quorum::port::{QuorumOrder, QuorumPort};
use waymaker_server::waiting::post;

/// How long the thread takes to wake.
const WAKE_MAX_US: u64 = 60;
/// Steps of one transaction, at most: few, so that there are several of them.
const STEP_COUNT_MAX: usize = 3;

/// What `quorum::thread` does, in virtual time.
#[derive(Debug)]
pub(crate) struct SimulatedQuorum {
    start: u32,
    port: QuorumPort,
    orders: UnboundedReceiver<QuorumOrder>,
    counters: Counters,
    /// Of namespaces, by their number.
    names: BTreeMap<u16, Box<[u8]>>,
    in_flight: BTreeMap<u64, Vec<Step>>,
    /// After a failure nothing is asked before.
    retries_at_us: u64,
    /// When the cluster last answered.
    answered_at_us: u64,
    /// When a cluster that does not answer is looked at.
    probes_at_us: u64,
    acts_at_us: Option<u64>,
}

impl SimulatedQuorum {
    /// That of one start of the server.
    pub(crate) fn new(world: &World, start: u32) -> Self {
        let (port, orders) = QuorumPort::new();
        Self {
            start,
            port,
            orders,
            counters: Counters::new(u64::from(start) + 1),
            names: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            retries_at_us: 0,
            answered_at_us: world.now_us,
            probes_at_us: 0,
            acts_at_us: None,
        }
    }

    /// Where workers leave what they ask.
    pub(crate) fn port(&self) -> QuorumPort {
        self.port.clone()
    }

    /// Something may have been left for it.
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

    /// Does what is due. Says which workers slept and have mail now.
    pub(crate) fn act(&mut self, world: &mut World, node: &Node) -> Vec<usize> {
        if self.acts_at_us != Some(world.now_us) {
            return Vec::new();
        }
        self.acts_at_us = None;
        while let Ok(order) = self.orders.try_recv() {
            if let QuorumOrder::Count(questions) = order {
                let deadline = world.server_time().after_ms(QUORUM_ANSWER_MS);
                questions.into_iter().for_each(|question| self.counters.ask(question, deadline));
            }
        }
        self.go_on(world, node)
    }

    /// A transaction is over.
    pub(crate) fn hear(&mut self, world: &mut World, node: &Node, transaction: u64) -> Vec<usize> {
        let heard = world.cluster.hear(transaction);
        let (Some(steps), Some(heard)) = (self.in_flight.remove(&transaction), heard) else {
            return Vec::new();
        };
        world
            .trace
            .note(world.now_us, 43, transaction, || format!("quorum    hears {transaction}: {heard:?}"));
        match heard {
            Heard::Said(replies) => {
                self.answered_at_us = world.now_us;
                self.port.status().set_unavailable(false);
                for (step, reply) in steps.iter().zip(replies) {
                    self.counters.answered(step, reply);
                }
            }
            Heard::Refused => steps.iter().for_each(|step| self.counters.refused(step)),
            Heard::Lost => {
                steps.iter().for_each(|step| self.counters.lost(step));
                self.retries_at_us = world.now_us + QUORUM_RETRY_MS * 1000;
            }
        }
        self.go_on(world, node)
    }

    fn go_on(&mut self, world: &mut World, node: &Node) -> Vec<usize> {
        self.probe(world);
        self.expire(world);
        self.ask(world, node);
        let wakes = self.deliver(world, node);
        self.rest(world);
        wakes
    }

    fn is_unavailable(&self) -> bool {
        self.port.status().state() == QuorumState::Unavailable
    }

    /// Looks whether the cluster answers again.
    fn probe(&mut self, world: &World) {
        if self.is_unavailable() && world.now_us >= self.probes_at_us {
            self.probes_at_us = world.now_us + QUORUM_PROBE_MS * 1000;
            self.port.status().set_unavailable(world.is_cluster_down());
        }
    }

    fn expire(&mut self, world: &mut World) {
        if self.counters.expire(world.server_time())
            && world.now_us - self.answered_at_us >= QUORUM_ATTEMPT_MS * 1000
        {
            world.trace.note(world.now_us, 44, 0, || "quorum    gives up".to_owned());
            self.port.status().set_unavailable(true);
            self.probes_at_us = world.now_us + QUORUM_PROBE_MS * 1000;
            self.counters.give_up_all();
        }
    }

    fn ask(&mut self, world: &mut World, node: &Node) {
        while world.now_us >= self.retries_at_us && self.in_flight.len() < QUORUM_TRANSACTION_COUNT_MAX {
            let steps = self.counters.next_steps(STEP_COUNT_MAX);
            if steps.is_empty() {
                return;
            }
            let named = steps.iter().map(|step| (self.name_of(node, step), step.clone()));
            let named: Vec<NamedStep> = named.collect();
            let transaction = world.ask_cluster(self.start, named);
            self.in_flight.insert(transaction, steps);
        }
    }

    /// The name of the namespace of a counter. Another server may have another number for it.
    fn name_of(&mut self, node: &Node, step: &Step) -> Box<[u8]> {
        let number = step.name.namespace;
        let name = self.names.entry(number).or_insert_with(|| {
            let namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            namespaces.name_of(number).unwrap_or_default().into()
        });
        name.clone()
    }

    fn deliver(&mut self, world: &mut World, node: &Node) -> Vec<usize> {
        let mut wakes = Vec::new();
        for settled in self.counters.take_settled() {
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
        }
        wakes
    }

    /// When to look again though nobody says anything.
    fn rest(&mut self, world: &mut World) {
        let expires_at_us = self.counters.next_deadline().map(|deadline| {
            // The clock shows whole milliseconds: it shows this one from its beginning on.
            (world.now_us / 1000 + deadline.ms_since(world.server_time()).max(1)) * 1000
        });
        let retries_at_us = (self.retries_at_us > world.now_us).then_some(self.retries_at_us);
        let probes_at_us = self.is_unavailable().then_some(self.probes_at_us);
        if let Some(at_us) = expires_at_us.into_iter().chain(retries_at_us).chain(probes_at_us).min() {
            self.schedule(world, at_us);
        }
    }
}
