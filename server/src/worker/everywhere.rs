//! Questions that every shard has to answer, and none of them at once: whoever serves the last one gives the answer.

use super::State;
use super::outbox::Outbox;
use super::turns::ShardTurn;
use crate::mail::Batch;
use crate::node::Node;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_engine::log::Record;
use waymaker_engine::{
    Answer, Effects, FreezeList, NamespaceCounters, Refusal, Ticket, WhenDurable, planted,
};
use waymaker_protocol as wire;
use waymaker_protocol::limits::{KEY_LEN_MAX, LIST_PAGE_BYTES_MAX, LIST_PAGE_MAX};
use waymaker_protocol::{Frame, NamespaceKind, Quoted, Request};

/// One question.
#[derive(Debug)]
pub struct Everywhere {
    /// Shards that have not answered yet.
    left: AtomicUsize,
    ticket: Ticket,
    question: Question,
}

#[derive(Debug)]
enum Question {
    /// Take this list of frozen prefixes.
    Freeze { freezes: FreezeList, changed: bool, frozen_count: u16 },
    /// Count what there is in each namespace.
    Namespaces { from: u64, count_max: usize, counters: Mutex<Vec<NamespaceCounters>> },
}

impl State {
    /// Asks every shard.
    pub(super) fn serve_everywhere(&mut self, node: &Node, slot: u32, frame: Frame<'_>) {
        let ticket = Ticket { lane: self.lanes[slot].address, number: frame.number() };
        let question = match Request::decode(frame) {
            Ok(Request::RemoveNamespace(remove)) => {
                return self.remove_namespace(node, slot, ticket, remove.name);
            }
            Ok(Request::Freeze(freeze)) => self.freeze(node, slot, &freeze),
            Ok(Request::Namespaces(page)) => {
                let count_max =
                    if page.count_max == 0 { LIST_PAGE_MAX } else { page.count_max.min(LIST_PAGE_MAX) };
                let (from, count_max) = (page.cursor, usize::from(count_max));
                Ok(Question::Namespaces { from, count_max, counters: Mutex::default() })
            }
            Ok(_) => Err(Refusal::bad_input("opcode", 0, "this request is no matter of every shard")),
            Err(error) => Err(Refusal::bad_input(error.field(), error.limit(), error.to_string())),
        };
        let question = match question {
            Ok(question) => question,
            Err(refusal) => {
                return self.outbox(node, 0, self.now).answer(ticket, Answer::Refused(refusal));
            }
        };
        let everywhere = Arc::new(Everywhere { left: AtomicUsize::new(node.shards.len()), ticket, question });
        for shard in 0..node.shards.len() as u16 {
            self.hand_over(node, shard, Batch::Everywhere(Arc::clone(&everywhere), self.now));
        }
    }

    fn freeze(&mut self, node: &Node, slot: u32, freeze: &wire::Freeze<'_>) -> Result<Question, Refusal> {
        let lane = &self.lanes[slot];
        if lane.kind == NamespaceKind::Tree && !freeze.prefix.is_empty() {
            let message = "a tree namespace is frozen as a whole, by the empty prefix";
            return Err(Refusal::bad_input("prefix", 0, message));
        }
        if freeze.prefix.len() > KEY_LEN_MAX {
            let message = "a prefix has at most 1024 bytes";
            return Err(Refusal::bad_input("prefix", KEY_LEN_MAX as u64, message));
        }
        lane.note_namespace_known();
        let mut freezes = node.freezes.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = freezes
            .change(lane.namespace, freeze.prefix, !freeze.thaw)
            .map_err(|value| Refusal::Overloaded { limit: "frozen prefixes", value })?;
        if changed {
            // Before any shard is told, so that nobody is refused because of what a crash may undo.
            let (namespace, frozen, prefix) = (lane.namespace, !freeze.thaw, freeze.prefix);
            node.record(&Record::Frozen { namespace, frozen, prefix });
        }
        let verb = if freeze.thaw { "thaw" } else { "freeze" };
        let (prefix, by) = (Quoted(freeze.prefix), Quoted(&lane.owner));
        self.audit.push_back(format!("{verb} prefix={prefix} by={by} changed={changed}"));
        let frozen_count = freezes.count(lane.namespace);
        Ok(Question::Freeze { freezes: freezes.clone(), changed, frozen_count })
    }

    /// Asks this shard, whose turn is in hand, and answers if it is the last.
    pub(super) fn ask_shard(
        &mut self,
        node: &Node,
        turn: &mut ShardTurn<'_>,
        shard: u16,
        everywhere: &Everywhere,
    ) {
        match &everywhere.question {
            Question::Freeze { freezes, .. } => turn.shard.set_freezes(freezes),
            Question::Namespaces { counters, .. } => {
                let mut sum = counters.lock().unwrap_or_else(PoisonError::into_inner);
                let own = turn.shard.namespace_counters();
                if sum.len() < own.len() {
                    sum.resize(own.len(), NamespaceCounters::default());
                }
                if !planted!(ShardIsNotCounted) || shard > 0 {
                    sum.iter_mut().zip(&own).for_each(|(sum, own)| sum.add(own));
                }
            }
        }
        // AcqRel: whoever is last sees what all others counted.
        if everywhere.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let stamp = turn.shard.now();
        let mut outbox = self.outbox(node, shard, stamp);
        match &everywhere.question {
            Question::Freeze { changed, frozen_count, .. } => {
                let answer = Answer::Frozen { changed: *changed, frozen_count: *frozen_count };
                if node.log.is_some() {
                    outbox.when_durable(WhenDurable::Answer(everywhere.ticket, answer));
                } else {
                    outbox.answer(everywhere.ticket, answer);
                }
            }
            Question::Namespaces { from, count_max, counters } => {
                let counters = counters.lock().unwrap_or_else(PoisonError::into_inner);
                answer_namespaces(node, everywhere.ticket, *from, *count_max, &counters, &mut outbox);
            }
        }
    }
}

fn answer_namespaces(
    node: &Node,
    ticket: Ticket,
    from: u64,
    count_max: usize,
    counters: &[NamespaceCounters],
    outbox: &mut Outbox<'_>,
) {
    let namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
    let all = namespaces.by_number();
    // A cursor is the number of the next namespace, so pages fit together although namespaces come and go.
    let start = all.partition_point(|(number, ..)| u64::from(*number) < from);
    let mut bytes = 0;
    let mut listed = Vec::new();
    for (number, name, kind) in all.iter().skip(start).take(count_max) {
        let own = counters.get(usize::from(*number)).copied().unwrap_or_default();
        listed.push(wire::ListedNamespace {
            name,
            kind: *kind,
            held: own.held,
            waiting: own.waiting,
            timeouts: own.timeouts,
            expired: own.expired,
            revoked: own.revoked,
        });
        bytes += 48 + name.len();
        if bytes >= LIST_PAGE_BYTES_MAX {
            break;
        }
    }
    let next = all.get(start + listed.len()).map_or(0, |(number, ..)| u64::from(*number));
    let mut frame = Vec::new();
    wire::NamespacesListed { next, namespaces: listed }.encode(ticket.number, &mut frame);
    outbox.answer_frame(ticket, frame);
}
