//! Broadcasts: requests that every shard answers. The worker that serves the last shard sends the response.

use super::State;
use super::turns::ShardTurn;
use crate::access::no_right_in;
use crate::limits::{EVERYWHERE_IN_FLIGHT_MAX, HIDDEN_NAMESPACES_PER_PAGE_MAX};
use crate::mail::{Batch, Broadcast, CountedClaims, NamespacePage, Question};
use crate::node::Node;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_engine::limits::{FREEZE_COUNT_MAX, FREEZE_COUNT_OF_PREFIXES_MAX};
use waymaker_engine::{Answer, Effects, LaneSlot, NamespaceCounters, Refusal, Rights, Ticket, WhenDurable};
use waymaker_log::Record;
use waymaker_protocol as wire;
use waymaker_protocol::limits::{KEY_LEN_MAX, LIST_PAGE_BYTES_MAX, LIST_PAGE_MAX};
use waymaker_protocol::{ErrorCode, Frame, NamespaceKind, Request};

impl State {
    /// Returns whether the lane has fewer broadcasts in flight than the limit.
    pub(super) fn may_broadcast(&self, slot: LaneSlot) -> bool {
        let count = self.lanes[slot].everywhere_count.as_ref();
        count.is_none_or(|count| count.load(Ordering::Relaxed) < EVERYWHERE_IN_FLIGHT_MAX)
    }

    /// Serves a request that concerns all shards: refuses it, begins the removal of a namespace, or sends a broadcast
    /// to every shard.
    pub(super) fn serve_broadcast(&mut self, node: &Node, slot: LaneSlot, frame: Frame<'_>) {
        let ticket = Ticket { lane: self.lanes[slot].address, number: frame.number() };
        let question = match Request::decode(frame) {
            Ok(Request::RemoveNamespace(remove)) => {
                if let Some(message) = self.may_not_remove(node, slot, remove.name) {
                    self.lanes[slot].in_flight -= 1;
                    let (number, code) = (frame.number(), ErrorCode::Unauthorized);
                    self.refuse(slot, number, code, 0, "admin", &message);
                    return self.followed.acts.complete_newest(Some(remove.name.into()), None);
                }
                self.note_act(node, slot, frame);
                return self.remove_namespace(node, ticket, remove.name);
            }
            Ok(Request::Freeze(freeze)) => {
                self.note_act(node, slot, frame);
                self.freeze(node, slot, &freeze)
            }
            Ok(Request::Namespaces(page)) => {
                let count_max =
                    if page.count_max == 0 { LIST_PAGE_MAX } else { page.count_max.min(LIST_PAGE_MAX) };
                let policy = node.access.policy();
                let may_list = policy.allowing(self.lanes[slot].identity(), Rights::LIST);
                let page = page_of(node, page.cursor, usize::from(count_max), may_list);
                let sums = Mutex::new(vec![NamespaceCounters::default(); page.numbers.len()]);
                Ok(Question::Namespaces { page, sums })
            }
            Ok(_) => Err(Refusal::bad_input("opcode", 0, "unexpected request for all shards")),
            Err(error) => Err(Refusal::bad_input(error.field(), error.limit(), error.to_string())),
        };
        let question = match question {
            Ok(question) => question,
            Err(refusal) => {
                return self.outbox(node, 0, self.now).answer(ticket, Answer::Refused(refusal));
            }
        };
        let in_flight = Arc::clone(self.lanes[slot].everywhere_count.get_or_insert_default());
        in_flight.fetch_add(1, Ordering::Relaxed);
        let left = AtomicUsize::new(node.shards.len());
        let broadcast = Arc::new(Broadcast { left, in_flight, ticket, question });
        for shard in 0..node.shards.len() as u16 {
            self.hand_over(
                node,
                shard,
                Batch::Broadcast(Arc::clone(&broadcast), self.reading(), CountedClaims::default()),
            );
        }
    }

    /// Returns why a client may not remove a namespace, or `None` if it may. The text does not reveal whether the
    /// namespace exists.
    fn may_not_remove(&self, node: &Node, slot: LaneSlot, name: &[u8]) -> Option<String> {
        let identity = self.lanes[slot].identity()?;
        // The rights that apply to a whole namespace do not depend on its kind, so the lookup may use any kind.
        let access = node.access.policy().access(Some(identity), name, NamespaceKind::Flat)?;
        let may_remove = access.everywhere().contains(Rights::ADMIN);
        (!may_remove).then(|| no_right_in(&identity.name, Rights::ADMIN, name))
    }

    fn freeze(
        &mut self,
        node: &Node,
        slot: LaneSlot,
        freeze: &wire::Freeze<'_>,
    ) -> Result<Question, Refusal> {
        let lane = &self.lanes[slot];
        if lane.kind == NamespaceKind::Tree && !freeze.prefix.is_empty() {
            let message = "must be empty: a tree namespace can only be frozen as a whole";
            return Err(Refusal::bad_input("prefix", 0, message));
        }
        if freeze.prefix.len() > KEY_LEN_MAX {
            let message = "the prefix is too long; the maximum is 1024 bytes";
            return Err(Refusal::bad_input("prefix", KEY_LEN_MAX as u64, message));
        }
        lane.note_namespace_known();
        let mut freezes = node.freezes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_operator =
            lane.access.as_ref().is_none_or(|access| access.everywhere().contains(Rights::FREEZE));
        let count_max = if is_operator { FREEZE_COUNT_MAX } else { FREEZE_COUNT_OF_PREFIXES_MAX };
        let changed = freezes
            .change_within(count_max, lane.namespace, freeze.prefix, !freeze.thaw)
            .map_err(|value| Refusal::Overloaded { limit: "frozen prefixes", value })?;
        if changed {
            // The answer is sent once all records before it are durable. So record the freeze before any shard can
            // answer.
            let (namespace, frozen, prefix) = (lane.namespace, !freeze.thaw, freeze.prefix);
            node.record(&Record::Frozen { namespace, frozen, prefix });
        }
        let frozen_count = freezes.count(lane.namespace);
        Ok(Question::Freeze { freezes: freezes.clone(), changed, frozen_count })
    }

    /// Serves a broadcast, or a part of it, in this shard, whose turn is held. If this shard is the last one to finish,
    /// answers the request.
    pub(super) fn ask_shard(
        &mut self,
        node: &Node,
        turn: &mut ShardTurn<'_>,
        shard: u16,
        broadcast: &Arc<Broadcast>,
        mut counted: CountedClaims,
    ) {
        match &broadcast.question {
            Question::Freeze { freezes, .. } => turn.shard.set_freezes(freezes),
            Question::Namespaces { page, sums } => {
                let CountedClaims { next_lane, claim_counts } = &mut counted;
                claim_counts.resize(page.numbers.len(), 0);
                if let Some(lane) = turn.shard.count_claims_of_lanes(*next_lane, &page.numbers, claim_counts)
                {
                    *next_lane = lane;
                    // The response to this request contains the number of claims in each namespace of a page. To limit
                    // the time of the turn, the shard has counted the claims of only some lanes. Put the broadcast
                    // behind the batches that other workers have left in this shard, and count the other lanes then.
                    let again = Batch::Broadcast(Arc::clone(broadcast), turn.shard.reading(), counted);
                    return turn.left.push_back(again);
                }
                let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
                let counts = page.numbers.iter().zip(&*claim_counts);
                for (sum, (number, count)) in sums.iter_mut().zip(counts) {
                    sum.add(&turn.shard.namespace_counters(*number, *count));
                }
            }
        }
        // AcqRel: the worker that serves the last shard sees everything that the workers of the other shards added to
        // `sums`.
        if broadcast.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        // Lower the count of broadcasts in flight before the answer is sent. The client may send the next broadcast as
        // soon as it has the answer.
        broadcast.in_flight.fetch_sub(1, Ordering::Relaxed);
        let stamp = turn.shard.now();
        let mut outbox = self.outbox(node, shard, stamp);
        match &broadcast.question {
            Question::Freeze { changed, frozen_count, .. } => {
                let answer = Answer::Frozen { changed: *changed, frozen_count: *frozen_count };
                if node.log.is_some() {
                    outbox.when_durable(WhenDurable::Answer(broadcast.ticket, answer));
                } else {
                    outbox.answer(broadcast.ticket, answer);
                }
            }
            Question::Namespaces { page, sums } => {
                let sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
                let frame = page_frame(page, broadcast.ticket.number, &sums);
                outbox.answer_frame(broadcast.ticket, frame);
            }
        }
    }
}

/// Returns the page of namespaces from number `from` on that the client may list.
fn page_of(node: &Node, from: u64, count_max: usize, may_list: impl Fn(&[u8]) -> bool) -> NamespacePage {
    let namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
    let mut page = NamespacePage { numbers: Vec::new(), namespaces: Vec::new(), next: 0 };
    let (mut bytes, mut hidden_count) = (0, 0);
    // A cursor is the number of the next namespace, so pages fit together even if namespaces begin and end
    // meanwhile.
    for (number, name, kind) in namespaces.by_number(from) {
        if hidden_count >= HIDDEN_NAMESPACES_PER_PAGE_MAX {
            page.next = u64::from(number);
            break;
        }
        if !may_list(name) {
            hidden_count += 1;
            continue;
        }
        if page.numbers.len() >= count_max || bytes >= LIST_PAGE_BYTES_MAX {
            page.next = u64::from(number);
            break;
        }
        bytes += 48 + name.len();
        page.numbers.push(number);
        page.namespaces.push((name.into(), kind));
    }
    page
}

fn page_frame(page: &NamespacePage, number: u32, sums: &[NamespaceCounters]) -> Vec<u8> {
    let mut listed = Vec::with_capacity(sums.len());
    for ((name, kind), own) in page.namespaces.iter().zip(sums) {
        listed.push(wire::ListedNamespace {
            name,
            kind: *kind,
            held: own.held,
            waiting: own.waiting,
            timeouts: own.timeouts,
            expired: own.expired,
            revoked: own.revoked,
        });
    }
    let mut frame = Vec::new();
    wire::NamespacesListed { next: page.next, namespaces: listed }.encode(number, &mut frame);
    frame
}
