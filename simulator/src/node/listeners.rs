//! Checks for the streams of front ends: each stream learns of the end of its holds and of its lane, and no
//! hold stays without a listener.

use super::thread::{Inner, ServedConnection};
use super::{InspectionAnswer, Server, leave};
use crate::event::Event;
use crate::world::World;
use std::sync::Arc;
use waymaker_engine::{Answer, Caller, ClaimId, HeldLock, LaneAddress, LaneIx, PageBounds, Ticket};
use waymaker_protocol::LockId;
use waymaker_server::node::Node;

/// Longest time for which a stream may miss the end of a hold: its client takes nothing for a while, and then
/// housekeeping runs.
const UNAWARE_US: u64 = 1_500_000;

impl Server {
    /// Reports a violation if a stream does not get the event that its hold has ended. With a log the event may
    /// wait for the disk.
    pub(super) fn judge_streams(&mut self, world: &mut World, thread: usize) {
        if world.settings.log().is_some() {
            return;
        }
        let Self { node, threads, .. } = self;
        for (connection, served) in
            threads.get_mut(thread).into_iter().flat_map(|thread| &mut thread.connections)
        {
            let ServedConnection { inner: Inner::Front(front), .. } = served else { continue };
            let Some((namespace, _)) = node.0.find_namespace(front.namespace()) else { continue };
            let is_over = |id| is_over(&node.0, namespace, id);
            if let Some((since_us, number)) = front.find_unaware(world.now_us, is_over)
                && world.now_us > world.auditor.latest_us(since_us) + UNAWARE_US
            {
                let connection = *connection;
                return world.auditor.accuse("listener", || {
                    format!("stream {number} of connection {connection} has a hold that ended at {since_us} us, but was not notified of the end")
                });
            }
        }
    }

    /// Reports a violation if a front end keeps a hold whose grant no stream received, after a request was given
    /// up. With a log the response that grants the hold may wait for the disk.
    pub(super) fn judge_unknown(&mut self, world: &mut World, connection: usize) {
        let Self { node, threads, .. } = self;
        for thread in threads {
            let Some(served) = thread.connections.get_mut(&connection) else { continue };
            let Inner::Front(front) = &mut served.inner else { continue };
            let Some(given_up_us) = *front.given_up_us() else { continue };
            // Four steps may follow: the request is served, its response arrives, and the hold is released.
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
                    format!("connection {connection} has a hold whose grant no stream received: {lock:?}")
                });
            }
        }
    }

    /// Reports a violation if a worker still counts requests of a connection against a limit although all
    /// requests are answered.
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
                        format!("connection {connection} counts {counts:?} requests (in flight, waiting, abandoned), although all have responses")
                    });
                }
            }
        }
    }

    /// Reports a violation if a front end has holds after its clients have released all holds that they know
    /// of.
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
                // A client that repeats a request id knows its hold from an earlier request.
                let is_stranger = |lock: &&HeldLock| {
                    let is_left = world.now_us > until_us && !front.knows(id_of(lock));
                    lock.request_id.is_empty() && (lock.remaining_ms == u32::MAX || is_left)
                };
                if let Some(lock) = locks.iter().find(is_stranger) {
                    let text = format!(
                        "connection {connection} has a hold that no stream of the front end owns: {lock:?}"
                    );
                    return world.auditor.accuse("listener", || text);
                }
            }
        }
    }
}

/// Returns the holds of a lane, except those in shards whose turns are in transit.
fn holds_of(node: &Node, namespace: u16, lane: LaneAddress) -> Vec<HeldLock> {
    let mut holds = Vec::new();
    for cell in &node.shards {
        let Some(mut turn) = cell.enter() else { continue };
        let mut seen = InspectionAnswer::default();
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

/// Returns whether a claim has ended; false while the turn of its shard is in transit.
fn is_over(node: &Node, namespace: u16, LockId { place, secret }: LockId) -> bool {
    let id = ClaimId { place, secret };
    let Some(cell) = node.shards.get(usize::from(node.shard_of_claim(id))) else { return true };
    let Some(turn) = cell.enter() else { return false };
    let caller = Caller { lane: LaneIx::new(0), ticket: Ticket::default(), namespace };
    let mut seen = InspectionAnswer::default();
    turn.shard.status(&caller, id, None, &mut seen);
    leave(turn);
    !matches!(seen.0, Some(Answer::Status(_)))
}
