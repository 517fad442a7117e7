//! Namespaces that nobody has used for a while end if they are empty.

use super::State;
use crate::limits::NAMESPACE_LOOK_MS;
use crate::mail::Batch;
use crate::node::Node;
use std::sync::PoisonError;

impl State {
    /// Looks now and then which namespaces are idle, and asks the shards whether they are empty. One worker does.
    pub(super) fn look_for_idle_namespaces(&mut self, node: &Node) {
        if self.index != 0 || self.now.ms_since(self.namespaces_looked_at) < NAMESPACE_LOOK_MS {
            return;
        }
        self.namespaces_looked_at = self.now;
        let looking = {
            let mut namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            // No lane can freeze anything in a namespace that nobody uses.
            let freezes = node.freezes.lock().unwrap_or_else(PoisonError::into_inner);
            let is_frozen = |number| freezes.count(number) > 0;
            namespaces.look(self.now, node.shards.len(), is_frozen, |change| node.record_namespace(change))
        };
        let Some(looking) = looking else { return };
        for shard in 0..node.shards.len() as u16 {
            self.hand_over(node, shard, Batch::Forget(looking.clone()));
        }
    }

    /// A shard has looked: the last one ends the namespaces that are empty.
    pub(super) fn end_namespaces(&mut self, node: &Node, removal: u64, in_use: &[u16]) {
        let removed = {
            let mut namespaces = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            namespaces.note_looked(removal, in_use, |change| node.record_namespace(change))
        };
        for number in removed {
            node.expiries.forget(number);
        }
    }
}
