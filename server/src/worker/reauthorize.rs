//! Connections that were let in earlier, after the policy of the server has changed or an identity has expired.

use super::State;
use super::lane::ConnectionKey;
use crate::limits::REAUTHORIZED_PER_LOOK_MAX;
use crate::mail::LaneChange;
use crate::node::Node;
use std::sync::PoisonError;
use waymaker_protocol::ErrorCode;

impl State {
    /// Looks at some connections with an identity: one that no longer holds ends its connection, and others get the rights that the policy
    /// gives them now. Each call goes on where the one before stopped.
    pub(super) fn reauthorize(&mut self, node: &Node) {
        let version = node.access.version();
        if version != self.access_version {
            self.access_version = version;
            // Those before the place where this worker stands have their turn again.
            self.reauthorized_from = 0;
            self.reauthorizes = true;
        }
        let (policy, now_unix_s) = (node.access.policy(), node.unix_seconds());
        let (from, end) = (self.reauthorized_from, self.lanes.slot_count());
        let to = end.min(from.saturating_add(REAUTHORIZED_PER_LOOK_MAX));
        for slot in from..to {
            let lane = &self.lanes[slot];
            let (key, Some(identity)) = (lane.key(), lane.identity()) else { continue };
            if key.epoch == 0 {
                continue;
            }
            if !policy.is_current(identity, now_unix_s) {
                node.access.note_expired();
                let message = "the identity of the client has expired or was revoked";
                self.refuse_connection(key, 0, ErrorCode::Unauthorized, 0, "credentials", message);
            } else if self.reauthorizes {
                self.renew_access(node, key);
            }
        }
        self.reauthorized_from = to;
        if to == end {
            (self.reauthorized_from, self.reauthorizes) = (0, false);
        }
    }

    fn renew_access(&mut self, node: &Node, key: ConnectionKey) {
        let lane = &self.lanes[key.slot];
        let access = {
            let namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(name) = namespaces.name_of(lane.namespace) else { return };
            node.access.policy().access(lane.identity(), name, lane.kind)
        };
        if lane.access == access {
            return;
        }
        let (address, known_to) = (lane.address, lane.known_to.clone());
        self.lanes[key.slot].set_access(access.clone());
        self.change_lane(node, address, &known_to, &LaneChange::Access(access));
    }
}
