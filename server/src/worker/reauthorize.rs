//! Repeated authorization of open connections, after the policy of the server has changed or an identity has expired.

use super::State;
use super::lane::Stage;
use crate::limits::{COMPARED_PER_STEP_MAX, REAUTHORIZED_PER_STEP_MAX};
use crate::mail::{ConnectionKey, LaneChange, Mail};
use crate::node::Node;
use std::sync::{Arc, PoisonError};
use waymaker_engine::{Access, LaneSlot};
use waymaker_protocol::ErrorCode;

/// Progress of the check whether the identities and rights of all connections are still valid. Each step checks a few
/// connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Slot of the next lane.
    from: u32,
    /// Whether the policy has changed since the last check. Otherwise the rights of the connections are the same.
    has_new_policy: bool,
}

impl State {
    /// Begins to check all connections, unless a check is running: a few in this call, and the others after the
    /// connections have had their turns.
    pub(super) fn begin_to_reauthorize(&mut self, node: &Node) {
        if self.look.is_none() {
            let version = node.access.version();
            self.look = Some(Look { from: 0, has_new_policy: version != self.access_version });
            self.access_version = version;
            self.reauthorize(node);
        }
    }

    /// Continues the check of all connections: checks a limited number of them from the slot in `look` on. If some
    /// remain, a mail to this worker continues the check after the connections have had their turns. A client that lost
    /// its identity or a right loses its connection. Its waiters, watches and requests in flight then end, and it can
    /// connect again. Other clients get the rights that they have gained.
    pub(super) fn reauthorize(&mut self, node: &Node) {
        let Some(Look { from, has_new_policy }) = self.look else { return };
        let (policy, now_unix_s) = (node.access.policy(), node.unix_seconds());
        let end = self.lanes.slot_count();
        let to = end.min(from.saturating_add(REAUTHORIZED_PER_STEP_MAX));
        let (mut slot, mut compared) = (from, 0);
        while slot < to && compared < COMPARED_PER_STEP_MAX {
            slot += 1;
            let lane = &self.lanes[LaneSlot(slot - 1)];
            let (key, Some(evidence)) = (lane.key(), &lane.client.evidence) else { continue };
            if key.epoch == 0 || lane.stage == Stage::Hello || lane.stage.is_over() {
                continue;
            }
            // This check is also needed under the same policy: a token expires, and a front end may have identified
            // its client before the policy changed.
            if !policy.still_knows(lane.identity(), evidence, now_unix_s) {
                let message = "the identity of the client has expired or was revoked";
                self.end_unauthorized(node, key, "credentials", message);
                continue;
            }
            if !has_new_policy {
                continue;
            }
            let access = {
                let namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
                let name = namespaces.name_of(lane.namespace).map(Box::<[u8]>::from);
                drop(namespaces);
                name.and_then(|name| {
                    node.access.access(&policy, lane.identity(), Some(evidence), &name, lane.kind)
                })
            };
            let accesses = [&lane.access, &access].into_iter().flatten();
            compared += policy.quota_count() + accesses.map(|access| access.prefix_count()).sum::<usize>();
            self.renew_access(node, key, access);
        }
        if slot == end {
            self.look = None;
        } else {
            self.look = Some(Look { from: slot, has_new_policy });
            self.mail(node, self.index, Mail::Reauthorize);
        }
    }

    fn renew_access(&mut self, node: &Node, key: ConnectionKey, access: Option<Arc<Access>>) {
        let lane = &self.lanes[key.slot];
        let has_lost = match (&lane.access, &access) {
            (Some(old), Some(new)) => !new.includes(old),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if has_lost {
            return self.end_unauthorized(
                node,
                key,
                "rights",
                "the rights of the client have changed; connect again",
            );
        }
        self.change_access(node, key.slot, access);
    }

    /// Sets the rights of a lane's client. If they differ from the present rights, reports them to the shards that know
    /// the lane.
    pub(super) fn change_access(&mut self, node: &Node, slot: LaneSlot, access: Option<Arc<Access>>) {
        let lane = &mut self.lanes[slot];
        let is_same = lane.access == access;
        // Set the access even if the rights are the same. A restored lane may get its kind of namespace only from the
        // `HELLO` that resumes it, if the log did not contain it. The kind decides which opcodes need a check before
        // they are served, and `set_access` computes this in `lane.barriers`.
        lane.set_access(access.clone(), node.traces.is_on());
        if is_same {
            return;
        }
        let (address, known_to) = (lane.address, lane.known_to.clone());
        self.change_lane(node, address, &known_to, &LaneChange::Access(access));
    }

    fn end_unauthorized(&mut self, node: &Node, key: ConnectionKey, field: &'static str, message: &str) {
        self.refuse_connection(key, 0, ErrorCode::Unauthorized, 0, field, message);
        self.describe_denied(node, key.slot, None);
    }
}
