//! Streams of front ends: they hear of the ends of their holds and of their lanes, and no hold stays without a listener.

use super::thread::{Inner, Served};
use super::{Seen, Server, leave};
use crate::world::{Event, World};
use std::sync::Arc;
use waymaker_engine::{Answer, Caller, ClaimId, HeldLock, LaneAddress, PageBounds, Ticket};
use waymaker_protocol::LockId;
use waymaker_server::node::Node;

/// How long a stream may not have heard that a hold is over: its client takes nothing for a while, and housekeeping comes by.
const UNAWARE_US: u64 = 1_500_000;

impl Server {
    /// Accuses a worker if a stream does not hear that its hold is over. With a log the event may wait for the disk.
    pub(super) fn judge_streams(&mut self, world: &mut World, thread: usize) {
        if world.settings.log().is_some() {
            return;
        }
        let Self { node, threads, .. } = self;
        for (connection, served) in
            threads.get_mut(thread).into_iter().flat_map(|thread| &mut thread.connections)
        {
            let Served { inner: Inner::Front(front), .. } = served else { continue };
            let Some((namespace, _)) = node.0.find_namespace(front.namespace()) else { continue };
            let is_over = |id| is_over(&node.0, namespace, id);
            if let Some((since_us, number)) = front.find_unaware(world.now_us, is_over)
                && world.now_us > world.auditor.latest_us(since_us) + UNAWARE_US
            {
                let connection = *connection;
                return world.auditor.accuse("listener", || {
                    format!("stream {number} of connection {connection} has not heard since {since_us} us that a hold of it is over")
                });
            }
        }
    }

    /// Accuses a front end that keeps a hold of which no stream has heard, after a request was given up. With a log the answer that grants the
    /// hold may wait for the disk.
    pub(super) fn judge_unknown(&mut self, world: &mut World, connection: usize) {
        let Self { node, threads, .. } = self;
        for thread in threads {
            let Some(served) = thread.connections.get_mut(&connection) else { continue };
            let Inner::Front(front) = &mut served.inner else { continue };
            let Some(given_up_us) = *front.given_up_us() else { continue };
            // The request is served, its answer comes back, and the hold is released.
            let hops = std::iter::successors(Some(given_up_us), |us| Some(world.auditor.latest_us(*us)));
            let ended_us = hops.take(4).last().unwrap_or(given_up_us);
            if world.now_us <= ended_us {
                return world.at(ended_us + 1, Event::LookForStrangers(connection));
            }
            *front.given_up_us() = None;
            let link = &world.network.connections[connection];
            let Some((key, until_us)) = front.claims() else { continue };
            if world.settings.log().is_some()
                || link.cut_us.is_some()
                || link.client_done
                || world.now_us <= until_us
            {
                continue;
            }
            let Some(lane) = thread.worker.address(key) else { continue };
            let Some((namespace, _)) = node.0.find_namespace(front.namespace()) else { continue };
            let is_unknown = |lock: &HeldLock| {
                lock.request_id.is_empty() && !front.knows(id_of(lock)) && !front.awaits(&lock.key)
            };
            if let Some(lock) = holds_of(&node.0, namespace, lane).into_iter().find(is_unknown) {
                return world.auditor.accuse("listener", || {
                    format!("connection {connection} has a hold of which no stream has heard: {lock:?}")
                });
            }
        }
    }

    /// Accuses a worker that still counts requests of a connection when every request has its answer: what counts against a limit is given
    /// back.
    pub(crate) fn judge_counts(&self, world: &mut World) {
        for thread in &self.threads {
            for (key, counts) in thread.worker.open_counts() {
                let Some((_, connection)) =
                    thread.registered.get(&key.slot).filter(|(known, _)| *known == key)
                else {
                    continue;
                };
                let link = &world.network.connections[*connection];
                if link.cut_us.is_none() && !link.client_done {
                    return world.auditor.accuse("limit", || {
                        format!("connection {connection} has {counts:?} requests in flight, waiting and left, and all are answered")
                    });
                }
            }
        }
    }

    /// Accuses a front end that has holds when its clients have given back all they know of.
    pub(crate) fn judge_strangers(&self, world: &mut World) {
        for thread in &self.threads {
            for (connection, served) in &thread.connections {
                let link = &world.network.connections[*connection];
                let Inner::Front(front) = &served.inner else { continue };
                let Some((key, until_us)) = front.claims() else { continue };
                if link.cut_us.is_some() || link.client_done {
                    continue;
                }
                let Some(lane) = thread.worker.address(key) else { continue };
                let Some((namespace, _)) = self.node.0.find_namespace(front.namespace()) else { continue };
                let locks = holds_of(&self.node.0, namespace, lane);
                // Who asks again under a request id knows its hold from before.
                let is_stranger = |lock: &&HeldLock| {
                    let is_left = world.now_us > until_us && !front.knows(id_of(lock));
                    lock.request_id.is_empty() && (lock.remaining_ms == u32::MAX || is_left)
                };
                if let Some(lock) = locks.iter().find(is_stranger) {
                    let text = format!("connection {connection} has a hold without a listener: {lock:?}");
                    return world.auditor.accuse("listener", || text);
                }
            }
        }
    }
}

/// Returns the holds of a lane, apart from those in shards whose turns are on their way.
fn holds_of(node: &Node, namespace: u16, lane: LaneAddress) -> Vec<HeldLock> {
    let mut holds = Vec::new();
    for cell in &node.shards {
        let Some(mut turn) = cell.enter() else { continue };
        let mut seen = Seen::default();
        if turn.shard.has_claims(lane) {
            let lane = turn.shard.lane(lane, &Arc::from([]), namespace);
            let caller = Caller { lane, ticket: Ticket::default(), namespace };
            let page = PageBounds { count_max: 100, bytes_max: usize::MAX };
            turn.shard.holds(&caller, 0, &page, &mut seen);
        }
        leave(turn);
        if let Some(Answer::Listed(page)) = seen.0 {
            holds.extend(page.locks);
        }
    }
    holds
}

fn id_of(lock: &HeldLock) -> LockId {
    LockId { place: lock.id.place, secret: lock.id.secret }
}

/// Returns whether a claim is over; false while the turn of its shard is on its way.
fn is_over(node: &Node, namespace: u16, LockId { place, secret }: LockId) -> bool {
    let id = ClaimId { place, secret };
    let Some(cell) = node.shards.get(usize::from(node.shard_of_claim(id))) else { return true };
    let Some(turn) = cell.enter() else { return false };
    let caller = Caller { lane: 0, ticket: Ticket::default(), namespace };
    let mut seen = Seen::default();
    turn.shard.status(&caller, id, None, &mut seen);
    leave(turn);
    !matches!(seen.0, Some(Answer::Status(_)))
}
