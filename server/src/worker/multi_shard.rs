//! Multi-shard requests, which need the turns of several shards at once: multi-key claims, and throttles of several
//! buckets.
//!
//! The worker takes the turns in the order of the shards. If another worker holds one of them, this worker gives back
//! the turns it has. It then asks the holder to report when the turn is free. So no worker waits while it holds a
//! turn, and no worker spins.

use super::State;
use super::apply::{BatchClock, has_options, refuse, terms_of, throttle_of};
use super::lane::Stage;
use super::turns::ShardTurn;
use crate::limits::BATCH_COST_MAX;
use crate::mail::{Batch, LaneClosing, Mail};
use crate::node::Node;
use std::sync::Arc;
use waymaker_engine::multi_key::{self, AcquireMultiKey, MultiKeyClaim, Participant, RequestedKey};
use waymaker_engine::{
    Answer, CancelReason, ClaimId, Effects, LaneAddress, LaneIx, LaneSlot, Refusal, RequestedThrottle,
    ReservedEnd, ReservedMultiKey, Ticket, Time, throttle_all,
};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Frame, KeyItem, Request, next_frame};

/// Number of bytes of a multi-shard request that count as one key in its cost.
const BYTES_PER_KEY: usize = 16;

/// Work that a turn caused and that begins only after the turn is given back.
#[derive(Debug)]
pub(crate) enum FollowUp {
    /// Check again whether each key of this claim could now be granted. For one of its keys, nothing blocks the claim
    /// any more.
    Recheck(Arc<MultiKeyClaim>),
    /// Remove the remaining stubs of this claim, which has ended, from its shards. A stub is the waiter that stands for
    /// the claim at one key.
    Withdraw(Arc<MultiKeyClaim>),
    /// Note that a shard has closed this lane. Before that, remove the stubs (the waiters at single keys) of all
    /// multi-key claims that ended earlier.
    Closed(Arc<LaneClosing>),
    /// Report that the shard has checked namespaces that may be removed: whether each of them has content in this
    /// shard. The first field is the number of the removal, the second one lists the namespaces that are in use here.
    /// After the last shard, the namespaces that are in use nowhere may be removed.
    Looked(u64, Vec<u16>),
    /// Serve this frame of the lane again: the client repeated it, and the first attempt had no effect.
    AskAgain(LaneAddress, Box<[u8]>),
}

/// Work that needs the turns of several shards.
#[derive(Debug)]
pub(crate) struct MultiShard {
    /// Shards in ascending order, each once.
    shards: Box<[u16]>,
    task: Task,
}

#[derive(Debug)]
enum Task {
    /// A request of a lane of this worker, as a whole frame.
    Request { ticket: Ticket, frame: Box<[u8]> },
    /// Check whether each key of a waiting multi-key claim could now be granted, and grant all of them or none.
    Recheck(Arc<MultiKeyClaim>),
    /// End the reservation of all keys of a claim. The claim was granted, but becomes held only once the log or the
    /// cluster confirms it.
    End(ReservedEnd, Box<ReservedMultiKey>),
}

impl MultiShard {
    fn new(mut shards: Vec<u16>, task: Task) -> Self {
        shards.sort_unstable();
        shards.dedup();
        Self { shards: shards.into(), task }
    }

    /// Returns the cost of one try, in acquires of one key. A try takes the turn of each shard and looks at each key.
    fn cost(&self) -> usize {
        let key_count = match &self.task {
            Task::Request { frame, .. } => frame.len() / BYTES_PER_KEY,
            Task::Recheck(multi_key) => multi_key.key_count(),
            Task::End(_, multi_shard) => multi_shard.members.len(),
        };
        self.shards.len() + key_count
    }

    /// Returns the claim's id if this work is a recheck: a check whether all keys of a waiting multi-key claim can now
    /// be granted. Returns `None` for other work.
    pub(super) fn rechecked(&self) -> Option<ClaimId> {
        match &self.task {
            Task::Recheck(multi_key) => Some(multi_key.id()),
            Task::Request { .. } | Task::End(..) => None,
        }
    }

    /// Whether this work is the request with this ticket.
    pub(super) fn requested_by(&self, wanted: Ticket) -> bool {
        matches!(self.task, Task::Request { ticket, .. } if ticket == wanted)
    }
}

impl State {
    /// Serves a request for several keys or buckets, now or as soon as the worker gets all turns.
    pub(super) fn serve_multi_shard(&mut self, node: &Node, slot: LaneSlot, frame: Frame<'_>) {
        let ticket = Ticket { lane: self.lanes[slot].address, number: frame.number() };
        let shards: Vec<u16> = match Request::decode(frame) {
            Ok(Request::AcquireKeys(acquire)) => {
                acquire.items.iter().map(|item| node.shard_of_key(item.key)).collect()
            }
            Ok(Request::ThrottleAll(throttle)) => {
                throttle.buckets.iter().map(|bucket| node.shard_of_key(bucket.name)).collect()
            }
            Ok(_) => Vec::new(),
            Err(error) => {
                let mut outbox = self.outbox(node, 0, self.now);
                return refuse(&mut outbox, ticket, error.field(), error.limit(), error.to_string());
            }
        };
        let frame = frame.bytes().into();
        self.do_multi_shard(node, MultiShard::new(shards, Task::Request { ticket, frame }));
    }

    /// Gives up a request that still waits for its turns, and answers it and the CANCEL. Returns false, and does
    /// nothing, if there is no such request.
    pub(super) fn cancel_multi_shard(
        &mut self,
        node: &Node,
        slot: LaneSlot,
        number: u32,
        acquire_number: u32,
    ) -> bool {
        let lane = self.lanes[slot].address;
        let wanted = Ticket { lane, number: acquire_number };
        if !self.multi_shard.remove_request(wanted) {
            return false;
        }
        let mut outbox = self.outbox(node, 0, self.now);
        outbox.answer(Ticket { lane, number }, Answer::Cancelled { was_waiting: true });
        outbox.answer(wanted, Answer::Refused(Refusal::Cancelled(CancelReason::Asked)));
        true
    }

    /// Does the work in `follow_ups`, which the turns of this step left. Most of it needs the turns of other shards.
    /// The worker begins it after it has given its turns back, so that no worker waits for a turn while it has another.
    /// If the work costs too much, later steps of the worker do the rest.
    pub(super) fn follow_up(&mut self, node: &Node) {
        let (mut withdrawn_cost, mut rechecked_cost) = (0, 0);
        let mut closed = Vec::new();
        while let Some(follow_up) = self.follow_ups.pop() {
            match follow_up {
                FollowUp::Withdraw(multi_key)
                    if withdrawn_cost >= BATCH_COST_MAX || self.is_withdrawing() =>
                {
                    if !self.is_withdrawing() {
                        self.mail(node, self.index, Mail::Withdraw);
                    }
                    self.withdrawals.push(multi_key);
                }
                FollowUp::Withdraw(multi_key) => {
                    withdrawn_cost += multi_key.key_count();
                    self.withdraw(node, &multi_key);
                }
                FollowUp::Closed(closing) => closed.push(closing),
                FollowUp::Looked(removal, in_use) => self.end_namespaces(node, removal, &in_use),
                FollowUp::AskAgain(lane, frame) => self.serve_again(node, lane, &frame),
                FollowUp::Recheck(multi_key) => {
                    // A recheck of this claim (a check whether each of its keys could now be granted) is already queued
                    // in this worker. The recheck will see the present state of all keys, so no second one is needed.
                    if self.will_recheck(&multi_key) {
                        continue;
                    }
                    let shards = multi_key.shards().into();
                    let recheck = MultiShard { shards, task: Task::Recheck(multi_key) };
                    if rechecked_cost < BATCH_COST_MAX {
                        rechecked_cost += recheck.cost();
                        self.do_multi_shard(node, recheck);
                    } else {
                        self.multi_shard.push(recheck);
                        if self.multi_shard.try_all() {
                            self.mail(node, self.index, Mail::Untried);
                        }
                    }
                }
            }
        }
        for closing in closed {
            self.withdrawals.hold_back(closing);
        }
        self.note_withdrawn(node);
    }

    /// Whether stubs of ended multi-key claims are left to remove in later steps. A stub is the waiter that stands for
    /// a claim at one key.
    fn is_withdrawing(&self) -> bool {
        !self.withdrawals.is_empty()
    }

    /// Continues to remove the stubs of multi-key claims that have ended. A stub is the waiter that stands for a claim
    /// at one key. A lost connection may leave many of them.
    pub(super) fn go_on_withdrawing(&mut self, node: &Node) {
        let mut cost = 0;
        while cost < BATCH_COST_MAX
            && let Some(multi_key) = self.withdrawals.pop()
        {
            cost += multi_key.key_count();
            self.withdraw(node, &multi_key);
        }
        self.note_withdrawn(node);
        if self.is_withdrawing() {
            self.mail(node, self.index, Mail::Withdraw);
        }
    }

    /// Counts one more shard as done for each closed lane that waited until this worker had withdrawn earlier multi-key
    /// claims from their shards. After the last shard, the client of the lane learns of the end.
    fn note_withdrawn(&mut self, node: &Node) {
        while let Some(closing) = self.withdrawals.next_closed() {
            self.note_closed(node, &closing);
        }
    }

    fn withdraw(&mut self, node: &Node, multi_key: &Arc<MultiKeyClaim>) {
        for shard in multi_key.shards() {
            self.hand_over(node, *shard, Batch::Withdraw(Arc::clone(multi_key), self.reading()));
        }
    }

    /// Whether a check of this claim is queued: whether each of its keys could now be granted.
    pub(super) fn will_recheck(&self, multi_key: &MultiKeyClaim) -> bool {
        self.multi_shard.will_recheck(multi_key.id())
    }

    /// Begins to try all work again that needs the turns of several shards, because the turn of this shard was given
    /// back.
    pub(super) fn retry_multi_shard(&mut self, node: &Node, shard: u16) {
        self.knocked.retain(|knocked| *knocked != shard);
        self.multi_shard.try_all();
        self.try_multi_shard(node);
    }

    /// Tries again to take the turns for queued work that needs the turns of several shards. If the tries have cost too
    /// much, leaves the rest of the work to a later call (`Mail::Untried`). The connections of this worker have their
    /// turns before that call.
    pub(super) fn try_multi_shard(&mut self, node: &Node) {
        let mut cost = 0;
        while cost < BATCH_COST_MAX {
            let Some(multi_shard) = self.multi_shard.next_untried() else { return };
            cost += multi_shard.cost();
            self.do_multi_shard(node, multi_shard);
        }
        if self.multi_shard.has_untried() {
            self.mail(node, self.index, Mail::Untried);
        }
    }

    fn do_multi_shard(&mut self, node: &Node, multi_shard: MultiShard) {
        let mut turns = Vec::with_capacity(multi_shard.shards.len());
        let drained = node.drained();
        for shard in &multi_shard.shards {
            if let Some(mut turn) = node.shards[usize::from(*shard)].enter() {
                self.begin(node, &mut turn, *shard, drained);
                turns.push(turn);
                continue;
            }
            let entered = &multi_shard.shards[..turns.len()];
            self.leave_all(node, entered, turns);
            let shard = *shard;
            self.multi_shard.push(multi_shard);
            return self.knock(node, shard);
        }
        let MultiShard { shards, task } = multi_shard;
        match task {
            Task::Request { ticket, frame } => {
                if let Ok(Some(frame)) = next_frame(&frame, FRAME_LEN_MAX) {
                    self.request_multi_shard(node, ticket, frame, &shards, &mut turns);
                }
            }
            Task::Recheck(multi_key) => {
                let mut outbox = self.outbox(node, shards[0], time_of(&turns));
                multi_key::recheck(&mut participants(&mut turns, &[]), &multi_key, &mut outbox);
            }
            Task::End(end, multi_shard) => {
                let mut outbox = self.outbox(node, shards[0], time_of(&turns));
                multi_key::end_reservation(&mut participants(&mut turns, &[]), end, multi_shard, &mut outbox);
            }
        }
        self.leave_all(node, &shards, turns);
    }

    /// Ends the reservation of all keys of a claim: the claim becomes held, ends, or has an unknown outcome.
    pub(super) fn end_multi_shard(
        &mut self,
        node: &Node,
        end: ReservedEnd,
        multi_shard: Box<ReservedMultiKey>,
    ) {
        let shards = multi_shard.members.iter().map(|member| member.shard).collect();
        self.do_multi_shard(node, MultiShard::new(shards, Task::End(end, multi_shard)));
    }

    fn leave_all(&mut self, node: &Node, shards: &[u16], turns: Vec<ShardTurn<'_>>) {
        for (shard, turn) in shards.iter().zip(turns) {
            self.leave(node, turn, *shard);
        }
    }

    /// Asks the worker that holds the turn of this shard to report when the turn is free. Does nothing if this worker
    /// has asked already.
    fn knock(&mut self, node: &Node, shard: u16) {
        if !self.knocked.contains(&shard) {
            self.knocked.push(shard);
            self.hand_over(node, shard, Batch::Knock(self.index));
        }
    }

    fn request_multi_shard(
        &mut self,
        node: &Node,
        ticket: Ticket,
        frame: Frame<'_>,
        shards: &[u16],
        turns: &mut [ShardTurn<'_>],
    ) {
        let Some(lane) = self.lanes.at(ticket.lane) else { return self.followed.give_up(ticket) };
        let is_asked =
            lane.window.as_ref().is_none_or(|window| window.is_asked_by(ticket.number, lane.epoch));
        if lane.epoch == 0 || lane.stage != Stage::Open || !is_asked {
            // No connection of the client can receive the grant, so no hold begins. A repetition is a new request.
            lane.in_flight -= 1;
            if let Some(window) = &mut lane.window {
                window.forget(ticket.number);
            }
            return self.followed.give_up(ticket);
        }
        let (namespace, has_session) = (lane.namespace, lane.session.is_some());
        let lanes: Vec<LaneIx> = shards
            .iter()
            .zip(turns.iter_mut())
            .map(|(shard, turn)| self.sender(node, turn, *shard, ticket.lane.slot).lane)
            .collect();
        let clock = BatchClock::new(&*node.clock);
        let mut outbox = self.outbox(node, shards[0], time_of(turns));
        let mut participants = participants(turns, &lanes);
        match Request::decode(frame) {
            Ok(Request::AcquireKeys(acquire)) => {
                let Some(first) = participants.first() else { return };
                let (mut options, has_options) = (None, has_options(frame));
                let wanted = &acquire.terms;
                let terms = terms_of(first.shard, namespace, has_session, wanted, has_options, &mut options);
                let terms = match terms {
                    Ok(terms) => terms,
                    Err(refusal) => return outbox.answer(ticket, Answer::Refused(refusal)),
                };
                let keys = distinct_keys(node, acquire.items);
                let request = AcquireMultiKey { keys: &keys, terms };
                multi_key::acquire(&mut participants, ticket, namespace, &request, &mut outbox);
            }
            Ok(Request::ThrottleAll(throttle)) => {
                let throttles: Vec<_> = throttle
                    .buckets
                    .iter()
                    .map(|bucket| RequestedThrottle {
                        shard: node.shard_of_key(bucket.name),
                        throttle: throttle_of(&bucket, 0, throttle.refund),
                    })
                    .collect();
                throttle_all(&mut participants, ticket, namespace, clock.nanos(), &throttles, &mut outbox);
            }
            _ => refuse(&mut outbox, ticket, "opcode", 0, "unexpected request for several shards"),
        }
    }
}

/// Returns the common time of these turns, which is the latest of their times.
fn time_of(turns: &[ShardTurn<'_>]) -> Time {
    turns.iter().map(|turn| turn.shard.now()).max().unwrap_or_default()
}

/// Returns the shards of these turns, each with the number by which it knows the lane of the client that sent the
/// request. `lanes` has these numbers in the order of `turns`. The slice is empty if the work does not come from a
/// request; each number is then `NONE`.
fn participants<'a>(turns: &'a mut [ShardTurn<'_>], lanes: &[LaneIx]) -> Vec<Participant<'a>> {
    let lanes = lanes.iter().copied().chain(std::iter::repeat(LaneIx::NONE));
    turns.iter_mut().zip(lanes).map(|(turn, lane)| Participant { shard: &mut turn.shard, lane }).collect()
}

/// Returns the keys in bytewise order, each once. A key is exclusive if any item asks for it exclusively.
fn distinct_keys<'a>(node: &Node, items: impl IntoIterator<Item = KeyItem<'a>>) -> Vec<RequestedKey<'a>> {
    let key = |item: KeyItem<'a>| RequestedKey {
        key: item.key,
        shared: item.shared,
        shard: node.shard_of_key(item.key),
    };
    let mut keys: Vec<RequestedKey<'_>> = items.into_iter().map(key).collect();
    // Of equal keys the exclusive item sorts first, and `dedup` keeps the first.
    keys.sort_unstable_by_key(|key| (key.key, key.shared));
    keys.dedup_by_key(|key| key.key);
    keys
}

#[cfg(test)]
mod tests {
    use super::super::multi_shard_queue::MultiShardQueue;
    use super::*;

    fn ticket(number: u32) -> Ticket {
        Ticket { number, ..Ticket::default() }
    }

    #[test]
    fn a_cancelled_request_leaves_no_try_behind() {
        let mut queue = MultiShardQueue::default();
        for number in 0..3 {
            let task = Task::Request { ticket: ticket(number), frame: Box::default() };
            queue.push(MultiShard::new(vec![0], task));
        }
        assert!(queue.try_all());
        assert!(queue.remove_request(ticket(0)) && queue.remove_request(ticket(1)));
        assert!(queue.next_untried().is_some_and(|work| work.requested_by(ticket(2))));
        assert!(queue.next_untried().is_none() && !queue.has_untried());
        assert!(queue.try_all(), "nobody tries the work that comes next");
    }
}
