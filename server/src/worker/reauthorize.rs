//! Connections that were let in earlier, after the policy of the server has changed or an identity has expired.

use super::State;
use super::lane::{ConnectionKey, Stage};
use crate::limits::REAUTHORIZED_PER_STEP_MAX;
use crate::mail::{LaneChange, Mail};
use crate::node::Node;
use std::sync::{Arc, PoisonError};
use waymaker_engine::Access;
use waymaker_protocol::ErrorCode;

impl State {
    /// Looks at all connections, if the last look has ended: a few at once, and the others when the connections have had their turns.
    pub(super) fn begin_to_reauthorize(&mut self, node: &Node) {
        if self.reauthorized_from.is_none() {
            self.reauthorized_from = Some(0);
            self.reauthorize(node);
        }
    }

    /// Looks at the next connections. A client that lost its identity or a right loses its connection: its waiters, watches and
    /// requests in flight end, and it can connect again. Other clients get the rights that they have gained.
    pub(super) fn reauthorize(&mut self, node: &Node) {
        let Some(from) = self.reauthorized_from else { return };
        let (policy, now_unix_s) = (node.access.policy(), node.unix_seconds());
        let end = self.lanes.slot_count();
        let to = end.min(from.saturating_add(REAUTHORIZED_PER_STEP_MAX));
        for slot in from..to {
            let lane = &self.lanes[slot];
            let (key, Some(evidence)) = (lane.key(), &lane.client.evidence) else { continue };
            if key.epoch == 0 || lane.stage == Stage::Hello || lane.stage.is_over() {
                continue;
            }
            if !policy.still_knows(lane.identity(), evidence, now_unix_s) {
                node.access.note_expired();
                let message = "the identity of the client has expired or was revoked";
                self.end_unauthorized(key, "credentials", message);
                continue;
            }
            let access = {
                let namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
                let name = namespaces.name_of(lane.namespace).map(Box::<[u8]>::from);
                drop(namespaces);
                name.and_then(|name| policy.access(lane.identity(), &name, lane.kind))
            };
            self.renew_access(node, key, access);
        }
        if to == end {
            self.reauthorized_from = None;
        } else {
            self.reauthorized_from = Some(to);
            self.mail(node, self.index, Mail::Reauthorize);
        }
    }

    fn renew_access(&mut self, node: &Node, key: ConnectionKey, access: Option<Arc<Access>>) {
        let lane = &mut self.lanes[key.slot];
        if lane.access == access {
            return;
        }
        let has_lost = match (&lane.access, &access) {
            (Some(old), Some(new)) => !new.includes(old),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if has_lost {
            node.access.note_expired();
            return self.end_unauthorized(
                key,
                "rights",
                "the rights of the client have changed; connect again",
            );
        }
        lane.set_access(access.clone());
        let (address, known_to) = (lane.address, lane.known_to.clone());
        self.change_lane(node, address, &known_to, &LaneChange::Access(access));
    }

    fn end_unauthorized(&mut self, key: ConnectionKey, field: &str, message: &str) {
        self.refuse_connection(key, 0, ErrorCode::Unauthorized, 0, field, message);
    }
}
