//! Transactions between the server and the cluster. The auditor learns of counted fences and of failures.

use super::World;
use crate::cluster::NamedStep;

impl World {
    /// Sends a transaction from this start of the server. Returns the number of the transaction.
    pub(crate) fn ask_cluster(&mut self, start: u32, steps: Vec<NamedStep>) -> u64 {
        let (mut around, _, cluster) = self.surroundings();
        let (number, trouble_ms) = cluster.ask(&mut around, start, steps);
        trouble_ms.into_iter().for_each(|until_ms| self.auditor.note_trouble(until_ms));
        number
    }

    /// Applies a transaction that arrives at the cluster.
    pub(crate) fn apply(&mut self, transaction: u64) {
        let (mut around, _, cluster) = self.surroundings();
        let changes = cluster.carry_out(&mut around, transaction);
        if let Some(text) = changes.collision {
            self.auditor.accuse("fence-counted", || text);
        }
        for ((namespace, key), fence) in changes.counters {
            self.auditor.note_counted(namespace, key, fence);
        }
    }

    /// Begins an outage, except at the beginning of the run, and plans the next one.
    pub(crate) fn interrupt_cluster(&mut self) {
        let (mut around, _, cluster) = self.surroundings();
        let trouble_ms = cluster.interrupt(&mut around);
        trouble_ms.into_iter().for_each(|until_ms| self.auditor.note_trouble(until_ms));
    }
}
