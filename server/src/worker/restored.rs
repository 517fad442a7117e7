//! Sessions of an earlier server. The log contains them because they hold something.

use super::State;
use super::answer::{Context, put_answer};
use super::lane::NO_NAMESPACE;
use super::window::{NOBODY, Window};
use crate::limits::LANES_PER_SESSION_MAX;
use crate::mail::ConnectionKey;
use crate::namespaces::NamespaceUse;
use crate::node::{Node, RestoredLane};
use crate::worker::sessions::SessionSlot;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use waymaker_engine::{Answer, Grant, LaneSlot};
use waymaker_protocol::Hello;

/// Returns the first number for lanes (connections) that clients newly add to restored sessions. The log contains only
/// lanes that held something. A client may still resume another lane of its session under its old number, so no new
/// lane should get that number. A session numbers its first lanes from 0, below `LANES_PER_SESSION_MAX`, so the result
/// is at least that. The result also depends on the random id of the server, so numbers that an earlier server gave to
/// newly added lanes rarely occur again.
fn first_joining_lane(node: &Node) -> u16 {
    let block_count = u64::from(u16::MAX) / LANES_PER_SESSION_MAX as u64;
    (1 + node.server_id % block_count) as u16 * LANES_PER_SESSION_MAX as u16
}

/// Subtracts the time since the restore of holds from the remaining times in an answer. Leases without an end stay so.
fn shorten(answer: &mut Answer, elapsed_ms: u64) {
    let elapsed_ms = u32::try_from(elapsed_ms).unwrap_or(u32::MAX);
    let shorten = |grant: &mut Grant| {
        let is_endless = grant.remaining_ms == u32::MAX;
        grant.remaining_ms = grant.remaining_ms.saturating_sub(if is_endless { 0 } else { elapsed_ms });
    };
    match answer {
        Answer::Granted(grant) => shorten(grant),
        Answer::GrantedMultiKey(grants) => grants.iter_mut().map(|key| &mut key.grant).for_each(shorten),
        _ => {}
    }
}

impl State {
    /// Restores the sessions of this worker. Their lanes must get the slots that the shards know, so this runs before
    /// any other lane is opened.
    pub(super) fn restore_sessions(&mut self, node: &Node) {
        for restored in node.restored.take_sessions(self.index) {
            let slots: BTreeMap<u16, LaneSlot> =
                restored.lanes.keys().map(|number| (*number, self.lanes.open(b"", self.now).slot)).collect();
            let next_lane = first_joining_lane(node);
            let session = self.sessions.restore(
                restored.id,
                restored.lease_ms,
                restored.identity,
                slots.clone(),
                next_lane,
                self.now,
            );
            for (slot, (number, lane)) in slots.into_values().zip(restored.lanes) {
                self.restore_lane(node, slot, session, number, lane);
            }
            self.note_left(session);
        }
    }

    /// If the server has a log, makes this worker visit its own shards at once, because no worker has a timer for the
    /// end of restored leases.
    pub(super) fn arm_restored(&mut self, node: &Node) {
        let worker_count = node.worker_count();
        let own = (0..node.shards.len()).filter(|shard| shard % worker_count == usize::from(self.index));
        if node.log.is_some() {
            own.for_each(|shard| self.timers.arm(shard as u16, self.now, self.now));
        }
    }

    fn restore_lane(
        &mut self,
        node: &Node,
        slot: LaneSlot,
        session: SessionSlot,
        number: u16,
        restored: Option<RestoredLane>,
    ) {
        let (lease_ms, answers) = match self.sessions.get(session) {
            Some(session) => (session.lease_ms, session.answers.clone()),
            None => Default::default(),
        };
        let session_end = self.now.after_ms(u64::from(lease_ms));
        let session_tag = self.sessions.tag(session, number);
        let (stamp, shard_count) = (self.now, node.shards.len() as u16);
        let lane = &mut self.lanes[slot];
        lane.epoch = 0;
        lane.expectation = super::expectation::Expectation::Nothing;
        lane.session = Some(session);
        lane.session_tag = session_tag;
        lane.session_end = session_end;
        lane.number = number;
        lane.is_restored = true;
        lane.namespace = NO_NAMESPACE;
        let mut window = Box::new(Window::new(answers));
        if let Some(restored) = restored {
            lane.namespace = restored.namespace;
            let namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            lane.namespace_use = namespaces.use_of(restored.namespace);
            lane.kind = restored.kind;
            lane.set_access(None, node.traces.is_on());
            lane.namespace_shard = restored.namespace_shard;
            lane.known_to = restored.known_to;
            let elapsed_ms = stamp.ms_since(node.restored.stamp);
            let context = Context { stamp, shard: 0, shard_count, session_end };
            // If records were lost, no grant is repeated: a lost record may have ended the hold and granted its key to
            // another client.
            let answers = if node.has_losses() { BTreeMap::new() } else { restored.answers };
            for (number, mut answer) in answers {
                shorten(&mut answer, elapsed_ms);
                let mut frame = Vec::new();
                put_answer(&mut frame, number, &answer, context);
                window.begin(number, NOBODY);
                window.answer(number, &frame);
            }
        }
        lane.window = Some(window);
    }

    /// Adds a lane to a restored session if its client resumes a lane that the log does not contain, and if the session
    /// has room. The log has no hold of such a lane.
    pub(super) fn fill_restored(&mut self, node: &Node, session: SessionSlot, number: u16) {
        let is_known = self.sessions.get(session).is_none_or(|session| session.lanes.contains_key(&number));
        if is_known || !self.sessions.is_restored(session) {
            return;
        }
        let key = self.lanes.open(b"", self.now);
        if self.sessions.join_again(session, number, key.slot) {
            self.restore_lane(node, key.slot, session, number, None);
        } else {
            self.lanes.free(key.slot);
        }
    }

    /// Completes a restored lane that a client resumes. `HELLO` provides the owner; without one in `HELLO`, the owner
    /// is that of the connection. `HELLO` also provides the namespace and its kind if the log does not contain them.
    pub(super) fn introduce_restored(
        &mut self,
        node: &Node,
        key: ConnectionKey,
        slot: LaneSlot,
        namespace: &NamespaceUse,
        hello: &Hello<'_>,
    ) {
        if !self.lanes[slot].is_restored {
            return;
        }
        let peer = Arc::clone(&self.lanes[key.slot].owner);
        let lane = &mut self.lanes[slot];
        lane.owner = if hello.owner.is_empty() { peer } else { Arc::from(hello.owner) };
        if lane.namespace == NO_NAMESPACE {
            lane.namespace = namespace.number();
            lane.namespace_use = Some(namespace.clone());
            lane.kind = hello.kind;
            lane.namespace_shard = node.shard_of_key(hello.namespace);
        }
        lane.is_restored = lane.namespace != namespace.number();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::test_node::test_node;
    use waymaker_engine::Time;

    #[test]
    fn lanes_that_join_a_restored_session_get_new_numbers_after_each_start() {
        let mut node = test_node(1, Time::from_millis(1_000));
        let mut first_lane_at_start = |server_id| {
            Arc::get_mut(&mut node).expect("nobody else has it").server_id = server_id;
            usize::from(first_joining_lane(&node))
        };
        let (first, next) = (first_lane_at_start(0), first_lane_at_start(1));
        assert!(first >= LANES_PER_SESSION_MAX, "the first server gave away the numbers before it");
        assert!(
            next >= first + LANES_PER_SESSION_MAX,
            "the server before may have given away the numbers before it"
        );
    }
}
