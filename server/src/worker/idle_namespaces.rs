//! The end of empty namespaces: after an idle time, or at the request of an operator.

use super::State;
use crate::limits::NAMESPACE_LOOK_MS;
use crate::mail::Batch;
use crate::namespaces::{EmptinessCheck, RemovalRefusal, RemovalResult};
use crate::node::Node;
use std::sync::PoisonError;
use waymaker_engine::{Answer, Effects as _, Refusal, Ticket, WhenDurable};

impl State {
    /// Every `NAMESPACE_LOOK_MS` milliseconds, removes the namespaces that were idle for `--limits-namespace-idle` and
    /// whose numbers no shard has got. Asks the shards whether the other idle ones are empty, unless such a check is in
    /// progress. Only worker 0 does this.
    pub(super) fn look_for_idle_namespaces(&mut self, node: &Node) {
        if self.index != 0 || self.now.ms_since(self.namespaces_looked_at) < NAMESPACE_LOOK_MS {
            return;
        }
        self.namespaces_looked_at = self.now;
        let looking = {
            let mut namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            // The answer of `is_frozen` stays valid after both locks are released. Only a lane of a namespace can
            // freeze a prefix in it, and an idle namespace has no lanes.
            let freezes = node.freezes.lock().unwrap_or_else(PoisonError::into_inner);
            let is_frozen = |number| freezes.count(number) > 0;
            namespaces.look(self.now, node.shards.len(), is_frozen, |change| node.record_namespace(change))
        };
        if let Some(looking) = looking {
            self.ask_shards(node, &looking);
        }
    }

    fn ask_shards(&mut self, node: &Node, looking: &EmptinessCheck) {
        for shard in 0..node.shards.len() as u16 {
            self.hand_over(node, shard, Batch::Forget(looking.clone()));
        }
    }

    /// Removes a namespace at the request of an operator, or refuses the request. If no shard has got the number of the
    /// namespace, it is removed at once, otherwise after all shards have found it empty.
    pub(super) fn remove_namespace(&mut self, node: &Node, ticket: Ticket, name: &[u8]) {
        let removed = {
            let mut namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            let freezes = node.freezes.lock().unwrap_or_else(PoisonError::into_inner);
            let is_frozen = |number| freezes.count(number) > 0;
            namespaces.remove_wanted(ticket, name, is_frozen, |change| node.record_namespace(change))
        };
        match removed {
            Ok(true) => self.answer_removed(node, ticket, Ok(())),
            Ok(false) => self.begin_requested(node),
            Err(reason) => self.answer_removed(node, ticket, Err(reason)),
        }
    }

    fn begin_requested(&mut self, node: &Node) {
        let looking = {
            let mut namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            namespaces.begin_requested(node.shards.len())
        };
        if let Some(looking) = looking {
            self.ask_shards(node, &looking);
        }
    }

    /// Notes that a shard has checked the namespaces of this removal; those `in_use` are not empty. After the last
    /// shard, the empty namespaces end and the next requested removal begins.
    pub(super) fn end_namespaces(&mut self, node: &Node, removal: u64, in_use: &[u16]) {
        let RemovalResult { removed, answers } = {
            let mut namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            namespaces.note_looked(removal, in_use, |change| node.record_namespace(change))
        };
        for number in removed {
            node.expiries.forget(number);
        }
        for (ticket, answer) in answers {
            self.answer_removed(node, ticket, answer);
        }
        self.begin_requested(node);
    }

    /// Answers the operator. With a log, the confirmation of a removal waits until the removal is durable.
    fn answer_removed(&mut self, node: &Node, ticket: Ticket, answer: Result<(), RemovalRefusal>) {
        let mut outbox = self.outbox(node, 0, self.now);
        match answer {
            Ok(()) if node.log.is_some() => {
                outbox.when_durable(WhenDurable::Answer(ticket, Answer::NamespaceRemoved));
            }
            Ok(()) => outbox.answer(ticket, Answer::NamespaceRemoved),
            Err(reason) => outbox.answer(ticket, Answer::Refused(refusal(reason))),
        }
    }
}

fn refusal(reason: RemovalRefusal) -> Refusal {
    match reason {
        RemovalRefusal::Unknown => Refusal::NamespaceNotFound,
        RemovalRefusal::BuiltIn => {
            Refusal::bad_input("namespace", 0, "the namespace is built in and cannot be removed")
        }
        RemovalRefusal::Declared => {
            let message = "the namespace is declared in the configuration and cannot be removed";
            Refusal::bad_input("namespace", 0, message)
        }
        RemovalRefusal::Used(count) => {
            let message = format!("{count} connections, sessions or DynamoDB tables use the namespace");
            Refusal::bad_input("connections", count, message)
        }
        RemovalRefusal::NotEmpty => {
            let message = "the namespace still has claims, registrations, frozen prefixes, pools with a set capacity, or \
                           buckets that are not full";
            Refusal::bad_input("contents", 0, message)
        }
        RemovalRefusal::TooManyWait(limit) => {
            Refusal::Overloaded { limit: "removals of namespaces", value: limit as u64 }
        }
    }
}
