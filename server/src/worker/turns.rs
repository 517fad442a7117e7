//! Turns in the shards: taking them, serving batches in them, and giving them back.

use super::State;
use super::apply::BatchClock;
use super::cost::{cost_of_batch, cost_of_requests};
use super::lane::no_shard_lanes;
use super::multi_shard::FollowUp;
use super::serve::{FrameLocation, Sender, serve_batch};
use crate::limits::{BATCH_COST_MAX, SERVED_COST_MAX};
use crate::mail::{Batch, LaneChange, LaneClosing, LeftCost, Mail, RequestBatch};
use crate::metrics::Contended;
use crate::namespaces::{LOCKET_NAMESPACE, LOCKET_TYPES};
use crate::node::{HostedShard, Node};
use std::sync::Arc;
use waymaker_engine::{HandedOver, LaneAddress, LaneSlot, Pass, Time, Turn};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{next_frame, route};

pub(super) type ShardTurn<'a> = Turn<'a, HostedShard, Batch>;

impl State {
    /// Serves the batch in `self.batch`, whose frames lie in `bytes` and come from one lane of this worker.
    #[inline]
    pub(super) fn serve(&mut self, node: &Node, slot: LaneSlot, bytes: &[u8]) {
        let mut batch = std::mem::take(&mut self.batch);
        match batch.as_mut_slice() {
            [] => {}
            [one] => self.visit(node, slot, bytes, std::slice::from_mut(one)),
            many => self.serve_by_shard(node, slot, bytes, many),
        }
        batch.clear();
        self.batch = batch;
    }

    fn serve_by_shard(&mut self, node: &Node, slot: LaneSlot, bytes: &[u8], batch: &[FrameLocation]) {
        let mut sorted = std::mem::take(&mut self.sorted);
        self.sort_by_shard(node, batch, &mut sorted);
        // Serve the shards that are free first. A turn that another worker holds has probably become free when the
        // other shards have been served.
        let mut later: Vec<&mut [FrameLocation]> = Vec::new();
        let drained = node.drained();
        for group in sorted.chunk_by_mut(|a, b| a.shard == b.shard) {
            match node.shards[usize::from(group[0].shard)].enter() {
                Some(turn) => self.serve_group(node, turn, drained, slot, bytes, group),
                None => later.push(group),
            }
        }
        // Try the remaining shards once more. If another worker still holds the turn, `visit` leaves the requests for
        // that worker.
        for group in later {
            self.visit(node, slot, bytes, group);
        }
        self.sorted = sorted;
    }

    /// Sorts a batch by shard. Each worker begins at another shard, so workers with similar batches do not compete for
    /// the same turns all the time. This is a counting sort, so requests of one lane for one shard keep their order.
    #[inline]
    fn sort_by_shard(&mut self, node: &Node, batch: &[FrameLocation], sorted: &mut Vec<FrameLocation>) {
        let mask = node.shards.len() - 1;
        let first = usize::from(self.index) * 4;
        let rank = |located: &FrameLocation| usize::from(located.shard).wrapping_sub(first) & mask;
        let ends = &mut self.ends;
        ends.fill(0);
        for located in batch {
            ends[rank(located)] += 1;
        }
        let mut begin = 0;
        for end in ends.iter_mut() {
            begin += std::mem::replace(end, begin);
        }
        sorted.clear();
        sorted.resize(batch.len(), batch[0]);
        for located in batch {
            let place = &mut ends[rank(located)];
            sorted[*place] = *located;
            *place += 1;
        }
    }

    /// Serves requests for one shard. If another worker holds the turn, leaves them for that worker.
    #[inline]
    fn visit(&mut self, node: &Node, slot: LaneSlot, bytes: &[u8], group: &mut [FrameLocation]) {
        let shard = group[0].shard;
        let drained = node.drained();
        match node.shards[usize::from(shard)].enter() {
            Some(turn) => self.serve_group(node, turn, drained, slot, bytes, group),
            None => self.leave_requests(node, slot, bytes, group),
        }
    }

    #[inline(always)]
    fn serve_group(
        &mut self,
        node: &Node,
        mut turn: ShardTurn<'_>,
        drained: Time,
        slot: LaneSlot,
        bytes: &[u8],
        group: &mut [FrameLocation],
    ) {
        let shard = group[0].shard;
        self.begin(node, &mut turn, shard, drained);
        let sender = self.sender(node, &mut turn, shard, slot);
        let mut outbox = self.outbox(node, shard, turn.shard.now());
        let clock = BatchClock::new(&*node.clock);
        let served = serve_batch(&mut turn.shard, sender, bytes, group, &clock, &mut outbox);
        if served < group.len() {
            self.leave_rest(&mut turn, slot, bytes, &group[served..]);
        }
        self.leave(node, turn, shard);
    }

    /// Leaves the rest of a batch for later, because the requests in front of it have caused the maximum of events to
    /// watchers.
    #[cold]
    fn leave_rest(&mut self, turn: &mut ShardTurn<'_>, slot: LaneSlot, bytes: &[u8], rest: &[FrameLocation]) {
        let batch = self.batch_of(slot, copied_frames(bytes, rest), BATCH_COST_MAX);
        turn.left.push_back(Batch::Requests(batch));
    }

    /// Returns the lane in this slot as the sender of a batch, with the number by which the shard knows the lane.
    /// Before the first request of the lane in this shard, makes the lane known to the shard.
    #[inline]
    pub(super) fn sender(
        &mut self,
        node: &Node,
        turn: &mut ShardTurn<'_>,
        shard: u16,
        slot: LaneSlot,
    ) -> Sender {
        let lane = &mut self.lanes[slot];
        if lane.shard_lanes.is_empty() {
            lane.shard_lanes = no_shard_lanes(node.shards.len());
        }
        let mut number = lane.shard_lanes[usize::from(shard)];
        if number.is_none() {
            number = turn.shard.lane(lane.address, &lane.owner, lane.namespace);
            if let Some(session) = lane.session_tag {
                turn.shard.note_session(number, session);
            }
            turn.shard.note_access(number, lane.access.as_ref());
            lane.shard_lanes[usize::from(shard)] = number;
            lane.note_known_to(shard);
        }
        let has_session = lane.session.is_some();
        if has_session {
            turn.shard.note_session_end(number, lane.session_end);
        }
        let (address, namespace, kind) = (lane.address, lane.namespace, lane.kind);
        Sender { address, lane: number, namespace, kind, has_session }
    }

    #[cold]
    fn leave_requests(&mut self, node: &Node, slot: LaneSlot, bytes: &[u8], group: &[FrameLocation]) {
        let shard = group[0].shard;
        self.lanes[slot].note_known_to(shard);
        let frames = copied_frames(bytes, group);
        let cost = cost_of_requests(&frames, self.lanes[slot].kind);
        let batch = self.batch_of(slot, frames, cost);
        self.hand_over(node, shard, Batch::Requests(batch));
    }

    /// Makes a batch, to be served later, of these frames of a lane. Counts its cost for the lane.
    fn batch_of(&mut self, slot: LaneSlot, frames: Vec<u8>, cost: usize) -> RequestBatch {
        let lane = &mut self.lanes[slot];
        let counted = LeftCost::new(lane.left_cost.get_or_insert_default(), cost);
        RequestBatch {
            lane: lane.address,
            owner: lane.owner.clone(),
            access: lane.access.clone(),
            namespace: lane.namespace,
            kind: lane.kind,
            session: lane.session_tag,
            session_end: lane.session_end,
            at: self.reading(),
            cost,
            counted,
            frames,
        }
    }

    /// Serves the batch if this worker can take the shard's turn. Otherwise leaves it for the worker that holds the
    /// turn.
    pub(super) fn hand_over(&mut self, node: &Node, shard: u16, batch: Batch) {
        let drained = node.drained();
        if let HandedOver::Entered(mut turn, batch) = node.shards[usize::from(shard)].hand_over(batch) {
            self.begin(node, &mut turn, shard, drained);
            self.serve_left(node, &mut turn, shard, batch);
            self.leave(node, turn, shard);
        }
    }

    /// Begins a turn, and ends leases and waits that were due by `drained`, as many as the turn has steps for.
    ///
    /// The caller must read `drained` before it takes the turn. Other workers may have left requests for this shard
    /// that they read by `drained`. The previous holder of the turn served these requests before it gave the turn back.
    /// If `drained` comes from a `Batch::Expire` in the queue of the shard, the requests are in front of that batch. A
    /// later value of `drained` could cover a renewal that was left during the present turn and is not served yet. The
    /// lease would then end although it was renewed in time.
    #[inline]
    pub(super) fn begin(&mut self, node: &Node, turn: &mut ShardTurn<'_>, shard: u16, drained: Time) {
        self.tell_states(node, turn, shard);
        if node.worker_count() > 1 || node.log.is_some() {
            // Earlier turns of this shard, by other workers, may have posted letters (answers and events) for lanes of
            // this worker. Deliver these first, so that they precede the answers of this turn. Do the same with answers
            // that waited for the log and are now durable.
            self.read_letters(node);
        }
        let now = self.reading();
        let mut outbox = self.outbox(node, shard, now.time.max(turn.shard.now()));
        turn.shard.begin_turn(now, drained, &mut outbox);
        if !turn.closings.is_empty() {
            self.note_settled(node, turn);
        }
    }

    /// Counts this shard as one that has closed the lane. After the last shard, the client of the lane learns of the
    /// end. If ended multi-key claims still have waiters in other shards, the worker first removes these waiters, and
    /// counts the shard after that.
    fn note_closed_in_turn(&mut self, node: &Node, closing: Arc<LaneClosing>) {
        if self.follow_ups.is_empty() && self.withdrawals.is_empty() {
            self.note_closed(node, &closing);
        } else {
            self.follow_ups.push(FollowUp::Closed(closing));
        }
    }

    /// Takes lanes out of `closings`, the lanes that the shard is still closing. For these lanes, the shard has now
    /// ended all claims that must end with the lane. Counts the shard as one that has closed them.
    #[cold]
    fn note_settled(&mut self, node: &Node, turn: &mut ShardTurn<'_>) {
        let HostedShard { shard, closings, .. } = &mut **turn;
        let settled: Vec<_> = closings.extract_if(.., |(lane, _)| shard.is_settled(*lane)).collect();
        for (_, closing) in settled {
            self.note_closed_in_turn(node, closing);
        }
    }

    /// Tells the shard whether memory is full and whether the server is stopping. With a log, also tells the state of
    /// the log and the last durable record of the shard. With a cluster, also tells the state of the cluster. All come
    /// from `node`.
    #[inline]
    fn tell_states(&self, node: &Node, turn: &mut ShardTurn<'_>, shard: u16) {
        if node.memory.is_full() != turn.shard.is_memory_full() {
            turn.shard.set_full_memory(node.memory.full());
        }
        if node.is_stopping() && !turn.shard.is_stopping() {
            // Stop the shard here, without waiting for `Mail::Stop`. Once clients know of the stop, every shard must
            // refuse their new claims.
            turn.shard.stop();
        }
        if let Some(log) = &node.log {
            let status = log.status();
            turn.shard.set_log_state(status.state(self.now), status.durable(shard));
        }
        if let Some(quorum) = &node.quorum {
            turn.shard.set_quorum_state(quorum.status().state());
        }
    }

    /// Gives a turn back. Before that, serves all batches that were left during the turn, and arms a timer for the next
    /// deadline. If the batches cost too much, passes the turn on to the next worker instead.
    #[inline]
    pub(super) fn leave(&mut self, node: &Node, mut turn: ShardTurn<'_>, shard: u16) {
        let mut served_cost = 0;
        loop {
            let deadline = turn.shard.next_deadline();
            if deadline < turn.armed {
                turn.armed = deadline;
                self.timers.arm(shard, deadline, turn.shard.next_end());
            }
            // Post while the turn is held, so that answers and events of the shard reach other workers in the order of
            // its changes.
            self.post(node);
            if served_cost >= SERVED_COST_MAX {
                if !self.finishing {
                    // While this worker serves batches of other workers, its own connections wait. So it passes the
                    // turn on to the next worker.
                    let next = (usize::from(self.index) + 1) % node.worker_count();
                    return self.mail(node, next as u16, Mail::Turn { shard, pass: turn.pass_on() });
                }
                // The server ends, and this worker is closing its connections, so none of them waits long. The next
                // worker may have ended already and would not continue the turn. So this worker keeps the turn, serves
                // all batches that are left, and then gives it back.
                served_cost = 0;
            }
            if !turn.left.is_empty() {
                self.serve_all_left(node, &mut turn, shard, &mut served_cost);
                continue;
            }
            // A worker that needs several turns and finds this one held leaves a `Batch::Knock`, to ask for the mail
            // `Mail::Knocked` when the turn is free. So send the mail only after that. A worker that tried before would
            // find the turn held and knock again, and its knock would keep the turn held.
            let knocks = std::mem::take(&mut turn.knocks);
            match turn.leave() {
                None => {
                    for worker in knocks {
                        self.mail(node, worker, Mail::Knocked { shard });
                    }
                    return;
                }
                Some((again, batches)) => {
                    turn = again;
                    turn.knocks = knocks;
                    turn.left.extend(batches);
                }
            }
        }
    }

    /// Serves batches that were left for this turn, until none is left or their cost reaches the maximum.
    fn serve_all_left(&mut self, node: &Node, turn: &mut ShardTurn<'_>, shard: u16, served_cost: &mut usize) {
        while *served_cost < SERVED_COST_MAX
            && let Some(batch) = turn.left.pop_front()
        {
            *served_cost += cost_of_batch(&batch);
            self.serve_left(node, turn, shard, batch);
        }
    }

    /// Continues a turn that another worker passed on.
    pub(super) fn take_turn(&mut self, node: &Node, shard: u16, pass: Pass) {
        let mut turn = node.shards[usize::from(shard)].resume(pass);
        // Tell the shard again whether memory is full, whether the server is stopping, and the states of log and
        // cluster. `begin` did so only once, at the beginning of this turn. Since then, workers may have passed the
        // turn to each other for a long time.
        self.tell_states(node, &mut turn, shard);
        self.read_letters(node);
        self.leave(node, turn, shard);
    }

    /// Serves a batch that this or another worker handed over to the shard.
    fn serve_left(&mut self, node: &Node, turn: &mut ShardTurn<'_>, shard: u16, batch: Batch) {
        match batch {
            Batch::Requests(batch) => self.serve_requests(node, turn, shard, batch),
            Batch::Lane(lane, change, at) => {
                turn.shard.advance(at);
                let mut outbox = self.outbox(node, shard, turn.shard.now());
                match change {
                    LaneChange::Detached => turn.shard.detach_lane(lane, &mut outbox),
                    LaneChange::Attached => turn.shard.attach_lane(lane, &mut outbox),
                    LaneChange::Access(access) => turn.shard.change_access(lane, access.as_ref()),
                    LaneChange::Closed { session_ended, closing } => {
                        turn.shard.close_lane(lane, session_ended, &mut outbox);
                        match closing {
                            Some(closing) if turn.shard.is_settled(lane) => {
                                self.note_closed_in_turn(node, closing);
                            }
                            Some(closing) => turn.closings.push((lane, closing)),
                            None => {}
                        }
                    }
                }
            }
            Batch::Withdraw(multi_key, at) => {
                turn.shard.advance(at);
                let stamp = turn.shard.now();
                turn.shard.withdraw(&multi_key, &mut self.outbox(node, shard, stamp));
            }
            Batch::Knock(worker) => turn.knocks.push(worker),
            Batch::Broadcast(broadcast, at, counted) => {
                turn.shard.advance(at);
                self.ask_shard(node, turn, shard, &broadcast, counted);
            }
            Batch::Vacancy(vacancy) => self.look_for_claims(node, turn, vacancy),
            Batch::Forget(looking) => turn.shard.forget_namespaces(looking.removal, looking.namespaces),
            Batch::Stop => turn.shard.stop(),
            Batch::Reserved(end, reserved) => {
                let mut outbox = self.outbox(node, shard, turn.shard.now());
                for reserved in reserved {
                    turn.shard.end_reservation(end, reserved, &mut outbox);
                }
            }
            // Counts the claims that a stop of the server would lose. With a log, a clean stop keeps the holds, so only
            // the waiters count.
            Batch::Count if node.log.is_some() => node.note_claim_count(shard, turn.shard.waiting_count()),
            Batch::Count => node.note_claim_count(shard, turn.shard.claim_count()),
            Batch::Publish => {
                let locket =
                    node.find_namespace(LOCKET_NAMESPACE).map_or_else(Default::default, |(namespace, _)| {
                        LOCKET_TYPES.map(|name| turn.shard.registration_count(namespace, name.as_bytes()))
                    });
                let gauges = &node.metrics.shards[usize::from(shard)];
                gauges.publish(&turn.shard.state(), locket);
                let contended = turn.shard.contended_keys();
                gauges.publish_contended(Contended::of(contended, &node.namespaces));
            }
            Batch::Expire { drained } => {
                // The timer of this shard has fired, so `armed`, the time for which it is set, becomes `NEVER`. At the
                // end of the turn, `leave` sets the timer for the next deadline.
                turn.armed = Time::NEVER;
                self.begin(node, turn, shard, drained);
            }
        }
    }

    fn serve_requests(&mut self, node: &Node, turn: &mut ShardTurn<'_>, shard: u16, batch: RequestBatch) {
        turn.shard.advance(batch.at);
        let RequestBatch { namespace, kind, .. } = batch;
        let lane = turn.shard.lane(batch.lane, &batch.owner, namespace);
        turn.shard.note_access(lane, batch.access.as_ref());
        let has_session = batch.session.is_some();
        if let Some(session) = batch.session {
            turn.shard.note_session(lane, session);
            turn.shard.note_session_end(lane, batch.session_end);
        }
        let sender = Sender { address: batch.lane, lane, namespace, kind, has_session };
        let mut located = Vec::with_capacity(BATCH_COST_MAX);
        let mut offset = 0;
        while let Ok(Some(frame)) = next_frame(&batch.frames[offset..], FRAME_LEN_MAX) {
            located.push(FrameLocation::new(offset, frame, shard, &route(frame)));
            offset += frame.len();
        }
        let mut outbox = self.outbox(node, shard, turn.shard.now());
        let clock = BatchClock::new(&*node.clock);
        let served = serve_batch(&mut turn.shard, sender, &batch.frames, &mut located, &clock, &mut outbox);
        if served < located.len() {
            // Put the requests that were not served in front of all other batches, so that later requests of this lane
            // stay behind them.
            let frames = copied_frames(&batch.frames, &located[served..]);
            turn.left.push_front(Batch::Requests(RequestBatch { frames, cost: BATCH_COST_MAX, ..batch }));
        }
    }

    /// Reports a change of this lane to every shard that knows the lane.
    pub(super) fn change_lane(
        &mut self,
        node: &Node,
        address: LaneAddress,
        known_to: &[u16],
        change: &LaneChange,
    ) {
        for shard in known_to {
            self.hand_over(node, *shard, Batch::Lane(address, change.clone(), self.reading()));
        }
    }
}

/// Copies the frames of these requests, one after the other.
fn copied_frames(bytes: &[u8], group: &[FrameLocation]) -> Vec<u8> {
    let frame =
        |located: &FrameLocation| &bytes[located.offset as usize..(located.offset + located.len) as usize];
    group.iter().flat_map(frame).copied().collect()
}
